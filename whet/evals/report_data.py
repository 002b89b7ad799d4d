"""What a report shows, in plain types. Whoever holds the runs fills it; the page only draws it.

A part that is empty or None is left out of the page.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from whet.evals.stats import Estimate
from whet.evals.summary import EvalSummary
from whet.types import Finish, Rollout, Verdict


class Unit(StrEnum):
    """How a curve's values are written: a bare number, a share as per cent, or a number of
    tokens."""

    NUMBER = "number"
    SHARE = "share"
    TOKENS = "tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """How long a stage took; `note` says more, such as "already done"."""

    name: str
    seconds: float
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedEval:
    """One evaluation under the name its bars carry; the same name stands for the same model
    throughout."""

    name: str
    summary: EvalSummary
    is_greedy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One metric over the steps of a stage; `low` and `high`, where given, draw its 95 % band."""

    name: str
    stage: str
    steps: Sequence[float]
    values: Sequence[float]
    unit: Unit = Unit.NUMBER
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of an answer and what the grader says of it; `ok` is None where it says nothing."""

    text: str
    ok: bool | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One rollout as the page shows it."""

    lines: tuple[Line, ...]
    verdict: Verdict
    note: str
    num_tokens: int
    is_finished: bool

    @staticmethod
    def from_rollout(rollout: Rollout, lines: Sequence[Line] = ()) -> "Answer":
        """View a rollout; without graded lines its text is shown as it stands."""
        score = rollout.score
        return Answer(
            lines=tuple(lines) or tuple(Line(text=text) for text in rollout.text.splitlines()),
            verdict=Verdict.UNSCORED if score is None else score.verdict,
            note="" if score is None else score.note,
            num_tokens=len(rollout.completion.tokens),
            is_finished=rollout.completion.finish is not Finish.LENGTH,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One problem with an answer from before and one from after; either may be missing."""

    problem: str
    label: str = ""
    before: Answer | None = None
    after: Answer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Everything on the page, from top to bottom."""

    title: str
    headline: str
    difference: Estimate | None = None
    """The paired gain of the last evaluation over the first, as a share."""
    evals: tuple[NamedEval, ...] = ()
    """In order of training: the first is drawn as before, the last as after."""
    curves: tuple[Curve, ...] = ()
    samples: tuple[Sample, ...] = ()
    stages: tuple[StageTime, ...] = ()
    settings: str = ""
    """Resolved settings, a line each, with the origin after " # "."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Seed, versions, machine, command: what it takes to do it again."""
