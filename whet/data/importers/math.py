"""Benchmarks of mathematics: word problems, competitions, textbooks, Chinese examinations."""

import re
from collections.abc import Callable

from whet.data.importers.base import BOXED, Draft, Fields, Format, layout, to_level, user
from whet.errors import DataError
from whet.text.final_answer import match_braces
from whet.types import Json

_UNIT = re.compile(r"\s\([^()]*\)$")


def plain(
    question: str,
    answer: str = "answer",
    *,
    id: str = "id idx",
    level: Callable[[Fields], float] | None = None,
    extract: Callable[[str], str] | None = None,
) -> Callable[[Fields], Draft]:
    """Read rows by the names of their fields, such as "Body Question" for a text in two fields.

    `extract` takes the answer out of a text that holds more than it.
    """

    def read(row: Fields) -> Draft:
        gold = extract(row.text(answer)) if extract else row.reference(answer)
        ids = [row.row_id(name) for name in id.split()]
        return _draft(
            " ".join(row.text(name).strip() for name in question.split()),
            gold,
            id=next((value for value in ids if value is not None), None),
            level=level(row) if level else None,
        )

    return read


def olympiadbench(row: Fields) -> Draft:
    """Read several answers, and the absolute error that a row allows."""
    question = "\n\n".join(
        part for part in (row.optional_text("context"), row.text("question")) if part
    )
    allowed: dict[str, Json] = {"error": row.amount("error")} if row.get("error") else {}
    return _draft(question, *row.texts("final_answer"), id=row.row_id("id"), payload=allowed)


def cloze(row: Fields) -> Draft:
    """Read several blanks, separated by semicolons, as one answer."""
    return _draft(row.text("question"), row.reference("answer").replace(";", ", "))


def college_math(row: Fields) -> Draft:
    """Name an exercise by its book and its number."""
    id = f"{row.text('data_source')}:{row.text('question_number')}"
    return _draft(row.text("question"), row.reference("answer"), id=id)


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
    """Return the answer behind `####` at the end of a worked solution."""
    _, sign, answer = solution.rpartition("####")
    if not sign or not answer.strip():
        raise DataError("field 'answer' should end with #### and the answer")
    return answer


def _grade(name: str, grades: int = 5) -> Callable[[Fields], float]:
    """Read a level among some grades, written as 3, 3.0 or, of five, "Level 3"."""

    def level(row: Fields) -> float:
        value = row.get(name)
        if isinstance(value, str) and grades == 5:
            match = re.fullmatch(r"(?:Level )?([1-5])", value)
            if match is None:
                raise DataError(f"field {name!r} should be a level from 1 to 5, not {value!r}")
            return to_level(int(match[1]))
        return to_level(row.number(name), grades)

    return level


def _draft(
    question: str,
    *answers: str,
    id: str | None = None,
    level: float | None = None,
    payload: dict[str, Json] | None = None,
) -> Draft:
    several: dict[str, Json] = (
        {"answers": [answer.strip() for answer in answers]} if len(answers) > 1 else {}
    )
    return Draft(
        task="math",
        prompt=user(question, BOXED),
        answer=answers[0].strip() or None,
        payload={**several, **(payload or {})},
        level=level,
        source_id=id,
    )


_AIME = "id year aime_number problem_number solution url question"
_QUESTION = "question answer"
_gsm8k = plain("question", id="", extract=after_hashes)
_competition = plain("problem", id="id")
_target = plain("input", "target", id="idx")

FORMATS: dict[str, Format] = {
    "gsm8k_test": layout("grade school word problems", _gsm8k, _QUESTION),
    "gsm8k_train": layout("grade school word problems", _gsm8k, _QUESTION, split="rl"),
    "math500": layout(
        "MATH-500 by level",
        plain("problem", id="unique_id", level=_grade("level")),
        "problem answer level",
        "solution subject unique_id",
    ),
    "math_test": layout(
        "MATH, answers boxed in solutions",
        plain("problem", "solution", id="idx", level=_grade("level"), extract=last_box_text),
        "problem solution level",
        "type idx",
    ),
    "math_train": layout(
        "MATH, for training",
        plain("problem", id="", level=_grade("difficulty")),
        "problem answer difficulty",
        "type",
        split="rl",
    ),
    "aime_train": layout(
        "AIME up to 2023",
        plain("problem", id="id", level=_grade("difficulty", 10)),
        "problem answer difficulty",
        _AIME,
        split="rl",
    ),
    "aime24": layout("AIME 2024", _competition, "problem answer", _AIME),
    "aime25": layout("AIME 2025", _competition, "problem answer", _AIME),
    "amc23": layout("AMC 2023", _competition, "problem answer", _AIME),
    "minerva_math": layout(
        "university problems with units",
        plain("problem", "solution", id="idx", extract=last_box_text),
        "problem solution",
        "type idx",
    ),
    "olympiadbench": layout(
        "olympiad problems, with units and tolerances",
        olympiadbench,
        "question final_answer",
        "id subfield context solution is_multiple_answer unit answer_type error",
    ),
    "gaokao2023en": layout(
        "Chinese entrance exam, in English",
        plain("question"),
        _QUESTION,
        "source sourcename id lang",
    ),
    "gaokao_math_cloze": layout(
        "Chinese entrance exam, blanks", cloze, _QUESTION, "passage options label other"
    ),
    "cmath": layout(
        "Chinese primary school",
        plain("question", id="", level=_grade("grade", 6)),
        "question answer grade",
        "reasoning_step num_digits",
    ),
    "carp_en": layout(
        "middle school algebra",
        plain("content", id=""),
        "content answer",
        "steps expr_cands exprs edges",
    ),
    "college_math": layout(
        "college textbooks",
        college_math,
        "question answer data_source question_number",
        "license data_topic",
    ),
    "svamp": layout(
        "word problems with distractors",
        plain("Body Question", "Answer", id="ID"),
        "Body Question Answer",
        "Equation Type ID idx",
    ),
    "asdiv": layout(
        "word problems, units in brackets",
        plain("body question", id="idx", extract=lambda answer: _UNIT.sub("", answer)),
        "body question answer",
        "solution_type formula idx",
    ),
    "mawps": layout("word problems", _target, "input target", "type idx"),
    "gsm_hard": layout("GSM8K with large numbers", _target, "input target", "code idx"),
}
