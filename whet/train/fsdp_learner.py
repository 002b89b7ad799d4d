"""The learner of several ranks: every rank has a part of the examples, and a shard of the weights.

Loss weights are set from all examples of a step before the split, so gradients are summed over
ranks and never divided.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from whet.algos.objectives import LossSums, Objective
from whet.batching.examples import Batch, Example, to_batch
from whet.cluster.ranks import RankWorld
from whet.models.lora import load_trained, save_trained
from whet.models.transformer import Transformer
from whet.train import ulysses
from whet.train.learner import (
    Learner,
    LocalLearner,
    LogprobModel,
    compute_micro_batches,
    forward_logprobs,
    split_micro_batches,
)
from whet.train.memory import DeviceMemory
from whet.train.offload import OffloadedWeights
from whet.train.optim import OPTIMIZER, optimizer_files
from whet.train.settings import TrainConfig
from whet.train.shards import (
    RankOptimizer,
    fill_shards,
    gather_weights,
    load_own_rows,
    needs_shards,
    rank_world,
    save_shards,
    shard_model,
)
from whet.train.value_model import ValueModel
from whet.types import Floats, Metrics


class FSDPLearner(Learner):
    """Trains a model over all ranks, which call every method together and get the same results.

    On each rank, a `LocalLearner` has a shard of the weights and a part of the examples.
    """

    def __init__(
        self,
        model: Transformer | ValueModel,
        cfg: TrainConfig,
        *,
        steps: int,
        memory: DeviceMemory | None = None,
    ) -> None:
        self.world = rank_world()
        self.cfg = cfg
        body = model.body if isinstance(model, ValueModel) else model
        ulysses.check_sequence(body.cfg, self.world.sequence_size)
        self.whole = None if isinstance(model, ValueModel) else model
        trained = model
        if needs_shards(body, self.world):
            sharded = shard_model(body, self.world, is_ordered=cfg.deterministic)
            if isinstance(model, ValueModel):
                model.body = sharded
            else:
                trained = sharded
        is_low = body.dtype.itemsize < torch.float32.itemsize
        self.optimizer = RankOptimizer(trained, cfg, self.world, has_masters=is_low)
        group = self.world.sequence_group
        self.local = LocalLearner(
            trained,
            cfg,
            steps=steps,
            memory=memory,
            optimizer=self.optimizer,
            forward=None if group is None else ulysses.UlyssesForwardPass(group),
        )
        self.model = self.local.model
        self._is_synced = True

    @property
    def num_optim_steps(self) -> int:
        return self.local.num_optim_steps

    @num_optim_steps.setter
    def num_optim_steps(self, number: int) -> None:
        self.local.num_optim_steps = number

    def reserve_memory(self, examples: Sequence[Example]) -> None:
        self.local.reserve_memory(examples[self.world.dp_rank :: self.world.dp_size])
        if self.local.memory is not None:  # all ranks decide the same
            layers = self.world.all_gather(self.model.num_checkpointed, "room for an update")
            self.model.num_checkpointed = max(layers)

    def accumulate(self, examples: Sequence[Example], objective: Objective) -> LossSums:
        tag = f"update {self.num_optim_steps + 1}, on {describe_examples(examples)}"
        self.world.all_gather(None, tag)  # ranks that disagree would hang in a pass
        self.reserve_memory(examples)
        micro_batches = _own_micro_batches(
            self.model, examples, self.cfg, rank=self.world.dp_rank, ranks=self.world.dp_size
        )
        batches = [[examples[index] for index in indices] for indices in micro_batches if indices]
        sums = self.local.add_gradients(batches, objective)
        if isinstance(self.model, FSDPModule):
            for _ in range(len(micro_batches) - len(batches)):
                batch = to_batch(_dummy_examples(examples), self.local.device)
                self.local.forward_backward(batch, objective)
        # Ranks that share a sequence have the same sums.
        first, *others = self.world.all_gather(sums, tag)[:: self.world.sequence_size]
        return sum(others, start=first)

    def optim_step(self) -> Metrics:
        self._is_synced = False
        return self.local.optim_step()

    def zero_grad(self) -> None:
        self.local.zero_grad()

    def close(self) -> None:
        self.local.close()

    def scale_lr(self, factor: float) -> float:
        return self.local.scale_lr(factor)

    def sync_model(self) -> None:
        if not self._is_synced and self.whole is not None and self.whole is not self.model:
            gather_weights(self.model, self.whole, self.world)
        self._is_synced = True

    def compute_logprobs(self, examples: Sequence[Example]) -> list[Floats]:
        self.sync_model()
        model = self.whole or self.model
        return compute_on_ranks(
            self.world, model, examples, self.cfg, lambda batch: forward_logprobs(model, batch)[0]
        )

    def compute_values(self, examples: Sequence[Example]) -> list[Floats]:
        # Each rank computes values for its own batches, even if ranks share a sequence in training.
        critic = self.local.value_model
        assert critic is not None, "values are those of a value model"
        return compute_on_ranks(self.world, self.model, examples, self.cfg, critic)

    def save(self, folder: Path) -> None:
        critic = self.local.value_model
        if critic is not None:
            if isinstance(self.model, FSDPModule):
                save_shards(critic.body, folder, self.world)
            else:
                save_trained(critic.body, folder)
            critic.save_head(folder)
        self.optimizer.save(folder / OPTIMIZER)
        self.world.all_gather(None, f"the optimizer in {folder.name}")

    def load(self, folder: Path, num_optim_steps: int) -> None:
        critic = self.local.value_model
        if critic is not None:
            if isinstance(self.model, FSDPModule):
                load_own_rows(critic.body, folder, self.world)
            else:
                load_trained(critic.body, folder)
            critic.load_head(folder)
        elif self.whole is not None and self.whole is not self.model:
            fill_shards(self.model, self.whole, self.world)
        self._is_synced = True
        self.optimizer.load_files(optimizer_files(folder))
        self.num_optim_steps = num_optim_steps


class FrozenShardedModel(LogprobModel):
    """A frozen model in shards; every rank computes log-probabilities of some examples."""

    def __init__(
        self, model: Transformer, cfg: TrainConfig, *, offloaded: Sequence[nn.Parameter] = ()
    ) -> None:
        self.world = rank_world()
        self.cfg = cfg
        self.model = model
        if needs_shards(model, self.world):
            self.model = shard_model(model, self.world, offload=bool(offloaded))
            offloaded = ()
        self.offloaded = OffloadedWeights(offloaded, model.device)

    def compute_logprobs(self, examples: Sequence[Example]) -> list[Floats]:
        with self.offloaded.on_device():
            return compute_on_ranks(
                self.world,
                self.model,
                examples,
                self.cfg,
                lambda batch: forward_logprobs(self.model, batch)[0],
            )


@torch.no_grad()
def compute_on_ranks(
    world: RankWorld,
    model: Transformer,
    examples: Sequence[Example],
    cfg: TrainConfig,
    forward: Callable[[Batch], Tensor],
) -> list[Floats]:
    """Apply `forward` to this rank's part of the examples, and gather the values of all."""
    tag = f"log-probabilities of {describe_examples(examples)}"
    world.all_gather(None, tag)
    micro_batches = _own_micro_batches(model, examples, cfg, rank=world.rank, ranks=world.size)
    arrays = compute_micro_batches(
        model, examples, [indices for indices in micro_batches if indices], forward
    )
    if isinstance(model, FSDPModule):
        for indices in micro_batches:
            if not indices:  # with fewer passes than the others, a rank would hang
                forward(to_batch(_dummy_examples(examples), model.device))
        model.reshard()
    merged: dict[int, Floats] = {}
    for part in world.all_gather(arrays, tag):
        merged |= part
    return [merged[index] for index in range(len(examples))]


def describe_examples(examples: Sequence[Example]) -> str:
    """Count examples and checksum their tokens, to tell whether ranks have the same."""
    checksum = 0
    for example in examples:
        checksum = crc32(example.tokens.tobytes(), checksum)
    return f"{len(examples)} examples (checksum {checksum:08x})"


def _own_micro_batches(
    model: Transformer, examples: Sequence[Example], cfg: TrainConfig, *, rank: int, ranks: int
) -> list[list[int]]:
    """Return this rank's micro-batches, some of which may be empty.

    In deterministic training they are those of one process, dealt out.
    """
    if cfg.deterministic:
        micro_batches = split_micro_batches(model, examples, cfg.micro_batch_tokens)
        micro_batches += [[] for _ in range(-len(micro_batches) % ranks)]
    else:
        micro_batches = split_micro_batches(model, examples, cfg.micro_batch_tokens, ranks=ranks)
    return micro_batches[rank::ranks]


def _dummy_examples(examples: Sequence[Example]) -> list[Example]:
    """Return the shortest example, or its pair, with no loss weight, for a pass that adds
    nothing."""
    shortest = min(examples, key=lambda example: len(example.tokens))
    is_paired = shortest.pair is not None
    chosen = [e for e in examples if e.pair == shortest.pair] if is_paired else [shortest]
    return [replace(example, loss_weight=0.0) for example in chosen]
