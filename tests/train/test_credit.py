"""From rewarded groups to examples: advantages of siblings, weights of a step."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from whet.algos.advantages import Baseline, center, per_group
from whet.algos.algorithm import Algorithm, build_algorithm
from whet.algos.losses import sequence_mean
from whet.algos.settings import AlgoConfig
from whet.algos.step_credit import StepCreditConfig
from whet.batching.examples import Example, to_batch
from whet.errors import ConfigError
from whet.rollout.step_groups import DynamicSamplingConfig
from whet.testing.fakes import example, group, rollout
from whet.train.learner import set_loss_weights
from whet.train.rl_step import assign_advantages, select_rollouts, to_examples
from whet.types import FinishReason, Floats, Group, JudgedStep

DR_GRPO: Algorithm = build_algorithm(AlgoConfig(name="dr_grpo"), max_tokens=10)


def _credited(
    groups: Sequence[Group],
    algo: Algorithm,
    baseline: Baseline,
    *,
    temperature: float = 1.0,
    run_fraction: float = 0.0,
) -> tuple[list[Example], Baseline]:
    selection = select_rollouts(groups, algo)
    examples = to_examples(selection, temperature=temperature)
    return assign_advantages(selection, examples, algo, baseline, run_fraction=run_fraction)


def _pair(
    *,
    rewards: tuple[float, float] = (1.0, 0.0),
    steps: tuple[tuple[JudgedStep, ...], ...] = ((), ()),
) -> Group:
    """Two siblings, of three tokens and of one; log-probabilities -.1, -.2, -.3 and -.1."""
    both = (
        rollout(reward=rewards[0], tokens=[5, 6, 7], number=0),
        rollout(reward=rewards[1], tokens=[8], number=1),
    )
    return tuple(replace(item, judged_steps=own) for item, own in zip(both, steps, strict=True))


def _advantages(examples: Sequence[Example]) -> list[list[float]]:
    return [np.broadcast_to(item.advantage, (item.num_targets,)).tolist() for item in examples]


def _floats(*values: float) -> Floats:
    return np.array(values, dtype=np.float32)


def test_each_rollout_becomes_prompt_and_completion_with_its_advantage() -> None:
    siblings = (
        rollout(reward=1.0, prompt=[1, 2], tokens=[5, 6, 7], number=0),
        rollout(reward=0.0, prompt=[1, 2], tokens=[8], number=1),
    )

    [first, second], baseline = _credited([siblings], DR_GRPO, {}, temperature=0.7)

    assert first.tokens.tolist() == [1, 2, 5, 6, 7] and second.tokens.tolist() == [1, 2, 8]
    assert first.tokens.dtype == np.int32
    assert (first.response_start, first.num_targets, first.temperature) == (2, 3, 0.7)
    assert (first.advantage, second.advantage) == (0.5, -0.5)
    assert (first.rollout_id, first.group_id) == (siblings[0].id, siblings[0].group_id)
    assert first.sampling_logprob_M is not None
    np.testing.assert_allclose(first.sampling_logprob_M, [-0.1, -0.2, -0.3], rtol=1e-6)
    assert baseline == {}


def test_unscored_rollouts_take_no_part_in_their_groups_mean() -> None:
    examples, _ = _credited([group([1.0, None, 0.0, 0.5])], DR_GRPO, {}, temperature=1.0)

    assert [item.advantage for item in examples] == [0.5, -0.5, 0.0]


def test_groups_with_fewer_than_two_scored_are_left_out() -> None:
    examples, _ = _credited(
        [group([1.0, None]), group([None, None]), group([1.0, 3.0])], DR_GRPO, {}, temperature=1.0
    )

    assert [item.advantage for item in examples] == [-1.0, 1.0]


def test_no_usable_group_gives_no_example() -> None:
    assert _credited([group([None, 1.0])], DR_GRPO, {"m": 1.0}, temperature=1.0) == ([], {"m": 1.0})


def test_greedy_rollouts_are_trained_at_temperature_one() -> None:
    examples, _ = _credited([group([0.0, 1.0])], DR_GRPO, {}, temperature=0.0)

    assert [item.temperature for item in examples] == [1.0, 1.0]


def test_the_running_statistics_go_through_the_state() -> None:
    algo = build_algorithm(AlgoConfig(name="game24", max_momentum=0.2), max_tokens=10)

    _, first = _credited([group([1.0, 0.0])], algo, {}, temperature=1.0)
    examples, second = _credited([group([0.5, 0.0])], algo, first, temperature=1.0)

    # As in the advantages' own test: mean and deviation .275 after the second group.
    assert [item.advantage for item in examples] == pytest.approx([0.225 / 0.2751, -0.275 / 0.2751])
    assert second == pytest.approx({"mean": 0.275, "spread": 0.275, "m": 0.2})


def test_weights_come_from_the_lengths_of_responses_alone() -> None:
    examples = [example(length=10, start=9), example(length=5, start=2, seed=1)]

    assert [
        item.loss_weight for item in set_loss_weights(examples, sequence_mean)
    ] == pytest.approx([1 / 2, 1 / 6])
    assert [item.loss_weight for item in examples] == [1.0, 1.0]


def test_an_advantage_made_of_a_group_rule_serves_all_groups() -> None:
    assert per_group(center)([[2.0, 0.0], [1.0, 1.0]], {})[0] == [[1.0, -1.0], [0.0, 0.0]]


def test_a_kl_in_the_reward_is_taken_off_before_siblings_are_compared() -> None:
    algo = build_algorithm(AlgoConfig(name="rloo", kl_coef=0.5), max_tokens=10)
    selection = select_rollouts([_pair()], algo)
    # Differences to the reference: .4, .3, .2 and -.1. So 1 - .5 × .9 = .55 against 0 + .5 × .1 =
    # .05.
    noted = [
        replace(item, old_logprob_M=item.sampling_logprob_M, ref_logprob_M=reference)
        for item, reference in zip(
            to_examples(selection, temperature=1.0),
            (_floats(-0.5, -0.5, -0.5), _floats(0.0)),
            strict=True,
        )
    ]

    examples, _ = assign_advantages(selection, noted, algo, {})

    assert [item.advantage for item in examples] == pytest.approx([0.5, -0.5], abs=1e-6)


def test_a_group_that_only_the_kl_tells_apart_takes_part_in_whitening() -> None:
    algo = build_algorithm(
        AlgoConfig(name="rloo", kl_coef=0.5, kl_in="reward", whiten=True), max_tokens=10
    )
    selection = select_rollouts([group([1.0, 1.0]), group([1.0, 0.0])], algo)
    flat = [
        replace(item, old_logprob_M=item.sampling_logprob_M)
        for item in to_examples(selection, temperature=1.0)
    ]
    # Against the reference the first answer is 1 nat more likely at each token, the others equal.
    noted = [replace(item, ref_logprob_M=item.sampling_logprob_M) for item in flat]
    noted[0] = replace(flat[0], ref_logprob_M=flat[0].sampling_logprob_M - 1.0)

    examples, _ = assign_advantages(selection, noted, algo, {})

    values = np.concatenate(
        [np.broadcast_to(item.advantage, item.num_targets) for item in examples]
    )
    assert values.mean() == pytest.approx(0.0, abs=1e-6)
    assert values[0] < 0 < examples[1].advantage[0]


def test_a_kl_in_the_reward_is_spread_over_tokens_where_they_are_credited() -> None:
    algo = build_algorithm(
        AlgoConfig(name="reinforce_pp", kl_coef=0.5, whiten=False), max_tokens=10
    )
    selection = select_rollouts([_pair()], algo)
    noted = [
        replace(item, old_logprob_M=item.sampling_logprob_M, ref_logprob_M=reference)
        for item, reference in zip(
            to_examples(selection, temperature=1.0),
            (_floats(-0.5, -0.5, -0.5), _floats(0.0)),
            strict=True,
        )
    ]

    [first, second], _ = assign_advantages(selection, noted, algo, {})

    # The last token has 1 - .5 × .2 = .9; then .9 - .15 = .75; then .75 - .2 = .55. Alone: 0 + .05.
    assert first.advantage == pytest.approx([0.55, 0.75, 0.9], abs=1e-6)
    assert second.advantage == pytest.approx([0.05], abs=1e-6)


def test_a_kl_in_the_reward_without_a_reference_is_an_error() -> None:
    with pytest.raises(AssertionError, match="needs a reference"):
        _credited(
            [_pair()], build_algorithm(AlgoConfig(name="rloo", kl_coef=0.1), max_tokens=10), {}
        )


def test_reinforce_pp_whitens_over_all_tokens_and_needs_no_siblings() -> None:
    algo = build_algorithm(AlgoConfig(name="reinforce_pp"), max_tokens=10)

    # Rewards 1, 1, 1 and 0 by tokens: mean .75, deviation √(3/16) = .4330. A group of one takes
    # part.
    examples, _ = _credited([(_pair()[0],), (_pair()[1],)], algo, {})

    assert _advantages(examples) == [
        pytest.approx([0.5774] * 3, abs=1e-4),
        pytest.approx([-1.7321], abs=1e-4),
    ]


def test_a_second_normalisation_leaves_groups_of_equal_reward_at_zero() -> None:
    algo = build_algorithm(AlgoConfig(name="rlinf"), max_tokens=10)

    examples, _ = _credited([_pair(), _pair(rewards=(1.0, 1.0))], algo, {})

    # ±.7071 by z-score, over tokens .7071 × (1, 1, 1, -1): mean half of it, deviation √¾ of it.
    expected = [[0.5774] * 3, [-1.7321], [0.0] * 3, [0.0]]
    for found, numbers in zip(_advantages(examples), expected, strict=True):
        assert found == pytest.approx(numbers, abs=1e-4)


def test_gae_gives_advantages_and_targets_and_needs_values() -> None:
    algo = build_algorithm(AlgoConfig(name="ppo", whiten=False), max_tokens=10)
    selection = select_rollouts([(_pair()[0],)], algo)
    [item] = to_examples(selection, temperature=1.0)

    [found], _ = assign_advantages(
        selection, [replace(item, value_M=_floats(0.1, 0.2, 0.3))], algo, {}
    )

    assert found.advantage == pytest.approx([0.9, 0.8, 0.7], abs=1e-6)
    assert found.value_target_M == pytest.approx([1.0, 1.0, 1.0], abs=1e-6)
    with pytest.raises(ConfigError, match="needs a critic"):
        assign_advantages(selection, [item], algo, {})


def test_judged_steps_are_blended_in_by_their_share() -> None:
    algo = build_algorithm(
        AlgoConfig(
            name="tango_grpo",
            step_credit=StepCreditConfig(alpha=0.5, final_alpha=0.1, decay="linear"),
        ),
        max_tokens=10,
    )
    steps = (
        (JudgedStep(start=0, end=1, reward=0.5), JudgedStep(start=1, end=2, reward=-0.5)),
        (JudgedStep(start=0, end=1, reward=0.0),),
    )

    start, _ = _credited([_pair(steps=steps)], algo, {})
    middle, _ = _credited([_pair(steps=steps)], algo, {}, run_fraction=0.5)

    # Outcome ±.7071. Steps .5, -.5, 0 have deviation .5: 1 and -1, to go 0, -1, 0; and 0.
    assert _advantages(start) == [
        pytest.approx([0.3536, -0.1464, 0.3536], abs=1e-4),
        pytest.approx([-0.3536], abs=1e-4),
    ]
    # With a share of .3: .7 × .7071 = .4950, less .3.
    assert _advantages(middle)[0] == pytest.approx([0.4950, 0.1950, 0.4950], abs=1e-4)


def test_a_masked_response_counts_for_its_siblings_and_has_no_loss() -> None:
    long = rollout(reward=0.0, number=1, finish=FinishReason.LENGTH)
    groups = [(rollout(reward=1.0, number=0), long, rollout(reward=0.5, number=2))]
    selection = select_rollouts(groups, DR_GRPO, DynamicSamplingConfig(mask_unfinished=True))

    examples, _ = assign_advantages(selection, to_examples(selection, temperature=1.0), DR_GRPO, {})

    assert [item.rollout_id for item in examples] == [groups[0][0].id, groups[0][2].id]
    assert [item.advantage for item in examples] == [0.5, 0.0]


def test_groups_of_equal_reward_are_left_out_where_others_are_asked_in_their_place() -> None:
    groups = [group([1.0, 1.0]), group([1.0, 0.0])]

    assert select_rollouts(groups, DR_GRPO, DynamicSamplingConfig(max_extra_problems=2)).groups == [
        groups[1]
    ]
    assert select_rollouts(groups, DR_GRPO).groups == groups


def test_examples_of_other_rollouts_are_refused() -> None:
    selection = select_rollouts([_pair()], DR_GRPO)
    examples = to_examples(selection, temperature=1.0)

    with pytest.raises(AssertionError, match="belong to the rollouts"):
        assign_advantages(selection, examples[::-1], DR_GRPO, {})


def test_a_batch_takes_one_advantage_for_all_tokens_or_one_for_each() -> None:
    whole, each_token = example(length=4, start=1, advantage=2.0), example(length=3, start=1)
    batch = to_batch(
        [whole, replace(each_token, advantage=_floats(-1.0, 0.5))], torch.device("cpu")
    )

    assert batch.advantage_M.tolist() == [2.0, 2.0, 2.0, -1.0, 0.5]
    with pytest.raises(AssertionError, match="every response token"):
        to_batch([replace(each_token, advantage=_floats(1.0))], torch.device("cpu"))
