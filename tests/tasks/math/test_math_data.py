"""The shared data: test cases of other graders, labelled model outputs, and every reference of
every benchmark."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from math_problems import is_right, problem, rows

from whet.answers.final_answer import find_boxes
from whet.tasks.math import Math
from whet.types import Verdict

DISPUTED: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parents[1] / "disputed_math.json").read_text()
)
Gold = Callable[[dict], str | None]  # type: ignore[type-arg]


def in_solution(row: dict) -> str | None:  # type: ignore[type-arg]
    boxes = find_boxes(row["solution"])
    return boxes[-1].text if boxes else None


def after_hashes(row: dict) -> str:  # type: ignore[type-arg]
    return str(row["answer"]).rpartition("####")[2].strip()


def field(name: str) -> Gold:
    return lambda row: str(row[name]) if row[name] not in (None, "") else None


WITH_ANSWERS = (
    "math500 math_train aime_train aime24 aime25 amc23 gaokao2023en gaokao2024_mix "
    "gaokao_math_cloze cn_middle_school carp_en college_math cmath tabmwp"
)
GOLDS: dict[str, Gold] = {
    "gsm8k_test": after_hashes,
    "gsm8k_train": after_hashes,
    "math_test": in_solution,
    "minerva_math": in_solution,
    "olympiadbench": lambda row: row["final_answer"][0] if row["final_answer"] else None,
    "svamp": field("Answer"),
    "mawps": field("target"),
    "gsm_hard": field("target"),
    "asdiv": lambda row: str(row["answer"]).partition(" (")[0],
} | {name: field("answer") for name in WITH_ANSWERS.split()}


@pytest.mark.parametrize("name", GOLDS)
def test_every_reference_is_right_and_the_next_row_is_not(name: str) -> None:
    golds = [GOLDS[name](row) for row in rows(name)]
    disputed = DISPUTED.get(name, {})
    wrong, confused = [], []
    for index, (gold, other) in enumerate(zip(golds, [*golds[1:], golds[0]], strict=True)):
        if gold is None or other is None:
            continue
        if not is_right(gold, gold):
            wrong.append((index, gold))
        if other.strip() != gold.strip() and str(index) not in disputed and is_right(gold, other):
            confused.append((index, gold, other))
    assert wrong == []
    assert confused == []


@pytest.mark.parametrize(("level", "least"), [("answer", 0.97), ("response", 0.95)])
def test_the_cases_of_other_graders_agree(level: str, least: float) -> None:
    task = Math()
    chosen = [
        row
        for row in rows("equivalence")
        if row["category"] == "math" and row["convention"] is None
    ]
    cases = [row for row in chosen if row["level"] == level]
    num_agreeing = 0
    for row in cases:
        text = row["prediction"]
        text = rf"\boxed{{{text}}}" if level == "answer" and "boxed" not in text else text
        is_equal = task.score(problem(row["gold"]), text).verdict is Verdict.CORRECT
        num_agreeing += is_equal == row["expected_equal"]
    assert num_agreeing / len(cases) >= least


def test_hostile_cases_of_other_graders_are_graded_as_they_say() -> None:
    for row in rows("equivalence"):
        if row["category"] == "robustness":
            is_equal = (
                Math().score(problem(row["gold"]), row["prediction"]).verdict is Verdict.CORRECT
            )
            assert is_equal == row["expected_equal"], row


def test_labels_of_real_outputs_agree() -> None:
    task = Math()
    solutions = [
        (row["ground_truth"].rpartition("A:")[2].strip(), row["solution"], row["is_correct"])
        for row in rows("gsm8k_model_solutions")
    ]
    samples = [
        (row["gt"], sample["response"], sample["correct"])
        for row in rows("qwen_math_outputs")
        for sample in row["samples"]
    ]
    for cases in (solutions, samples):
        num_agreeing = sum(
            (task.score(problem(gold), text).verdict is Verdict.CORRECT) == label
            for gold, text, label in cases
        )
        assert num_agreeing / len(cases) >= 0.99
