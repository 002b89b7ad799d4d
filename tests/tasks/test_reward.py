"""Rewards: weighted sums of what the grader states."""

import pytest

from whet.errors import ConfigError
from whet.tasks.reward import RewardSpec
from whet.testing.fakes import rollout
from whet.types import Rollout, Score, Verdict

PARTS = {"correct": 1.0, "process": 0.5, "length": 0.2, "extra": 9.0}


def _rewarded(spec: RewardSpec, score: Score) -> Rollout:
    [[found]] = spec.apply([(rollout(score=score, reward=7.0),)])
    return found


def test_the_reward_is_the_weighted_sum_of_the_named_parts() -> None:
    spec = RewardSpec(weights={"correct": 0.55, "process": 0.30, "length": 0.15})

    found = _rewarded(spec, Score(verdict=Verdict.CORRECT, parts=PARTS))

    # .55 × 1 + .30 × .5 + .15 × .2
    assert found.reward == pytest.approx(0.73)


def test_correctness_alone_is_the_default() -> None:
    assert _rewarded(RewardSpec(), Score(verdict=Verdict.CORRECT, parts=PARTS)).reward == 1.0


def test_what_the_grader_could_not_score_gets_no_reward() -> None:
    assert _rewarded(RewardSpec(), Score(verdict=Verdict.UNSCORED, parts={})).reward is None


def test_a_part_the_task_does_not_state_is_named_with_those_it_does() -> None:
    with pytest.raises(ConfigError, match="'style', which sums does not score: correct, extra, length, process"):
        _rewarded(RewardSpec(weights={"style": 1.0}), Score(verdict=Verdict.WRONG, parts=PARTS))


def test_groups_keep_their_shape_and_order() -> None:
    scores = [Score(verdict=Verdict.CORRECT, parts={"correct": value}) for value in (0.1, 0.2, 0.3)]
    groups = [(rollout(score=scores[0]), rollout(score=scores[1])), (rollout(score=scores[2]),)]

    assert [[found.reward for found in group] for group in RewardSpec().apply(groups)] == [[0.1, 0.2], [0.3]]
