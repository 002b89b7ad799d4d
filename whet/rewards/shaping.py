"""Shaping terms: small pure functions of a rollout and its score that a reward spec weighs."""

from collections.abc import Callable
from functools import cached_property
from math import cos, pi
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from whet.config import Config
from whet.errors import ConfigError
from whet.rewards import text_stats
from whet.rng import make_rng
from whet.text.steps import rate_solution, rate_verification
from whet.types import Rollout, Score, Verdict
from whet.user_code import (
    CodePath,
    check_parameters,
    explain_exception,
    load_from_file,
    validate_settings,
)

MAX_WEIGHT = 1e9
"""Bound on rewards; the variance of larger ones could overflow."""
Weight = Annotated[float, Field(ge=-MAX_WEIGHT, le=MAX_WEIGHT)]


class Shaping(Config):
    """Settings of every term: its weight, and the verdicts for which it counts."""

    weight: Weight = 1.0
    """Multiplies the term's value."""
    when: Literal["always", "correct", "wrong", "answered"] = "always"
    """The verdicts for which the term counts: all, correct, all but correct, or any with an
    answer."""

    def applies_to(self, verdict: Verdict) -> bool:
        if self.when == "answered":
            return verdict is not Verdict.NO_ANSWER
        return self.when == "always" or (self.when == "correct") == (verdict is Verdict.CORRECT)

    @property
    def needs_tokens(self) -> bool:
        """Whether the term reads a rollout's tokens, which a file of texts lacks."""
        return False

    def value(self, rollout: Rollout, score: Score) -> float:
        """Compute the term for one rollout, without the weight."""
        raise NotImplementedError


class Outcome(Shaping):
    kind: Literal["outcome"]
    correct: Weight = 1.0
    """Value of a right answer."""
    wrong: Weight = 0.0
    """Value of a wrong answer."""
    no_answer: Weight | None = None
    """Value of a response without an answer; none takes that of a wrong one."""

    def value(self, rollout: Rollout, score: Score) -> float:
        if score.verdict is Verdict.CORRECT:
            return self.correct
        if score.verdict is Verdict.WRONG or self.no_answer is None:
            return self.wrong
        return self.no_answer


class Quality(Shaping):
    """Closeness of a solution to the optimum: `exact`, `feasible` × ratio, or `other`."""

    kind: Literal["quality"]
    exact: Weight = 1.0
    """Value of an optimal solution."""
    feasible: Weight = 0.5
    """Factor of a feasible solution's ratio to the optimum."""
    other: Weight = 0.0
    """Value of anything else."""
    squared: tuple[str, ...] = ()
    """Tasks whose ratio is squared."""

    def value(self, rollout: Rollout, score: Score) -> float:
        if score.verdict is Verdict.CORRECT:
            return self.exact
        parts = score.parts
        value = parts.get("value", 0.0)
        optimum = parts.get("optimum", 0.0)
        if not parts.get("feasible") or score.verdict is not Verdict.WRONG:
            return self.other
        ratio = min(value, optimum) / max(value, optimum) if value > 0 and optimum > 0 else 0.0
        if rollout.problem.task in self.squared:
            ratio **= 2
        return self.feasible * ratio


class Tags(Shaping):
    """1 if the response starts with one closed thinking block and then answers; or a tag rule of
    TRL or Open R1."""

    kind: Literal["thinking", "think_format", "think_answer_format", "tag_count"]

    def value(self, rollout: Rollout, score: Score) -> float:
        return float(_TAG_RULES[self.kind](rollout.text))


_TAG_RULES: dict[str, Callable[[str], float]] = {
    "thinking": text_stats.has_thinking,
    "think_format": text_stats.is_think_format,
    "think_answer_format": text_stats.is_think_answer_format,
    "tag_count": text_stats.tag_count,
}


class WeightedTags(Shaping):
    """NeMo RL's rule: one weight for a closed thinking block, another for a closed answer block."""

    kind: Literal["weighted_tags"]
    think_weight: Weight = 0.25
    """Value of a closed thinking block."""
    answer_weight: Weight = 0.75
    """Value of a closed answer block."""
    think_tag: str = "think"
    """Name of the tag around the thought."""
    answer_tag: str = "answer"
    """Name of the tag around the answer."""

    def value(self, rollout: Rollout, score: Score) -> float:
        thinks = text_stats.has_block(rollout.text, self.think_tag)
        answers = text_stats.has_block(rollout.text, self.answer_tag)
        return self.think_weight * thinks + self.answer_weight * answers


class Repeat(Shaping):
    """The fraction of the text in loops, or with a threshold, 1 if the fraction exceeds it."""

    kind: Literal["repeat"]
    min_unit: int = Field(default=text_stats.MIN_UNIT, ge=1)
    """Shortest unit of a loop, in characters."""
    min_repeats: int = Field(default=text_stats.MIN_REPEATS, ge=5)
    """Fewest consecutive repeats that make a loop."""
    threshold: float | None = None
    """Fraction above which the value is 1; 0 penalises any loop in full, as NPG-Muse does; none
    takes the fraction itself."""

    def value(self, rollout: Rollout, score: Score) -> float:
        fraction = text_stats.repeated_fraction(
            rollout.text, min_unit=self.min_unit, min_repeats=self.min_repeats
        )
        return fraction if self.threshold is None else float(fraction > self.threshold)


class Ngrams(Shaping):
    """The fraction of repeated n-grams (TRL over tokens, Open R1 over lower-case words)."""

    kind: Literal["ngram_words", "ngram_tokens"]
    size: int = Field(default=3, ge=1)
    """Words or tokens in an n-gram."""

    @property
    def needs_tokens(self) -> bool:
        return self.kind == "ngram_tokens"

    def value(self, rollout: Rollout, score: Score) -> float:
        tokens = rollout.completion.tokens
        items = text_stats.words(rollout.text) if self.kind == "ngram_words" else tokens.tolist()
        return text_stats.ngram_repetition(items, self.size)


class Overlong(Shaping):
    """0 up to `buffer` tokens below the limit, then down to -1 (DAPO, Yu et al. 2025, eq. 13)."""

    kind: Literal["overlong"]
    max_tokens: int = Field(ge=1)
    """The limit, at which the value is -1."""
    buffer: int = Field(ge=1)
    """Tokens before the limit over which the value falls."""

    @property
    def needs_tokens(self) -> bool:
        return True

    def value(self, rollout: Rollout, score: Score) -> float:
        return min(max((self.max_tokens - self.buffer - _length(rollout)) / self.buffer, -1.0), 0.0)


class Cosine(Shaping):
    """Half a cosine from the value of a short response to that of a long one (Yeo et al. 2025)."""

    kind: Literal["cosine"]
    max_tokens: int = Field(ge=1)
    """Length at and above which the long value applies."""
    correct_short: Weight = 1.0
    """Value of a right response of length 0."""
    correct_long: Weight = 0.5
    """Value of a right response at the limit."""
    wrong_short: Weight = -1.0
    """Value of a wrong response of length 0."""
    wrong_long: Weight = -0.5
    """Value of a wrong response at the limit."""

    @property
    def needs_tokens(self) -> bool:
        return True

    def value(self, rollout: Rollout, score: Score) -> float:
        is_right = score.verdict is Verdict.CORRECT
        short = self.correct_short if is_right else self.wrong_short
        long = self.correct_long if is_right else self.wrong_long
        progress = min(_length(rollout) / self.max_tokens, 1.0)
        return long + (short - long) * (1.0 + cos(pi * progress)) / 2


class Linear(Shaping):
    """1 up to `free_tokens`, then falling to 0 at `max_tokens`."""

    kind: Literal["linear"]
    max_tokens: int = Field(ge=1)
    """Length at which the value is 0."""
    free_tokens: int = Field(default=0, ge=0)
    """Length up to which the value is 1."""

    @property
    def needs_tokens(self) -> bool:
        return True

    def value(self, rollout: Rollout, score: Score) -> float:
        span = max(self.max_tokens - self.free_tokens, 1)
        return min(max((self.max_tokens - _length(rollout)) / span, 0.0), 1.0)


class StepForm(Shaping):
    """RL-Tango's format scores.

    The payload of a verification's problem may have `num_steps` and `form` of the solution. A wrong
    number of steps lowers the score only if `form` is at least 0.6.
    """

    kind: Literal["solution_form", "verification_form"]

    def value(self, rollout: Rollout, score: Score) -> float:
        if self.kind == "solution_form":
            return rate_solution(rollout.text)
        steps = rollout.problem.payload.get("num_steps")
        form = rollout.problem.payload.get("form", 1.0)
        has_form = isinstance(form, int | float) and form >= 0.6
        num_steps = steps if isinstance(steps, int) and has_form else None
        return rate_verification(rollout.text, num_steps)


class UserTerm(Shaping):
    """The user's own term: a function of a rollout and its score, or a subclass of `Shaping`.

    All other keys are settings of the class; a function takes none.
    """

    model_config = ConfigDict(extra="allow")

    kind: Literal["own"] = "own"
    path: CodePath
    """A Python file and a function or class in it, as "my_terms.py:name"."""

    @model_validator(mode="after")
    def _load_now(self) -> Self:
        """Fail on a mistake in the file before the first responses are sampled."""
        assert self._function is not None, "it is loaded"
        return self

    @cached_property
    def _function(self) -> Callable[[Rollout, Score], float]:
        settings = dict(self.__pydantic_extra__ or {})
        value = load_from_file(self.path, "reward")
        if isinstance(value, type) and issubclass(value, Shaping):
            try:
                return validate_settings(value, settings).value
            except ConfigError as error:
                raise ConfigError(f"the term {self.path}: {error}") from error
        if not callable(value) or isinstance(value, type):
            raise ConfigError(
                f"{self.path} is neither a function of a rollout and its score nor a class that "
                "inherits from whet.rewards.shaping.Shaping"
            )
        if settings:
            names = ", ".join(settings)
            raise ConfigError(
                f"{self.path} is a function and takes no settings, but is given {names}"
            )
        check_parameters(value, f"reward = {self.path!r}", ("rollout", "score"))
        return value

    @property
    def needs_tokens(self) -> bool:
        """Whether a class needs tokens; a function is assumed not to."""
        term = getattr(self._function, "__self__", None)
        return isinstance(term, Shaping) and term.needs_tokens

    def value(self, rollout: Rollout, score: Score) -> float:
        try:
            number = self._function(rollout, score)
        except Exception as error:  # a user's function may raise anything
            files = [str(Path(self.path.rpartition(":")[0]).resolve())]
            raise explain_exception(f"reward = {self.path!r}", error, files) from error
        if not isinstance(number, int | float) or not abs(number) <= MAX_WEIGHT:
            needs = f"not a number from {-MAX_WEIGHT:g} to {MAX_WEIGHT:g}"
            raise ConfigError(f"{self.path} gave {number!r} for {rollout.id}, {needs}")
        return float(number)


class Random(Shaping):
    """A random number from 0 to 1, independent of the answer, as a control (Shao et al. 2025)."""

    kind: Literal["random"]

    def value(self, rollout: Rollout, score: Score) -> float:
        """Draw from a stream of the rollout's id and text, so that the value is reproducible."""
        return make_rng(0, "reward", rollout.id, rollout.text).random()


Term = Annotated[
    Outcome
    | Quality
    | Tags
    | WeightedTags
    | Repeat
    | Ngrams
    | Overlong
    | Cosine
    | Linear
    | StepForm
    | Random
    | UserTerm,
    Field(discriminator="kind"),
]


def _length(rollout: Rollout) -> int:
    return len(rollout.completion.tokens)
