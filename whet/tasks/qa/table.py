"""Answers from tables: HiTab, MultiHiertt, FinQA, TableBench, TabMWP.

A problem's `answer` is a number with or without a unit, a text, or a list; a list with bars (`a |
b`) is free in its order, one with commas is not unless the payload says `"order": "free"`. The
`payload` may hold further accepted `answers`, the `unit` the question asks for, and a relative
`tolerance` where the data set defines one; none is assumed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from whet.config import Config
from whet.errors import DataError
from whet.tasks.answers import no_answer, to_score
from whet.tasks.base import Task
from whet.tasks.qa.stated import MAX_SPAN, statements
from whet.tasks.qa.values import Quantity, listed, quantity, text_form, unit_words
from whet.text.final_answer import after_verb, only_number, visible_text
from whet.types import Problem, Score, Split

_MAX_PARTS = 256
_MAX_LINE = 400


class TableConfig(Config):
    name: Literal["table"] = "table"
    percent_sign: Literal["optional", "required"] = "optional"
    """Whether 69.75 is right where the answer is 69.75 %. Neither takes 69.75 % for 69.75, nor 5000
    for 50."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How values are compared for one problem."""

    unit: frozenset[str] = frozenset()
    tolerance: Fraction = Fraction(0)
    is_free: bool = False
    needs_percent: bool = False


class Table(Task):
    """Grades numbers, texts and lists; its problems come from files."""

    name = "table"

    def __init__(self, config: TableConfig | None = None) -> None:
        self.config = config or TableConfig()

    def problems(self, split: Split) -> Iterator[Problem]:
        return iter(())

    def score(self, problem: Problem, text: str) -> Score:
        """State whether the last answer of the response is one of the accepted ones. Parts:
        `correct`."""
        golds = accepted(problem)
        rule = self._rule(problem)
        stated, whole, said = answers_in(text)
        spans = [span for span in (stated, whole, *said) if span]
        is_right = any(agrees(gold, span, rule) for gold in golds for span in spans)
        if stated is None and not is_right:
            return no_answer()
        note = "agrees with the answer" if is_right else f"the answer is {golds[0][:80]!r}"
        return to_score(is_right, {}, (stated or whole or "").strip(), note)

    def solve(self, problem: Problem, seed: int) -> str | None:
        return None if problem.answer is None else f"<answer>{problem.answer}</answer>"

    def _rule(self, problem: Problem) -> Rule:
        unit = problem.payload.get("unit")
        tolerance = problem.payload.get("tolerance") or 0
        if (
            isinstance(tolerance, bool)
            or not isinstance(tolerance, int | float)
            or not 0 <= tolerance < 1
        ):
            raise DataError(
                f"problem {problem.id} needs a tolerance from 0 to 1, not {tolerance!r}"
            )
        return Rule(
            unit=unit_words(unit) if isinstance(unit, str) else frozenset(),
            tolerance=Fraction(str(tolerance)),
            is_free=problem.payload.get("order") == "free",
            needs_percent=self.config.percent_sign == "required",
        )


def accepted(problem: Problem) -> list[str]:
    """List the references: the answer, and further ones of the payload."""
    more = problem.payload.get("answers")
    texts = [problem.answer, *(more if isinstance(more, list) else [])]
    found = list(
        dict.fromkeys(str(text) for text in texts if text is not None and str(text).strip())
    )
    if not found:
        raise DataError(f"problem {problem.id} needs an answer, not {problem.answer!r}")
    return found


def answers_in(text: str) -> tuple[str | None, str | None, tuple[str | None, ...]]:
    """Find the last answer stated, the whole response where it may be nothing but one, and what a
    sentence tells.

    None stands for what is not there. What a tag or a box holds is an answer as it is, and no
    sentence.
    """
    found = [each for each in statements(text) if each.form != "conclusion"]
    if not found:
        return None, None, ()
    last = found[-1]
    whole = (visible_text(text) or "").strip()
    longest = _MAX_LINE if last.form == "line" else MAX_SPAN
    is_stated = bool(last.text.strip()) and len(last.text) <= longest
    said = (
        () if last.is_explicit or not is_stated else (after_verb(last.text), only_number(last.text))
    )
    return last.text if is_stated else None, whole if len(whole) <= MAX_SPAN else None, said


def agrees(gold: str, answer: str, rule: Rule) -> bool:
    """Compare two answers: as texts, as quantities, then as lists of both."""
    if _same(gold, answer, rule):
        return True
    golds = listed(gold)
    if not 2 <= len(golds) <= _MAX_PARTS:
        return False
    answers = listed(answer)
    if len(answers) != len(golds):
        answers = [part for each in answers for part in each.split(" and ")]
    if len(answers) != len(golds):
        return False
    if rule.is_free or "|" in gold:
        return _matched(golds, answers, rule)
    return all(_same(left, right, rule) for left, right in zip(golds, answers, strict=True))


def _matched(golds: Sequence[str], answers: Sequence[str], rule: Rule) -> bool:
    """Give every reference an answer of its own."""
    left = list(answers)
    for gold in golds:
        for index, answer in enumerate(left):
            if _same(gold, answer, rule):
                del left[index]
                break
        else:
            return False
    return True


def _same(gold: str, answer: str, rule: Rule) -> bool:
    form = text_form(gold)
    if gold.strip() == answer.strip() or (form and form == text_form(answer)):
        return True
    left = quantity(gold)
    right = quantity(answer)
    if left is None or right is None or left.is_glued:
        return False
    return _equal(left, right, rule)


def _equal(gold: Quantity, answer: Quantity, rule: Rule) -> bool:
    if gold.is_percent != answer.is_percent:
        return _equal_in_percent(gold, answer, rule)
    wanted = gold.unit | rule.unit
    fits = not wanted or not answer.unit or answer.unit <= wanted or wanted <= answer.unit
    return fits and _near(gold.value, answer.value, rule)


def _equal_in_percent(gold: Quantity, answer: Quantity, rule: Rule) -> bool:
    """Compare a percentage with a plain number: by value, or without its sign where the sign may be
    left out."""
    if gold.is_percent:
        is_bare = not answer.unit and not rule.needs_percent
        return _near(gold.value / 100, answer.value, rule) or (
            is_bare and _near(gold.value, answer.value, rule)
        )
    if "percent" in rule.unit and _near(gold.value, answer.value, rule):
        return True
    return (
        not gold.unit and "percent" not in rule.unit and _near(gold.value, answer.value / 100, rule)
    )


def _near(gold: Fraction, answer: Fraction, rule: Rule) -> bool:
    return abs(gold - answer) <= rule.tolerance * abs(gold)
