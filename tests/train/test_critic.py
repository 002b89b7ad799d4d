"""The critic: values of every response token from the tokens before it, its own weights, and a
warm-up."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from whet.algos.algorithm import build_algorithm
from whet.algos.settings import AlgoConfig
from whet.batching.examples import Example, to_batch
from whet.errors import ConfigError, DataError
from whet.models.lora import LoraConfig, LoraTransformer
from whet.models.transformer import Transformer
from whet.testing.fakes import example, group
from whet.testing.tiny import tiny_model, tiny_policy
from whet.train.critic import (
    Critic,
    CriticConfig,
    add_values,
    build_critic,
    count_policy_steps,
)
from whet.train.learner import LocalLearner
from whet.train.rl_step import (
    RLTrainer,
    assign_advantages,
    select_rollouts,
    to_examples,
    update_policy,
)
from whet.train.settings import TrainConfig
from whet.train.value_model import ValueModel

SHAPES = [(2, 1), (9, 3), (30, 10), (17, 16), (9, 1), (24, 4)]
TRAIN = TrainConfig(lr=1e-3, micro_batch_tokens=64, lr_schedule="cosine", warmup_steps=2)
PPO = build_algorithm(AlgoConfig(name="ppo"), max_tokens=8)


def examples() -> list[Example]:
    """Sequences whose tokens are worth their own number: a target that follows from the token
    before."""
    made = [
        example(length=length, start=start, seed=seed)
        for seed, (length, start) in enumerate(SHAPES)
    ]
    return [replace(item, value_target_M=_worth(item)) for item in made]


def _worth(item: Example) -> np.ndarray:
    return (item.tokens[item.response_start - 1 : -1] / 25 - 1).astype(np.float32)


def critic(
    model: Transformer | None = None,
    *,
    num_minibatches: int = 1,
    micro_batch_tokens: int = 64,
    **settings: float,
) -> Critic:
    made = model or tiny_model()
    cfg = CriticConfig.model_validate({"lr": 3e-3, **settings})
    train = TRAIN.model_copy(update={"micro_batch_tokens": micro_batch_tokens, "lr": cfg.lr})
    learner = LocalLearner(ValueModel(made), train, steps=20 * num_minibatches)
    return Critic(learner, cfg, num_minibatches=num_minibatches)


def state(made: Critic) -> dict[str, Tensor]:
    weights = {
        name: weight.detach().clone()
        for name, weight in made.learner.value_model.named_parameters()
    }
    return weights | {
        name: tensor.clone() for name, tensor in made.learner.optimizer.tensors().items()
    }


def assert_identical(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def step(made: Critic, seed: int = 0) -> dict[str, float]:
    return made.update(add_values(examples(), made), seed=seed)


def test_a_first_value_is_zero_and_there_is_one_for_every_response_token() -> None:
    found = add_values(examples(), critic())
    assert [item.value_M.shape for item in found if item.value_M is not None] == [
        (end - at,) for end, at in SHAPES
    ]
    assert not any(np.any(item.value_M) for item in found)


def test_a_value_depends_on_the_tokens_before_and_on_no_other() -> None:
    made = critic()
    step(made)
    [first, *rest] = [examples()[2], *examples()[:2]]
    before = made.learner.compute_values([first, *rest])[0]
    last = replace(
        first, tokens=np.append(first.tokens[:-1], np.int32((first.tokens[-1] + 1) % 50))
    )
    inner = replace(
        first,
        tokens=np.concatenate(
            [first.tokens[:15], (first.tokens[15:16] + 1) % 50, first.tokens[16:]]
        ),
    )
    assert np.array_equal(made.learner.compute_values([last, *rest])[0], before)
    found = made.learner.compute_values([inner, *rest])[0]
    assert np.array_equal(found[:6], before[:6])
    assert (found[6:] != before[6:]).all()


def test_values_are_the_same_packed_and_alone() -> None:
    made = critic()
    step(made)
    together = made.learner.compute_values(examples())
    for item, value in zip(examples(), together, strict=True):
        np.testing.assert_allclose(made.learner.compute_values([item])[0], value, atol=1e-5)


def test_batches_carry_values_and_targets_in_the_order_of_the_tokens() -> None:
    made = [
        replace(item, value_M=np.arange(item.num_targets, dtype=np.float32))
        for item in examples()[:3]
    ]
    batch = to_batch(made, torch.device("cpu"))
    assert batch.value_M is not None and batch.value_target_M is not None
    assert batch.value_M.tolist() == [0.0, *range(6), *range(20)]
    torch.testing.assert_close(
        batch.value_target_M, torch.from_numpy(np.concatenate([_worth(item) for item in made]))
    )
    assert to_batch([example(length=4)], torch.device("cpu")).value_M is None


def test_the_first_loss_is_half_the_mean_square_of_the_targets() -> None:
    targets = np.concatenate([_worth(item) for item in examples()])
    found = step(critic())
    assert found["value/loss"] == pytest.approx(0.5 * float((targets**2).mean()), rel=1e-5)
    assert (found["value/explained_variance"], found["value/clip_fraction"]) == (0.0, 0.0)
    assert found["value/lr"] == pytest.approx(3e-3 / 2)


def test_the_gradient_is_the_same_for_any_packing() -> None:
    """After the first step the optimizer's first moments are a fixed share of the gradient."""
    whole, split = critic(micro_batch_tokens=1000), critic(micro_batch_tokens=40)
    for made in (whole, split):
        torch.nn.init.normal_(
            made.learner.value_model.head.weight, generator=torch.Generator().manual_seed(0)
        )
    valued = add_values(examples(), whole)

    whole.update(valued, seed=0)
    split.update(valued[::-1], seed=1)

    means = {
        name: mean
        for name, mean in whole.learner.optimizer.tensors().items()
        if name.startswith("exp_avg/")
    }
    names = [name.replace(".mlp.", ".") for name, _ in whole.learner.value_model.named_parameters()]
    assert means.keys() == {f"exp_avg/{name}" for name in names}
    for name, mean in means.items():
        assert mean.norm() > 0, name
        assert float((split.learner.optimizer.tensors()[name] - mean).norm()) <= 1e-5 * float(
            mean.norm()
        ), name


def test_a_critic_learns_what_tokens_are_worth() -> None:
    made = critic(num_minibatches=2, clip=0.5)
    found = [step(made, seed) for seed in range(12)]
    assert found[0]["value/explained_variance"] == 0.0
    assert found[-1]["value/explained_variance"] > 0.9
    assert found[-1]["value/loss"] < 0.1 * found[0]["value/loss"]


def test_the_seed_of_a_step_deals_the_mini_batches_of_the_critic() -> None:
    first, again, other = (critic(num_minibatches=3) for _ in range(3))
    for made, seed in ((first, 0), (again, 0), (other, 1)):
        step(made, seed)

    assert_identical(state(first), state(again))
    assert not torch.equal(state(first)["head.weight"], state(other)["head.weight"])


def test_the_clip_holds_values_back_within_a_step() -> None:
    held, free = critic(num_minibatches=6, lr=0.01, clip=0.01), critic(num_minibatches=6, lr=0.01)
    assert step(held)["value/clip_fraction"] > 0.2
    step(free)
    assert step(held)["value/explained_variance"] < step(free)["value/explained_variance"]


def test_the_critic_goes_its_own_way_from_the_policys_weights() -> None:
    policy = tiny_model()
    before = {name: weight.detach().clone() for name, weight in policy.named_parameters()}
    made = critic(policy)
    for name, weight in made.learner.value_model.body.named_parameters():
        assert torch.equal(weight, before[name])
    assert made.learner.value_model.body.head is None
    step(made)
    step(made)
    for name, weight in policy.named_parameters():
        assert torch.equal(weight, before[name]) and weight.grad is None
    assert not torch.equal(
        made.learner.value_model.body.layers[0].qkv.weight, policy.layers[0].qkv.weight
    )


def test_under_adapters_policy_and_critic_share_the_frozen_weights() -> None:
    policy = LoraTransformer(tiny_model(), LoraConfig(rank=2), base="")
    made = critic(policy)
    assert made.learner.value_model.body.embed.weight is policy.embed.weight
    step(made)
    step(made)
    trained = {name for name in made.learner.optimizer.tensors() if name.startswith("exp_avg/")}
    assert all(".lora_" in name or "/head." in name for name in trained)
    assert len(trained) == 2 * 4 * 2 + 2
    assert not any(B.any() for _, _, B in policy.adapters())


@pytest.mark.parametrize("is_adapted", [False, True])
def test_a_critic_comes_back_bit_for_bit_and_takes_the_same_next_step(
    tmp_path: Path, is_adapted: bool
) -> None:
    def model(seed: int) -> Transformer:
        plain = tiny_model(seed=0 if is_adapted else seed)
        return (
            LoraTransformer(plain, LoraConfig(rank=2), base="", seed=seed) if is_adapted else plain
        )

    made, other = critic(model(1)), critic(model(2))
    step(made)
    kept = made.save(tmp_path)
    assert kept == {"steps": 1, "updates": 1}
    step(other)
    step(other)
    other.load(tmp_path, kept)
    assert_identical(state(other), state(made))
    assert step(other, 5) == step(made, 5)
    assert_identical(state(other), state(made))


@pytest.mark.parametrize("kind", ["no head", "wrong head", "no optimizer", "no count"])
def test_a_critic_that_cannot_be_read_is_named(tmp_path: Path, kind: str) -> None:
    made = critic()
    kept = made.save(tmp_path)
    if kind == "no head":
        (tmp_path / "critic" / "value_head.safetensors").unlink()
    elif kind == "wrong head":
        (tmp_path / "critic" / "optimizer/state.safetensors").replace(
            tmp_path / "critic" / "value_head.safetensors"
        )
    elif kind == "no optimizer":
        (tmp_path / "critic" / "optimizer/state.safetensors").unlink()
    with pytest.raises(DataError, match="cannot be read"):
        made.load(tmp_path, None if kind == "no count" else kept)


def test_credit_takes_the_values_and_leaves_targets() -> None:
    """Rewards 1 and 0 at the last of three tokens, values 0: both advantages and targets are the
    rewards to go."""
    groups = [group([1.0, 0.0])]
    plain = build_algorithm(AlgoConfig(name="ppo", whiten=False), max_tokens=8)
    selection = select_rollouts(groups, plain)
    valued = add_values(to_examples(selection, temperature=1.0), critic())
    found, _ = assign_advantages(selection, valued, plain, {})
    for item, reward in zip(found, (1.0, 0.0), strict=True):
        assert item.value_target_M is not None
        assert item.value_target_M.tolist() == np.asarray(item.advantage).tolist() == [reward] * 3


GROUPS = [group([1.0, 0.0, 0.5]), group([0.0, 0.0, 1.0])]


def ppo_trainer(**settings: float) -> RLTrainer:
    cfg = CriticConfig.model_validate({"lr": 3e-3, **settings})
    return RLTrainer(
        tiny_policy(), AlgoConfig(name="ppo"), TRAIN, max_tokens=8, steps=8, critic=cfg
    )


def test_in_its_warm_up_the_critic_learns_alone() -> None:
    trainer = ppo_trainer(warmup_steps=2)
    weight = trainer.policy.model.embed.weight
    before = weight.detach().clone()
    assert trainer.critic is not None
    for number in range(3):
        assert trainer.critic.is_warming_up == (number < 2)
        result = trainer.step(GROUPS, temperature=1.0, seed=number)
        assert not result.is_empty and "value/loss" in result.metrics
        assert ("loss" in result.metrics) == (number == 2)
        assert torch.equal(weight, before) == (number < 2)
    assert (trainer.learner.num_optim_steps, trainer.critic.learner.num_optim_steps) == (1, 3)


@pytest.mark.parametrize("warmup_steps", [0, 2])
def test_without_a_rewarded_group_a_step_with_a_critic_is_empty(warmup_steps: int) -> None:
    trainer = ppo_trainer(warmup_steps=warmup_steps)

    result = trainer.step([], temperature=1.0, seed=0)

    assert result.is_empty and result.learner_metrics == {}
    assert trainer.critic is not None
    assert (trainer.learner.num_optim_steps, trainer.critic.learner.num_optim_steps) == (0, 0)
    assert trainer.critic.num_updates == 0


def test_a_policy_step_is_the_same_with_the_critic_beside_it() -> None:
    trainer, alone = ppo_trainer(), tiny_policy()
    selection = select_rollouts(GROUPS, PPO)
    valued = add_values(to_examples(selection, temperature=1.0), critic(alone.model))
    examples, _ = assign_advantages(selection, valued, PPO, {})

    trainer.step(GROUPS, temperature=1.0, seed=0)
    update_policy(alone.build_learner(TRAIN, steps=8), examples, PPO, seed=0)

    assert torch.equal(trainer.policy.model.embed.weight, alone.model.embed.weight)


def test_only_an_algorithm_that_needs_values_gets_a_critic() -> None:
    cfg = CriticConfig(warmup_steps=3)
    grpo = build_algorithm(AlgoConfig(num_minibatches=2), max_tokens=8)
    assert build_critic(grpo, tiny_policy(), cfg, TRAIN, steps=2) is None
    assert count_policy_steps(grpo, cfg, 5) == 10
    assert count_policy_steps(PPO, cfg, 5) == 2
    assert isinstance(build_critic(PPO, tiny_policy(), cfg, TRAIN, steps=5), Critic)
    with pytest.raises(
        ConfigError, match=r"critic.warmup_steps = 3 leaves the policy none of 3 steps"
    ):
        build_critic(PPO, tiny_policy(), cfg, TRAIN, steps=3)


def test_without_warm_up_steps_a_critic_never_warms_up() -> None:
    assert not critic(warmup_steps=0).is_warming_up


def test_without_examples_a_critic_takes_no_step() -> None:
    made = critic(warmup_steps=1)
    assert made.update([], seed=0) == {}
    assert (made.learner.num_optim_steps, made.num_updates) == (0, 0)
