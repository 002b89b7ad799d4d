"""A policy samples what it trains, under the version that was published."""

from whet.engine.base import SamplingParams
from whet.grading.grader import Grader
from whet.rollout.collect import sample_and_grade
from whet.testing.fakes import SumTask, sum_problem
from whet.testing.tiny import tiny_policy


def test_rollouts_carry_the_published_version_and_the_policys_name() -> None:
    policy = tiny_policy()
    policy.publish(9)

    [group] = sample_and_grade(
        policy.chat_engine,
        Grader(SumTask()),
        [sum_problem(1, 2)],
        SamplingParams(max_tokens=4),
        samples=2,
        seed=0,
    )

    assert [(rollout.completion.policy_version, rollout.model) for rollout in group] == [
        (9, "tiny")
    ] * 2
