"""Files of rollouts as tables of the index: whet's Parquet, verl's dumps, tables of W&B.

A row of the index has what lists and filters need, and the text. What a single rollout shows is
read from its file again (`detail.py`).
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, nan
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from whet.errors import DataError
from whet.store.files import read_json, stream_rows
from whet.store.rollouts import read_columns
from whet.types import Json, Verdict, content_id
from whet.viewer.run_folders import VERL_DUMP, WANDB_TABLE, ListedRun, Root

PARQUET = re.compile(r"([a-z]+)-(\d+)\.parquet")
EVAL_SETS = ("sampled", "greedy")
"""The files of an evaluation by their numbers: two ways to answer, not two steps."""
MAX_CELL = 400
"""Characters of an answer or a note that the index holds."""
MAX_TABLE_BYTES = 256 << 20
"""A table of W&B is read whole, and a larger one is refused."""
_TEXT = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    {
        "set": _TEXT,
        "step": pa.int32(),
        "file": _TEXT,
        "row": pa.int32(),
        "group": _TEXT,
        "problem": _TEXT,
        "task": _TEXT,
        "level": pa.float32(),
        "question": _TEXT,
        "gold": _TEXT,
        "verdict": _TEXT,
        "reward": pa.float64(),
        "length": pa.int32(),
        "logprob": pa.float32(),
        "finish": _TEXT,
        "answer": _TEXT,
        "note": _TEXT,
        "parts": _TEXT,
        "text": pa.large_string(),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFile:
    """A rollout file; its size and time tell whether it has been read already."""

    name: str
    path: Path
    set: str
    step: int
    size: int
    changed: int

    @property
    def stamp(self) -> str:
        """Identify the content of the file by name, size and time."""
        return f"{self.name}:{self.size}:{self.changed}"


def find_rollout_files(root: Root, run: ListedRun) -> list[RolloutFile]:
    """List a run's rollout files in the order of their steps."""
    folder = run.folder / "rollouts" if run.origin == "whet" else run.folder
    sources = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        place = _place(run, path.name)
        if place is None:
            continue
        try:
            facts = root.open_path(path).stat()
        except (OSError, DataError):
            continue
        sources.append(
            RolloutFile(
                name=path.name,
                path=path,
                set=place[0],
                step=place[1],
                size=facts.st_size,
                changed=facts.st_mtime_ns,
            )
        )
    return sorted(sources, key=lambda source: (source.set, source.step, source.name))


def _place(run: ListedRun, name: str) -> tuple[str, int] | None:
    """Read the set and step of a file from its name; None if it holds no rollouts."""
    if run.origin == "whet":
        match = PARQUET.fullmatch(name)
        if match is None:
            return None
        number = int(match[2])
        is_eval = match[1] == "eval" and number < len(EVAL_SETS)
        return EVAL_SETS[number] if is_eval else match[1], number
    if run.origin == "verl" and VERL_DUMP.fullmatch(name):
        return "verl", int(name.removesuffix(".jsonl"))
    return ("wandb", 0) if run.origin == "wandb" and WANDB_TABLE.fullmatch(name) else None


def read_source(root: Root, source: RolloutFile) -> pa.Table:
    """Read a file into a table of the index."""
    path = root.open_path(source.path)
    if source.set == "verl":
        return _from_rows(source, [row for _, row in stream_rows(path)])
    if source.set == "wandb":
        return _from_rows(source, read_wandb_rows(path))
    return _from_parquet(source, read_columns(path))


def _from_parquet(source: RolloutFile, table: pa.Table) -> pa.Table:
    lengths = pc.list_value_length(table["tokens"]).to_numpy()
    problems = _Problems()
    codes = problems.read(table["problem"])
    columns = {
        "group": _encode(table["group"]),
        "problem": problems.column(codes, "id"),
        "task": problems.column(codes, "task"),
        "level": problems.levels(codes),
        "question": problems.column(codes, "question"),
        "gold": problems.column(codes, "answer"),
        "verdict": _encode(pc.fill_null(_decode(table["verdict"]), Verdict.UNSCORED.value)),
        "reward": pc.fill_null(table["reward"], nan),
        "length": pa.array(lengths.astype(np.int32), mask=lengths == 0),  # 0: was not sampled
        "logprob": pa.array(_mean_of_lists(table["logprobs"], lengths)),
        "finish": _encode(table["finish"]),
        "answer": _encode(_cut(table["answer"])),
        "note": _encode(_cut(table["note"])),
        "parts": _encode(table["parts"]),
        "text": table["text"].cast(pa.large_string()),
    }
    return _finish(source, columns, table.num_rows)


def _finish(source: RolloutFile, columns: Mapping[str, pa.Array], num_rows: int) -> pa.Table:
    zeros = pa.array(np.zeros(num_rows, dtype=np.int32))
    given = {
        "set": pa.DictionaryArray.from_arrays(zeros, pa.array([source.set])),
        "step": pa.array(np.full(num_rows, source.step, dtype=np.int32)),
        "file": pa.DictionaryArray.from_arrays(zeros, pa.array([source.name])),
        "row": pa.array(np.arange(num_rows, dtype=np.int32)),
        **columns,
    }
    return pa.table({name: given[name] for name in SCHEMA.names}).cast(SCHEMA)


@dataclass(slots=True, kw_only=True)
class _Problems:
    """The distinct problems of a file, each parsed once."""

    rows: list[dict[str, Json]] = field(default_factory=list)

    def read(self, column: pa.ChunkedArray) -> NDArray[np.int32]:
        encoded = _encode(column)
        self.rows = [_parse_object(text) for text in encoded.dictionary.to_pylist()]
        codes: NDArray[np.int32] = encoded.indices.to_numpy(zero_copy_only=False)
        return codes

    def column(self, codes: NDArray[np.int32], name: str) -> pa.DictionaryArray:
        values = [
            _read_question(row) if name == "question" else _text_or_none(row.get(name))
            for row in self.rows
        ]
        return _take(values, codes)

    def levels(self, codes: NDArray[np.int32]) -> pa.Array:
        levels = [row.get("level") for row in self.rows]
        numbers = [v if isinstance(v, int | float) else nan for v in levels]
        return pa.array(np.array(numbers, dtype=np.float32)[codes])


def _take(values: Sequence[str | None], codes: NDArray[np.int32]) -> pa.DictionaryArray:
    """Spread distinct values over rows; equal ones share an entry of the dictionary."""
    return pa.array(values, pa.string()).take(pa.array(codes)).dictionary_encode()


def _read_question(row: Mapping[str, Json]) -> str:
    prompt = row.get("prompt")
    messages = [m for m in prompt if isinstance(m, dict)] if isinstance(prompt, list) else []
    asked = [m.get("content") for m in messages if m.get("role") == "user"]
    return str(asked[-1]) if asked else ""


def _text_or_none(value: Json) -> str | None:
    return None if value is None else str(value)


def _parse_object(text: str | None) -> dict[str, Json]:
    try:
        value: Json = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _decode(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _encode(column: pa.ChunkedArray) -> pa.DictionaryArray:
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    if not isinstance(encoded, pa.ChunkedArray):
        return encoded
    whole = encoded.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], _TEXT)
    return whole


def _cut(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.utf8_slice_codeunits(_decode(column), 0, MAX_CELL)


def _mean_of_lists(column: pa.ChunkedArray, lengths: NDArray[np.int64]) -> NDArray[np.float32]:
    """Average each list; the mean of an empty one is missing."""
    values = pc.list_flatten(column).to_numpy()
    ends = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    edges = np.concatenate([[0], np.cumsum(lengths)])
    sums = ends[edges[1:]] - ends[edges[:-1]]
    means = np.where(lengths > 0, sums / np.maximum(lengths, 1), nan)
    return means.astype(np.float32)


def read_wandb_rows(path: Path) -> Iterator[Mapping[str, Json]]:
    """Read a W&B table with one row per sample, or with several samples in a row, as verl writes.

    verl logs a row per validation, with input_1, output_1, score_1, input_2 and so on.
    """
    if path.stat().st_size > MAX_TABLE_BYTES:
        raise DataError(f"{path.name} is larger than the viewer reads")
    table = read_json(path)
    names = table.get("columns") if isinstance(table, dict) else None
    rows = table.get("data") if isinstance(table, dict) else None
    if not isinstance(names, list) or not isinstance(rows, list):
        raise DataError(f"{path.name} is not a W&B table: it has no columns and data")
    for values in rows:
        if not isinstance(values, list):
            continue
        row = {str(name): value for name, value in zip(names, values, strict=False)}
        numbers = sorted({int(m[1]) for name in row if (m := re.fullmatch(r"input_(\d+)", name))})
        if not numbers:
            yield row
        for number in numbers:
            names_of_sample = ("input", "output", "score", "gt", "label")
            cells = {name: row.get(f"{name}_{number}") for name in names_of_sample}
            yield {"step": row.get("step"), **cells}


_PROMPTS = ("input", "prompt", "question", "inputs")
_RESPONSES = ("output", "completion", "response", "outputs", "answer_text")
_SCORES = ("score", "reward", "rewards", "acc")
_GOLDS = ("gts", "gt", "ground_truth", "label", "answer", "reference")


def _first(row: Mapping[str, Json], names: Sequence[str]) -> Json:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _as_text(value: Json) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _as_number(value: Json) -> float:
    is_number = isinstance(value, int | float) and isfinite(value)
    return float(value) if is_number and isinstance(value, int | float) else nan


def _read_verdict(reward: float, row: Mapping[str, Json]) -> str:
    """Read the verdict from `acc`, or else from the sign of the score."""
    value = _as_number(row.get("acc"))
    value = reward if np.isnan(value) else value
    if np.isnan(value):
        return Verdict.UNSCORED.value
    return (Verdict.CORRECT if value > 0 else Verdict.WRONG).value


def foreign_parts(row: Mapping[str, Json]) -> dict[str, float]:
    """Return the other numbers of a row as parts of its score."""
    known = {*_PROMPTS, *_RESPONSES, *_GOLDS, "step", "score", "reward"}
    numbers = {name: _as_number(value) for name, value in row.items() if name not in known}
    return {name: value for name, value in numbers.items() if not np.isnan(value)}


def _from_rows(
    source: RolloutFile, rows: Sequence[Mapping[str, Json]] | Iterator[Mapping[str, Json]]
) -> pa.Table:
    samples = list(rows)
    questions = [_as_text(_first(row, _PROMPTS)) for row in samples]
    texts = [_as_text(_first(row, _RESPONSES)) for row in samples]
    rewards = [_as_number(_first(row, _SCORES)) for row in samples]
    steps = [_as_number(row.get("step")) for row in samples]
    problems = [content_id(source.set, question) for question in questions]
    at = [source.step if np.isnan(step) else int(step) for step in steps]

    def texts_of(make: Callable[[Mapping[str, Json]], str | None]) -> pa.Array:
        return pa.array([make(row) for row in samples], pa.string()).dictionary_encode()

    columns = {
        "step": pa.array(at, pa.int32()),
        "group": pa.array(
            [f"{step}:{name}" for step, name in zip(at, problems, strict=True)], pa.string()
        ).dictionary_encode(),
        "problem": pa.array(problems, pa.string()).dictionary_encode(),
        "task": texts_of(lambda row: _as_text(_first(row, ("data_source", "task"))) or source.set),
        "level": pa.array([nan] * len(samples), pa.float32()),
        "question": pa.array(questions, pa.string()).dictionary_encode(),
        "gold": texts_of(lambda row: _as_text(_first(row, _GOLDS)) or None),
        "verdict": pa.array(
            [_read_verdict(reward, row) for reward, row in zip(rewards, samples, strict=True)],
            pa.string(),
        ).dictionary_encode(),
        "reward": pa.array(rewards, pa.float64()),
        "length": pa.array([len(text.split()) for text in texts], pa.int32()),
        "logprob": pa.array([nan] * len(samples), pa.float32()),
        "finish": texts_of(lambda row: None),
        "answer": texts_of(
            lambda row: (
                _as_text(_first(row, ("pred", "extracted", "prediction")))[:MAX_CELL] or None
            )
        ),
        "note": texts_of(
            lambda row: _as_text(_first(row, ("note", "reason", "error")))[:MAX_CELL] or None
        ),
        "parts": texts_of(lambda row: json.dumps(foreign_parts(row))),
        "text": pa.array(texts, pa.large_string()),
    }
    return _finish(source, columns, len(samples))
