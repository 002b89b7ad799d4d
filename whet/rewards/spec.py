"""A reward spec weighs the parts of a score and shaping terms into one number.

The same stored rollouts can be rewarded again under another spec. `whet/rewards/specs` holds specs
by name. A setting `reward = "dapo"` or `reward = "my/spec.toml"` uses one unchanged, and `reward =
"my_reward.py:name"` takes the user's own function of a rollout and its score.

A reward can be broken down: the contributions of all parts and terms of a rollout add up to it. A
part's share of the variance is its covariance with the reward over the variance of the reward, so
that all shares add up to 1; a negative share works against the others. Within groups, only
differences between responses to the same problem count, which is what a group-relative advantage
sees.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from whet import config, toml
from whet.config import Config
from whet.errors import ConfigError
from whet.rewards.shaping import Term, UserTerm, Weight
from whet.types import Doubles, Group, Json, JudgedStep, Rollout, Score, Verdict
from whet.user_code import is_code_path

SPECS_FOLDER = Path(__file__).parent / "specs"


class RewardSpec(Config):
    """Weights of score parts, and shaping terms added to them.

    >>> RewardSpec(weights={"correct": 0.55, "process": 0.3, "length": 0.15}).weights["process"]
    0.3
    """

    weights: dict[str, Weight] = Field(default={"correct": 1.0})
    """Part name -> weight; their weighted sum is the reward before shaping."""
    terms: list[Term] = Field(default=[])
    """Shaping terms, each with its own weight and parameters."""
    step_weight: Weight | None = None
    """Also reward each step a verifier judged with weight × its mark (+1 or -1) / number of steps;
    none gives no such reward."""

    @model_validator(mode="before")
    @classmethod
    def _expand_spec(cls, given: object) -> object:
        if isinstance(given, str):
            return config.to_table(load_spec(given), keep_none=False)
        if isinstance(given, dict) and isinstance(given.get("terms"), list | tuple):
            return {**given, "terms": [_expand_kind(term) for term in given["terms"]]}
        return given

    @property
    def needs_tokens(self) -> bool:
        """Whether a term reads a rollout's tokens, not only its text and score."""
        return any(term.needs_tokens for term in self.terms)

    def apply(self, groups: Sequence[Group]) -> list[Group]:
        """Reward every rollout; an unscored one gets none and is not trained on."""
        return [tuple(self.apply_to(rollout) for rollout in group) for group in groups]

    def apply_to(self, rollout: Rollout) -> Rollout:
        """Give one rollout its reward, whatever reward it had."""
        assert rollout.score is not None, "a rollout is scored before it is rewarded"
        if rollout.score.verdict == Verdict.UNSCORED:
            return replace(rollout, reward=None)
        reward = self._weigh_parts(rollout, rollout.score)
        for term in self.terms:
            if term.applies_to(rollout.score.verdict):
                reward += term.weight * term.value(rollout, rollout.score)
        return replace(
            rollout, reward=reward, judged_steps=self._reward_steps(rollout.judged_steps)
        )

    def _weigh_parts(self, rollout: Rollout, score: Score) -> float:
        for name in self.weights:
            if name not in score.parts:
                known = ", ".join(sorted(score.parts))
                raise ConfigError(
                    f"reward.weights names {name!r}, which {rollout.problem.task} does not score: "
                    f"{known}"
                )
        return sum(weight * score.parts[name] for name, weight in self.weights.items())

    def _reward_steps(self, steps: tuple[JudgedStep, ...]) -> tuple[JudgedStep, ...]:
        """Divide the weight among the steps by the sign of their marks; idempotent."""
        if self.step_weight is None:
            return steps
        per_step = self.step_weight / max(len(steps), 1)
        return tuple(
            replace(step, reward=per_step * ((step.reward > 0) - (step.reward < 0)))
            for step in steps
        )


def load_spec(name: str) -> RewardSpec:
    """Read a shipped spec by its name, a TOML file by its path, or a user's function."""
    if is_code_path(name):
        return RewardSpec(weights={}, terms=[UserTerm(path=name)])
    if name in list_specs():
        return config.load_settings(RewardSpec, SPECS_FOLDER / f"{name}.toml", []).config
    if not name.endswith(".toml"):
        raise ConfigError(f"there is no reward spec {name!r}{_suggest(name, list_specs())}")
    return config.load_settings(RewardSpec, Path(name), []).config


def list_specs() -> list[str]:
    """List the specs that come with whet."""
    return toml.list_names(SPECS_FOLDER)


def _expand_kind(term: object) -> object:
    """Expand `file.py:name` to a user's own term."""
    if not isinstance(term, dict) or not isinstance(term.get("kind"), str):
        return term
    kind = term["kind"]
    return {**term, "kind": "own", "path": kind} if is_code_path(kind) else term


def _suggest(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPart:
    """One part or term of a rollout's reward."""

    name: str
    weight: float
    """0 for a part of the score that the spec does not name."""
    value: float | None
    """None for a term that does not count for the verdict."""

    @property
    def contribution(self) -> float:
        """What it adds to the reward."""
        return 0.0 if self.value is None else self.weight * self.value

    def to_json(self) -> dict[str, Json]:
        return {
            "part": self.name,
            "weight": self.weight,
            "value": self.value,
            "contribution": self.contribution,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSummary:
    """One part or term over many rollouts; what cannot be measured is None."""

    name: str
    weight: float | None
    """None for the whole reward."""
    mean: float | None
    """Of the value before the weight, if there is one."""
    contribution: float
    """Mean of what it adds to the reward."""
    right: float | None
    """The same over right responses."""
    wrong: float | None
    """The same over all others."""
    variance_fraction: float | None
    """Of the variance of the reward."""
    variance_fraction_within: float | None
    """The same within groups."""

    def to_json(self) -> dict[str, Json]:
        return {
            "part": self.name,
            "weight": self.weight,
            "mean": self.mean,
            "contribution": self.contribution,
            "right": self.right,
            "wrong": self.wrong,
            "variance_share": self.variance_fraction,  # the key in printed JSON
            "variance_share_within_groups": self.variance_fraction_within,  # the same
        }


def break_down(spec: RewardSpec, rollout: Rollout) -> list[RewardPart]:
    """List what each part and term adds to the reward of a scored rollout."""
    score = rollout.score
    assert score is not None, "a rollout is scored before it is rewarded"
    parts = [
        RewardPart(name=name, weight=weight, value=score.parts[name])
        for name, weight in spec.weights.items()
    ]
    counts: Counter[str] = Counter()
    for term in spec.terms:
        kind = term.path if isinstance(term, UserTerm) else term.kind
        counts[kind] += 1
        name = f"{kind} (term)" if counts[kind] == 1 else f"{kind} (term {counts[kind]})"
        value = term.value(rollout, score) if term.applies_to(score.verdict) else None
        parts.append(RewardPart(name=name, weight=term.weight, value=value))
    others = {name: value for name, value in score.parts.items() if name not in spec.weights}
    return parts + [
        RewardPart(name=name, weight=0.0, value=value) for name, value in others.items()
    ]


def summarise_parts(spec: RewardSpec, groups: Sequence[Group]) -> list[PartSummary]:
    """Measure each part over rollouts that have a score, and last the whole reward."""
    graded = [
        (number, rollout, {part.name: part for part in break_down(spec, rollout)})
        for number, group in enumerate(groups)
        for rollout in group
        if rollout.score is not None and rollout.score.verdict is not Verdict.UNSCORED
    ]
    if not graded:
        return []
    group_S = np.array([number for number, _, _ in graded])
    is_right_S = np.array(
        [
            rollout.score is not None and rollout.score.verdict is Verdict.CORRECT
            for _, rollout, _ in graded
        ]
    )
    weights: dict[str, float] = {}
    for _, _, parts in graded:
        weights |= {name: part.weight for name, part in parts.items()}
    contributions = {
        name: _contributions([parts for _, _, parts in graded], name) for name in weights
    }
    reward_S = np.sum(list(contributions.values()), axis=0)

    def summarise(
        name: str, contribution_S: Doubles, weight: float | None, mean: float | None
    ) -> PartSummary:
        return PartSummary(
            name=name,
            weight=weight,
            mean=mean,
            contribution=float(contribution_S.mean()),
            right=_mean(contribution_S[is_right_S]),
            wrong=_mean(contribution_S[~is_right_S]),
            variance_fraction=_fraction_of_variance(
                contribution_S, reward_S, np.zeros_like(group_S)
            ),
            variance_fraction_within=_fraction_of_variance(contribution_S, reward_S, group_S),
        )

    rows = []
    for name, weight in weights.items():
        values = [parts[name].value for _, _, parts in graded if name in parts]
        given = np.array([value for value in values if value is not None])
        rows.append(summarise(name, contributions[name], weight, _mean(given)))
    return [*rows, summarise("reward", reward_S, None, None)]


def _contributions(rows: Sequence[Mapping[str, RewardPart]], name: str) -> Doubles:
    return np.array([row[name].contribution if name in row else 0.0 for row in rows])


def _mean(values: Doubles) -> float | None:
    return float(values.mean()) if len(values) else None


def _fraction_of_variance(
    contribution_S: Doubles, reward_S: Doubles, group_S: NDArray[np.int64]
) -> float | None:
    """Divide the covariance with the reward by the variance of the reward, within groups."""
    contribution_S, reward_S = (_center(values, group_S) for values in (contribution_S, reward_S))
    variance = float(reward_S @ reward_S)
    # Rewards that are equal but for rounding have no variance to share.
    return float(contribution_S @ reward_S) / variance if variance > 1e-18 * len(reward_S) else None


def _center(values: Doubles, group_S: NDArray[np.int64]) -> Doubles:
    counts = np.bincount(group_S)
    means = np.bincount(group_S, weights=values) / np.maximum(counts, 1)
    centered: Doubles = values - means[group_S]
    return centered
