"""Curricula as pure functions of a step: stages of equal length, their limits, and budgets by
level."""

from dataclasses import replace
from random import Random

import pytest
from pydantic import ValidationError

from whet.data.problem_sampler import CurriculumStage, PassRateCurriculum, StagedCurriculum
from whet.testing.fakes import sum_problem

STAGES = StagedCurriculum(
    kind="staged",
    stages=[
        CurriculumStage(max_tokens=100, temperature=0.5),
        CurriculumStage(),
        CurriculumStage(max_tokens=900),
    ],
    easy_tokens=60,
)


def test_stages_share_the_steps_as_equally_as_they_divide() -> None:
    assert [STAGES.stage_at(step, 9) for step in range(9)] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [STAGES.stage_at(step, 7) for step in range(7)] == [0, 0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("level", "step", "tokens"),
    [(0.0, 0, 60), (0.5, 0, 80), (1.0, 0, 100), (0.25, 1, 145), (1.0, 2, 400), (None, 1, 400)],
)
def test_the_budget_grows_with_the_level_up_to_the_limit_of_the_stage(
    level: float | None, step: int, tokens: int
) -> None:
    """Stage 2 has the limit of the run, 400: 60 + 0.25 * 340 = 145. Stage 3 may not have more."""
    assert STAGES.max_tokens(replace(sum_problem(1, 1), level=level), step, 3, 400) == tokens


def test_a_stage_has_its_own_temperature_and_others_follow_the_path_of_the_run() -> None:
    assert [STAGES.temperature(step, 3, 1.0, 0.25) for step in range(3)] == [0.5, 0.5, 0.25]


def test_the_shuffled_control_runs_at_the_limits_of_the_run() -> None:
    shuffled = STAGES.model_copy(update={"shuffled": True, "easy_tokens": None})
    assert [shuffled.max_tokens(sum_problem(1, 1), step, 3, 400) for step in range(3)] == [
        400,
        400,
        400,
    ]
    assert shuffled.temperature(0, 3, 1.0, None) == 1.0


def test_a_problem_without_a_level_is_in_no_stage() -> None:
    assert not CurriculumStage().contains(replace(sum_problem(1, 1), level=None))
    assert CurriculumStage(min_level=0.2, max_level=0.4).contains(
        replace(sum_problem(1, 1), level=0.4)
    )


def test_the_band_wants_rates_between_its_ends() -> None:
    assert [PassRateCurriculum(kind="band").is_wanted(rate) for rate in (0.0, 0.1, 1.0)] == [
        False,
        True,
        False,
    ]


def test_problems_that_start_outside_the_band_are_spread_over_their_rest() -> None:
    band, rng = PassRateCurriculum(kind="band", rest=2), Random(0)
    assert {band.initial_rest(rng) for _ in range(50)} == {0, 1, 2}


def test_bounds_the_wrong_way_round_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"low = 0.7 should be below high = 0.3"):
        PassRateCurriculum(kind="band", low=0.7, high=0.3)
    with pytest.raises(
        ValidationError, match=r"stages.0.min_level = 0.7 should not be above its max_level = 0.3"
    ):
        StagedCurriculum(kind="staged", stages=[CurriculumStage(min_level=0.7, max_level=0.3)])
