"""A step in numbers, worked by hand."""

import pytest

from whet.testing.fakes import group, rollout
from whet.track.rollup import rollup
from whet.types import Finish, Score, Verdict


def _score(correct: float, verdict: Verdict = Verdict.WRONG) -> Score:
    return Score(verdict=verdict, parts={"correct": correct})


def test_the_metrics_of_a_step_are_worked_by_hand() -> None:
    unscored = Score(verdict=Verdict.UNSCORED, parts={})
    partial = Score(verdict=Verdict.WRONG, parts={"correct": 0.0, "process": 0.8})
    groups = [
        (
            rollout(reward=1.0, score=_score(1.0, Verdict.CORRECT), tokens=[1] * 2),
            rollout(reward=0.0, score=partial, tokens=[1] * 4, finish=Finish.LENGTH),
        ),
        (
            rollout(reward=0.5, score=_score(0.5), tokens=[1] * 6),
            rollout(reward=None, score=unscored, tokens=[1] * 8),
        ),
    ]

    assert rollup(groups) == pytest.approx(
        {
            "reward/mean": 0.5,
            "reward/deviation": (0.5 / 3) ** 0.5,  # deviations .5, -.5 and 0: a variance of .5 / 3
            "score/correct": 0.5,
            "score/process": 0.8 / 3,
            "score/unscored": 1.0,
            "length/mean": 5.0,
            "length/unfinished": 0.25,
            "groups/equal": 0.5,
        }
    )


def test_groups_of_equal_rewards_are_counted() -> None:
    assert rollup([group([1.0, 1.0]), group([0.0, 0.0]), group([0.3, 0.4])])[
        "groups/equal"
    ] == pytest.approx(2 / 3)


def test_a_step_that_nothing_was_scored_in_has_no_reward_and_says_so() -> None:
    found = rollup([group([None, None])])

    assert (found["reward/mean"], found["reward/deviation"], found["score/unscored"]) == (
        0.0,
        0.0,
        2.0,
    )
