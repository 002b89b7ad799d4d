"""Sampling ahead: what waits, what a checkpoint holds of it, and which weights sampled it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from whet.errors import DataError
from whet.rollout.step_groups import RolloutQueue
from whet.testing.fakes import rollout
from whet.types import Group


class Sampler:
    """Notes which step was sampled when."""

    def __init__(self) -> None:
        self.now = 0
        self.sampled: list[tuple[int, int]] = []

    def sample(self, step: int) -> list[Group]:
        self.sampled.append((step, self.now))
        return [
            tuple(
                replace(rollout(reward=float(step), number=n), group_id=f"{step}") for n in range(2)
            )
        ]


def run(lag: int, steps: int = 5) -> tuple[list[tuple[int, int]], list[float | None]]:
    sampler = Sampler()
    batches = RolloutQueue(sampler.sample, steps=steps, lag=lag)
    rewards = []
    for step in range(steps):
        sampler.now = step
        rewards.append(batches.take(step)[0][0].reward)
    return sampler.sampled, rewards


def test_without_a_lag_every_step_is_sampled_at_its_turn() -> None:
    assert run(0) == ([(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)], [0, 1, 2, 3, 4])


def test_with_a_lag_a_step_is_sampled_so_many_steps_before_and_none_beyond_the_end() -> None:
    assert run(2) == ([(0, 0), (1, 0), (2, 0), (3, 1), (4, 2)], [0, 1, 2, 3, 4])
    assert run(9) == ([(step, 0) for step in range(5)], [0, 1, 2, 3, 4])


def test_what_waits_comes_back_from_a_checkpoint_token_by_token(tmp_path: Path) -> None:
    straight, resumed = (RolloutQueue(Sampler().sample, steps=9, lag=2) for _ in "ab")
    straight.take(0)
    resumed.load(tmp_path, straight.save(tmp_path))

    for step in (1, 2, 3):
        one, other = straight.take(step), resumed.take(step)
        assert [[r.id for r in group] for group in one] == [
            [r.id for r in group] for group in other
        ]
        assert [r.reward for group in one for r in group] == [
            r.reward for group in other for r in group
        ]
        for a, b in zip(one[0], other[0], strict=True):
            np.testing.assert_array_equal(a.completion.tokens, b.completion.tokens)
            np.testing.assert_array_equal(a.completion.logprobs, b.completion.logprobs)


def test_what_was_dropped_is_sampled_again_with_the_weights_of_now() -> None:
    sampler = Sampler()
    batches = RolloutQueue(sampler.sample, steps=9, lag=2)
    batches.take(0)
    batches.drop()
    sampler.now = 1
    batches.take(1)
    assert sampler.sampled[3:] == [(1, 1), (2, 1), (3, 1)]


def test_a_checkpoint_that_says_nothing_of_the_queue_is_refused_in_a_sentence(
    tmp_path: Path,
) -> None:
    with pytest.raises(DataError, match="does not record how many batches wait"):
        RolloutQueue(Sampler().sample, steps=1, lag=0).load(tmp_path, None)
