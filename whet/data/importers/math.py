"""Benchmarks of mathematics: word problems, competitions, textbooks, Chinese examinations. All are
the task `math`."""

import re

from whet.data.importers.base import (
    Draft,
    Fields,
    Format,
    amount,
    fifth,
    layout,
    number,
    optional_text,
    reference,
    row_id,
    text,
    texts,
    user,
)
from whet.data.importers.wording import BOXED
from whet.errors import DataError
from whet.text.final_answer import match_braces
from whet.types import Json

_UNIT = re.compile(r"\s\([^()]*\)$")


def gsm8k(row: Fields) -> Draft:
    """The answer stands behind `####` at the end of a worked solution."""
    _, sign, answer = text(row, "answer").rpartition("####")
    if not sign or not answer.strip():
        raise DataError("field 'answer' should end with #### and the answer")
    return _draft(text(row, "question"), answer)


def math500(row: Fields) -> Draft:
    return _draft(
        text(row, "problem"),
        reference(row, "answer"),
        id=row_id(row, "unique_id"),
        level=_level(row, "level"),
    )


def math_test(row: Fields) -> Draft:
    """The answer is only in the solution, in its last box."""
    answer = last_boxed(text(row, "solution"))
    return _draft(text(row, "problem"), answer, id=row_id(row, "idx"), level=_level(row, "level"))


def minerva_math(row: Fields) -> Draft:
    return _draft(text(row, "problem"), last_boxed(text(row, "solution")), id=row_id(row, "idx"))


def math_train(row: Fields) -> Draft:
    return _draft(text(row, "problem"), reference(row, "answer"), level=_level(row, "difficulty"))


def aime_train(row: Fields) -> Draft:
    """Difficulty runs from 1 to 10 here."""
    level = fifth(number(row, "difficulty"), 10)
    return _draft(text(row, "problem"), reference(row, "answer"), id=row_id(row, "id"), level=level)


def competition(row: Fields) -> Draft:
    return _draft(text(row, "problem"), reference(row, "answer"), id=row_id(row, "id"))


def olympiadbench(row: Fields) -> Draft:
    """An error that the row allows is an absolute one."""
    question = "\n\n".join(
        part for part in (optional_text(row, "context"), text(row, "question")) if part
    )
    allowed: dict[str, Json] = {"error": amount(row, "error")} if row.get("error") else {}
    return _draft(question, *texts(row, "final_answer"), id=row_id(row, "id"), payload=allowed)


def question_answer(row: Fields) -> Draft:
    return _draft(
        text(row, "question"), reference(row, "answer"), id=row_id(row, "id") or row_id(row, "idx")
    )


def cloze(row: Fields) -> Draft:
    """Several blanks stand in one answer, apart by semicolons."""
    return _draft(text(row, "question"), reference(row, "answer").replace(";", ", "))


def cmath(row: Fields) -> Draft:
    return _draft(
        text(row, "question"), reference(row, "answer"), level=fifth(number(row, "grade"), 6)
    )


def carp(row: Fields) -> Draft:
    return _draft(text(row, "content"), reference(row, "answer"))


def college_math(row: Fields) -> Draft:
    """The number of an exercise is its own only together with its book."""
    id = f"{text(row, 'data_source')}:{text(row, 'question_number')}"
    return _draft(text(row, "question"), reference(row, "answer"), id=id)


def svamp(row: Fields) -> Draft:
    question = f"{text(row, 'Body').strip()} {text(row, 'Question').strip()}"
    return _draft(question, reference(row, "Answer"), id=row_id(row, "ID"))


def asdiv(row: Fields) -> Draft:
    """The unit stands in brackets behind the answer, and is not asked for."""
    question = f"{text(row, 'body').strip()} {text(row, 'question').strip()}"
    return _draft(question, _UNIT.sub("", text(row, "answer")), id=row_id(row, "idx"))


def input_target(row: Fields) -> Draft:
    return _draft(text(row, "input"), reference(row, "target"), id=row_id(row, "idx"))


def last_boxed(solution: str) -> str:
    r"""Take what stands in the last box of a solution.

    >>> last_boxed(r"so \boxed{\frac{1}{2}} it is")
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


def unboxed(answer: str) -> str:
    """Take an answer out of its box, where it stands in one."""
    return last_boxed(answer) if "\\boxed" in answer else answer.strip()


def _level(row: Fields, name: str) -> float:
    """Read one of five levels, as 3, 3.0 or "Level 3"."""
    value = row.get(name)
    if isinstance(value, str):
        found = re.fullmatch(r"(?:Level )?([1-5])", value)
        if found is None:
            raise DataError(f"field {name!r} should be a level from 1 to 5, not {value!r}")
        return fifth(int(found[1]))
    return fifth(number(row, name))


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

FORMATS: dict[str, Format] = {
    "gsm8k_test": layout("grade school word problems", gsm8k, _QUESTION),
    "gsm8k_train": layout("grade school word problems", gsm8k, _QUESTION, split="rl"),
    "math500": layout(
        "MATH-500 by level", math500, "problem answer level", "solution subject unique_id"
    ),
    "math_test": layout(
        "MATH, answers boxed in solutions", math_test, "problem solution level", "type idx"
    ),
    "math_train": layout(
        "MATH, for training", math_train, "problem answer difficulty", "type", split="rl"
    ),
    "aime_train": layout(
        "AIME up to 2023", aime_train, "problem answer difficulty", _AIME, split="rl"
    ),
    "aime24": layout("AIME 2024", competition, "problem answer", _AIME),
    "aime25": layout("AIME 2025", competition, "problem answer", _AIME),
    "amc23": layout("AMC 2023", competition, "problem answer", _AIME),
    "minerva_math": layout(
        "university problems with units", minerva_math, "problem solution", "type idx"
    ),
    "olympiadbench": layout(
        "olympiad problems, with units and tolerances",
        olympiadbench,
        "question final_answer",
        "id subfield context solution is_multiple_answer unit answer_type error",
    ),
    "gaokao2023en": layout(
        "Chinese entrance exam, in English", question_answer, _QUESTION, "source sourcename id lang"
    ),
    "gaokao_math_cloze": layout(
        "Chinese entrance exam, blanks", cloze, _QUESTION, "passage options label other"
    ),
    "cmath": layout(
        "Chinese primary school", cmath, "question answer grade", "reasoning_step num_digits"
    ),
    "carp_en": layout(
        "middle school algebra", carp, "content answer", "steps expr_cands exprs edges"
    ),
    "college_math": layout(
        "college textbooks",
        college_math,
        "question answer data_source question_number",
        "license data_topic",
    ),
    "svamp": layout(
        "word problems with distractors", svamp, "Body Question Answer", "Equation Type ID idx"
    ),
    "asdiv": layout(
        "word problems, units in brackets",
        asdiv,
        "body question answer",
        "solution_type formula idx",
    ),
    "mawps": layout("word problems", input_target, "input target", "type idx"),
    "gsm_hard": layout("GSM8K with large numbers", input_target, "input target", "code idx"),
}
