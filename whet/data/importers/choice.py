"""Multiple choice and yes or no: AQuA, SAT, MMLU, Chinese examinations, BIG-Bench Hard,
StrategyQA."""

import re

from whet.data.importers.base import (
    Draft,
    Fields,
    Format,
    flag,
    layout,
    number,
    optional_text,
    row_id,
    scalar,
    table,
    text,
    texts,
    user,
)
from whet.data.importers.wording import BOXED, LETTER, YES_NO
from whet.errors import DataError
from whet.types import Json

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_LABEL = re.compile(r"\s*\(?([A-Z])\s*[).:．]\s*")


def aqua(row: Fields) -> Draft:
    """Options are texts such as `A)21`."""
    return choice(text(row, "question"), _labelled(texts(row, "options")), text(row, "correct"))


def sat_math(row: Fields) -> Draft:
    """All options stand in one text, `A) 2 B) 3` or `A. 2 B. 3`."""
    options = text(row, "options")
    labels: list[re.Match[str]] = []
    for letter in LETTERS:
        found = re.compile(rf"(?:^|\s){letter}[).]\s").search(
            options, labels[-1].end() - 1 if labels else 0
        )
        if found is None:
            break
        labels.append(found)
    if len(labels) < 2:
        raise DataError(f"field 'options' should list A) … B) … in order, not {options[:80]!r}")
    ends = [*(label.start() for label in labels[1:]), len(options)]
    split = [options[label.end() : end].strip() for label, end in zip(labels, ends, strict=True)]
    return choice(
        text(row, "question"), by_letter(split), text(row, "Answer"), id=row_id(row, "id")
    )


def mmlu(row: Fields) -> Draft:
    """The answer is an index into the choices, from 0."""
    options = by_letter(texts(row, "choices"))
    place = number(row, "answer")
    if place not in range(len(options)):
        raise DataError(
            f"field 'answer' should be an index below {len(options)}, not {row['answer']}"
        )
    return choice(text(row, "question"), options, LETTERS[int(place)])


def gaokao_qa(row: Fields) -> Draft:
    options = {letter: str(option) for letter, option in table(row, "options").items()}
    question = "\n\n".join(
        part for part in (optional_text(row, "passage"), text(row, "question")) if part
    )
    return choice(question, options, text(row, "label"))


def mixed_exam(row: Fields) -> Draft:
    """A row with a letter is multiple choice, its options standing in the question; one without is
    mathematics."""
    id = row_id(row, "idx")
    letter = optional_text(row, "choice_answer")
    if letter:
        return Draft(
            task="choice",
            prompt=user(text(row, "question"), LETTER),
            answer=letter.strip(),
            source_id=id,
        )
    return Draft(
        task="math",
        prompt=user(text(row, "question"), BOXED),
        answer=scalar(row, "answer"),
        source_id=id,
    )


def bbh_logic(row: Fields) -> Draft:
    """Options stand below the question, one a line; the lies are questions of yes or no."""
    asked = text(row, "input")
    target = text(row, "target").strip()
    if text(row, "task") == "web_of_lies":
        return yes_no(asked, {"yes": True, "no": False}[_known(target.lower(), ("yes", "no"))])
    question, sign, listed = asked.partition("\nOptions:\n")
    if not sign:
        raise DataError("field 'input' should end with Options: and one option a line")
    return choice(question, _labelled(listed.splitlines()), target.strip("()"))


def strategyqa(row: Fields) -> Draft:
    return yes_no(text(row, "question"), flag(row, "answer"), id=row_id(row, "qid"))


def choice(question: str, options: dict[str, str], answer: str, *, id: str | None = None) -> Draft:
    """Ask a question with its options below it, one a line; several letters may be right
    together."""
    listed = "\n".join(f"{letter}. {option}" for letter, option in options.items())
    return Draft(
        task="choice",
        prompt=user(question, listed, LETTER),
        answer="".join(_known(letter, tuple(options)) for letter in re.sub(r"[\s,]", "", answer)),
        payload={"options": dict[str, Json](options)},
        source_id=id,
    )


def yes_no(question: str, answer: bool, *, id: str | None = None) -> Draft:
    return Draft(
        task="yes_no", prompt=user(question, YES_NO), answer="yes" if answer else "no", source_id=id
    )


def by_letter(options: list[str]) -> dict[str, str]:
    """Give options the letters A, B, C in turn."""
    return dict(zip(LETTERS, options, strict=False))


def _labelled(options: list[str]) -> dict[str, str]:
    """Take the letters off options that carry their own."""
    found = [(_LABEL.match(option), option) for option in options]
    split = {label[1]: option[label.end() :].strip() for label, option in found if label}
    if len(split) < len(options):
        raise DataError(
            f"options should begin with their letters, A) … B) …, not {options[0][:80]!r}"
        )
    return split


def _known(answer: str, names: tuple[str, ...]) -> str:
    if answer not in names:
        raise DataError(f"the answer should be one of {', '.join(names)}, not {answer!r}")
    return answer


_STRATEGY = "qid term description facts decomposition evidence"

FORMATS: dict[str, Format] = {
    "aqua": layout(
        "word problems with five options", aqua, "question options correct", "rationale"
    ),
    "sat_math": layout("SAT mathematics", sat_math, "question options Answer", "id"),
    "mmlu_stem": layout("MMLU, the sciences", mmlu, "question choices answer", "type"),
    "gaokao_math_qa": layout(
        "Chinese entrance exam", gaokao_qa, "question options label", "passage answer other"
    ),
    "gaokao2024_mix": layout(
        "Chinese entrance exam 2024", mixed_exam, "question answer choice_answer", "idx"
    ),
    "cn_middle_school": layout(
        "Chinese middle school", mixed_exam, "question answer choice_answer", "idx"
    ),
    "bbh_logic": layout("BIG-Bench Hard: deduction and lies", bbh_logic, "task input target"),
    "strategyqa_train": layout(
        "questions of yes or no", strategyqa, "question answer", _STRATEGY, split="rl"
    ),
    "strategyqa_dev": layout(
        "questions of yes or no", strategyqa, "question answer", _STRATEGY, split="dev"
    ),
}
