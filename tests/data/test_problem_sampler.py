"""The stream of problems: every one once an epoch, and the same from any position."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from whet.data.problem_sampler import (
    CurriculumStage,
    PassRateCurriculum,
    ProblemSampler,
    StagedCurriculum,
)
from whet.errors import DataError
from whet.testing.fakes import rollout, sum_problem
from whet.types import Group, Json, Problem, Score, Verdict

PROBLEMS = [sum_problem(n, 1) for n in range(7)]
LEVELS = [replace(sum_problem(n, 2), level=n / 10) for n in (0, 1, 2, 3, 6, 7, 8, 9)]
STAGED = StagedCurriculum(
    kind="staged", stages=[CurriculumStage(max_level=0.5), CurriculumStage(min_level=0.5)]
)
HERE = Path()


def answers(problem: Problem, *right: int) -> Group:
    """Make siblings that are right (1) or wrong (0)."""
    verdicts = [Verdict.CORRECT if one else Verdict.WRONG for one in right]
    return tuple(
        rollout(problem=problem, score=Score(verdict=verdict, parts={})) for verdict in verdicts
    )


def through_json(sampler: ProblemSampler) -> Json:
    state: Json = json.loads(json.dumps(sampler.save(HERE)))
    return state


def _ids(sampler: ProblemSampler, count: int) -> list[str]:
    return [problem.id for problem in sampler.take(count)]


def test_every_problem_comes_once_an_epoch() -> None:
    ids = _ids(ProblemSampler(PROBLEMS, seed=1), 21)

    for epoch in range(3):
        assert sorted(ids[7 * epoch : 7 * epoch + 7]) == sorted(problem.id for problem in PROBLEMS)


def test_epochs_and_seeds_have_their_own_order() -> None:
    ids = _ids(ProblemSampler(PROBLEMS, seed=1), 14)

    assert ids[:7] != ids[7:]
    assert ids[:7] != _ids(ProblemSampler(PROBLEMS, seed=2), 7)


@pytest.mark.parametrize("size", [1, 3, 5, 14])
def test_how_many_are_taken_at_a_time_does_not_matter(size: int) -> None:
    sampler = ProblemSampler(PROBLEMS, seed=1)
    pieces = [id for _ in range(0, 28, size) for id in _ids(sampler, size)]

    assert pieces[:28] == _ids(ProblemSampler(PROBLEMS, seed=1), 28)


def test_a_sampler_goes_on_from_where_another_was_saved() -> None:
    whole = _ids(ProblemSampler(PROBLEMS, seed=1), 20)
    first, resumed = ProblemSampler(PROBLEMS, seed=1), ProblemSampler(PROBLEMS, seed=1)
    first.take(12)
    resumed.load(HERE, through_json(first))

    assert _ids(resumed, 8) == whole[12:]


def test_a_checkpoint_without_a_position_in_the_problems_is_refused_in_a_sentence() -> None:
    with pytest.raises(DataError, match="does not record the position in the problems"):
        ProblemSampler(PROBLEMS, seed=1).load(HERE, None)


def test_no_problems_is_an_error_in_a_sentence() -> None:
    with pytest.raises(DataError, match="no problems to train on"):
        ProblemSampler([], seed=1)


def test_stages_take_their_own_problems_and_go_on_where_they_stopped() -> None:
    sampler = ProblemSampler(LEVELS, STAGED, seed=1, steps=4, per_step=3)
    levels = [[problem.level or 0.0 for problem in sampler.take(3, step)] for step in range(4)]

    assert [max(step) for step in levels[:2]] < [0.5, 0.5]
    assert sorted(levels[0] + levels[1][:1]) == [0.0, 0.1, 0.2, 0.3]
    assert sorted(levels[2] + levels[3][:1]) == [0.6, 0.7, 0.8, 0.9]
    assert [sampler.metrics(step) for step in (1, 2)] == [
        {"curriculum/stage": 1.0},
        {"curriculum/stage": 2.0},
    ]


def test_the_shuffled_control_takes_exactly_the_rows_of_all_stages_in_another_order() -> None:
    staged, mixed = (
        ProblemSampler(
            LEVELS, STAGED.model_copy(update={"shuffled": shuffled}), seed=1, steps=4, per_step=3
        )
        for shuffled in (False, True)
    )
    rows, same = (
        [p.id for step in range(4) for p in sampler.take(3, step)] for sampler in (staged, mixed)
    )

    assert rows != same
    assert sorted(rows) == sorted(same)


def test_a_stage_that_no_problem_fits_is_named_with_the_levels_there_are() -> None:
    stages = [CurriculumStage(max_level=0.5), CurriculumStage(min_level=0.95)]
    with pytest.raises(
        DataError, match=r"curriculum.stages.1 wants levels from 0.95 to 1, .* from 0 to 0.9"
    ):
        ProblemSampler(LEVELS, StagedCurriculum(kind="staged", stages=stages), seed=1)


def test_the_band_passes_over_what_is_always_or_never_solved_and_asks_again_after_a_rest() -> None:
    sampler = ProblemSampler(LEVELS, PassRateCurriculum(kind="band", rest=1), seed=1)
    asked = sampler.take(8)
    easy, hard, between = asked[0], asked[1], asked[2]
    sampler.observe([answers(easy, 1, 1), answers(hard, 0, 0), answers(between, 1, 0)])

    second, third = sampler.take(6), sampler.take(8)
    assert {problem.id for problem in second} == {problem.id for problem in LEVELS} - {
        easy.id,
        hard.id,
    }
    assert {problem.id for problem in third} == {problem.id for problem in LEVELS}
    assert sampler.metrics(0) == {"curriculum/passed_over": 2.0}


def test_a_problem_that_stays_outside_the_band_rests_again_after_each_answer() -> None:
    """Of every two epochs it is asked in one: always solved, with a rest of one epoch."""
    easy, between = LEVELS[:2]
    sampler = ProblemSampler([easy, between], PassRateCurriculum(kind="band", rest=1), seed=1)
    asked: list[int] = []
    for number in range(6):
        epoch = sampler.take(1 if number in (1, 3, 5) else 2)
        asked.append(epoch.count(easy))
        sampler.observe([answers(easy, 1, 1) for _ in range(asked[-1])])
        sampler.observe([answers(between, 1, 0)])

    assert asked == [1, 0, 1, 0, 1, 0]


def test_a_pass_rate_remembers_half_of_what_was_seen_before() -> None:
    sampler = ProblemSampler(LEVELS, PassRateCurriculum(kind="band", low=0.2, high=0.6), seed=1)
    for pair, rate in (((1, 1), 1.0), ((0, 0), 0.5), ((0, 0), 0.25), ((0, 0), 0.125)):
        sampler.observe([answers(LEVELS[0], *pair)])
        state = sampler.save(HERE)
        assert isinstance(state, dict) and state["rates"] == {LEVELS[0].id: rate}


def test_answers_that_could_not_be_graded_say_nothing_of_a_problem() -> None:
    sampler = ProblemSampler(LEVELS, PassRateCurriculum(kind="band"), seed=1)
    sampler.observe(
        [
            tuple(
                rollout(problem=LEVELS[0], score=Score(verdict=Verdict.UNSCORED, parts={}))
                for _ in "ab"
            )
        ]
    )

    assert through_json(sampler) == through_json(
        ProblemSampler(LEVELS, PassRateCurriculum(kind="band"), seed=1)
    )


def test_a_resumed_band_takes_the_same_problems() -> None:
    straight, resumed = (
        ProblemSampler(LEVELS, PassRateCurriculum(kind="band", rest=1), seed=1) for _ in "ab"
    )
    straight.observe([answers(problem, 1, 1) for problem in straight.take(5)])
    straight.take(4)
    resumed.load(HERE, through_json(straight))

    assert _ids(straight, 20) == _ids(resumed, 20)
