"""Training on a GPU: gradients, updates in place, offload, adapters, resume, memory that is shared."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from gpu_models import DEVICE, FAMILIES, move, native, requests, sampled, small_model
from torch import Tensor

from whet.algos.losses import token_mean
from whet.algos.objectives import sft_objective
from whet.batching.examples import Example
from whet.engine.native import NativeEngine
from whet.models.lora import LoraConfig, LoraTransformer
from whet.models.transformer import Transformer
from whet.testing.fakes import example
from whet.testing.tiny import tiny_model, tiny_tokenizer
from whet.train.learner import LocalLearner, compute_logprobs_locally, set_loss_weights
from whet.train.learner_factory import build_reference
from whet.train.memory import DeviceMemory
from whet.train.policy import Policy, set_arithmetic
from whet.train.settings import TrainConfig
from whet.train.training_state import load_training_state, save_training_state

CFG = TrainConfig(lr=1e-2, micro_batch_tokens=256)


@pytest.fixture
def deterministic() -> Iterator[None]:
    set_arithmetic(deterministic=True)
    yield
    set_arithmetic(deterministic=False)


def _examples(seed: int = 0, longest: int = 60) -> list[Example]:
    lengths = range(8, longest, 7)
    made = [example(length=length, start=3, seed=100 * seed + length) for length in lengths]
    return set_loss_weights(made, token_mean)


def _gradients(model: Transformer) -> dict[str, Tensor]:
    LocalLearner(model, CFG, steps=1).accumulate(_examples(), sft_objective())
    return {
        name: weight.grad.cpu()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }


def _weights(model: Transformer) -> list[Tensor]:
    return [weight.detach().clone() for weight in model.parameters()]


def _policy(model: Transformer) -> Policy:
    return Policy(model, tiny_tokenizer(), engine=native(model), name="gpu")


def _sized(seed: int = 0) -> Transformer:
    return move(tiny_model(vocab_size=tiny_tokenizer().vocab_size, seed=seed))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_gpu_has_the_gradients_of_a_cpu(family: str) -> None:
    expected = _gradients(tiny_model(family=family))

    found = _gradients(move(tiny_model(family=family), torch.float32))

    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-5)


def test_updates_in_bfloat16_lower_the_loss() -> None:
    learner = LocalLearner(small_model(), CFG, steps=30)

    losses = [learner.update(_examples(), sft_objective())["loss"] for _ in range(30)]

    assert losses[-1] < 0.5 * losses[0]


def test_an_update_is_in_the_engine_at_once_and_bit_for_bit() -> None:
    policy = _policy(small_model())
    before = dict(policy.engine.generate(requests()))
    policy.build_learner(CFG, steps=1).update(_examples(), sft_objective())

    policy.publish(1)

    done, examples = sampled(policy.engine, requests())
    for item, logprobs in zip(
        examples, compute_logprobs_locally(policy.model, examples, 4096), strict=True
    ):
        np.testing.assert_array_equal(done[item.rollout_id].logprobs, logprobs)
    assert {completion.policy_version for completion in done.values()} == {1}
    assert any(len(before[id].tokens) != len(done[id].tokens) for id in done) or any(
        (before[id].logprobs != done[id].logprobs).any() for id in done
    )


@pytest.mark.usefixtures("deterministic")
def test_an_optimizer_in_host_memory_takes_the_same_steps_bit_for_bit() -> None:
    models = [small_model(), small_model()]
    for model, offload in zip(models, (False, True), strict=True):
        cfg = CFG.model_copy(update={"offload_optimizer": offload})
        learner = LocalLearner(model, cfg, steps=4)
        for seed in range(4):
            learner.update(_examples(seed), sft_objective())

    for near, far in zip(_weights(models[0]), _weights(models[1]), strict=True):
        assert torch.equal(near, far)


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("layers", [1, 2])
def test_layers_that_run_twice_give_the_same_gradient_bit_for_bit(layers: int) -> None:
    plain = small_model(dtype=torch.float32)
    again = small_model(dtype=torch.float32)
    again.num_checkpointed = layers

    expected = _gradients(plain)

    assert all(torch.equal(found, expected[name]) for name, found in _gradients(again).items())


def test_a_reference_in_host_memory_scores_the_same_bits() -> None:
    model = small_model()
    near, far = (
        build_reference(model, TrainConfig(micro_batch_tokens=256)),
        build_reference(model, TrainConfig(micro_batch_tokens=256, offload_reference=True)),
    )

    for mine, other in zip(
        near.compute_logprobs(_examples()), far.compute_logprobs(_examples()), strict=True
    ):
        np.testing.assert_array_equal(mine, other)


def test_fresh_adapters_change_no_bit() -> None:
    base = small_model()
    expected = compute_logprobs_locally(base, _examples(), 256)

    adapted = LoraTransformer(base, LoraConfig(rank=4), base="", seed=0)

    for mine, other in zip(
        compute_logprobs_locally(adapted, _examples(), 256), expected, strict=True
    ):
        np.testing.assert_array_equal(mine, other)


def test_trained_adapters_are_in_the_engine_and_the_weights_below_stay() -> None:
    adapted = LoraTransformer(small_model(), LoraConfig(rank=4), base="", seed=0)
    below = {n: w.clone() for n, w in adapted.named_parameters() if ".lora_" not in n}
    policy = _policy(adapted)
    learner = policy.build_learner(CFG, steps=3)
    for seed in range(3):
        learner.update(_examples(seed), sft_objective())
    policy.publish(3)

    done, examples = sampled(policy.engine, requests((3, 70, 200), new=30))

    gaps = [
        np.abs(done[item.rollout_id].logprobs - logprobs).max()
        for item, logprobs in zip(
            examples, compute_logprobs_locally(adapted, examples, 4096), strict=True
        )
    ]
    assert max(gaps) < 0.25  # two bfloat16 sums of other shapes; other adapters are nats away
    moved = [
        name for name, weight in adapted.named_parameters() if ".lora_B" in name and weight.any()
    ]
    assert moved
    for name, weight in adapted.named_parameters():
        assert name not in below or torch.equal(weight, below[name]), name


@pytest.mark.usefixtures("deterministic")
def test_a_resumed_run_takes_the_same_steps_bit_for_bit(tmp_path: Path) -> None:
    policy = _policy(_sized())
    learner = policy.build_learner(CFG, steps=6)
    for seed in range(3):
        learner.update(_examples(seed), sft_objective())
    save_training_state(tmp_path, policy, learner, {})
    resumed = _policy(_sized(seed=1))
    other = resumed.build_learner(CFG, steps=6)
    load_training_state(tmp_path, resumed, other)

    for seed in range(3, 6):
        mine = learner.update(_examples(seed), sft_objective())
        assert other.update(_examples(seed), sft_objective()) == mine

    for straight, again in zip(_weights(policy.model), _weights(resumed.model), strict=True):
        assert torch.equal(straight, again)


@pytest.mark.usefixtures("deterministic")
def test_the_same_update_gives_the_same_bits_twice() -> None:
    models = [small_model(), small_model()]
    for model in models:
        LocalLearner(model, CFG, steps=1).update(_examples(longest=200), sft_objective())

    assert all(map(torch.equal, _weights(models[0]), _weights(models[1])))


def test_a_cache_gives_way_to_an_update_that_needs_its_memory() -> None:
    policy = _policy(small_model())
    list(policy.engine.generate(requests()))
    scarce = DeviceMemory(DEVICE, free=lambda: 0.0)
    scarce.add(policy.engine)

    learner = LocalLearner(policy.model, CFG, steps=1, memory=scarce)
    learner.update(_examples(), sft_objective())

    assert policy.model.num_checkpointed == policy.model.cfg.num_layers
    assert isinstance(policy.engine, NativeEngine) and policy.engine._core is None


def test_free_memory_is_what_a_new_tensor_can_have() -> None:
    memory = DeviceMemory(DEVICE)
    before = memory._free()
    held = torch.empty(2**28, dtype=torch.uint8, device=DEVICE)

    after = memory._free()

    assert before - after == pytest.approx(held.numel(), abs=2**22)


@pytest.mark.parametrize("family", FAMILIES)
def test_float16_samples_and_updates_like_float32_up_to_rounding(family: str) -> None:
    models = [small_model(family, dtype=dtype) for dtype in (torch.float32, torch.float16)]
    settings = [CFG, CFG.model_copy(update={"dtype": "float16"})]

    norms = []
    for model, cfg in zip(models, settings, strict=True):
        learner = LocalLearner(model, cfg, steps=4)
        updates = (learner.update(_examples(), sft_objective()) for _ in range(4))
        # The first steps in float16 are left out until the scale of the loss fits.
        norms.append(next(norm for update in updates if (norm := update["train/grad_norm"])))

    assert norms[1] == pytest.approx(norms[0], rel=0.02)
    completions, _ = sampled(native(models[1]), requests((65,), new=8))
    assert all(np.isfinite(one.logprobs).all() for one in completions.values())
