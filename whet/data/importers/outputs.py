"""Model answers with labels: the question becomes a problem, the answers become rollouts that carry
the label."""

import json
from collections.abc import Callable
from dataclasses import replace

from whet.data.importers.base import (
    Answer,
    Draft,
    Fields,
    Format,
    flag,
    items,
    layout,
    number,
    one_of,
    optional_text,
    row_id,
    scalar,
    text,
    texts,
    user,
)
from whet.data.importers.choice import bbh_logic
from whet.data.importers.logic import game24
from whet.data.importers.tables import tablebench
from whet.data.importers.wording import BOXED, LISTED
from whet.types import Message


def gsm8k_model_solutions(row: Fields) -> Draft:
    gold = text(row, "ground_truth").rpartition("A:")[2]
    answer = Answer(
        text=text(row, "solution"), model=text(row, "model"), is_good=flag(row, "is_correct")
    )
    return _math(row, gold, answer)


def qwen_math_outputs(row: Fields) -> Draft:
    """Eight samples a problem, each with the label of the upstream grader."""
    samples = [sample for sample in items(row, "samples") if isinstance(sample, dict)]
    answers = [
        Answer(text=text(each, "response"), is_good=flag(each, "correct")) for each in samples
    ]
    return _math(row, scalar(row, "gt"), *answers, system=optional_text(row, "system"))


def tora_gsm8k_outputs(row: Fields) -> Draft:
    """A trace with programs and their output; whether it is right is left to the grader."""
    return _math(
        row,
        scalar(row, "gt"),
        *(Answer(text=each, model="tora-70b") for each in texts(row, "code")),
    )


def step_errors_math(row: Fields) -> Draft:
    """Every final answer is right here, though half of the solutions are not; the label is that of
    the answer."""
    good = text(row, "model_output_answer_correctness") == "correct"
    answer = Answer(text=text(row, "model_output"), model=text(row, "generator"), is_good=good)
    return _math(row, scalar(row, "ground_truth_answer"), answer)


def step_labels_prm800k(row: Fields) -> Draft:
    """Steps are lists of one text; the labels of steps are a matter for verifiers and stay
    behind."""
    steps = [texts({"step": step}, "step")[0] for step in items(row, "model_output_step_format")]
    return _math(
        row,
        scalar(row, "ground_truth_answer"),
        Answer(text="\n".join(steps), model=text(row, "generator")),
    )


def game24_outputs(row: Fields) -> Draft:
    draft = game24({"input": text(row, "puzzle")})
    answer = Answer(
        text=text(row, "output"),
        model=text(row, "method"),
        is_good=number(row, "checked_reward") == 1,
    )
    return replace(draft, answers=(answer,), source_id=row_id(row, "idx"))


def game24_search_outputs(row: Fields) -> Draft:
    draft = game24({"values": items(row, "hand")})
    answer = Answer(
        text=text(row, "output"), model=text(row, "run"), is_good=flag(row, "final_correct")
    )
    return replace(draft, answers=(answer,), source_id=row_id(row, "idx"))


def tablebench_outputs(row: Fields) -> Draft:
    answer = Answer(text=text(row, "prediction"), model=text(row, "model_name"))
    return replace(tablebench(row), answers=(answer,))


def bigbench_mistake(row: Fields) -> Draft:
    """Five tasks of BIG-Bench with a trace each. The label is that of the answer, not of the steps
    before it."""
    kind = text(row, "task")
    asked = text(row, "input").strip()
    target = text(row, "target").strip()
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
    is_good = optional_text(row, "answer").strip().rstrip(".") == target
    answer = Answer(text="\n".join(texts(row, "steps")), is_good=is_good)
    return replace(known[one_of("task", kind, known)](), answers=(answer,))


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
        prompt=(*before, *user(text(row, "question"), "" if system else BOXED)),
        answer=gold.strip(),
        source_id=row_id(row, "id") or row_id(row, "idx"),
        answers=answers,
    )


_STEPS = "model_output_step_format model_output_solution_correctness model_output_solution_first_error_step id"
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
