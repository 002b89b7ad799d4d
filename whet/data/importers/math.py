"""Benchmarks of mathematics: word problems, competitions, textbooks, Chinese examinations."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from whet.answers.final_answer import match_braces
from whet.data.importers.base import (
    BOXED,
    Fields,
    ImportedResponse,
    ParsedRow,
    Reader,
    to_level,
    user,
    worked_response,
)
from whet.errors import DataError
from whet.types import Json

_UNIT = re.compile(r"\s\([^()]*\)$")
_CALCULATION = re.compile(r"<<[^<>]*>>")
"""GSM8K's notes for a calculator: `48/2 = <<48/2=24>>24`."""


def read_fields(
    *names: str,
    answer: str = "answer",
    level: str = "",
    grades: int = 5,
    extract: Callable[[str], str] = str,
) -> Reader:
    """Read rows by the names of their fields; a question in several fields is joined.

    `extract` takes the answer out of a longer text. Rows may lack a worked solution.
    """

    def read(row: Fields) -> ParsedRow:
        gold = row.reference(answer) if extract is str else extract(row.text(answer))
        text = " ".join(row.text(name).strip() for name in names)
        grade = _read_grade(row, level, grades) if level else None
        return math_problem(text, gold, level=grade, solutions=[row.get("solution")])

    return read


def olympiadbench(row: Fields) -> ParsedRow:
    """Read several answers, and the absolute error allowed. A question with a picture is left
    out."""
    parts = [row.optional_text("context"), row.text("question")]
    allowed: dict[str, Json] = {"error": row.amount("error")} if row.get("error") else {}
    question = "\n\n".join(part for part in parts if part)
    is_list = isinstance(row.get("final_answer"), list)
    answers = row.texts("final_answer") if is_list else [row.scalar("final_answer")]
    given = row.get("solution")
    solutions = given if isinstance(given, list) else [given]
    parsed = math_problem(question, *answers, payload=allowed, solutions=solutions)
    has_image = any(row.get(f"image_{number}") for number in range(1, 6))
    return replace(parsed, unsupported="the question has a picture") if has_image else parsed


def deepmath(row: Fields) -> ParsedRow:
    """Read DeepMath's rows, whose difficulty goes from -1 to 10."""
    grade = row.get("difficulty")
    level = None if grade is None else min(max(row.number("difficulty") / 10, 0.0), 1.0)
    solutions = [row.get(f"r1_solution_{number}") for number in (1, 2, 3)]
    answer = row.scalar("final_answer")
    return math_problem(row.text("question"), answer, level=level, solutions=solutions)


def gsm8k(row: Fields) -> ParsedRow:
    """Read a worked solution that ends with the answer, without its calculator notes."""
    steps, _, _ = row.text("answer").rpartition("####")
    gold = after_hashes(row.text("answer"))
    return math_problem(row.text("question"), gold, solutions=[_CALCULATION.sub("", steps)])


def livemathbench(row: Fields) -> ParsedRow:
    """Read LiveMathBench; multiple-choice questions have their options in another field."""
    options = row.texts("options") if row.get("options") else []
    return math_problem(" ".join([row.text("question"), *options]), row.scalar("answer"))


def cloze(row: Fields) -> ParsedRow:
    """Read several blanks, separated by semicolons, as one answer."""
    return math_problem(row.text("question"), row.reference("answer").replace(";", ", "))


def college_math(row: Fields) -> ParsedRow:
    """Name an exercise by its book and its number."""
    id = f"{row.text('data_source')}:{row.text('question_number')}"
    return math_problem(row.text("question"), row.reference("answer"), id=id)


def last_box_text(solution: str) -> str:
    r"""Return the content of the last box of a solution.

    >>> last_box_text(r"so \boxed{\frac{1}{2}} it is")
    '\\frac{1}{2}'
    """
    _, sign, rest = solution.rpartition("\\boxed")
    rest = rest.lstrip()
    if not sign or not rest:
        raise DataError("has no \\boxed{} with the answer in its solution")
    if not rest.startswith("{"):
        return re.split(r"[\s$]", rest, maxsplit=1)[0]
    end = match_braces(rest).get(0)
    if end is None:
        raise DataError("has a \\boxed{ in its solution that is not closed")
    return rest[1:end].strip()


def after_hashes(solution: str) -> str:
    """Return the answer after `####` at the end of a worked solution."""
    _, sign, answer = solution.rpartition("####")
    if not sign or not answer.strip():
        raise DataError("field 'answer' should end with #### and the answer")
    return answer


def math_problem(
    question: str,
    *answers: str,
    id: str | None = None,
    level: float | None = None,
    payload: Mapping[str, Json] | None = None,
    solutions: Sequence[Json] = (),
) -> ParsedRow:
    """Make a problem from a question, its answers, and those solutions that are text."""
    golds = [answer.strip() for answer in answers]
    several: dict[str, Json] = {"answers": list[Json](golds)} if len(golds) > 1 else {}
    return ParsedRow(
        task="math",
        prompt=user(question, BOXED),
        answer=golds[0] or None,
        payload={**several, **(payload or {})},
        level=level,
        source_id=id,
        responses=_list_worked(solutions, golds[0]),
    )


def _list_worked(solutions: Sequence[Json], gold: str) -> tuple[ImportedResponse, ...]:
    texts = [text for text in solutions if isinstance(text, str) and text.strip()]
    return tuple(worked_response(text, gold) for text in texts if gold)


def _read_grade(row: Fields, name: str, grades: int) -> float:
    """Read one of several grades, written as 3, 3.0 or, out of five, "Level 3"."""
    value = row.get(name)
    if isinstance(value, str) and grades == 5:
        match = re.fullmatch(r"(?:Level )?([1-5])", value)
        if match is None:
            raise DataError(f"field {name!r} should be a level from 1 to 5, not {value!r}")
        return to_level(int(match[1]))
    return to_level(row.number(name), grades)


READERS: dict[str, Reader] = {
    "gsm8k_test": gsm8k,
    "gsm8k_train": gsm8k,
    "math500": read_fields("problem", level="level"),
    "math_test": read_fields("problem", answer="solution", level="level", extract=last_box_text),
    "math_train": read_fields("problem", level="difficulty"),
    "aime_train": read_fields("problem", level="difficulty", grades=10),
    "aime24": read_fields("problem"),
    "aime25": read_fields("problem"),
    "amc23": read_fields("problem"),
    "deepmath": deepmath,
    "deepscaler": read_fields("problem"),
    "numina": read_fields("problem"),
    "bigmath": read_fields("problem"),
    "minerva_math": read_fields("problem", answer="solution", extract=last_box_text),
    "olympiadbench": olympiadbench,
    "livemathbench": livemathbench,
    "gaokao2023en": read_fields("question"),
    "gaokao_math_cloze": cloze,
    "cmath": read_fields("question", level="grade", grades=6),
    "carp_en": read_fields("content"),
    "college_math": college_math,
    "svamp": read_fields("Body", "Question", answer="Answer"),
    "asdiv": read_fields("body", "question", extract=lambda answer: _UNIT.sub("", answer)),
    "mawps": read_fields("input", answer="target"),
    "gsm_hard": read_fields("input", answer="target"),
}
