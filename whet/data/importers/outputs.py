"""Answers of models with labels: questions become problems, answers become labelled rollouts."""

import json
from collections.abc import Callable
from dataclasses import replace

from whet.data.importers.base import (
    BOXED,
    Answer,
    Draft,
    Fields,
    Format,
    check_name,
    layout,
    user,
)
from whet.data.importers.choice import bbh_logic
from whet.data.importers.logic import game24
from whet.data.importers.tables import tablebench
from whet.types import Message

LISTED = "End with a list of texts in quotes, in order, between answer tags: <answer>[...]</answer>"


def gsm8k_model_solutions(row: Fields) -> Draft:
    gold = row.text("ground_truth").rpartition("A:")[2]
    answer = Answer(
        text=row.text("solution"), model=row.text("model"), is_good=row.flag("is_correct")
    )
    return _math(row, gold, answer)


def qwen_math_outputs(row: Fields) -> Draft:
    """Read eight samples per problem, each with the label of the upstream grader."""
    samples = [Fields(sample) for sample in row.entries("samples") if isinstance(sample, dict)]
    answers = [Answer(text=s.text("response"), is_good=s.flag("correct")) for s in samples]
    return _math(row, row.scalar("gt"), *answers, system=row.optional_text("system"))


def tora_gsm8k_outputs(row: Fields) -> Draft:
    """Read traces with programs and their output, without labels."""
    answers = [Answer(text=text, model="tora-70b") for text in row.texts("code")]
    return _math(row, row.scalar("gt"), *answers)


def step_errors_math(row: Fields) -> Draft:
    """Read the label of the final answer, which is right even where the solution is not."""
    good = row.text("model_output_answer_correctness") == "correct"
    answer = Answer(text=row.text("model_output"), model=row.text("generator"), is_good=good)
    return _math(row, row.scalar("ground_truth_answer"), answer)


def step_labels_prm800k(row: Fields) -> Draft:
    """Read steps, which are lists of one text, without their labels."""
    steps = [Fields(step=step).texts("step")[0] for step in row.entries("model_output_step_format")]
    answer = Answer(text="\n".join(steps), model=row.text("generator"))
    return _math(row, row.scalar("ground_truth_answer"), answer)


def game24_outputs(row: Fields) -> Draft:
    draft = game24(Fields(input=row.text("puzzle")))
    answer = Answer(
        text=row.text("output"),
        model=row.text("method"),
        is_good=row.number("checked_reward") == 1,
    )
    return replace(draft, answers=(answer,), source_id=row.row_id("idx"))


def game24_search_outputs(row: Fields) -> Draft:
    draft = game24(Fields(values=row.entries("hand")))
    answer = Answer(
        text=row.text("output"), model=row.text("run"), is_good=row.flag("final_correct")
    )
    return replace(draft, answers=(answer,), source_id=row.row_id("idx"))


def tablebench_outputs(row: Fields) -> Draft:
    answer = Answer(text=row.text("prediction"), model=row.text("model_name"))
    return replace(tablebench(row), answers=(answer,))


def bigbench_mistake(row: Fields) -> Draft:
    """Read traces of five tasks of BIG-Bench; the label is that of the answer, not of the steps."""
    kind = row.text("task")
    asked = row.text("input").strip()
    target = row.text("target").strip()
    known: dict[str, Callable[[], Draft]] = {
        "logical_deduction": lambda: bbh_logic(row),
        "tracking_shuffled_objects": lambda: bbh_logic(row),
        "multistep_arithmetic": lambda: Draft(
            task="math", prompt=user(asked, BOXED), answer=target
        ),
        "word_sorting": lambda: _sequence(f"Sort these words alphabetically: {asked}", target),
        "dyck_languages": lambda: _sequence(
            f"Close what is open here, and nothing else: {asked}", target
        ),
    }
    is_good = row.optional_text("answer").strip().rstrip(".") == target
    answer = Answer(text="\n".join(row.texts("steps")), is_good=is_good)
    return replace(known[check_name("task", kind, known)](), answers=(answer,))


def _sequence(question: str, target: str) -> Draft:
    """Ask for words or brackets in order, as a list."""
    return Draft(
        task="ordering",
        prompt=user(question, LISTED),
        answer=json.dumps(target.split(), ensure_ascii=False),
    )


def _math(row: Fields, gold: str, *answers: Answer, system: str = "") -> Draft:
    before = (Message(role="system", content=system),) if system else ()
    return Draft(
        task="math",
        prompt=(*before, *user(row.text("question"), "" if system else BOXED)),
        answer=gold.strip(),
        source_id=row.row_id("id") or row.row_id("idx"),
        answers=answers,
    )


_STEPS = (
    "model_output_step_format model_output_solution_correctness "
    "model_output_solution_first_error_step id"
)
_SEARCH = "idx expression claims_success n_steps first_wrong_arithmetic_line"
_TABLE = "id qsubtype chart_type instruction_type instruction parsed_result"

FORMATS: dict[str, Format] = {
    "gsm8k_model_solutions": layout(
        "GSM8K answers of four models",
        gsm8k_model_solutions,
        "question ground_truth model solution is_correct",
    ),
    "qwen_math_outputs": layout(
        "MATH, eight samples each",
        qwen_math_outputs,
        "question gt samples",
        "idx solution level system",
    ),
    "tora_gsm8k_outputs": layout(
        "ToRA traces", tora_gsm8k_outputs, "question gt code", "idx gt_cot pred report"
    ),
    "step_errors_math": layout(
        "solutions with errors on the way",
        step_errors_math,
        "question ground_truth_answer generator model_output model_output_answer_correctness",
        _STEPS,
    ),
    "step_labels_prm800k": layout(
        "solutions with rated steps",
        step_labels_prm800k,
        "question ground_truth_answer generator model_output_step_format",
        "id rating",
    ),
    "bigbench_mistake": layout(
        "BIG-Bench traces with mistakes",
        bigbench_mistake,
        "task input steps target answer",
        "mistake_index",
    ),
    "game24_outputs": layout(
        "24 game, GPT-4", game24_outputs, "puzzle method output checked_reward", "idx reward"
    ),
    "game24_search_outputs": layout(
        "24 game, search traces", game24_search_outputs, "run hand output final_correct", _SEARCH
    ),
    "tablebench_outputs": layout(
        "TableBench answers",
        tablebench_outputs,
        "qtype table question answer model_name prediction",
        _TABLE,
    ),
}
