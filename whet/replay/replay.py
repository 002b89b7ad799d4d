"""Replay an update of a run under its own settings and others, and compare them.

Each alternative costs one update from the same state. Nothing is sampled, and there is no engine.
The result is printed as tables, or as JSON.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor

from whet.errors import visible
from whet.recipes.rl import RLConfig
from whet.replay.alternatives import Alternative
from whet.replay.stored_run import Start, load_stored_run
from whet.replay.updates import LogCheck, Update, state_before, take_update
from whet.store.files import to_finite
from whet.track.progress import printer, progress_bar
from whet.track.tables import NOTHING, align, format_metric, format_percent
from whet.types import Group, Json

BASELINE = "as logged"
"""The name of the update under the run's own settings."""
NUM_NAMED = 3
"""Numbers that differ from the log and are written out; JSON has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One update as a row of the comparison; None for numbers that it lacks."""

    name: str
    settings: Mapping[str, str]
    loss: float | None
    grad_norm: float | None
    change: float
    """Norm of the change of all weights."""
    cosine: float | None
    """Cosine of its gradient and that of the baseline; None if one of them is zero."""
    cosines: Mapping[str, float | None]
    """The same for each part of the model: the embedding, each layer, the last norm, the head."""
    clip_fraction: float | None
    kl: float | None
    token_fraction: float
    mean_reward: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The result of a replay: the original update, and its alternatives."""

    folder: Path
    step: int
    start: Start
    check: LogCheck
    rows: list[ComparisonRow]
    """The baseline first."""
    num_updates: int
    """Updates that were computed, those on the start to the step included."""

    def to_json(self) -> dict[str, Json]:
        return {
            "run": str(self.folder),
            "step": self.step,
            "start": self.start.step,
            "updates": self.num_updates,
            "compared": self.check.num_compared,
            "differences": [asdict(difference) for difference in self.check.differences],
            "rows": [asdict(row) for row in self.rows],
        }


def replay(folder: Path, step: int, alternatives: Sequence[Alternative] = ()) -> Replay:
    """Recompute an update of a run, under its own settings and under others."""
    run = load_stored_run(folder)
    start = run.find_start(step)
    cfg = run.settings_at(step)
    others = {alternative.name: alternative.apply(cfg) for alternative in alternatives}
    groups = run.groups(step)
    check = LogCheck()
    total = step - start.step + len(others)
    with (
        progress_bar("replay", total) as advance,
        state_before(run, start, step, check, advance) as state,
    ):
        baseline = take_update(run, cfg, state, step, groups)
        check.compare(run, step, baseline.metrics)
        advance(1)
        rows = [_to_row(BASELINE, {}, baseline, baseline)]
        for alternative in alternatives:
            other = others[alternative.name]
            update = take_update(run, other, state, step, _reward(groups, cfg, other))
            rows.append(_to_row(alternative.name, alternative.settings, update, baseline))
            advance(1)
    return Replay(
        folder=run.store.folder, step=step, start=start, check=check, rows=rows, num_updates=total
    )


def _reward(groups: Sequence[Group], cfg: RLConfig, other: RLConfig) -> Sequence[Group]:
    """Reward stored rollouts again if the reward settings differ; else keep their rewards."""
    return groups if other.reward == cfg.reward else other.reward.apply(groups)


def _to_row(
    name: str, settings: Mapping[str, str], update: Update, baseline: Update
) -> ComparisonRow:
    products = measure_products(update.gradients, baseline.gradients)
    totals = [sum(column) for column in zip(*products.values(), strict=True)] or [0.0] * 3
    metrics = update.metrics
    return ComparisonRow(
        name=name,
        settings=settings,
        loss=metrics.get("loss"),
        grad_norm=metrics.get("train/grad_norm"),
        change=update.change,
        cosine=_cosine(totals),
        cosines={part: _cosine(numbers) for part, numbers in products.items()},
        clip_fraction=metrics.get("policy/clip_fraction"),
        kl=metrics.get("policy/kl"),
        token_fraction=update.token_fraction,
        mean_reward=update.mean_reward,
    )


def measure_products(
    one: Mapping[str, Tensor], other: Mapping[str, Tensor]
) -> dict[str, list[float]]:
    """Sum the products one · other, one · one and other · other over the weights of each part of a
    model."""
    products: dict[str, list[float]] = {}
    for name in other:
        if name in one:
            a, b = (gradients[name].double().flatten() for gradients in (one, other))
            sums = products.setdefault(name_part(name), [0.0, 0.0, 0.0])
            for index, product in enumerate((a @ b, a @ a, b @ b)):
                sums[index] += float(product)
    return products


def name_part(weight: str) -> str:
    """Name the part of the model that a weight belongs to.

    >>> name_part("layers.3.mlp.down.weight"), name_part("embed.weight")
    ('layer 3', 'embed')
    """
    first, *rest = weight.split(".")
    return f"layer {rest[0]}" if first == "layers" else first


def _cosine(products: Sequence[float]) -> float | None:
    dot, *squares = products
    norm = math.sqrt(squares[0]) * math.sqrt(squares[1])
    return dot / norm if norm > 0 else None


Format = Callable[[ComparisonRow], str]


def print_replay(replay: Replay, *, as_json: bool) -> None:
    """Print the comparison, and whether the replay agrees with what the run logged."""
    if as_json:
        result = to_finite(replay.to_json())
        printer.print(json.dumps(result, indent=1, ensure_ascii=False), markup=False)
        return
    lines = [f"step {replay.step} of {replay.folder}: {_describe_start(replay)}"]
    lines += [*_describe_log(replay), ""]
    lines += align(_numbers(replay.rows))
    others = [row for row in replay.rows if row.name != BASELINE]
    if others:
        lines += ["", "cosine with the gradient as logged, by part of the model"]
        lines += align(_cosines(others))
    printer.print(visible("\n".join(lines)), markup=False)


COLUMNS: Mapping[str, Format] = {
    "loss": lambda row: format_metric(row.loss),
    "gradient norm": lambda row: format_metric(row.grad_norm),
    "cosine": lambda row: _format_cosine(row.cosine),
    "change": lambda row: format_metric(row.change),
    "clipped": lambda row: format_percent(row.clip_fraction),
    "kl": lambda row: format_metric(row.kl),
    "tokens": lambda row: format_percent(row.token_fraction),
    "reward": lambda row: format_metric(row.mean_reward),
}


def _numbers(rows: Sequence[ComparisonRow]) -> list[list[str]]:
    body = [[row.name, *(write(row) for write in COLUMNS.values())] for row in rows]
    return [["update", *COLUMNS], *body]


def _cosines(rows: Sequence[ComparisonRow]) -> list[list[str]]:
    parts = list(dict.fromkeys(part for row in rows for part in row.cosines))
    body = [[row.name, *(_format_cosine(row.cosines.get(part)) for part in parts)] for row in rows]
    return [["update", *parts], *body]


def _format_cosine(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4f}"


def _describe_start(replay: Replay) -> str:
    applied = replay.step - replay.start.step - 1
    start = f"from {replay.start}"
    if applied:
        start += f", {applied:,} stored update{'s' * (applied > 1)} applied again"
    others = len(replay.rows) - 1
    alternatives = f" and {others:,} alternative{'s' * (others > 1)}" if others else ""
    return f"{start}; the update{alternatives} computed without sampling"


def _describe_log(replay: Replay) -> list[str]:
    check = replay.check
    if not check.num_compared:
        return ["metrics.jsonl has none of these steps, so there is nothing to compare with"]
    numbers = f"{check.num_compared:,} numbers that the run logged"
    if not check.differences:
        return [f"all {numbers} come out bit for bit"]
    largest = max(check.differences, key=lambda difference: difference.relative)
    lines = [
        f"{len(check.differences):,} of {numbers} come out differently, by at most "
        f"{largest.relative:.1g} of the value ({largest.metric} of step {largest.step}); rounding "
        "differs on another device, number of threads or version"
    ]
    for difference in check.differences[:NUM_NAMED]:
        lines.append(
            f"  step {difference.step} {difference.metric}: {difference.logged!r} logged, "
            f"{difference.replayed!r} now"
        )
    return lines
