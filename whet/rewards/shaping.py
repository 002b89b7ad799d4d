"""Shaping terms: small pure functions of a rollout that a reward spec names, with their parameters,
and weighs."""

from math import cos, pi
from typing import Annotated, Literal

from pydantic import Field

from whet.config import Config
from whet.rewards import text_stats
from whet.rng import stream
from whet.text.steps import solution_form, verification_form
from whet.types import Rollout, Score, Verdict


class Shaping(Config):
    """What every term has: a weight, and the verdicts it counts for."""

    weight: float = 1.0
    """Multiplies the term's value."""
    when: Literal["always", "correct", "wrong", "answered"] = "always"
    """Count the term only for right answers, for others, or wherever an answer was found."""

    def counts(self, verdict: Verdict) -> bool:
        if self.when == "answered":
            return verdict is not Verdict.NO_ANSWER
        return self.when == "always" or (self.when == "correct") == (verdict is Verdict.CORRECT)

    def value(self, rollout: Rollout, score: Score) -> float:
        """Measure one rollout, before the weight."""
        raise NotImplementedError


class Outcome(Shaping):
    kind: Literal["outcome"]
    correct: float = 1.0
    wrong: float = 0.0
    no_answer: float | None = None
    """None treats a missing answer as a wrong one."""

    def value(self, rollout: Rollout, score: Score) -> float:
        if score.verdict is Verdict.CORRECT:
            return self.correct
        return (
            self.wrong
            if score.verdict is Verdict.WRONG or self.no_answer is None
            else self.no_answer
        )


class Quality(Shaping):
    """How near a feasible solution comes to the optimum: `exact` at it, `feasible` × the ratio
    below, else `other`."""

    kind: Literal["quality"]
    exact: float = 1.0
    feasible: float = 0.5
    other: float = 0.0
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
        return self.feasible * (ratio**2 if rollout.problem.task in self.squared else ratio)


class Thinking(Shaping):
    """1 where the response thinks in one closed block first and then says something."""

    kind: Literal["thinking"]

    def value(self, rollout: Rollout, score: Score) -> float:
        return float(text_stats.has_thinking(rollout.text))


class Tags(Shaping):
    """The tag rules of TRL and Open R1."""

    kind: Literal["think_format", "think_answer_format", "tag_count"]

    def value(self, rollout: Rollout, score: Score) -> float:
        if self.kind == "tag_count":
            return text_stats.tag_count(rollout.text)
        rule = (
            text_stats.is_think_format
            if self.kind == "think_format"
            else text_stats.is_think_answer_format
        )
        return float(rule(rollout.text))


class WeightedTags(Shaping):
    """NeMo RL's rule: a weight for each of two blocks that is there and closed."""

    kind: Literal["weighted_tags"]
    think_weight: float = 0.25
    answer_weight: float = 0.75
    think_tag: str = "think"
    answer_tag: str = "answer"

    def value(self, rollout: Rollout, score: Score) -> float:
        thinks, answers = (
            text_stats.has_block(rollout.text, tag) for tag in (self.think_tag, self.answer_tag)
        )
        return self.think_weight * thinks + self.answer_weight * answers


class Repeat(Shaping):
    """The share of the text in loops; with a threshold, 1 where the share is above it."""

    kind: Literal["repeat"]
    min_unit: int = Field(default=text_stats.MIN_UNIT, ge=1)
    """Shortest unit of a loop, in characters."""
    min_repeats: int = Field(default=text_stats.MIN_REPEATS, ge=5)
    threshold: float | None = None
    """0 makes any loop count in full, as NPG-Muse does; None takes the share itself."""

    def value(self, rollout: Rollout, score: Score) -> float:
        share = text_stats.repeated_share(
            rollout.text, min_unit=self.min_unit, min_repeats=self.min_repeats
        )
        return share if self.threshold is None else float(share > self.threshold)


class Ngrams(Shaping):
    """The share of n-grams that were there before (TRL over tokens, Open R1 over words in lower
    case)."""

    kind: Literal["ngram_words", "ngram_tokens"]
    size: int = Field(default=3, ge=1)

    def value(self, rollout: Rollout, score: Score) -> float:
        tokens = rollout.completion.tokens
        items = text_stats.words(rollout.text) if self.kind == "ngram_words" else tokens.tolist()
        return text_stats.ngram_repetition(items, self.size)


class Overlong(Shaping):
    """0 until the buffer before the limit, then down to -1 at the limit (DAPO, Yu et al. 2025,
    equation 13)."""

    kind: Literal["overlong"]
    max_tokens: int = Field(ge=1)
    buffer: int = Field(ge=1)

    def value(self, rollout: Rollout, score: Score) -> float:
        return min(max((self.max_tokens - self.buffer - _length(rollout)) / self.buffer, -1.0), 0.0)


class Cosine(Shaping):
    """From a short answer's value to a long one's along half a cosine (Yeo et al. 2025)."""

    kind: Literal["cosine"]
    max_tokens: int = Field(ge=1)
    correct_short: float = 1.0
    correct_long: float = 0.5
    wrong_short: float = -1.0
    wrong_long: float = -0.5

    def value(self, rollout: Rollout, score: Score) -> float:
        is_right = score.verdict is Verdict.CORRECT
        short, long = (
            (self.correct_short, self.correct_long)
            if is_right
            else (self.wrong_short, self.wrong_long)
        )
        progress = min(_length(rollout) / self.max_tokens, 1.0)
        return long + (short - long) * (1.0 + cos(pi * progress)) / 2


class Linear(Shaping):
    """1 up to the free length, then down to 0 at the limit."""

    kind: Literal["linear"]
    max_tokens: int = Field(ge=1)
    free_tokens: int = Field(default=0, ge=0)

    def value(self, rollout: Rollout, score: Score) -> float:
        span = max(self.max_tokens - self.free_tokens, 1)
        return min(max((self.max_tokens - _length(rollout)) / span, 0.0), 1.0)


class StepForm(Shaping):
    """RL-Tango's format scores. A verification's problem may say how many `num_steps` its solution
    has, and its `form`.

    The count of steps is held against a verification only where the solution's own form is 0.6 or
    more.
    """

    kind: Literal["solution_form", "verification_form"]

    def value(self, rollout: Rollout, score: Score) -> float:
        if self.kind == "solution_form":
            return solution_form(rollout.text)
        steps = rollout.problem.payload.get("num_steps")
        form = rollout.problem.payload.get("form", 1.0)
        is_known = isinstance(steps, int) and isinstance(form, int | float) and form >= 0.6
        return verification_form(
            rollout.text, steps if is_known and isinstance(steps, int) else None
        )


class Random(Shaping):
    """A number from 0 to 1 that says nothing of the answer: a control (Shao et al. 2025)."""

    kind: Literal["random"]

    def value(self, rollout: Rollout, score: Score) -> float:
        """Draw it from the rollout's id and text, so that rewarding twice gives the same."""
        return stream(0, "reward", rollout.id, rollout.text).random()


Term = Annotated[
    Outcome
    | Quality
    | Thinking
    | Tags
    | WeightedTags
    | Repeat
    | Ngrams
    | Overlong
    | Cosine
    | Linear
    | StepForm
    | Random,
    Field(discriminator="kind"),
]

TOKEN_KINDS = frozenset({"ngram_tokens", "overlong", "cosine", "linear"})
"""Terms that need a rollout's tokens, not its text alone."""


def _length(rollout: Rollout) -> int:
    return len(rollout.completion.tokens)
