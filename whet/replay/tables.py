"""A replay as tables for a terminal, and as JSON."""

import json
from collections.abc import Callable, Mapping, Sequence

from whet.errors import visible
from whet.replay.compare import BASELINE, Replay, Row
from whet.store.files import to_finite
from whet.track.progress import printer
from whet.track.tables import NOTHING, align, format_share, format_value

NUM_NAMED = 3
"""Numbers that differ from the log and are written out; JSON has all."""
Format = Callable[[Row], str]


def print_replay(replay: Replay, *, as_json: bool) -> None:
    """Print the comparison, with a sentence on how it agrees with what the run logged."""
    if as_json:
        result = to_finite(replay.to_json())
        printer.print(json.dumps(result, indent=1, ensure_ascii=False), markup=False)
        return
    lines = [f"step {replay.step} of {replay.folder}: {_describe_way(replay)}"]
    lines += [*_describe_log(replay), ""]
    lines += align(_numbers(replay.rows))
    others = [row for row in replay.rows if row.name != BASELINE]
    if others:
        lines += ["", "cosine with the gradient as logged, by part of the model"]
        lines += align(_cosines(others))
    printer.print(visible("\n".join(lines)), markup=False)


COLUMNS: Mapping[str, Format] = {
    "loss": lambda row: format_value(row.loss),
    "gradient norm": lambda row: format_value(row.grad_norm),
    "cosine": lambda row: _format_cosine(row.cosine),
    "change": lambda row: format_value(row.change),
    "clipped": lambda row: format_share(row.clip_fraction),
    "kl": lambda row: format_value(row.kl),
    "tokens": lambda row: format_share(row.token_share),
    "reward": lambda row: format_value(row.mean_reward),
}


def _numbers(rows: Sequence[Row]) -> list[list[str]]:
    body = [[row.name, *(write(row) for write in COLUMNS.values())] for row in rows]
    return [["update", *COLUMNS], *body]


def _cosines(rows: Sequence[Row]) -> list[list[str]]:
    parts = list(dict.fromkeys(part for row in rows for part in row.cosines))
    body = [[row.name, *(_format_cosine(row.cosines.get(part)) for part in parts)] for row in rows]
    return [["update", *parts], *body]


def _format_cosine(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4f}"


def _describe_way(replay: Replay) -> str:
    applied = replay.step - replay.start.step - 1
    way = f"from {replay.start}"
    if applied:
        way += f", {applied:,} stored update{'s' * (applied > 1)} applied again"
    others = len(replay.rows) - 1
    alternatives = f" and {others:,} alternative{'s' * (others > 1)}" if others else ""
    return f"{way}; the update{alternatives} computed without sampling"


def _describe_log(replay: Replay) -> list[str]:
    check = replay.check
    if not check.num_compared:
        return ["metrics.jsonl has none of these steps, so there is nothing to compare with"]
    numbers = f"{check.num_compared:,} numbers that the run logged"
    if not check.differences:
        return [f"all {numbers} come out bit for bit"]
    largest = max(check.differences, key=lambda difference: difference.relative)
    lines = [
        f"{len(check.differences):,} of {numbers} come out otherwise, by at most "
        f"{largest.relative:.1g} of the value ({largest.metric} of step {largest.step}); "
        "rounding differs on another device, number of threads or version"
    ]
    for difference in check.differences[:NUM_NAMED]:
        lines.append(
            f"  step {difference.step} {difference.metric}: {difference.logged!r} logged, "
            f"{difference.replayed!r} now"
        )
    return lines
