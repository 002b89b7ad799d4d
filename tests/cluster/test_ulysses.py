"""Ranks that share the tokens of a batch have the numbers and gradients of one alone."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from spawn import run_ranks
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional as F

from whet.batching.examples import Batch, to_batch
from whet.errors import ConfigError
from whet.models.lora import LoraConfig, LoraTransformer
from whet.models.sizes import new_config
from whet.models.transformer import Transformer
from whet.testing.fakes import example
from whet.testing.tiny import tiny_model
from whet.train import learner, ulysses

CPU = torch.device("cpu")
MODELS = ("qwen2", "qwen3 tied", "llama lora", "mistral", "qwen3 checkpointed")
QUICK = ("qwen3 tied", "mistral")
"""Norms of heads and a tied head; a sliding window of 8 tokens in each layer."""


def make_model(name: str) -> Transformer:
    family, _, option = name.partition(" ")
    model = tiny_model(family=family, tied=option == "tied")
    if option == "lora":
        model = LoraTransformer(model, LoraConfig(rank=4), base="tiny")
        for _, _, lora_B in model.adapters():
            lora_B.normal_(generator=torch.Generator().manual_seed(1))
    model.num_checkpointed = 1 if option == "checkpointed" else 0
    return model.double()


def make_batch(seed: int = 0, lengths: Sequence[int] = (5, 31, 2, 17, 40, 9)) -> Batch:
    """109 by default, so that neither two nor four ranks have as many tokens."""
    examples = [
        example(length=length, start=1 + index % 3 if length > 3 else 1, seed=seed + index)
        for index, length in enumerate(lengths)
    ]
    batch = to_batch(examples, CPU)
    count = len(batch.label_M)
    spread = torch.linspace(0.1, 1.0, count, dtype=torch.float64)
    return replace(batch, loss_weight_M=spread, temperature_M=0.5 + spread)


def loss_of(batch: Batch, logprob_M: Tensor, entropy_M: Tensor) -> Tensor:
    """Weighs tokens, entropies and whole sequences, as the objectives of RL and DPO do."""
    sequence_S = logprob_M.new_zeros(len(batch.lengths_S))
    sequence_S = sequence_S.index_add(0, batch.segment_M, logprob_M)
    return (
        batch.loss_weight_M * (0.3 * entropy_M - logprob_M)
    ).sum() + 1e-3 * sequence_S.square().sum()


def gradient(model: Transformer) -> dict[str, Tensor]:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def largest_gap(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    """Relative to the largest entry of each tensor."""
    assert first.keys() == second.keys() and first
    return max(
        float((first[name] - second[name]).abs().max() / second[name].abs().max().clamp(min=1e-30))
        for name in second
    )


def compare_with_one_rank(names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """The gaps of log-probabilities and of the summed gradient, by model."""
    gaps = {}
    batch = make_batch()
    for name in names:
        alone = make_model(name)
        outputs = learner.forward_logprobs(alone, batch, entropy_gradient=True)
        loss_of(batch, *outputs).backward()
        model = make_model(name)
        ulysses.check_sequence(model.cfg, dist.get_world_size())
        shared = ulysses.forward_split_logprobs(
            model, batch, dist.group.WORLD, entropy_gradient=True
        )
        loss_of(batch, *shared).backward()
        summed = gradient(model)
        for grad in summed.values():
            dist.all_reduce(grad)
        score_gap = max(
            float((x - y).detach().abs().max()) for x, y in zip(shared, outputs, strict=True)
        )
        gaps[name] = score_gap, largest_gap(summed, gradient(alone))
    return gaps


def test_two_ranks_have_the_gradient_of_one(tmp_path: Path) -> None:
    for gaps in run_ranks(2, compare_with_one_rank, tmp_path, QUICK):
        assert gaps.keys() == set(QUICK)
        assert max(max(pair) for pair in gaps.values()) <= 1e-12


@pytest.mark.cluster
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_have_the_gradient_of_one_for_every_kind_of_model(size: int, tmp_path: Path) -> None:
    """With four ranks, two share each of the two key-value heads."""
    for gaps in run_ranks(size, compare_with_one_rank, tmp_path, MODELS):
        assert gaps.keys() == set(MODELS)
        assert max(max(pair) for pair in gaps.values()) <= 1e-12


def score_few_tokens() -> list[list[float]]:
    """Three tokens, one target: a rank of four has padding alone, and three have no target."""
    batch = to_batch([example(length=3, start=2)], CPU)
    rows = []
    for dtype in (torch.float32, torch.float64):
        model = tiny_model().to(dtype)
        shared = ulysses.forward_split_logprobs(
            model, batch, dist.group.WORLD, entropy_gradient=True
        )
        sum(shared).sum().backward()
        assert all(bool(grad.isfinite().all()) for grad in gradient(model).values())
        alone = learner.forward_logprobs(model, batch, entropy_gradient=True)
        rows.append(
            [float((x - y).detach().abs().max()) for x, y in zip(shared, alone, strict=True)]
        )
    return rows


@pytest.mark.cluster
def test_ranks_may_have_nothing_but_padding(tmp_path: Path) -> None:
    for single, double in run_ranks(4, score_few_tokens, tmp_path):
        assert max(single) <= 1e-5 and max(double) <= 1e-12


def train_two_by_two(names: Sequence[str]) -> dict[str, float]:
    return {name: _train_two_by_two(name) for name in names}


def _train_two_by_two(name: str) -> float:
    """Two pairs of ranks have a batch each; FSDP2 shards the weights over all four."""
    batches = [make_batch(), make_batch(seed=50, lengths=(33, 4, 21))]
    alone = make_model(name)
    for batch in batches:
        outputs = learner.forward_logprobs(alone, batch, entropy_gradient=True)
        loss_of(batch, *outputs).backward()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "sequence"))
    model = make_model(name)
    everyone = init_device_mesh("cpu", (4,))
    for layer in model.layers:
        fully_shard(layer, mesh=everyone)
    fully_shard(model, mesh=everyone)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    batch = batches[mesh["data"].get_local_rank()]
    group = mesh["sequence"].get_group()
    loss_of(
        batch, *ulysses.forward_split_logprobs(model, batch, group, entropy_gradient=True)
    ).backward()
    whole = {}
    for parameter, grad in gradient(model).items():
        assert isinstance(grad, DTensor)
        whole[parameter] = grad.full_tensor()
    return largest_gap(whole, gradient(alone))


@pytest.mark.cluster
def test_pairs_of_ranks_combine_with_shards_over_all_four(tmp_path: Path) -> None:
    for gaps in run_ranks(4, train_two_by_two, tmp_path, MODELS):
        assert gaps.keys() == set(MODELS)
        assert max(gaps.values()) <= 1e-12


def value_gap() -> float:
    torch.manual_seed(0)
    batch = make_batch()
    critic = learner.ValueModel(tiny_model()).double()
    critic.head.float().weight.data.normal_()

    def value(hidden_MH: Tensor, mine_M: Tensor) -> Tensor:
        return F.linear(hidden_MH.float(), critic.head.weight, critic.head.bias)[:, 0]

    shared_M = ulysses.forward_targets(critic.body, batch, dist.group.WORLD, value)
    return float((shared_M - critic(batch)).detach().abs().max())


@pytest.mark.cluster
def test_a_critic_values_all_targets_on_each_rank(tmp_path: Path) -> None:
    assert max(run_ranks(2, value_gap, tmp_path)) <= 1e-6


@pytest.mark.parametrize("size", [1, 2, 4])
def test_heads_are_dealt_out_or_repeated(size: int) -> None:
    ulysses.check_sequence(new_config("tiny", 50, 64), size)


@pytest.mark.parametrize("size", [3, 8])
def test_heads_that_do_not_divide_are_refused_with_what_does(size: int) -> None:
    with pytest.raises(ConfigError) as error:
        ulysses.check_sequence(new_config("tiny", 50, 64), size)
    assert str(error.value) == (
        f"cluster.sequence_parallel = {size} does not divide the model's attention: 4 query heads on 2 "
        "key-value heads; possible values: 1, 2, 4"
    )
