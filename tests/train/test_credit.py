"""From rewarded groups to examples: advantages of siblings, weights of a step."""

import numpy as np
import pytest

from whet.algos.advantages import center, each
from whet.algos.catalog import AlgoConfig, Algorithm, build
from whet.algos.weights import sequence_mean
from whet.testing.fakes import example, group, rollout
from whet.train.credit import credit, weigh

DR_GRPO: Algorithm = build(AlgoConfig(name="dr_grpo"), max_tokens=10)


def test_each_rollout_becomes_prompt_and_completion_with_its_advantage() -> None:
    siblings = (
        rollout(reward=1.0, prompt=[1, 2], tokens=[5, 6, 7], number=0),
        rollout(reward=0.0, prompt=[1, 2], tokens=[8], number=1),
    )

    [first, second], state = credit([siblings], DR_GRPO, {}, temperature=0.7)

    assert first.tokens.tolist() == [1, 2, 5, 6, 7] and second.tokens.tolist() == [1, 2, 8]
    assert first.tokens.dtype == np.int32
    assert (first.start, first.num_targets, first.temperature) == (2, 3, 0.7)
    assert (first.advantage, second.advantage) == (0.5, -0.5)
    assert (first.rollout, first.group) == (siblings[0].id, siblings[0].group)
    assert first.logprob is not None
    np.testing.assert_allclose(first.logprob, [-0.1, -0.2, -0.3], rtol=1e-6)
    assert state == {}


def test_unscored_rollouts_take_no_part_in_their_groups_mean() -> None:
    examples, _ = credit([group([1.0, None, 0.0, 0.5])], DR_GRPO, {}, temperature=1.0)

    assert [item.advantage for item in examples] == [0.5, -0.5, 0.0]


def test_groups_with_fewer_than_two_scored_are_left_out() -> None:
    examples, _ = credit([group([1.0, None]), group([None, None]), group([1.0, 3.0])], DR_GRPO, {}, temperature=1.0)

    assert [item.advantage for item in examples] == [-1.0, 1.0]


def test_no_usable_group_gives_no_example() -> None:
    assert credit([group([None, 1.0])], DR_GRPO, {"m": 1.0}, temperature=1.0) == ([], {"m": 1.0})


def test_greedy_rollouts_are_trained_at_temperature_one() -> None:
    examples, _ = credit([group([0.0, 1.0])], DR_GRPO, {}, temperature=0.0)

    assert [item.temperature for item in examples] == [1.0, 1.0]


def test_the_running_statistics_go_through_the_state() -> None:
    algo = build(AlgoConfig(name="game24", max_momentum=0.2), max_tokens=10)

    _, first = credit([group([1.0, 0.0])], algo, {}, temperature=1.0)
    examples, second = credit([group([0.5, 0.0])], algo, first, temperature=1.0)

    # As in the advantages' own test: mean and deviation .275 after the second group.
    assert [item.advantage for item in examples] == pytest.approx([0.225 / 0.2751, -0.275 / 0.2751])
    assert second == pytest.approx({"mean": 0.275, "spread": 0.275, "m": 0.2})


def test_weights_come_from_the_lengths_of_responses_alone() -> None:
    examples = [example(length=10, start=9), example(length=5, start=2, seed=1)]

    assert [item.weight for item in weigh(examples, sequence_mean)] == pytest.approx([1 / 2, 1 / 6])
    assert [item.weight for item in examples] == [1.0, 1.0]


def test_an_advantage_made_of_a_group_rule_serves_all_groups() -> None:
    assert each(center)([[2.0, 0.0], [1.0, 1.0]], {})[0] == [[1.0, -1.0], [0.0, 0.0]]
