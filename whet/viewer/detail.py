"""One rollout in full: its tokens with their quantities, and the parts of its reward.

A token quantity that a file lacks is listed with the reason, so that a page can show it greyed out;
`whet replay --tokens` computes those of an update. Further numeric columns per token, which whet
does not write, are shown too.
"""

import json
import shlex
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
from pydantic import ValidationError

from whet.algos.advantages import GROUP_RULES
from whet.errors import DataError, WhetError
from whet.rewards.spec import RewardPart, RewardSpec, break_down
from whet.store.files import stream_rows
from whet.store.rollouts import parse_rollouts, read_columns
from whet.store.view_cache import read_token_columns
from whet.text.tokenizer import Tokenizer
from whet.types import Floats, Json, Problem, Rollout, Score
from whet.viewer.query import finite
from whet.viewer.rollout_sources import (
    RolloutFile,
    find_rollout_files,
    foreign_parts,
    read_wandb_rows,
)
from whet.viewer.run_folders import ListedRun, Root, read_run_settings

MAX_TOKENS = 20_000
"""Tokens of a response that are sent."""
CACHED_FILES = 4
CACHED_BYTES = 1 << 30
OF_UPDATES = ("ratio", "entropy", "engine_gap", "mask")
"""Token quantities that only exist during an update; a replay computes them again."""
NO_STEPS = "no verifier judged the steps of this response"
NOT_TRAINED = "this response was not trained on"
STORED = {"prompt_tokens", "tokens", "logprobs"}
"""Lists of numbers that every file of whet has."""


class RolloutFiles:
    """Reads single rollouts of a folder, and caches the last few files and tokenizers."""

    def __init__(self, root: Root, cache: Path) -> None:
        self.root = root
        self._cache = cache
        self._tables: OrderedDict[str, pa.Table] = OrderedDict()
        self._tokenizers: dict[Path, Tokenizer] = {}

    def read_rows(self, source: RolloutFile, rows: Sequence[int]) -> pa.Table:
        """Read some rows of a Parquet file."""
        key = f"{source.path}:{source.stamp}"
        table = self._tables.get(key)
        if table is None:
            table = read_columns(self.root.open_path(source.path))
            self._tables[key] = table
            while len(self._tables) > 1 and (
                len(self._tables) > CACHED_FILES
                or sum(table.nbytes for table in list(self._tables.values())) > CACHED_BYTES
            ):
                self._tables.popitem(last=False)
        if not all(0 <= row < table.num_rows for row in rows):
            raise DataError(f"{source.name} has {table.num_rows:,} rows")
        return table.take(pa.array(rows, pa.int64()))

    def read_computed(self, source: RolloutFile, rollout_id: str) -> dict[str, Floats]:
        """Read numbers per token that `whet replay --tokens` computed of one rollout."""
        return read_token_columns(self._cache, self.root.open_path(source.path), rollout_id)

    def tokenizer(self, run: ListedRun) -> Tokenizer:
        """Load the tokenizer of a run, from its checkpoints or else from its local model."""
        for folder in self._model_folders(run):
            file = self.root.open_path(folder / "tokenizer.json")
            if file.is_file():
                if file not in self._tokenizers:
                    self._tokenizers[file] = Tokenizer.load(file.parent)
                return self._tokenizers[file]
        raise DataError("there is no tokenizer in the folder that is shown")

    def _model_folders(self, run: ListedRun) -> list[Path]:
        """List the folders that may hold the tokenizer: checkpoints, then the starting model."""
        model = read_run_settings(self.root, run).get("model")
        path = Path(str(model.get("path"))) if isinstance(model, dict) else run.folder
        start = [path] if path.is_absolute() and path.is_relative_to(self.root.folder) else []
        checkpoints = []
        for place in (run.folder, *start):
            checkpoints += sorted((place / "checkpoints").glob("[0-9]*"), reverse=True)
        return [*checkpoints, *start]


def find_source(root: Root, run: ListedRun, name: str) -> RolloutFile:
    """Find a rollout file of a run by name; the name is never used as a path."""
    for source in find_rollout_files(root, run):
        if source.name == name:
            return source
    raise DataError(f"the run has no file of rollouts {name[:80]!r}")


def read_rollout(
    files: RolloutFiles,
    run: ListedRun,
    source: RolloutFile,
    row: int,
    *,
    rule: str | None,
    rewards: Sequence[float | None],
) -> dict[str, Json]:
    """Return everything known of a rollout; `rewards` are its group's, its own first."""
    if run.origin != "whet":
        return _read_foreign(files.root, source, row)
    table = files.read_rows(source, [row])
    rollout = parse_rollouts(table)[0]
    pieces, reason = _cut_pieces(files, run, rollout)
    settings = read_run_settings(files.root, run)
    columns = _token_columns(table, rollout)
    computed = files.read_computed(source, rollout.id)
    columns.update((name, _to_list(values)) for name, values in computed.items())
    why = _explain_missing(run, source, settings, is_computed=bool(computed))
    absent: dict[str, Json] = {name: why for name in OF_UPDATES if name not in columns}
    if "step_credit" not in columns:
        absent["step_credit"] = NO_STEPS
    advantage, missing = _advantage(rule, rewards) if source.set == "train" else (None, NOT_TRAINED)
    if "advantage" not in columns:
        if advantage is None:
            absent["advantage"] = missing
        else:
            columns["advantage"] = [advantage] * min(len(rollout.completion.tokens), MAX_TOKENS)
    if pieces is None:
        absent = dict.fromkeys([*columns, *absent], reason)
        columns = {}
    return {
        "id": rollout.id,
        "text": rollout.text,
        "model": rollout.model,
        "author": rollout.author.value,
        "finish": rollout.completion.finish_reason.value,
        "version": rollout.completion.policy_version,
        "num_tokens": len(rollout.completion.tokens),
        "num_prompt_tokens": len(rollout.prompt_tokens),
        "prompt": [{"role": m.role, "content": m.content} for m in rollout.problem.prompt],
        "problem": _describe_problem(rollout.problem),
        "score": _describe_score(rollout.score),
        "reward": None if rollout.reward is None else finite(rollout.reward),
        "advantage": advantage,
        "terms": explain_reward(rollout, settings),
        "pieces": None if pieces is None else list(pieces[:MAX_TOKENS]),
        "prompt_text": _decode_prompt(files, run, rollout),
        "columns": columns,
        "absent": absent,
        "fields": None,
    }


def _describe_problem(problem: Problem) -> Json:
    row = problem.to_json()
    del row["prompt"]
    return row


def _describe_score(score: Score | None) -> Json:
    if score is None:
        return None
    return {
        "verdict": score.verdict.value,
        "parts": {name: finite(value) for name, value in score.parts.items()},
        "answer": score.answer,
        "note": score.note,
    }


def _cut_pieces(
    files: RolloutFiles, run: ListedRun, rollout: Rollout
) -> tuple[list[str] | None, str]:
    tokens = rollout.completion.tokens
    if not len(tokens):
        return None, "this text was not sampled: it has no tokens"
    try:
        pieces = files.tokenizer(run).pieces(tokens[:MAX_TOKENS], keep_special=True)
    except (WhetError, OverflowError) as error:
        return None, f"tokens cannot be shown: {error}"
    return pieces, ""


def _decode_prompt(files: RolloutFiles, run: ListedRun, rollout: Rollout) -> str | None:
    try:
        return files.tokenizer(run).decode(rollout.prompt_tokens, keep_special=True)
    except (WhetError, OverflowError):
        return None


def _token_columns(table: pa.Table, rollout: Rollout) -> dict[str, Json]:
    """Return the numeric columns per token of a row, by name."""
    num_tokens = len(rollout.completion.tokens)
    columns: dict[str, Json] = {"logprob": _to_list(rollout.completion.logprobs)}
    for name in table.column_names:
        kind = table.schema.field(name).type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        if is_list and name not in STORED:
            values = np.array(table[name][0].as_py() or [], dtype=np.float64)
            if len(values) == num_tokens:
                columns[name] = _to_list(values)
    if rollout.judged_steps and "step_credit" not in columns:
        credit = np.zeros(num_tokens)
        for step in rollout.judged_steps:
            credit[step.start : step.end] = step.reward
        columns["step_credit"] = _to_list(credit)
    return columns


def _explain_missing(
    run: ListedRun, source: RolloutFile, settings: Mapping[str, Json], *, is_computed: bool
) -> str:
    """Say why token quantities of an update are missing, and how to compute them."""
    if is_computed:
        return "the update left this response out: no token of it had a loss"
    if source.set != "train":
        return NOT_TRAINED
    if settings.get("kind") != "rl":
        return "not stored, and only runs of kind rl can be replayed"
    command = f"whet replay {shlex.quote(str(run.folder))} --step {source.step} --tokens"
    return f"not stored; computed by: {command}"


def _to_list(values: np.ndarray) -> list[Json]:
    return [finite(value) for value in values[:MAX_TOKENS]]


def _advantage(rule: str | None, rewards: Sequence[float | None]) -> tuple[float | None, str]:
    """Compare the first reward with the others of its group."""
    if rule is None:
        return None, "only runs of RL have advantages"
    group_rule = GROUP_RULES.get(rule)
    if group_rule is None:
        return None, f"not stored; {rule} needs more than the rewards of the group"
    known = [reward for reward in rewards if reward is not None]
    if rewards[0] is None or len(known) < 2:
        return None, "there is nothing to compare this reward with"
    return group_rule(known)[0], ""


def explain_reward(rollout: Rollout, settings: Mapping[str, Json]) -> list[Json]:
    """List the parts of a reward: weighted parts, shaping terms, and the remainder.

    A user's own function is code, which is not run here; its amount is in the remainder.
    """
    spec = settings.get("reward")
    score = rollout.score
    if not isinstance(spec, dict) or score is None or rollout.reward is None:
        return []
    parts: list[RewardPart] = []
    weights = spec.get("weights")
    for name, weight in weights.items() if isinstance(weights, dict) else ():
        if isinstance(weight, int | float) and name in score.parts:
            parts.append(RewardPart(name=name, weight=float(weight), value=score.parts[name]))
    terms = spec.get("terms")
    own = 0
    for term in terms if isinstance(terms, list) else ():
        if not isinstance(term, dict) or term.get("kind") == "own":
            own += 1
            continue
        try:
            known = RewardSpec.model_validate({"weights": {}, "terms": [term]})
            parts.append(replace(break_down(known, rollout)[0], name=known.terms[0].kind))
        except (ValidationError, WhetError):
            own += 1
    rows: list[Json] = [_describe_part(part) for part in parts]
    rest = rollout.reward - sum(part.contribution for part in parts)
    if own or abs(rest) > 1e-6:
        name = "your own function" if own else "not explained by the settings"
        rows.append({"name": name, "weight": None, "value": None, "product": finite(rest)})
    return rows


def _describe_part(part: RewardPart) -> Json:
    product = None if part.value is None else part.contribution
    return {"name": part.name, "weight": part.weight, "value": part.value, "product": product}


def _read_foreign(root: Root, source: RolloutFile, row: int) -> dict[str, Json]:
    path = root.open_path(source.path)
    rows = (r for _, r in stream_rows(path)) if source.set == "verl" else read_wandb_rows(path)
    fields = next(islice(rows, row, row + 1), None)
    if fields is None:
        raise DataError(f"{source.name} has no row {row}")
    shown = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in fields.items()
    }
    reason = "the rollouts of another system hold no tokens"
    return {
        "fields": dict(shown),
        "advantage": None,
        "terms": [],
        "score": {"parts": dict(foreign_parts(fields))},
        "pieces": None,
        "columns": {},
        "absent": dict.fromkeys(("logprob", "advantage", *OF_UPDATES, "step_credit"), reason),
    }
