"""One step on rewarded groups: factors multiply advantages, judged steps count only where they are
asked for, and a KL in the reward is that of the weights that are trained."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch

from whet.algos.settings import AlgoConfig
from whet.testing.fakes import rollout, sum_problem
from whet.testing.tiny import tiny_policy
from whet.train.memory import DeviceMemory
from whet.train.rl_step import RLTrainer
from whet.train.settings import TrainConfig
from whet.types import Group, JudgedStep, Metrics

ALGO = AlgoConfig(name="tango_grpo")


def trainer(algo: AlgoConfig = ALGO) -> RLTrainer:
    return RLTrainer(tiny_policy(seed=3), algo, TrainConfig(lr=1e-3), max_tokens=8, steps=5)


def group(number: int, rewards: tuple[float, float]) -> Group:
    problem = sum_problem(number, 2)
    return tuple(
        rollout(reward=reward, number=index, problem=problem, tokens=(5 + number, 6 + index, 7))
        for index, reward in enumerate(rewards)
    )


GROUPS = [group(1, (1.0, 0.0)), group(2, (0.0, 1.0))]
GROUP_IDS = [groups[0].group_id for groups in GROUPS]


def step(
    factors: dict[str, float] | None, groups: list[Group] = GROUPS, algo: AlgoConfig = ALGO
) -> Metrics:
    result = trainer(algo).step(
        groups, temperature=1.0, seed=0, advantage_factors=factors, has_step_credit=False
    )
    return result.metrics


def norm(factors: dict[str, float] | None) -> float:
    return step(factors)["train/grad_norm"]


def test_group_factors_scale_what_a_group_teaches() -> None:
    plain = norm(None)

    assert norm(dict.fromkeys(GROUP_IDS, 1.0)) == pytest.approx(plain)
    assert norm(dict.fromkeys(GROUP_IDS, 2.0)) == pytest.approx(2 * plain, rel=1e-4)
    one, other = (norm({GROUP_IDS[0]: factor, GROUP_IDS[1]: 1.0 - factor}) for factor in (1.0, 0.0))
    assert one != pytest.approx(other, rel=1e-3)
    assert step(dict.fromkeys(GROUP_IDS, 0.0)) == {"step/empty": 1.0}


def test_factors_leave_the_kl_alone() -> None:
    """At the start the KL is 0 and has no gradient, so that only its presence among the metrics
    shows it."""
    metrics = step(dict.fromkeys(GROUP_IDS, 0.0), algo=AlgoConfig(name="tango_grpo", kl_coef=0.1))

    assert metrics["step/empty"] == 0.0 and metrics["policy/kl"] == pytest.approx(0.0, abs=1e-6)


def test_judged_steps_count_only_where_they_are_asked_for() -> None:
    equal = [replace(item, reward=1.0) for item in GROUPS[0]]
    judged = (
        replace(equal[0], judged_steps=(JudgedStep(start=0, end=2, reward=1.0),)),
        replace(equal[1], judged_steps=(JudgedStep(start=0, end=2, reward=-1.0),)),
    )

    without = step(None, [judged])
    counted = trainer().step([judged], temperature=1.0, seed=0).metrics

    assert without == {"step/empty": 1.0}, "all outcomes are the same"
    assert counted["step/empty"] == 0.0 and counted["train/grad_norm"] > 0


def test_a_reference_is_kept_only_for_a_kl() -> None:
    assert trainer().reference is None
    assert trainer(AlgoConfig(name="tango_grpo", kl_coef=0.1)).reference is not None


def test_the_running_baseline_goes_from_step_to_step_and_through_a_checkpoint(
    tmp_path: Path,
) -> None:
    first, resumed = (trainer(AlgoConfig(name="game24")) for _ in range(2))
    first.step(GROUPS, temperature=1.0, seed=0)
    state = first.baseline.save(tmp_path)
    first.step(GROUPS, temperature=1.0, seed=1)

    resumed.baseline.load(tmp_path, state)
    assert resumed.baseline.numbers["m"] == 0.2
    resumed.step(GROUPS, temperature=1.0, seed=1)

    assert resumed.baseline.numbers == first.baseline.numbers


def test_room_for_the_update_is_made_before_the_reference_scores() -> None:
    """Without free memory all layers are checkpointed, which shows during the reference's pass."""
    policy = tiny_policy()
    policy.memory = DeviceMemory(torch.device("cpu"), free=lambda: 0.0)
    made = RLTrainer(policy, AlgoConfig(kl_coef=0.1), TrainConfig(), max_tokens=8, steps=5)
    seen = list[int]()
    made.reference.model.layers[0].register_forward_pre_hook(
        lambda *_: seen.append(policy.model.num_checkpointed)
    )

    made.step(GROUPS, temperature=1.0, seed=0)

    assert set(seen) == {policy.model.cfg.num_layers}


UNEQUAL = [
    tuple(
        rollout(reward=1.0, number=number, problem=sum_problem(1, 2), tokens=tokens)
        for number, tokens in enumerate([(5, 6, 7), (5, 7, 8, 9, 7)])
    )
]
"""Equal rewards; the sampling log-probabilities, -0.1 n, are far from those of the tiny model."""


@pytest.mark.parametrize(
    ("old_logprobs", "is_empty"), [("learner", 1.0), ("engine", 0.0)], ids=["learner", "engine"]
)
@pytest.mark.parametrize("num_minibatches", [1, 2])
def test_a_kl_in_the_reward_is_that_of_the_old_log_probabilities(
    old_logprobs: Literal["learner", "engine"], is_empty: float, num_minibatches: int
) -> None:
    """At the start the learner is the reference: its KL is 0, and only the engine's tells the two
    responses apart."""
    cfg = AlgoConfig(
        name="rloo", kl_coef=0.5, num_minibatches=num_minibatches, old_logprobs=old_logprobs
    )

    metrics = step(None, UNEQUAL, cfg)

    assert metrics["step/empty"] == is_empty


@pytest.mark.parametrize(
    ("kl_coef", "num_minibatches", "num_passes"), [(0.5, 1, 2), (0.5, 2, 3), (0, 1, 1), (0, 2, 3)]
)
def test_old_log_probabilities_are_computed_at_most_once_a_step(
    kl_coef: float, num_minibatches: int, num_passes: int
) -> None:
    """An update is a forward pass per mini-batch; a KL in the reward or ratios need one more."""
    made = trainer(AlgoConfig(name="rloo", kl_coef=kl_coef, num_minibatches=num_minibatches))
    seen = list[bool]()
    made.policy.model.layers[0].register_forward_pre_hook(
        lambda *_: seen.append(torch.is_grad_enabled())
    )

    made.step(GROUPS, temperature=1.0, seed=0)

    assert (len(seen), sum(seen)) == (num_passes, num_minibatches)
