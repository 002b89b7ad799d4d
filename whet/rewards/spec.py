"""A reward spec weighs the parts of a score and shaping terms into one number.

The same stored rollouts can be rewarded again under another spec. `whet/rewards/specs` holds specs
by name. A setting `reward = "dapo"` or `reward = "my/spec.toml"` takes one as it is, and
`reward = "my_reward.py:name"` takes the user's own function of a rollout and its score.
"""

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from pydantic import Field, model_validator

from whet import config
from whet.config import Config
from whet.config_errors import find_models, list_tags
from whet.errors import ConfigError
from whet.rewards.shaping import TOKEN_KINDS, Term, UserTerm, Weight
from whet.types import Group, Rollout, Score, Step, Verdict
from whet.user_code import is_code_path

SPECS_FOLDER = Path(__file__).parent / "specs"
_KINDS = tuple(kind for model in find_models(Term) for kind in list_tags(model))


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
    None leaves them."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: object) -> object:
        if isinstance(given, str):
            return config.to_table(load_spec(given), keep_none=False)
        if isinstance(given, dict) and isinstance(given.get("terms"), list | tuple):
            return {**given, "terms": [_expand_kind(term) for term in given["terms"]]}
        return given

    @property
    def needs_tokens(self) -> bool:
        """Whether a term reads a rollout's tokens, not only its text and score."""
        return any(term.kind in TOKEN_KINDS for term in self.terms)

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

    def _reward_steps(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
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
    return sorted(file.stem for file in SPECS_FOLDER.glob("*.toml"))


def _expand_kind(term: object) -> object:
    """Expand `file.py:name` to a user's own term, and refuse unknown kinds."""
    if not isinstance(term, dict) or not isinstance(term.get("kind"), str):
        return term
    kind = term["kind"]
    if is_code_path(kind):
        return {**term, "kind": "own", "path": kind}
    if kind not in _KINDS:
        raise ValueError(f"there is no shaping term {kind!r}{_suggest(kind, _KINDS)}")
    return term


def _suggest(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"
