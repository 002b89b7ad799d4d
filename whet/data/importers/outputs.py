"""Labelled responses of models: questions become problems, and responses become rollouts."""

import json
import re
from collections.abc import Callable
from dataclasses import replace

from whet.data.importers.base import (
    BOXED,
    Fields,
    ImportedResponse,
    ParsedRow,
    Reader,
    check_name,
    user,
)
from whet.data.importers.logic import game24
from whet.data.importers.qa import bbh_logic
from whet.data.importers.tables import tablebench
from whet.errors import DataError
from whet.types import Message

_CHAT = re.compile(r"(?:system\n.*?\n)?user\n([0-9 ]+)\s*\nassistant\n(.*)", re.DOTALL)
LISTED = "End with a list of texts in quotes, in order, between answer tags: <answer>[...]</answer>"


def gsm8k_model_solutions(row: Fields) -> ParsedRow:
    gold = row.text("ground_truth").rpartition("A:")[2]
    response = ImportedResponse(
        text=row.text("solution"), model=row.text("model"), is_good=row.flag("is_correct")
    )
    return _math(row, gold, response)


def qwen_math_outputs(row: Fields) -> ParsedRow:
    """Read eight samples per problem, each with the label of the upstream grader."""
    samples = [Fields(sample) for sample in row.entries("samples") if isinstance(sample, dict)]
    responses = [
        ImportedResponse(text=s.text("response"), is_good=s.flag("correct")) for s in samples
    ]
    return _math(row, row.scalar("gt"), *responses, system=row.optional_text("system"))


def tora_gsm8k_outputs(row: Fields) -> ParsedRow:
    """Read traces with programs and their output, without labels."""
    responses = [ImportedResponse(text=text, model="tora-70b") for text in row.texts("code")]
    return _math(row, row.scalar("gt"), *responses)


def step_errors_math(row: Fields) -> ParsedRow:
    """Read the label of the final answer, which may be right although the solution is wrong."""
    good = row.text("model_output_answer_correctness") == "correct"
    response = ImportedResponse(
        text=row.text("model_output"), model=row.text("generator"), is_good=good
    )
    return _math(row, row.scalar("ground_truth_answer"), response)


def step_labels_prm800k(row: Fields) -> ParsedRow:
    """Read steps, which are lists of one text, without their labels."""
    steps = [Fields(step=step).texts("step")[0] for step in row.entries("model_output_step_format")]
    response = ImportedResponse(text="\n".join(steps), model=row.text("generator"))
    return _math(row, row.scalar("ground_truth_answer"), response)


def game24_outputs(row: Fields) -> ParsedRow:
    hand = game24(Fields(input=row.text("puzzle")))
    response = ImportedResponse(
        text=row.text("output"), model=row.text("method"), is_good=row.number("checked_reward") == 1
    )
    return replace(hand, responses=(response,))


def game24_search_outputs(row: Fields) -> ParsedRow:
    hand = game24(Fields(values=row.entries("hand")))
    response = ImportedResponse(
        text=row.text("output"), model=row.text("run"), is_good=row.flag("final_correct")
    )
    return replace(hand, responses=(response,))


def game24_results(row: Fields) -> ParsedRow:
    """Read a result of LLM4Game24, the decoded chat as one text; the response has no label."""
    match = _CHAT.fullmatch(row.text("text"))
    if match is None:
        raise DataError(
            "a result should be the text of a chat: system, user with a hand, assistant"
        )
    return replace(game24(Fields(input=match[1])), responses=(ImportedResponse(text=match[2]),))


def tablebench_outputs(row: Fields) -> ParsedRow:
    response = ImportedResponse(text=row.text("prediction"), model=row.text("model_name"))
    return replace(tablebench(row), responses=(response,))


def bigbench_mistake(row: Fields) -> ParsedRow:
    """Read traces of five BIG-Bench tasks; the label judges the answer, not the steps."""
    kind = row.text("task")
    asked = row.text("input").strip()
    target = row.text("target").strip()
    known: dict[str, Callable[[], ParsedRow]] = {
        "logical_deduction": lambda: bbh_logic(row),
        "tracking_shuffled_objects": lambda: bbh_logic(row),
        "multistep_arithmetic": lambda: ParsedRow(
            task="math", prompt=user(asked, BOXED), answer=target
        ),
        "word_sorting": lambda: _sequence(f"Sort these words alphabetically: {asked}", target),
        "dyck_languages": lambda: _sequence(
            f"Close what is open here, and nothing else: {asked}", target
        ),
    }
    is_good = row.optional_text("answer").strip().rstrip(".") == target
    response = ImportedResponse(text="\n".join(row.texts("steps")), is_good=is_good)
    return replace(known[check_name("task", kind, known)](), responses=(response,))


def _sequence(question: str, target: str) -> ParsedRow:
    """Ask for words or brackets in order, as a list."""
    return ParsedRow(
        task="ordering",
        prompt=user(question, LISTED),
        answer=json.dumps(target.split(), ensure_ascii=False),
    )


def _math(row: Fields, gold: str, *responses: ImportedResponse, system: str = "") -> ParsedRow:
    before = (Message(role="system", content=system),) if system else ()
    return ParsedRow(
        task="math",
        prompt=(*before, *user(row.text("question"), "" if system else BOXED)),
        answer=gold.strip(),
        responses=responses,
    )


READERS: dict[str, Reader] = {
    "gsm8k_model_solutions": gsm8k_model_solutions,
    "qwen_math_outputs": qwen_math_outputs,
    "tora_gsm8k_outputs": tora_gsm8k_outputs,
    "step_errors_math": step_errors_math,
    "step_labels_prm800k": step_labels_prm800k,
    "bigbench_mistake": bigbench_mistake,
    "game24_outputs": game24_outputs,
    "game24_search_outputs": game24_search_outputs,
    "game24_results": game24_results,
    "tablebench_outputs": tablebench_outputs,
}
