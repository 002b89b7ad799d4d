"""The answers a report shows: problems drawn by chance over all difficulties, never picked for what
they show."""

from collections.abc import Callable, Sequence

from whet.evals.report_data import Answer, Line, Sample
from whet.evals.summary import UNKNOWN, level_fifth
from whet.rng import stream
from whet.types import Group, Problem, Rollout

NUM_SAMPLES = 12

Notes = Callable[[Rollout], Sequence[Line]]


def draw_samples(
    before: Sequence[Group],
    after: Sequence[Group],
    notes: Notes,
    *,
    count: int = NUM_SAMPLES,
    seed: int = 0,
) -> tuple[Sample, ...]:
    """Draw problems evenly over difficulty and show the first answer of each evaluation.

    Either side may be empty; where both have groups, only problems that both hold are drawn.
    `notes` gives an answer's lines with the grader's word on each.
    """
    old = _first_answers(before)
    new = _first_answers(after)
    shared = [key for key in (old or new) if key in (new or old)]
    stream(seed, "samples").shuffle(shared)
    problems = [(new.get(key) or old[key]).problem for key in shared]
    return tuple(
        Sample(
            problem=_question(problem),
            label=_label(problem),
            before=_answer(old.get(problem.id), notes),
            after=_answer(new.get(problem.id), notes),
        )
        for problem in _spread(problems, count)
    )


def _first_answers(groups: Sequence[Group]) -> dict[str, Rollout]:
    answers: dict[str, Rollout] = {}
    for group in groups:
        for rollout in group[:1]:
            answers.setdefault(rollout.problem.id, rollout)
    return answers


def _spread(problems: Sequence[Problem], count: int) -> list[Problem]:
    """Take every so-many-th problem in order of difficulty, those of unknown difficulty last."""
    ordered = sorted(problems, key=lambda problem: 2.0 if problem.level is None else problem.level)
    count = min(count, len(ordered))
    return [ordered[(2 * index + 1) * len(ordered) // (2 * count)] for index in range(count)]


def _question(problem: Problem) -> str:
    asked = [message.content for message in problem.prompt if message.role == "user"]
    return asked[-1] if asked else problem.id


def _label(problem: Problem) -> str:
    if problem.payload.get("solvable") is False:
        return "unsolvable"
    fifth = level_fifth(problem.level)
    return "" if fifth == UNKNOWN else f"level {fifth} of 5"


def _answer(rollout: Rollout | None, notes: Notes) -> Answer | None:
    return None if rollout is None else Answer.from_rollout(rollout, notes(rollout))
