"""The learner of several ranks: every rank has a part of the examples, and a shard of the weights.

Weights come before ranks: the weights of a step's tokens are set from all of its examples, so what
ranks compute is added and divided by nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.nn import functional as F

from whet.algos.objectives import Objective, ValueObjective
from whet.cluster.ranks import RankWorld
from whet.data.examples import Batch, Example, to_batch
from whet.models.load import check_finite, write_tensors
from whet.models.lora import LoraTransformer, load_trained, save_trained
from whet.models.transformer import Transformer
from whet.train import ulysses
from whet.train.learner import (
    VALUE_HEAD,
    LocalLearner,
    LogprobModel,
    LossSums,
    ValueModel,
    compute_micro_batches,
    forward_logprobs,
    micro_batches,
)
from whet.train.memory import DeviceMemory
from whet.train.optim import OPTIMIZER, TrainConfig, optimizer_files
from whet.train.shards import RankOptimizer, fill_shards, gather_weights, rank_world, shard_model
from whet.types import Floats, Metrics


class FSDPLearner(LocalLearner):
    """Trains a model over all ranks, which call every method together and get the same results."""

    optimizer: RankOptimizer

    def __init__(
        self,
        model: Transformer | ValueModel,
        cfg: TrainConfig,
        *,
        steps: int,
        memory: DeviceMemory | None = None,
    ) -> None:
        self.world = rank_world()
        body = model.body if isinstance(model, ValueModel) else model
        ulysses.check_sequence(body.cfg, self.world.sequence_size)
        self.dtype = body.dtype
        self.whole = None if isinstance(model, ValueModel) else model
        trained: Transformer | ValueModel = model
        if not isinstance(body, LoraTransformer):
            sharded = shard_model(body, self.world)
            if isinstance(model, ValueModel):
                model.body = sharded
            else:
                trained = sharded
        super().__init__(trained, cfg, steps=steps, memory=memory)

    def build_optimizer(self, model: Transformer | ValueModel) -> RankOptimizer:
        optimizer = RankOptimizer(model, self.cfg, self.world)
        optimizer.has_masters = self.dtype.itemsize < torch.float32.itemsize
        return optimizer

    def reserve_memory(self, examples: Sequence[Example]) -> None:
        super().reserve_memory(examples[self.world.dp_rank :: self.world.dp_size])
        if self.memory is not None:  # the ranks decide alike
            layers = self.world.all_gather(self.model.num_checkpointed, "room for an update")
            self.model.num_checkpointed = max(layers)

    def accumulate(
        self, examples: Sequence[Example], objective: Objective | ValueObjective
    ) -> LossSums:
        tag = f"update {self.num_steps + 1}, on {describe_examples(examples)}"
        self.world.all_gather(None, tag)  # before ranks that disagree wait for each other in a pass
        self.reserve_memory(examples)
        groups = _own_micro_batches(self.model, examples, self.cfg.micro_batch_tokens, self.world)
        own = [[examples[index] for index in indices] for indices in groups if indices]
        sums = self.add_gradients(self._keep_gathered(own), objective)
        if isinstance(self.model, FSDPModule):
            num_missing = len(groups) - len(own)
            if self.world.shard_size == 1:  # ranks meet in their last pass only
                num_missing = 0 if own else 1
            for _ in range(num_missing):
                self.forward_backward(to_batch(_dummy_examples(examples), self.device), objective)
        # Ranks that share a sequence have the same sums.
        first, *others = self.world.all_gather(sums, tag)[:: self.world.sequence_size]
        return sum(others, start=first)

    def forward_logprobs(self, batch: Batch, *, entropy_gradient: bool) -> tuple[Tensor, Tensor]:
        group = self.world.sequence_group
        if group is None:
            return super().forward_logprobs(batch, entropy_gradient=entropy_gradient)
        return ulysses.forward_logprobs(self.model, batch, group, entropy_gradient=entropy_gradient)

    def forward_values(self, batch: Batch) -> Tensor:
        group = self.world.sequence_group
        if group is None:
            return super().forward_values(batch)
        assert self.value_model is not None, "values are those of a value model"
        head = self.value_model.head
        return ulysses.forward_targets(
            self.model,
            batch,
            group,
            lambda hidden_MH, _: F.linear(hidden_MH.float(), head.weight, head.bias)[:, 0],
        )

    def _keep_gathered(self, groups: Sequence[list[Example]]) -> Iterator[list[Example]]:
        """Where a rank has all rows, gather weights and add gradients once for all passes.

        Resharding between passes would save no memory there, and cost a tenth of the time.
        """
        for number, group in enumerate(groups, start=1):
            if isinstance(self.model, FSDPModule) and self.world.shard_size == 1:
                is_last = number == len(groups)
                self.model.set_requires_gradient_sync(is_last)
                self.model.set_reshard_after_backward(is_last)
            yield group

    def optim_step(self) -> Metrics:
        metrics = super().optim_step()
        if self.whole is not None and self.whole is not self.model:
            gather_weights(self.model, self.whole, self.world)
        return metrics

    def compute_logprobs(self, examples: Sequence[Example]) -> list[Floats]:
        model = self.whole or self.model
        return compute_on_ranks(
            self.world,
            model,
            examples,
            self.cfg.micro_batch_tokens,
            lambda batch: forward_logprobs(model, batch)[0],
        )

    def compute_values(self, examples: Sequence[Example]) -> list[Floats]:
        # Each rank values batches of its own, even where ranks share a sequence in training.
        forward = super().forward_values
        return compute_on_ranks(
            self.world, self.model, examples, self.cfg.micro_batch_tokens, forward
        )

    def save(self, folder: Path) -> None:
        if self.value_model is not None:
            self._save_critic(self.value_model, folder)
        self.optimizer.save(folder / OPTIMIZER)
        self.world.all_gather(None, f"the optimiser in {folder.name}")

    def load(self, folder: Path, num_steps: int) -> None:
        if self.value_model is not None:
            self._load_critic(self.value_model, folder)
        elif self.whole is not None and self.whole is not self.model:
            fill_shards(self.model, self.whole, self.world)
        self.optimizer.load_files(optimizer_files(folder))
        self.num_steps = num_steps

    def _save_critic(self, critic: ValueModel, folder: Path) -> None:
        body = critic.body
        if isinstance(body, FSDPModule):
            plain = _plain_copy(body, self.dtype)
            gather_weights(body, plain, self.world)
            body = plain
        save_trained(body, folder)
        head = critic.head.state_dict()
        check_finite((f"value_head.{name}", tensor) for name, tensor in head.items())
        if self.world.is_rank_zero:
            write_tensors(folder / VALUE_HEAD, head)

    def _load_critic(self, critic: ValueModel, folder: Path) -> None:
        body = critic.body
        if isinstance(body, FSDPModule):
            plain = _plain_copy(body, self.dtype)
            load_trained(plain, folder)
            fill_shards(body, plain, self.world)
        else:
            load_trained(body, folder)
        critic.head.load_state_dict(load_file(folder / VALUE_HEAD))


class FrozenShardedModel(LogprobModel):
    """A frozen model in shards; every rank computes the log-probabilities of a part of the
    examples."""

    def __init__(self, model: Transformer, micro_batch_tokens: int, *, offload: bool) -> None:
        self.world = rank_world()
        self.micro_batch_tokens = micro_batch_tokens
        is_adapted = isinstance(model, LoraTransformer)
        self.model = model if is_adapted else shard_model(model, self.world, offload=offload)

    def compute_logprobs(self, examples: Sequence[Example]) -> list[Floats]:
        return compute_on_ranks(
            self.world,
            self.model,
            examples,
            self.micro_batch_tokens,
            lambda batch: forward_logprobs(self.model, batch)[0],
        )


@torch.no_grad()
def compute_on_ranks(
    world: RankWorld,
    model: Transformer,
    examples: Sequence[Example],
    micro_batch_tokens: int,
    forward: Callable[[Batch], Tensor],
) -> list[Floats]:
    """Apply `forward` to this rank's part of the examples, and return the values of all."""
    ranks = world.size
    tag = f"log-probabilities of {describe_examples(examples)}"
    world.all_gather(None, tag)
    groups = micro_batches(model, examples, micro_batch_tokens, ranks=ranks)[world.rank :: ranks]
    arrays = compute_micro_batches(
        model, examples, [indices for indices in groups if indices], forward
    )
    if isinstance(model, FSDPModule):
        for indices in groups:
            if not indices:  # ranks run as many passes, or they wait for each other
                forward(to_batch(_dummy_examples(examples), model.device))
        model.reshard()
    merged: dict[int, Floats] = {}
    for part in world.all_gather(arrays, tag):
        merged |= part
    return [merged[index] for index in range(len(examples))]


def describe_examples(examples: Sequence[Example]) -> str:
    """Count examples, with a checksum of their tokens that tells whether ranks have the same."""
    checksum = 0
    for example in examples:
        checksum = crc32(example.tokens.tobytes(), checksum)
    return f"{len(examples)} examples (checksum {checksum:08x})"


def _own_micro_batches(
    model: Transformer, examples: Sequence[Example], micro_batch_tokens: int, world: RankWorld
) -> list[list[int]]:
    """Return this rank's micro-batches, some of which may be empty."""
    ranks = world.dp_size
    return micro_batches(model, examples, micro_batch_tokens, ranks=ranks)[world.dp_rank :: ranks]


def _dummy_examples(examples: Sequence[Example]) -> list[Example]:
    """Return a small example without weight, with the other of its pair, for a pass that adds
    nothing."""
    shortest = min(examples, key=lambda example: len(example.tokens))
    is_paired = shortest.pair is not None
    chosen = [e for e in examples if e.pair == shortest.pair] if is_paired else [shortest]
    return [replace(example, loss_weight=0.0) for example in chosen]


def _plain_copy(sharded: Transformer, dtype: torch.dtype) -> Transformer:
    """Make an empty plain model of the same shape in host memory."""
    plain = Transformer(sharded.cfg, dtype=dtype, device="meta").to_empty(device="cpu")
    plain.rope_CD = sharded.rope_CD.cpu()
    return plain
