"""Adapters below everything: the engine samples with them, the learner moves them alone, folders
carry them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from whet.algos.losses import token_mean
from whet.algos.objectives import sft_objective
from whet.engine.base import Request, SamplingParams
from whet.engine.native import NativeConfig
from whet.errors import ConfigError, DataError
from whet.models.lora import LoraConfig, LoraTransformer
from whet.models.source import ModelSource, load_model, merge_adapters, torch_device
from whet.testing.fakes import example
from whet.testing.rounding import logprob_bound
from whet.testing.tiny import tiny_policy
from whet.train.learner import LocalLearner, compute_logprobs_locally, set_loss_weights
from whet.train.learner_factory import build_reference
from whet.train.policy import Policy, build_policy
from whet.train.settings import TrainConfig
from whet.train.training_state import load_training_state, save_training_state

LORA = LoraConfig(rank=4, alpha=8.0)
CFG = TrainConfig(lr=1e-2, micro_batch_tokens=256)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    tiny_policy().save(tmp_path / "base")
    return tmp_path / "base"


def opened(
    place: Path,
    lora: LoraConfig | None = LORA,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Policy:
    model, tokenizer = load_model(
        ModelSource(path=str(place), lora=lora),
        dtype=dtype,
        device=torch_device(),
        texts=[],
        seed=seed,
    )
    return build_policy(model, tokenizer, NativeConfig(max_num_seqs=4), name="adapted")


def trained(policy: Policy, steps: int = 3) -> LocalLearner:
    learner = policy.build_learner(CFG, steps=10)
    for seed in range(steps):
        learner.update(
            set_loss_weights(
                [example(length=12, seed=10 * seed + i) for i in range(4)], token_mean
            ),
            sft_objective(),
        )
    return learner


def logprobs(policy: Policy) -> np.ndarray:
    return np.concatenate(
        compute_logprobs_locally(policy.model, [example(length=20, seed=s) for s in (70, 71)], 256)
    )


def test_a_learner_moves_adapters_and_not_one_bit_of_the_weights_below(base: Path) -> None:
    policy = opened(base)
    before = {name: weight.detach().clone() for name, weight in policy.model.named_parameters()}
    learner = trained(policy)
    for name, weight in policy.model.named_parameters():
        assert torch.equal(weight, before[name]) == (".lora_" not in name), name
    assert {name.split("/")[1] for name in learner.optimizer.tensors()} == {
        name.replace(".mlp.", ".") for name in before if ".lora_" in name
    }


def test_the_engine_samples_with_the_adapters_it_shares(base: Path) -> None:
    policy = opened(base)
    prompt = np.array([5, 6, 7], dtype=np.int32)

    def sampled() -> tuple[list[int], np.ndarray, np.ndarray]:
        request = Request(id="a", prompt=prompt, sampling=SamplingParams(max_tokens=12), seed=3)
        [(_, answer)] = policy.engine.generate([request])
        item = example(length=3 + len(answer.tokens), start=3)
        item = type(item)(
            tokens=np.concatenate([prompt, answer.tokens]),
            response_start=3,
            group_id="g",
            rollout_id="r",
            sampling_logprob_M=answer.logprobs,
        )
        return (
            answer.tokens.tolist(),
            answer.logprobs,
            compute_logprobs_locally(policy.model, [item], 256)[0],
        )

    first, engine, learner = sampled()
    np.testing.assert_allclose(engine, learner, atol=1e-4)
    trained(policy)
    second, engine, learner = sampled()
    np.testing.assert_allclose(engine, learner, atol=1e-4)
    assert first != second


def test_the_reference_is_the_model_with_its_adapters_off_over_the_same_memory(base: Path) -> None:
    policy, plain = opened(base), opened(base, None)
    reference = build_reference(policy.model, TrainConfig(micro_batch_tokens=256)).model
    trained(policy)
    items = [example(length=20, seed=s) for s in (70, 71)]
    assert np.array_equal(
        np.concatenate(compute_logprobs_locally(reference, items, 256)), logprobs(plain)
    )
    assert not np.array_equal(logprobs(policy), logprobs(plain))
    assert reference.embed.weight is policy.model.embed.weight
    assert not any(weight.requires_grad for weight in reference.parameters())


def test_a_reference_of_a_plain_model_is_a_frozen_copy() -> None:
    policy = tiny_policy()
    reference = build_reference(policy.model, TrainConfig(micro_batch_tokens=256)).model
    assert torch.equal(reference.embed.weight, policy.model.embed.weight)
    assert reference.embed.weight.data_ptr() != policy.model.embed.weight.data_ptr()
    assert policy.model.embed.weight.requires_grad and not reference.embed.weight.requires_grad


def test_a_saved_folder_opens_merged_or_goes_on_with_its_adapters(
    base: Path, tmp_path: Path
) -> None:
    policy = opened(base)
    trained(policy)
    policy.save(tmp_path / "adapters")
    assert sorted(path.name for path in (tmp_path / "adapters").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    again, merged = opened(tmp_path / "adapters", seed=9), opened(tmp_path / "adapters", None)
    assert np.array_equal(logprobs(again), logprobs(policy))
    assert isinstance(again.model, LoraTransformer) and again.model.base == str(base)
    assert not isinstance(merged.model, LoraTransformer)
    assert all(weight.requires_grad for weight in merged.model.parameters())
    np.testing.assert_allclose(
        logprobs(merged), logprobs(policy), rtol=0, atol=logprob_bound(merged.model)
    )


def test_adapters_that_go_on_are_compared_with_where_they_started(
    base: Path, tmp_path: Path
) -> None:
    policy = opened(base)
    trained(policy)
    policy.save(tmp_path / "adapters")
    start = logprobs(policy)
    again = opened(tmp_path / "adapters")
    reference = build_reference(again.model, TrainConfig(micro_batch_tokens=256)).model
    trained(again)
    items = [example(length=20, seed=s) for s in (70, 71)]
    assert np.array_equal(np.concatenate(compute_logprobs_locally(reference, items, 256)), start)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_checkpoint_of_adapters_comes_back_bit_for_bit(
    base: Path, tmp_path: Path, dtype: torch.dtype
) -> None:
    policy, other = opened(base, dtype=dtype), opened(base, seed=1, dtype=dtype)
    learner = trained(policy)
    save_training_state(tmp_path / "checkpoint", policy, learner, {})
    resumed = trained(other, 1)
    load_training_state(tmp_path / "checkpoint", other, resumed)
    items = set_loss_weights([example(length=12, seed=50 + i) for i in range(4)], token_mean)
    assert resumed.update(items, sft_objective()) == learner.update(items, sft_objective())
    for (name, weight), its in zip(
        policy.model.named_parameters(), other.model.parameters(), strict=True
    ):
        assert torch.equal(weight, its), name
    names = set(load_file(tmp_path / "checkpoint" / "optimizer/state.safetensors"))
    assert all(".lora_" in name for name in names)
    assert any(name.startswith("master/") for name in names) == (dtype == torch.bfloat16)


def test_fresh_adapters_follow_the_seed(base: Path) -> None:
    def first(seed: int) -> torch.Tensor:
        model = opened(base, seed=seed).model
        assert isinstance(model, LoraTransformer)
        return next(model.adapters())[1]

    assert torch.equal(first(1), first(1)) and not torch.equal(first(1), first(2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_merged_folder_has_the_type_of_its_base(tmp_path: Path, dtype: torch.dtype) -> None:
    policy = tiny_policy()
    policy.model.to(dtype)
    policy.save(tmp_path / "base")
    policy = opened(tmp_path / "base")
    trained(policy)
    policy.save(tmp_path / "adapters")
    merge_adapters(tmp_path / "adapters", tmp_path / "merged")
    tensors = load_file(tmp_path / "merged" / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {dtype}
    near = logprob_bound(policy.model) if dtype == torch.float32 else 0.1
    np.testing.assert_allclose(
        logprobs(opened(tmp_path / "merged", None)), logprobs(policy), atol=near
    )


def test_mistakes_are_one_sentence(base: Path, tmp_path: Path) -> None:
    policy = opened(base)
    policy.save(tmp_path / "adapters")
    with pytest.raises(
        ConfigError, match=r"model.lora is rank 2, .* but the adapters in .* have rank 4"
    ):
        opened(tmp_path / "adapters", LoraConfig(rank=2))
    file = tmp_path / "adapters" / "adapter_config.json"
    row = json.loads(file.read_text())
    file.write_text(json.dumps(row | {"base_model_name_or_path": str(tmp_path / "adapters")}))
    with pytest.raises(DataError, match="holds adapters itself"):
        opened(tmp_path / "adapters")
    file.write_text(json.dumps(row | {"base_model_name_or_path": str(tmp_path / "gone")}))
    with pytest.raises(DataError, match="gone"):
        opened(tmp_path / "adapters")


@pytest.mark.parametrize(
    ("content", "words"), [(None, "no safetensors weights"), (b"{}", "not a readable")]
)
def test_a_base_without_sound_weights_cannot_be_merged_with(
    base: Path, tmp_path: Path, content: bytes | None, words: str
) -> None:
    opened(base).save(tmp_path / "adapters")
    (base / "model.safetensors").unlink()
    if content is None:
        (base / "adapter_config.json").write_text("{}")
    else:
        (base / "model.safetensors").write_bytes(content)
    with pytest.raises(DataError, match=words):
        merge_adapters(tmp_path / "adapters", tmp_path / "out")
