"""Replay an update of a run under its own settings and under others, and compare them.

Each alternative costs one update from the same state, and no sampling: there is no engine.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from whet.recipes.rl import RLConfig
from whet.replay.alternatives import Alternative
from whet.replay.stored_run import Start, open_stored_run
from whet.replay.updates import LogCheck, Update, state_before, take_update
from whet.track.progress import progress_bar
from whet.types import Group, Json

BASELINE = "as logged"
"""The name of the update under the run's own settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One update as a row of the comparison; what it does not have is None."""

    name: str
    settings: Mapping[str, str]
    loss: float | None
    grad_norm: float | None
    change: float
    """Norm of the change of all weights."""
    cosine: float | None
    """Of its gradient with that of the baseline; None where one of them is zero."""
    cosines: Mapping[str, float | None]
    """The same for each part of the model: the embedding, each layer, the last norm, the head."""
    clip_fraction: float | None
    kl: float | None
    token_share: float
    mean_reward: float | None

    def to_json(self) -> dict[str, Json]:
        return {
            "name": self.name,
            "settings": dict(self.settings),
            "loss": self.loss,
            "grad_norm": self.grad_norm,
            "change": self.change,
            "cosine": self.cosine,
            "cosines": dict(self.cosines),
            "clip_fraction": self.clip_fraction,
            "kl": self.kl,
            "token_share": self.token_share,
            "mean_reward": self.mean_reward,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The result of a replay: the update as it was, and its alternatives."""

    folder: Path
    step: int
    start: Start
    check: LogCheck
    rows: list[Row]
    """The baseline first."""
    num_updates: int
    """Updates that were computed, those on the way to the step included."""

    def to_json(self) -> dict[str, Json]:
        return {
            "run": str(self.folder),
            "step": self.step,
            "start": self.start.step,
            "updates": self.num_updates,
            "compared": self.check.num_compared,
            "differences": [difference.to_json() for difference in self.check.differences],
            "rows": [row.to_json() for row in self.rows],
        }


def replay(folder: Path, step: int, alternatives: Sequence[Alternative] = ()) -> Replay:
    """Compute an update of a run again, and what it would have been under other settings."""
    run = open_stored_run(folder)
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
    """Reward stored rollouts again where the settings differ; else they keep their rewards."""
    return groups if other.reward == cfg.reward else other.reward.apply(groups)


def _to_row(name: str, settings: Mapping[str, str], update: Update, baseline: Update) -> Row:
    products = measure_products(update.gradients, baseline.gradients)
    whole = [sum(column) for column in zip(*products.values(), strict=True)] or [0.0] * 3
    metrics = update.metrics
    return Row(
        name=name,
        settings=settings,
        loss=metrics.get("loss"),
        grad_norm=metrics.get("train/grad_norm"),
        change=update.change,
        cosine=_cosine(whole),
        cosines={part: _cosine(numbers) for part, numbers in products.items()},
        clip_fraction=metrics.get("policy/clip_fraction"),
        kl=metrics.get("policy/kl"),
        token_share=update.token_share,
        mean_reward=update.mean_reward,
    )


def measure_products(
    one: Mapping[str, Tensor], other: Mapping[str, Tensor]
) -> dict[str, list[float]]:
    """Add up one · other, one · one and other · other over the weights of each part of a model."""
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
