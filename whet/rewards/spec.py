"""A reward spec combines the parts of a score and shaping terms into one number.

Stored rollouts can be rewarded again under another spec. `whet/rewards/specs` has the named specs.
The setting `reward = "dapo"` or `reward = "my/spec.toml"` uses a spec unchanged, and `reward =
"my_reward.py:name"` the user's own function of a rollout and its score.

The contributions of all parts and terms of a rollout add up to its reward. A part's share of the
variance is its covariance with the reward divided by the variance of the reward, so all shares add
up to 1; a part with a negative share works against the others. Shares within groups count only
differences between responses to the same problem, as a group-relative advantage does.
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
    """Weights of score parts, and shaping terms.

    >>> RewardSpec(weights={"correct": 0.55, "process": 0.3, "length": 0.15}).weights["process"]
    0.3
    """

    weights: dict[str, Weight] = Field(default={"correct": 1.0})
    """Weights by part name; the weighted sum of parts is the reward before shaping."""
    terms: list[Term] = Field(default=[])
    """Shaping terms, each with its weight and settings."""
    step_weight: Weight | None = None
    """Reward of each step that a verifier judged: weight × mark (+1 or -1) / number of steps; none
    gives no step rewards."""

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
        """Whether a term reads a rollout's tokens besides its text and score."""
        return any(term.needs_tokens for term in self.terms)

    def apply(self, groups: Sequence[Group]) -> list[Group]:
        """Reward every rollout; an unscored one gets no reward and is not trained on."""
        return [tuple(self.apply_to(rollout) for rollout in group) for group in groups]

    def apply_to(self, rollout: Rollout) -> Rollout:
        """Reward one rollout; an earlier reward is replaced."""
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
        """Divide the weight among the steps, with the signs of their marks; idempotent."""
        if self.step_weight is None:
            return steps
        per_step = self.step_weight / max(len(steps), 1)
        return tuple(
            replace(step, reward=per_step * ((step.reward > 0) - (step.reward < 0)))
            for step in steps
        )


def load_spec(name: str) -> RewardSpec:
    """Load a shipped spec by name, a TOML file by path, or a user's function by code path."""
    if is_code_path(name):
        return RewardSpec(weights={}, terms=[UserTerm(path=name)])
    if name in list_specs():
        return config.load_settings(RewardSpec, SPECS_FOLDER / f"{name}.toml", []).config
    if not name.endswith(".toml"):
        raise ConfigError(f"there is no reward spec {name!r}{_suggest(name, list_specs())}")
    return config.load_settings(RewardSpec, Path(name), []).config


def list_specs() -> list[str]:
    """List the shipped specs by name."""
    return toml.list_names(SPECS_FOLDER)


def _expand_kind(term: object) -> object:
    """Expand the kind `file.py:name` to a user's own term."""
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
    """0 if the spec does not weigh this part of the score."""
    value: float | None
    """None if the term does not count for this verdict."""

    @property
    def contribution(self) -> float:
        """The amount added to the reward."""
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
    """One part or term over many rollouts; a figure that cannot be measured is None."""

    name: str
    weight: float | None
    """None for the whole reward."""
    mean: float | None
    """Mean of the unweighted value; None for the whole reward."""
    contribution: float
    """Mean contribution to the reward."""
    right: float | None
    """Mean contribution over right responses."""
    wrong: float | None
    """Mean contribution over all other responses."""
    variance_fraction: float | None
    """Share of the variance of the reward."""
    variance_fraction_within: float | None
    """Share of the variance within groups."""

    def to_json(self) -> dict[str, Json]:
        return {
            "part": self.name,
            "weight": self.weight,
            "mean": self.mean,
            "contribution": self.contribution,
            "right": self.right,
            "wrong": self.wrong,
            "variance_share": self.variance_fraction,  # a stable key of printed JSON
            "variance_share_within_groups": self.variance_fraction_within,  # likewise
        }


def break_down(spec: RewardSpec, rollout: Rollout) -> list[RewardPart]:
    """List the contributions of all parts and terms to the reward of a scored rollout."""
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
    """Summarise each part over the scored rollouts, and the whole reward in the last row."""
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
    # Rewards that are equal up to rounding have no variance to divide.
    return float(contribution_S @ reward_S) / variance if variance > 1e-18 * len(reward_S) else None


def _center(values: Doubles, group_S: NDArray[np.int64]) -> Doubles:
    counts = np.bincount(group_S)
    means = np.bincount(group_S, weights=values) / np.maximum(counts, 1)
    centered: Doubles = values - means[group_S]
    return centered
