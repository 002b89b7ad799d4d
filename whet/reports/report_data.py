"""The content of a report in plain types, and its sample responses.

`whet/pipeline/report.py` fills it in, `report_pages.py` renders it. Empty parts are left out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from whet.evals.stats import Estimate
from whet.evals.summary import EvalSummary
from whet.level_bands import NUM_LEVELS, level_label
from whet.rng import make_rng
from whet.tasks.base import is_solvable
from whet.types import FinishReason, Group, Problem, Rollout, Verdict

NUM_SAMPLES = 12


class Unit(StrEnum):
    """How to write the values of a curve: as numbers, percentages or token counts."""

    NUMBER = "number"
    FRACTION = "fraction"
    TOKENS = "tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """The duration of a stage, and the total time of each of its phases."""

    name: str
    seconds: float
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase, of its steps and of what it did outside them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedEval:
    """One evaluation and the name of its model."""

    name: str
    summary: EvalSummary
    is_greedy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One metric over the steps of a stage; `low` and `high` are its 95 % band, if it has one."""

    name: str
    stage: str
    steps: Sequence[float]
    values: Sequence[float]
    unit: Unit = Unit.NUMBER
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    is_smooth: bool = False
    """Whether it is drawn without averaging, however long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseLine:
    """A line of a response and the grader's remark; `is_right` is None without a verdict on it."""

    text: str
    is_right: bool | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseView:
    """One rollout as the page shows it."""

    lines: tuple[ResponseLine, ...]
    verdict: Verdict
    note: str
    num_tokens: int
    is_finished: bool

    @staticmethod
    def from_rollout(rollout: Rollout, lines: Sequence[ResponseLine] = ()) -> "ResponseView":
        """Make the view of a rollout; without graded lines its text is shown unchanged."""
        score = rollout.score
        return ResponseView(
            lines=tuple(lines)
            or tuple(ResponseLine(text=text) for text in rollout.text.splitlines()),
            verdict=Verdict.UNSCORED if score is None else score.verdict,
            note="" if score is None else score.note,
            num_tokens=len(rollout.completion.tokens),
            is_finished=rollout.completion.finish_reason is not FinishReason.LENGTH,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSample:
    """A problem with a response from before training and one from after; either may be missing."""

    problem: str
    label: str = ""
    reference: str = ""
    """The right answer, if one is known."""
    before: ResponseView | None = None
    after: ResponseView | None = None

    @property
    def is_missed(self) -> bool:
        """Whether a response that is shown is not right."""
        responses = [view for view in (self.before, self.after) if view is not None]
        return any(view.verdict is not Verdict.CORRECT for view in responses)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Everything on the page, from top to bottom."""

    title: str
    headline: str
    difference: Estimate | None = None
    """The paired gain of the last evaluation over the first, as a fraction."""
    warnings: tuple[str, ...] = ()
    """What the headline alone would hide."""
    about: Mapping[str, str] = field(default_factory=dict)
    """Task, model, size and data, for a reader who knows nothing of the run."""
    evals: tuple[NamedEval, ...] = ()
    """In order of training: the first is drawn as before, the last as after."""
    curves: tuple[Curve, ...] = ()
    samples: tuple[ReportSample, ...] = ()
    titles: tuple[str, str] | None = None
    """Headings of the responses before and after; None takes the first and last name."""
    stages: tuple[StageTime, ...] = ()
    settings: str = ""
    """Resolved settings, one per line, with the origin after " # "."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Seed, versions, machine, command: everything needed to repeat the run."""


def pick_samples(
    before: Sequence[Group],
    after: Sequence[Group],
    comment: Callable[[Rollout], Sequence[ResponseLine]],
    *,
    reference: Callable[[Problem], str] = lambda problem: problem.answer or "",
    count: int = NUM_SAMPLES,
    seed: int = 0,
) -> tuple[ReportSample, ...]:
    """Pick problems evenly over difficulty, whatever their responses, each with its first one.

    Either side may be empty; if both have groups, only problems in both are picked. `comment`
    returns a response's lines with the grader's remarks, `reference` a problem's right answer.
    """

    def view(rollout: Rollout | None) -> ResponseView | None:
        return None if rollout is None else ResponseView.from_rollout(rollout, comment(rollout))

    old = _first_responses(before)
    new = _first_responses(after)
    common = [key for key in (old or new) if key in (new or old)]
    make_rng(seed, "samples").shuffle(common)
    problems = [(new.get(key) or old[key]).problem for key in common]
    return tuple(
        ReportSample(
            problem=_question_of(problem),
            label=_label(problem),
            reference=reference(problem),
            before=view(old.get(problem.id)),
            after=view(new.get(problem.id)),
        )
        for problem in _pick_evenly(problems, count)
    )


def _first_responses(groups: Sequence[Group]) -> dict[str, Rollout]:
    responses: dict[str, Rollout] = {}
    for group in groups:
        for rollout in group[:1]:
            responses.setdefault(rollout.problem.id, rollout)
    return responses


def _pick_evenly(problems: Sequence[Problem], count: int) -> list[Problem]:
    """Pick problems at equal distances in order of difficulty, unknown difficulty last."""
    ordered = sorted(problems, key=lambda problem: 2.0 if problem.level is None else problem.level)
    count = min(count, len(ordered))
    return [ordered[(2 * index + 1) * len(ordered) // (2 * count)] for index in range(count)]


def _question_of(problem: Problem) -> str:
    questions = [message.content for message in problem.prompt if message.role == "user"]
    return questions[-1] if questions else problem.id


def _label(problem: Problem) -> str:
    if not is_solvable(problem):
        return "unsolvable"
    label = level_label(problem.level, unknown="")
    return f"level {label} of {NUM_LEVELS}" if label else ""
