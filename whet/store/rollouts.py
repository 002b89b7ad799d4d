"""Rollouts in zstd Parquet: one row per rollout, tokens as lists, each problem stored once."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice, pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from whet.errors import DataError
from whet.store.files import atomic_path
from whet.types import (
    Author,
    Completion,
    FinishReason,
    Group,
    Json,
    JudgedStep,
    Problem,
    Rollout,
    Score,
    Verdict,
)

T = TypeVar("T")
Number = TypeVar("Number", bound=np.generic)
PLAIN_COLUMNS = ("id", "group", "model", "version", "text", "reward")
"""Columns whose cells are read as they are."""
BUFFERED_CHARS = 1 << 24
"""Characters of responses that a stream holds before it writes them."""


def write_rollouts(path: Path, groups: Iterable[Group]) -> None:
    """Write groups as one file, whole or not at all."""
    columns = _to_columns([rollout for group in groups for rollout in group])
    with atomic_path(path) as new:
        pq.write_table(pa.table(columns), new, compression="zstd")


@contextmanager
def stream_rollouts(path: Path) -> Iterator[Callable[[Sequence[Rollout]], None]]:
    """Yield a function that adds rollouts to a new file, without holding all of them.

    The file is written whole or not at all; without rollouts there is no file.
    """
    buffer: list[Rollout] = []
    num_chars = 0
    writers: list[pq.ParquetWriter] = []
    with ExitStack() as stack:

        def flush() -> None:
            nonlocal num_chars
            table = pa.table(_to_columns(buffer))
            if not writers:
                new = stack.enter_context(atomic_path(path))
                writer = pq.ParquetWriter(new, table.schema, compression="zstd")
                writers.append(stack.enter_context(writer))
            writers[0].write_table(table)
            buffer.clear()
            num_chars = 0

        def add(rollouts: Sequence[Rollout]) -> None:
            nonlocal num_chars
            buffer.extend(rollouts)
            num_chars += sum(len(rollout.text) for rollout in rollouts)
            if num_chars >= BUFFERED_CHARS:
                flush()

        yield add
        if buffer:
            flush()


def read_rollouts(path: Path, limit: int | None = None) -> list[Rollout]:
    """Read the first `limit` rollouts of a file, or all; equal problems become one object."""
    table = read_columns(path, limit)
    try:
        return parse_rollouts(table)
    except (KeyError, TypeError, ValueError, DataError) as error:
        raise DataError(
            f"{path} is not a rollout file ({error}); teach, eval and rl write such files, and "
            "`whet data import` makes them of responses"
        ) from error


def _to_columns(rollouts: Sequence[Rollout]) -> dict[str, pa.Array]:
    completions = [r.completion for r in rollouts]
    scores = [r.score for r in rollouts]
    texts: dict[int, str] = {}
    for rollout in rollouts:
        if id(rollout.problem) not in texts:
            texts[id(rollout.problem)] = json.dumps(rollout.problem.to_json(), ensure_ascii=False)
    return {
        "id": pa.array([r.id for r in rollouts], pa.string()),
        "group": pa.array([r.group_id for r in rollouts], pa.string()),
        "problem": _texts_column(texts[id(r.problem)] for r in rollouts),
        "role": _texts_column(r.author for r in rollouts),
        "model": _texts_column(r.model for r in rollouts),
        "prompt_tokens": _list_column([r.prompt_tokens for r in rollouts], np.int32),
        "tokens": _list_column([c.tokens for c in completions], np.int32),
        "logprobs": _list_column([c.logprobs for c in completions], np.float32),
        "finish": _texts_column(c.finish_reason for c in completions),
        "version": pa.array([c.policy_version for c in completions], pa.int64()),
        "text": pa.array([r.text for r in rollouts], pa.string()),
        "verdict": _texts_column(s.verdict if s else None for s in scores),
        "parts": _texts_column(json.dumps(dict(s.parts)) if s else None for s in scores),
        "answer": pa.array([s.answer if s else None for s in scores], pa.string()),
        "note": _texts_column(s.note if s else None for s in scores),
        "reward": pa.array([r.reward for r in rollouts], pa.float64()),
        "steps": _texts_column(
            json.dumps([[s.start, s.end, s.reward] for s in r.judged_steps]) for r in rollouts
        ),
    }


def parse_rollouts(table: pa.Table) -> list[Rollout]:
    """Turn rows of a file into rollouts; an invalid cell raises an error."""
    plain = {name: table.column(name).to_pylist() for name in PLAIN_COLUMNS}
    roles = _require(_read_texts(table, "role", Author), "role")
    problems = _require(_read_texts(table, "problem", _parse_problem), "problem")
    steps = _require(_read_texts(table, "steps", _parse_steps), "steps")
    finishes = _require(_read_texts(table, "finish", FinishReason), "finish")
    prompts = _read_arrays(table, "prompt_tokens", np.int32)
    tokens = _read_arrays(table, "tokens", np.int32)
    logprobs = _read_arrays(table, "logprobs", np.float32)
    scores = _read_scores(table)
    return [
        Rollout(
            id=plain["id"][i],
            group_id=plain["group"][i],
            problem=problems[i],
            author=roles[i],
            model=plain["model"][i],
            prompt_tokens=prompts[i],
            completion=Completion(
                tokens=tokens[i],
                logprobs=logprobs[i],
                finish_reason=finishes[i],
                policy_version=plain["version"][i],
            ),
            text=plain["text"][i],
            score=scores[i],
            reward=plain["reward"][i],
            judged_steps=steps[i],
        )
        for i in range(table.num_rows)
    ]


def _read_scores(table: pa.Table) -> list[Score | None]:
    verdicts = _read_texts(table, "verdict", Verdict)
    parts = _read_texts(table, "parts", _parse_parts)
    answers = table.column("answer").to_pylist()
    notes = _read_texts(table, "note", str)
    return [
        None if v is None else Score(verdict=v, parts=p or {}, answer=a, note=n or "")
        for v, p, a, n in zip(verdicts, parts, answers, notes, strict=True)
    ]


def read_columns(path: Path, limit: int | None = None) -> pa.Table:
    """Read a file as a table, or its first rows, without parsing cells."""
    with _open_parquet(path) as file:
        if limit is None:
            return file.read()
        return pa.Table.from_batches(
            islice(file.iter_batches(batch_size=limit), 1), file.schema_arrow
        )


def is_rollout_file(path: Path) -> bool:
    """Whether a Parquet file has the columns of rollouts."""
    with _open_parquet(path) as file:
        return {"problem", "prompt_tokens", "text"} <= set(file.schema_arrow.names)


def list_columns(path: Path) -> list[str]:
    """Name the columns of a Parquet file."""
    with _open_parquet(path) as file:
        return list(file.schema_arrow.names)


def count_tokens(path: Path) -> int:
    """Count the tokens of all responses of a file, reading a part at a time."""
    with _open_parquet(path) as file:
        batches = file.iter_batches(columns=["tokens"])
        return sum(len(batch.column(0).flatten()) for batch in batches)


def count_rows(path: Path) -> int:
    """Count the rows of a Parquet file, without reading them."""
    with _open_parquet(path) as file:
        return int(file.metadata.num_rows)


def check_parquet(path: Path) -> None:
    """Refuse a truncated file or one that is not Parquet, without reading its rows."""
    with _open_parquet(path):
        pass


@contextmanager
def _open_parquet(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}") from error
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0] if str(error) else "it cannot be read"
        raise DataError(
            f"{path} is not a whole Parquet file ({reason}); teach, eval and rl write rollouts as "
            "such, and `whet data import` makes them of responses in other files"
        ) from error


def _texts_column(values: Iterable[str | None]) -> pa.Array:
    """Store each distinct text once, since problems, notes and score parts repeat."""
    return pa.array(list(values), pa.string()).dictionary_encode()


def _read_texts(table: pa.Table, name: str, parse: Callable[[str], T]) -> list[T | None]:
    """Read a column of repeating texts; each distinct one is parsed once and shared."""
    column = table.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    distinct = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
    values = [None if text is None else parse(text) for text in distinct.dictionary.to_pylist()]
    return [None if index is None else values[index] for index in distinct.indices.to_pylist()]


def _list_column(
    arrays: Sequence[NDArray[np.int32]] | Sequence[NDArray[np.float32]], dtype: type[np.generic]
) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum([len(array) for array in arrays], dtype=np.int64)])
    values = np.concatenate(arrays) if arrays else np.zeros(0)
    # 64-bit offsets: one step of a large run can pass 2^31 numbers.
    return pa.LargeListArray.from_arrays(
        pa.array(offsets, pa.int64()), pa.array(values.astype(dtype, copy=False))
    )


def _read_arrays(table: pa.Table, name: str, dtype: type[Number]) -> list[NDArray[Number]]:
    column = table.column(name)
    if not pa.types.is_large_list(column.type) or column.null_count:
        raise ValueError(f"{name} should be lists of numbers, not {column.type}")
    arrays: list[NDArray[Number]] = []
    for chunk in column.chunks:
        # One writable copy for the chunk; torch warns on arrays it may not write to.
        values = np.array(chunk.values, dtype=dtype)
        offsets = chunk.offsets.to_numpy()
        arrays += [values[start:end] for start, end in pairwise(offsets)]
    return arrays


def _require(values: list[T | None], name: str) -> list[T]:
    present = [value for value in values if value is not None]
    if len(present) < len(values):
        raise ValueError(f"a row has no {name}")
    return present


def _parse_problem(text: str) -> Problem:
    return Problem.from_json(json.loads(text))


def _parse_parts(text: str) -> dict[str, float]:
    value: Json = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"score parts should be an object, not {text[:80]}")
    return {key: float(part) for key, part in value.items() if isinstance(part, int | float)}


def _parse_steps(text: str) -> tuple[JudgedStep, ...]:
    return tuple(
        JudgedStep(start=start, end=end, reward=reward) for start, end, reward in json.loads(text)
    )
