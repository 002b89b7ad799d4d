"""Mathematics: a question and a reference answer, in text or LaTeX, graded exactly.

A problem holds the reference in `answer`. Its `payload` may hold `answers`, a list of references of
which any one is right; `tolerance`, a relative one, and `error`, an absolute one, where the problem
asks for an approximate number; and `percent`, `units`, `order`, `names` to set the policy of the
same name for this problem alone. Problems come from files.
"""

import importlib
from collections.abc import Iterator
from typing import Literal, TypeVar, get_args

from whet.config import Config
from whet.errors import DataError
from whet.tasks.base import Task
from whet.tasks.math.echo import is_echo
from whet.tasks.math.find import find_answer
from whet.tasks.math.grade import core, is_doubled, is_same, is_written
from whet.tasks.math.policy import Names, Order, Percent, Policy, Units
from whet.types import Json, Problem, Score, Split, Verdict

MAX_SHOWN = 500
T = TypeVar("T", bound=str)


class MathConfig(Config):
    name: Literal["math"] = "math"
    percent: Percent = "unit"
    """What 50% is: "unit", the number 50 with a sign that may be left out; "value", 0.5; "both",
    either of them."""
    units: Units = "agree"
    """Units behind a number: "agree", they may be left out but not contradict; "ignore"; "same",
    they must be given."""
    order: Order = "free"
    """Whether a list without brackets may be given in any order. Sets always may, tuples never."""
    names: Names = "drop"
    """Whether x = 2 is also given by 2: "drop" says yes, "keep" asks for the equation."""
    rounded_digits: int = 6
    """A decimal stands for a fraction or root if it has this many significant digits, all right; 0:
    it never does."""
    tolerance: float = 0.0
    """The relative error that is right for every problem; a problem's own `tolerance` or `error`
    comes on top."""


class Math(Task):
    """Grades an answer in a tag, in a box, on a marked line or at the end, against one reference or
    several."""

    name = "math"

    def __init__(self, config: MathConfig | None = None) -> None:
        self.config = config or MathConfig()

    def warm(self) -> None:
        """Load math-verify, which takes half a second."""
        importlib.import_module("math_verify")

    def problems(self, split: Split) -> Iterator[Problem]:
        """List nothing: problems of this task are imported from files."""
        return iter(())

    def score(self, problem: Problem, text: str) -> Score:
        """Say whether a response gives the reference. Parts: `correct` 0 or 1."""
        golds = references(problem)
        if not golds:
            return _score(Verdict.UNSCORED, None, "the problem has no reference")
        if any(is_written(gold, text) for gold in golds):
            return _score(Verdict.CORRECT, text.strip(), "the response is the reference")
        found = find_answer(text)
        policy = self.policy(problem)
        answer = "" if found is None else found.text.strip()
        if not answer:
            return _score(Verdict.NO_ANSWER, None, "no answer found")
        matched = next((gold for gold in golds if is_same(gold, answer, policy)), None)
        # Matrices side by side in prose are a product to be worked out; in a box they are one
        # answer twice.
        is_product = "\\begin" in answer and "boxed" not in text
        if matched is None:
            fault = "not the reference"
        elif not is_product and is_doubled(matched, answer, policy):
            fault = "the reference written twice"
        elif is_echo(answer, golds, "\n".join(message.content for message in problem.prompt)):
            fault = "the question again, not worked out"
        else:
            return _score(Verdict.CORRECT, answer, "the same as the reference")
        return _score(Verdict.WRONG, answer, fault)

    def solve(self, problem: Problem, seed: int) -> str | None:
        """Box the reference."""
        golds = references(problem)
        return rf"\boxed{{{core(golds[0])}}}" if golds else None

    def policy(self, problem: Problem) -> Policy:
        """Settle what counts as the same for one problem: the settings, with what its payload says
        in their place."""
        config, payload = self.config, problem.payload
        return Policy(
            percent=_choice(problem, "percent", get_args(Percent), config.percent),
            units=_choice(problem, "units", get_args(Units), config.units),
            order=_choice(problem, "order", get_args(Order), config.order),
            names=_choice(problem, "names", get_args(Names), config.names),
            rounded_digits=config.rounded_digits,
            tolerance=max(
                config.tolerance, _amount(problem, payload.get("tolerance"), "tolerance")
            ),
            error=_amount(problem, payload.get("error"), "error"),
        )


def references(problem: Problem) -> list[str]:
    """List the references of a problem, its `answer` first."""
    more = problem.payload.get("answers", [])
    if not isinstance(more, list) or not all(isinstance(answer, str) for answer in more):
        raise DataError(
            f"problem {problem.id} needs a list of texts in payload.answers, not {more!r}"
        )
    golds = [problem.answer or "", *(answer for answer in more if isinstance(answer, str))]
    return list(dict.fromkeys(gold for gold in golds if gold.strip()))


def _score(verdict: Verdict, answer: str | None, note: str) -> Score:
    shown = None if answer is None else answer[:MAX_SHOWN]
    return Score(
        verdict=verdict,
        parts={"correct": float(verdict is Verdict.CORRECT)},
        answer=shown,
        note=note,
    )


def _choice(problem: Problem, key: str, known: tuple[T, ...], default: T) -> T:
    given = problem.payload.get(key)
    if given is None:
        return default
    for name in known:
        if given == name:
            return name
    raise DataError(
        f"problem {problem.id} has payload.{key} {given!r}; it should be one of {', '.join(known)}"
    )


def _amount(problem: Problem, given: Json, key: str) -> float:
    if given is None:
        return 0.0
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < 1e300:
        raise DataError(
            f"problem {problem.id} has payload.{key} {given!r}; it should be a number from 0"
        )
    return float(given)
