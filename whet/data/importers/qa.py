"""Multiple choice, yes or no, and rule-based questions: AQuA, MMLU, Gaokao, StrategyQA, IFEval."""

import re
from dataclasses import replace

from whet.data.importers.base import (
    BOXED,
    Fields,
    ParsedRow,
    Reader,
    check_name,
    show,
    user,
    worked_response,
)
from whet.errors import DataError
from whet.rng import make_rng
from whet.tasks.qa import ifeval
from whet.tasks.qa import livebench as exact
from whet.types import Json

LETTER = "Reason step by step and end with the letter of the right option in \\boxed{}."
_YES_NO = "Reason step by step and end with yes or no in \\boxed{}."
FIRST_ERROR = (
    "Find the first paragraph with an error and end with its index in \\boxed{}, "
    "or with -1 if there is no error."
)
LIVEBENCH: dict[str, exact.Kind] = {
    "web_of_lies_v2": "words",
    "web_of_lies_v3": "words",
    "house_traversal": "words",
    "zebra_puzzle": "words",
    "spatial": "words",
    "cta": "words",
    "connections": "groups",
    "tablejoin": "mapping",
    "typos": "text",
    "plot_unscrambling": "order",
}
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_LABEL = re.compile(r"\s*\(?([A-Z])\s*[).:．]\s*")
TRUTH = "Answer with True, False, or Uncertain, in \\boxed{}."
LABELS = {"proved": "True", "disproved": "False", "unknown": "Uncertain"}


def aqua(row: Fields) -> ParsedRow:
    """Read options such as `A)21`."""
    letter = row.text("correct")
    parsed = choice(row.text("question"), _split_labels(row.texts("options")), letter)
    rationale = row.optional_text("rationale")
    return replace(parsed, responses=(worked_response(rationale, letter),) if rationale else ())


def sat_math(row: Fields) -> ParsedRow:
    """Read options that are one text, `A) 2 B) 3` or `A. 2 B. 3`."""
    options = row.text("options")
    labels: list[re.Match[str]] = []
    for letter in _LETTERS:
        label = re.compile(rf"(?:^|\s){letter}[).]\s")
        match = label.search(options, labels[-1].end() - 1 if labels else 0)
        if match is None:
            break
        labels.append(match)
    if len(labels) < 2:
        raise DataError(f"field 'options' should list A) … B) … in order, not {options[:80]!r}")
    ends = [*(label.start() for label in labels[1:]), len(options)]
    split = [options[label.end() : end].strip() for label, end in zip(labels, ends, strict=True)]
    return choice(row.text("question"), by_letter(split), row.text("Answer"))


def mmlu(row: Fields) -> ParsedRow:
    """Read an answer that is an index into the choices, from 0."""
    options = by_letter(row.texts("choices"))
    index = row.number("answer")
    if index not in range(len(options)):
        raise DataError(
            f"field 'answer' should be an index below {len(options)}, not {row['answer']}"
        )
    return choice(row.text("question"), options, _LETTERS[int(index)])


def gpqa(row: Fields) -> ParsedRow:
    """Put the right answer among the wrong ones, in an order derived from the question alone."""
    right = row.text("Correct Answer").strip()
    options = [right, *(row.text(f"Incorrect Answer {number}").strip() for number in (1, 2, 3))]
    question = row.text("Question").strip()
    make_rng(0, "gpqa", question).shuffle(options)
    return choice(question, by_letter(options), _LETTERS[options.index(right)])


def supergpqa(row: Fields) -> ParsedRow:
    """Read up to ten options, in the order of the row."""
    options = by_letter(row.texts("options"))
    return choice(row.text("question").strip(), options, row.text("answer_letter"))


def gaokao_qa(row: Fields) -> ParsedRow:
    options = {letter: str(option) for letter, option in row.table("options").items()}
    passage = row.optional_text("passage")
    question = row.text("question")
    return choice(f"{passage}\n\n{question}" if passage else question, options, row.text("label"))


def mixed_exam(row: Fields) -> ParsedRow:
    """Read multiple choice with the options in the question; a row without a letter is
    mathematics."""
    letter = row.optional_text("choice_answer")
    return ParsedRow(
        task="choice" if letter else "math",
        prompt=user(row.text("question"), LETTER if letter else BOXED),
        answer=letter.strip() if letter else row.scalar("answer"),
    )


def bbh_logic(row: Fields) -> ParsedRow:
    """Read options below the question, one per line; web_of_lies asks yes or no."""
    asked = row.text("input")
    target = row.text("target").strip()
    if row.text("task") == "web_of_lies":
        return yes_no(asked, _check_answer(target.lower(), ("yes", "no")) == "yes")
    question, sign, listed = asked.partition("\nOptions:\n")
    if not sign:
        raise DataError("field 'input' should end with Options: and one option per line")
    return choice(question, _split_labels(listed.splitlines()), target.strip("()"))


def strategyqa(row: Fields) -> ParsedRow:
    """Show a row's facts above its question, as RL-Tango does."""
    facts = row.get("facts") or ""
    shown = facts if isinstance(facts, str) else "\n".join(row.texts("facts"))
    return yes_no(f"{shown}\n{row.text('question')}", row.flag("answer"))


def bgqa(row: Fields) -> ParsedRow:
    """Read Boardgame-QA, whose labels say whether a claim is proved, disproved or unknown."""
    label = LABELS[check_name("label", row.text("label"), LABELS)]
    return ParsedRow(task="table", prompt=user(row.text("example"), TRUTH), answer=label)


def process_bench(row: Fields) -> ParsedRow:
    """Show the steps as numbered paragraphs, from 0; the subset is the id's, `gsm8k-0`."""
    steps = row.texts("steps")
    label = row.number("label")
    if label not in range(-1, len(steps)):
        raise DataError(
            f"field 'label' should be the index of one of {len(steps)} steps or -1, "
            f"not {row['label']}"
        )
    shown = "\n\n".join(
        f"<paragraph_{index}>\n{step}\n</paragraph_{index}>" for index, step in enumerate(steps)
    )
    half = "correct" if label == -1 else "error"
    return ParsedRow(
        task="process_bench",
        prompt=user(f"Problem:\n\n{row.text('problem')}", f"Solution:\n\n{shown}", FIRST_ERROR),
        answer=str(int(label)),
        payload={"f1": {"subset": row.text("id").rpartition("-")[0], "half": half}},
    )


def make_instructions_row(ids: list[str], arguments: list[Json]) -> ParsedRow:
    """Make a row of IFEval's instructions, without null arguments."""
    if len(ids) != len(arguments):
        raise DataError(f"has {len(ids)} instructions and arguments for {len(arguments)}")
    rows: list[Json] = []
    for id, given in zip(ids, arguments, strict=True):
        if not isinstance(given, dict):
            raise DataError(f"the arguments of {id} should be an object, not {show(given)}")
        rows.append({"id": id, **{k: v for k, v in given.items() if v is not None}})
    reason = ifeval.unsupported_reason(rows)
    if reason is None:
        ifeval.parse_instructions(rows)
    return ParsedRow(
        task="ifeval", prompt=(), answer=None, payload={"instructions": rows}, unsupported=reason
    )


def ifeval_row(row: Fields) -> ParsedRow:
    parsed = make_instructions_row(row.texts("instruction_id_list"), row.entries("kwargs"))
    return replace(parsed, prompt=user(row.text("prompt")), source_id=row.row_id("key"))


def make_livebench_row(task: str, truth: str) -> ParsedRow:
    """Make a row of a LiveBench task; a task without exact scores has no grader."""
    kind = LIVEBENCH.get(task)
    if kind is None:
        reason = f"whet has no grader for LiveBench's {task}"
        return ParsedRow(task="livebench", prompt=(), answer=None, unsupported=reason)
    answer = ", ".join(truth.split()) if task == "house_traversal" else truth.strip()
    return ParsedRow(
        task="livebench",
        prompt=(),
        answer=answer,
        payload={"kind": kind},
        unsupported=exact.unsupported_reason(kind, answer),
    )


def livebench_row(row: Fields) -> ParsedRow:
    """Read a row of one turn; its question already asks for an answer format."""
    turns = row.texts("turns")
    if len(turns) != 1:
        raise DataError(f"field 'turns' should hold one turn, not {len(turns)}")
    return replace(
        make_livebench_row(row.text("task"), row.text("ground_truth")), prompt=user(turns[0])
    )


def choice(question: str, options: dict[str, str], answer: str) -> ParsedRow:
    """Ask a question with its options below it; several letters may be right."""
    listed = "\n".join(f"{letter}. {option}" for letter, option in options.items())
    return ParsedRow(
        task="choice",
        prompt=user(question, listed, LETTER),
        answer="".join(
            _check_answer(letter, tuple(options)) for letter in re.sub(r"[\s,]", "", answer)
        ),
        payload={"options": dict[str, Json](options)},
    )


def yes_no(question: str, answer: bool) -> ParsedRow:
    return ParsedRow(
        task="yes_no", prompt=user(question, _YES_NO), answer="yes" if answer else "no"
    )


def by_letter(options: list[str]) -> dict[str, str]:
    """Label options A, B, C and so on."""
    return dict(zip(_LETTERS, options, strict=False))


def _split_labels(options: list[str]) -> dict[str, str]:
    """Split options from the letters they start with."""
    matches = [(_LABEL.match(option), option) for option in options]
    split = {label[1]: option[label.end() :].strip() for label, option in matches if label}
    if len(split) < len(options):
        raise DataError(
            f"options should begin with their letters, A) … B) …, not {options[0][:80]!r}"
        )
    return split


def _check_answer(answer: str, names: tuple[str, ...]) -> str:
    if answer not in names:
        raise DataError(f"the answer should be one of {', '.join(names)}, not {answer!r}")
    return answer


READERS: dict[str, Reader] = {
    "bgqa": bgqa,
    "process_bench": process_bench,
    "ifeval": ifeval_row,
    "livebench": livebench_row,
    "aqua": aqua,
    "sat_math": sat_math,
    "mmlu_stem": mmlu,
    "gpqa": gpqa,
    "supergpqa": supergpqa,
    "gaokao_math_qa": gaokao_qa,
    "gaokao2024_mix": mixed_exam,
    "cn_middle_school": mixed_exam,
    "bbh_logic": bbh_logic,
    "strategyqa_train": strategyqa,
    "strategyqa_dev": strategyqa,
}
