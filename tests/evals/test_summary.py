"""Summaries of graded rollouts, counted by hand."""

import json
from dataclasses import replace

import pytest
from report_fixture import make_groups, make_problem, make_rollout

from whet.errors import DataError
from whet.evals.summary import EvalSummary, pass_rates, summarise
from whet.level_bands import level_label
from whet.types import FinishReason, Group, Json, Problem, Verdict

RIGHT, WRONG, NOTHING, UNSCORED = (
    Verdict.CORRECT,
    Verdict.WRONG,
    Verdict.NO_ANSWER,
    Verdict.UNSCORED,
)


def group(problem: Problem, *verdicts: Verdict | None) -> Group:
    return tuple(make_rollout(problem, verdict) for verdict in verdicts)


def test_pass_at_k_is_averaged_over_problems() -> None:
    found = summarise(
        [
            group(make_problem(0, level=0.1), RIGHT, RIGHT, WRONG, WRONG, WRONG),
            group(make_problem(1, level=0.1), WRONG, WRONG, WRONG, WRONG, WRONG),
        ],
        ks=(1, 2),
    )
    assert found.pass_at[1].mean == pytest.approx(0.2)  # (.4 + 0) / 2
    assert found.pass_at[2].mean == pytest.approx(0.35)  # (.7 + 0) / 2
    assert found.pass_at[1].count == found.num_problems == 2
    assert found.num_rollouts == 10


def test_a_k_beyond_the_number_of_answers_is_not_there() -> None:
    found = summarise([group(make_problem(0, level=0.1), RIGHT, WRONG)])
    assert set(found.pass_at) == {1}


def test_every_problem_weighs_the_same_whatever_its_number_of_answers() -> None:
    answers = [[RIGHT, WRONG], [RIGHT] * 8, [WRONG] * 4]
    found = summarise(
        [group(make_problem(index, level=0.1), *given) for index, given in enumerate(answers)],
        ks=(1,),
    )
    assert found.pass_at[1].mean == pytest.approx(0.5)


def test_unscored_answers_are_counted_and_left_out_of_the_mean() -> None:
    found = summarise([group(make_problem(0, level=0.1), RIGHT, WRONG, UNSCORED, None)], ks=(1, 4))
    assert found.pass_at[1].mean == 0.5
    assert set(found.pass_at) == {1}
    assert found.num_unscored == 2


def test_unscored_answers_to_unsolvable_problems_are_counted_too() -> None:
    found = summarise(
        [
            group(make_problem(0, level=0.5, solvable=True), RIGHT, UNSCORED),
            group(make_problem(1, level=None, solvable=False), RIGHT, UNSCORED, None),
        ]
    )
    assert found.num_unscored == 3


def test_unsolvable_problems_stand_apart() -> None:
    found = summarise(
        [
            group(make_problem(0, level=0.5, solvable=True), WRONG, WRONG),
            group(make_problem(1, level=None, solvable=False), RIGHT, WRONG),
        ]
    )
    assert found.pass_at[1].mean == 0.0
    assert found.unsolvable is not None
    assert found.unsolvable.mean == 0.5
    assert (found.num_problems, found.num_rollouts) == (1, 2)
    assert set(found.by_level) == {"3"}


def test_problems_of_unknown_level_count_and_are_named_so() -> None:
    found = summarise(
        [group(make_problem(0, level=None), RIGHT), group(make_problem(1, level=0.99), WRONG)]
    )
    assert found.pass_at[1].mean == 0.5
    assert {level: estimate.mean for level, estimate in found.by_level.items()} == {
        "5": 0.0,
        "unknown": 1.0,
    }


@pytest.mark.parametrize(
    ("level", "fifth"),
    [(0.0, "1"), (0.199, "1"), (0.2, "2"), (0.6, "4"), (1.0, "5"), (-3.0, "1"), (None, "unknown")],
)
def test_levels_fall_into_fifths(level: float | None, fifth: str) -> None:
    assert level_label(level, unknown="unknown") == fifth


def test_lengths_and_endings_are_averaged() -> None:
    problem = make_problem(0, level=0.3)
    found = summarise(
        [
            (
                make_rollout(problem, RIGHT, tokens=10),
                make_rollout(problem, WRONG, tokens=20),
                make_rollout(problem, NOTHING, tokens=60, finish=FinishReason.LENGTH),
                make_rollout(problem, NOTHING, tokens=10),
            )
        ]
    )
    assert found.tokens.mean == 25.0
    assert found.unfinished.mean == 0.25
    assert found.no_answer.mean == 0.5


def test_groups_of_one_problem_are_one_problem() -> None:
    problem = make_problem(0, level=0.3)
    found = summarise([group(problem, RIGHT, RIGHT), group(problem, WRONG, WRONG)])
    assert (found.num_problems, found.num_rollouts) == (1, 4)
    assert found.pass_at[1].mean == 0.5


def test_a_problem_whose_answers_all_went_ungraded_is_in_no_pass_rate() -> None:
    lost, kept = make_problem(0, level=0.9), make_problem(1, level=0.1)
    groups = [group(lost, UNSCORED), group(kept, RIGHT)]
    found = summarise(groups)
    assert found.pass_at[1].count == 1
    assert set(found.by_level) == {"1"}
    assert pass_rates(groups) == {kept.id: 1.0}


def test_solved_shares_leave_unsolvable_problems_out() -> None:
    solvable, unsolvable = make_problem(0, level=0.1), make_problem(1, level=None, solvable=False)
    groups = [group(solvable, RIGHT, WRONG, WRONG, WRONG), group(unsolvable, RIGHT)]
    assert pass_rates(groups) == {solvable.id: 0.25}


@pytest.mark.parametrize("groups", [[], [()]])
def test_an_evaluation_without_answers_is_refused(groups: list[Group]) -> None:
    with pytest.raises(DataError, match="needs solvable problems"):
        summarise(groups)


def test_a_summary_survives_json() -> None:
    found = summarise(make_groups(0.5, 3, count=40))
    assert EvalSummary.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_a_row_that_is_no_summary_is_a_data_error() -> None:
    good = summarise(make_groups(0.5, 3, count=24)).to_json()
    for row in (
        {},
        good | {"pass_at": 3},
        good | {"num_problems": "many"},
        good | {"tokens": None},
    ):
        with pytest.raises(DataError):
            EvalSummary.from_json(row)


def half(number: int, subset: str, half: str) -> Problem:
    payload: dict[str, Json] = {"f1": {"subset": subset, "half": half}}
    return replace(make_problem(number, level=0.1), payload=payload)


def test_f1_is_the_harmonic_mean_of_the_two_halves_of_a_subset() -> None:
    found = summarise(
        [
            group(half(0, "math", "error"), RIGHT),
            group(half(1, "math", "error"), WRONG),
            group(half(2, "math", "error"), NOTHING),
            group(half(3, "math", "error"), WRONG),
            group(half(4, "math", "correct"), RIGHT),
            group(half(5, "math", "correct"), RIGHT, WRONG),
            group(half(6, "gsm8k", "error"), WRONG),
            group(half(7, "gsm8k", "correct"), WRONG),
            group(half(8, "omnimath", "error"), RIGHT),
        ]
    )
    # math: 1/4 and 3/4; omnimath lacks a half
    assert {name: f1.value for name, f1 in found.f1.items()} == {"gsm8k": 0, "math": 0.375}
    assert found.f1["math"].halves["correct"].mean == 0.75
    assert EvalSummary.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_a_summary_from_before_f1_is_still_read() -> None:
    row = summarise(make_groups(0.5, 3, count=24)).to_json()
    del row["f1"]
    assert EvalSummary.from_json(row).f1 == {}


def test_a_summary_from_before_rates_is_still_read() -> None:
    row = summarise(make_groups(0.5, 3, count=24)).to_json()
    del row["rates"]
    assert EvalSummary.from_json(row).rates == {}
