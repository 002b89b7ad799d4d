"""A policy samples what it trains, under the version that was published; it has one learner."""

import pytest

from whet.algos.objectives import sft_objective
from whet.engine.base import SamplingParams
from whet.errors import TrainError
from whet.grading.grader import Grader
from whet.rollout.collect import sample_and_grade
from whet.testing.fakes import SumTask, example, sum_problem
from whet.testing.tiny import tiny_policy
from whet.train.learner import LocalLearner
from whet.train.learner_factory import LocalLearnerFactory
from whet.train.settings import TrainConfig


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


def test_a_learner_is_refused_once_its_policy_has_made_another() -> None:
    policy = tiny_policy()
    first = policy.build_learner(TrainConfig(), steps=1)
    second = policy.build_learner(TrainConfig(), steps=1)

    second.update([example(length=6)], sft_objective())
    with pytest.raises(TrainError, match="its policy made another: train with that one"):
        first.update([example(length=6)], sft_objective())


def test_a_new_learner_starts_where_the_one_before_has_left_the_weights() -> None:
    calls: list[str] = []

    class Watched(LocalLearner):
        def sync_model(self) -> None:
            calls.append("sync")

        def close(self) -> None:
            calls.append("close")

    class Factory(LocalLearnerFactory):
        def build_learner(self, *args: object, **kwargs: object) -> LocalLearner:
            calls.append("make")
            return Watched(*args, **kwargs)  # type: ignore[arg-type]

    policy = tiny_policy()
    policy.learner_factory = Factory()
    policy.build_learner(TrainConfig(), steps=1)
    policy.build_learner(TrainConfig(), steps=1)

    assert calls == ["make", "sync", "close", "make"]
