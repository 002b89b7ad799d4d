"""Multiple choice: GPQA, SuperGPQA, MMLU, AQuA and their like.

A problem's `answer` is the letter ("B"; "ABD" where several are right together), its `payload` may
hold the options' texts: `{"options": {"A": "4", "B": "5"}}`, or as a list. The last answer the
response commits itself to counts, as a letter in any usual form or as the whole text of an option;
two letters are wrong where one is asked for.
"""

from collections.abc import Iterator, Mapping
from typing import Literal

from whet.config import Config
from whet.errors import DataError
from whet.tasks.answers import no_answer, to_score
from whet.tasks.base import Task
from whet.tasks.qa.letters import Picked, pick
from whet.tasks.qa.stated import Statement, statements
from whet.types import Problem, Score, Split

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_USUAL = LETTERS[:10]


class ChoiceConfig(Config):
    name: Literal["choice"] = "choice"


class Choice(Task):
    """Grades letters; its problems come from files."""

    name = "choice"

    def __init__(self, config: ChoiceConfig | None = None) -> None:
        self.config = config or ChoiceConfig()

    def problems(self, split: Split) -> Iterator[Problem]:
        return iter(())

    def score(self, problem: Problem, text: str) -> Score:
        """State whether the letter, or letters, are those of the answer. Parts: `correct`."""
        options = options_of(problem)
        gold = _gold(problem, options)
        final = last_pick(text, options)
        if final is None:
            return no_answer()
        statement, picked = final
        if picked is None:
            return to_score(False, {}, statement.text, "the answer is none of the options")
        shown = " or ".join(sorted(picked.letters))
        if picked.is_same_text:
            is_right = len(gold) == 1 and gold <= picked.letters
        else:
            is_right = not picked.is_hedged and picked.letters == gold
        note = f"picks {shown}" if not picked.is_hedged else f"does not decide: {shown}"
        return to_score(is_right, {}, shown, note)

    def solve(self, problem: Problem, seed: int) -> str | None:
        return None if problem.answer is None else f"The answer is \\boxed{{{problem.answer}}}."


def last_pick(text: str, options: Mapping[str, str]) -> tuple[Statement, Picked | None] | None:
    """Find the last statement that names an option, or the last tag or box, whatever it holds."""
    for statement in reversed(statements(text)):
        if statement.form == "line" and _is_in_list(text, statement):
            continue
        picked = pick(statement.text, options, must_be_whole=statement.is_loose)
        if picked is not None or statement.is_explicit:
            return statement, picked
    return None


def options_of(problem: Problem) -> dict[str, str]:
    """Read the options from the payload, letter to text; without any, A to J have no text."""
    given = problem.payload.get("options")
    if given is None:
        return dict.fromkeys(_USUAL, "")
    if isinstance(given, list) and len(given) <= len(LETTERS):
        given = dict(zip(LETTERS, given, strict=False))
    if not isinstance(given, dict) or not all(len(key) == 1 and key in LETTERS for key in given):
        raise DataError(
            f"problem {problem.id} needs options by letter, or as a list, not {str(given)[:100]}"
        )
    return {key: str(text) for key, text in given.items()}


def _gold(problem: Problem, options: Mapping[str, str]) -> frozenset[str]:
    picked = pick(problem.answer or "", options, must_be_whole=True)
    if picked is None or picked.is_hedged:
        raise DataError(
            f"problem {problem.id} needs a letter of its options as the answer, "
            f"not {problem.answer!r}"
        )
    return picked.letters


def _is_in_list(text: str, line: Statement) -> bool:
    """See that the last line is one of a list of options: the line before it is labelled too."""
    lines = text[-4 * len(line.text) - (1 << 14) :].rstrip().splitlines()[:-1]
    before = next((other for other in reversed(lines) if other.strip()), "").strip().lstrip("(")
    return len(before) > 2 and before[0] in LETTERS and before[1] in ").:．、"
