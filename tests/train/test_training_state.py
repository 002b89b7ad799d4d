"""Checkpoints of a training run: everything comes back bit for bit, and the next step is the same
step."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from whet.algos.losses import token_mean
from whet.algos.objectives import sft_objective
from whet.engine.native import NativeConfig, NativeEngine
from whet.errors import DataError
from whet.models.load import load_decoder
from whet.testing.fakes import example
from whet.testing.tiny import tiny_policy
from whet.text.tokenizer import Tokenizer
from whet.train.learner import LocalLearner, set_loss_weights
from whet.train.policy import Policy
from whet.train.settings import TrainConfig
from whet.train.training_state import load_training_state, save_training_state

CFG = TrainConfig(
    lr=1e-3, warmup_steps=3, lr_schedule="cosine", weight_decay=0.1, micro_batch_tokens=64
)


def _step(learner: LocalLearner, seed: int) -> dict[str, float]:
    examples = [example(length=8 + 3 * index, seed=10 * seed + index) for index in range(5)]
    return learner.update(set_loss_weights(examples, token_mean), sft_objective())


def _trained(steps: int) -> tuple[Policy, LocalLearner]:
    policy = tiny_policy(seed=1)
    learner = policy.build_learner(CFG, steps=10)
    for seed in range(steps):
        _step(learner, seed)
    return policy, learner


def _state(learner: LocalLearner) -> dict[str, Tensor]:
    weights = {name: weight.detach().clone() for name, weight in learner.model.named_parameters()}
    return weights | {name: tensor.clone() for name, tensor in learner.optimizer.tensors().items()}


def _assert_identical(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def test_weights_optimizer_and_state_come_back_bit_for_bit(tmp_path: Path) -> None:
    policy, learner = _trained(3)
    save_training_state(tmp_path, policy, learner, {"baseline": {"mean": 0.1}, "best": [-1, -1.0]})
    other = tiny_policy(seed=2)
    addresses = [weight.data_ptr() for weight in other.model.parameters()]
    resumed = other.build_learner(CFG, steps=10)

    state = load_training_state(tmp_path, other, resumed)

    assert state == {"baseline": {"mean": 0.1}, "best": [-1, -1.0], "optimizer_steps": 3}
    assert resumed.num_optim_steps == 3
    _assert_identical(_state(resumed), _state(learner))
    assert [weight.data_ptr() for weight in other.model.parameters()] == addresses


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_the_step_after_a_load_is_the_step_without_it(tmp_path: Path, steps: int) -> None:
    policy, learner = _trained(steps)
    save_training_state(tmp_path, policy, learner, {})
    other = tiny_policy(seed=2)
    resumed = other.build_learner(CFG, steps=10)
    load_training_state(tmp_path, other, resumed)

    for seed in (7, 8):
        assert _step(resumed, seed) == _step(learner, seed)

    _assert_identical(_state(resumed), _state(learner))


def test_loading_into_a_learner_that_went_on_takes_it_back(tmp_path: Path) -> None:
    policy, learner = _trained(2)
    save_training_state(tmp_path, policy, learner, {})
    before = _state(learner)
    _step(learner, 9)

    load_training_state(tmp_path, policy, learner)

    _assert_identical(_state(learner), before)


def test_the_folder_is_a_model_for_others_too(tmp_path: Path) -> None:
    policy, learner = _trained(1)
    save_training_state(tmp_path, policy, learner, {})

    own = load_decoder(tmp_path, dtype=torch.float32, device="cpu")
    foreign = AutoModelForCausalLM.from_pretrained(tmp_path)

    assert torch.equal(own.embed.weight, policy.model.embed.weight)
    assert torch.equal(foreign.get_input_embeddings().weight, policy.model.embed.weight)
    assert Tokenizer.load(tmp_path).decode(policy.tokenizer.encode("12 + 3")) == "12 + 3"


def _spoil(folder: Path, kind: str) -> None:
    if kind == "no state":
        (folder / "state.json").unlink()
    elif kind == "broken state":
        (folder / "state.json").write_text('{"optimizer_steps": ')
    elif kind == "no step count":
        (folder / "state.json").write_text("{}")
    elif kind == "state of another kind":
        (folder / "state.json").write_text("[1]")
    elif kind == "truncated optimizer":
        data = (folder / "optimizer/state.safetensors").read_bytes()
        (folder / "optimizer/state.safetensors").write_bytes(data[: len(data) // 2])
    elif kind == "no optimizer":
        (folder / "optimizer/state.safetensors").unlink()
    elif kind == "foreign tensor":
        tensors = load_file(folder / "optimizer/state.safetensors")
        save_file(
            {**tensors, "exp_avg/nothing": torch.zeros(1)}, folder / "optimizer/state.safetensors"
        )
    elif kind == "wrong shape":
        tensors = load_file(folder / "optimizer/state.safetensors")
        save_file(
            {**tensors, "exp_avg/norm.weight": torch.zeros(1)},
            folder / "optimizer/state.safetensors",
        )


@pytest.mark.parametrize(
    "kind",
    [
        "no state",
        "broken state",
        "no step count",
        "state of another kind",
        "truncated optimizer",
        "no optimizer",
        "foreign tensor",
        "wrong shape",
    ],
)
def test_a_checkpoint_that_cannot_be_read_is_named(tmp_path: Path, kind: str) -> None:
    policy, learner = _trained(1)
    save_training_state(tmp_path, policy, learner, {})
    _spoil(tmp_path, kind)

    with pytest.raises(DataError, match="cannot be read"):
        load_training_state(tmp_path, policy, learner)


def test_engine_and_learner_share_their_weights(tmp_path: Path) -> None:
    policy, learner = _trained(1)

    assert isinstance(policy.engine, NativeEngine)
    assert policy.engine.model is learner.model is policy.model
    policy.publish(5)
    assert policy.engine.version == 5
    assert policy.engine.cfg == NativeConfig(max_num_seqs=16)


def test_another_policy_comes_back_with_the_first(tmp_path: Path) -> None:
    (policy, learner), (second, its) = _trained(1), _trained(3)
    save_training_state(tmp_path, policy, learner, {"told": 1}, {"second": (second, its)})
    other, another = tiny_policy(seed=2), tiny_policy(seed=3)
    resumed, its_resumed = other.build_learner(CFG, steps=10), another.build_learner(CFG, steps=10)

    state = load_training_state(tmp_path, other, resumed, {"second": (another, its_resumed)})

    assert (state["told"], resumed.num_optim_steps, its_resumed.num_optim_steps) == (1, 1, 3)
    _assert_identical(_state(resumed), _state(learner))
    _assert_identical(_state(its_resumed), _state(its))
