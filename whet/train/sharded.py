"""Training over ranks: every rank has a share of the examples, and a shard of the weights (FSDP2).

The policy's own model stays whole on every rank, since its engine samples from it and checkpoints
are written from it; after each optimiser step it is filled from the shards. Shards are float32 and
serve as masters; a layer is gathered in the type that the model computes in, so that a sharded
model computes the same bits. No reduction over ranks touches a logit.

Weights come before ranks: the weights of a step's tokens are set from all of its examples, so the
gradients of ranks are added and divided by nothing.

Adapters (LoRA) are small, and their frozen weights are whole for the engine anyway: such a model is
not sharded, and its gradients are added up before each step.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor

from whet.algos.objectives import Objective, ValueObjective
from whet.cluster.ranks import RankWorld
from whet.data.examples import Batch, Example, to_batch
from whet.errors import ConfigError
from whet.models.load import write_tensors
from whet.models.lora import LoraTransformer, load_trained, save_trained
from whet.models.transformer import Transformer
from whet.train.learner import (
    OPTIMIZER,
    VALUE_HEAD,
    LocalLearner,
    Scorer,
    Sums,
    ValueModel,
    micro_batches,
    read_groups,
    score_batch,
)
from whet.train.memory import DeviceMemory
from whet.train.optim import Optimizer, TrainConfig
from whet.types import Floats, Metrics
from whet.world import get_world


def rank_world() -> RankWorld:
    """Return the ranks of this run."""
    world = get_world()
    if not isinstance(world, RankWorld):
        raise ConfigError(
            'train.learner = "fsdp" trains over ranks: start the command with --gpus, or with '
            "torchrun"
        )
    return world


def shard_model(model: Transformer, world: RankWorld, *, offload: bool = False) -> Transformer:
    """Copy a model into shards, each rank's being its rows of every weight.

    With `offload` shards wait in host memory.
    """
    is_low = model.dtype.itemsize < torch.float32.itemsize
    dtype = torch.float32 if is_low else model.dtype
    sharded = type(model)(model.cfg, dtype=dtype, device="meta")
    precision = MixedPrecisionPolicy(
        # Casting inputs would round the rope table, and so change every logit.
        param_dtype=model.dtype,
        reduce_dtype=dtype,
        cast_forward_inputs=False,
    )
    is_offloaded = offload and model.device.type == "cuda"
    policy = CPUOffloadPolicy() if is_offloaded else OffloadPolicy()
    for module in (*sharded.layers, sharded):
        fully_shard(module, mesh=world.mesh, mp_policy=precision, offload_policy=policy)
    for module in sharded.modules():
        if isinstance(module, FSDPModule):
            # Both are needed: the loss is a sum over all ranks, not a mean.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    sharded.to_empty(device="cpu" if is_offloaded else model.device)
    sharded.rope_CD = model.rope_CD
    sharded.compute_dtype = model.dtype
    sharded.requires_grad_(any(weight.requires_grad for weight in model.parameters()))
    fill_shards(sharded, model, world)
    return sharded


@torch.no_grad()
def fill_shards(sharded: Transformer, whole: Transformer, world: RankWorld) -> None:
    """Copy this rank's rows of a whole model."""
    for shard, weight in zip(sharded.parameters(), whole.parameters(), strict=True):
        local_rows(shard).copy_(weight[row_range(len(weight), world)])


@torch.no_grad()
def gather_weights(sharded: Transformer, whole: Transformer) -> None:
    """Fill a whole model from the shards of all ranks."""
    for shard, weight in zip(sharded.parameters(), whole.parameters(), strict=True):
        whole_rows: Tensor = shard.detach().to(weight.dtype).full_tensor()  # type: ignore[attr-defined]
        weight.copy_(whole_rows)


def local_rows(shard: Tensor) -> Tensor:
    """Return the rows that this rank has of a sharded tensor."""
    assert isinstance(shard, DTensor), "all weights of a sharded model are sharded"
    rows: Tensor = shard.detach().to_local()  # type: ignore[attr-defined]
    return rows


def row_range(count: int, world: RankWorld) -> slice:
    """Return the rows of a weight that this rank has, as `torch.chunk` divides them.

    The last ranks may have fewer, or none.
    """
    rows = -(-count // world.shard)
    start = min(count, world.rank % world.shard * rows)
    return slice(start, min(count, start + rows))


class RankOptimizer(Optimizer):
    """Updates the shards of this rank, and weights that all ranks have whole, such as adapters."""

    def __init__(self, model: nn.Module, cfg: TrainConfig, world: RankWorld) -> None:
        self.world = world
        self.sharded: dict[str, DTensor] = {}
        super().__init__(model, cfg)

    def list_weights(self, model: nn.Module) -> dict[str, nn.Parameter]:
        weights = super().list_weights(model)
        self.sharded = {n: weight for n, weight in weights.items() if isinstance(weight, DTensor)}
        own = {name: nn.Parameter(local_rows(shard)) for name, shard in self.sharded.items()}
        return weights | own

    def gradients(self) -> dict[str, Tensor]:
        gradients = super().gradients()
        self._bind()
        for name, shard in self.sharded.items():
            if shard.grad is not None:
                gradients[name] = local_rows(shard.grad)
        return {name: gradients[name] for name in self.weights if name in gradients}

    def step(self, lr: float) -> float:
        self._add_whole_gradients()
        return super().step(lr)

    def clear(self) -> None:
        super().clear()
        for shard in self.sharded.values():
            shard.grad = None

    def total_norm(self, gradients: Mapping[str, Tensor]) -> float:
        """Add up the squares of one set of shards; whole gradients are counted once."""
        if not self.sharded or self.world.shard == 1:
            return super().total_norm(gradients)
        is_counted = self.world.rank % self.world.shard == 0
        own = {n: grad for n, grad in gradients.items() if is_counted or n in self.sharded}
        norms = self.world.exchange(super().total_norm(own), "the norm of the gradient")
        return math.sqrt(sum(norm * norm for norm in norms[: self.world.shard]))

    def tensors(self) -> dict[str, Tensor]:
        """Gather the whole state on the first rank; the others return nothing."""
        own = super().tensors()
        self._bind()
        for name, shard in self.sharded.items():
            if self.masters[name] is self.weights[name] and self.has_masters:
                own[f"master/{name}"] = local_rows(shard)
        tensors = {}
        for key in sorted(own):
            kind, name = key.split("/", 1)
            value = own[key]
            if name in self.sharded and kind != "step":
                value = self._gather(value, self.sharded[name])
            if self.world.is_first:
                tensors[key] = value.cpu()
        return tensors

    has_masters = False
    """Whether the model computes in a lower precision than its shards have."""

    def load(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        self._bind()
        super().load(tensors)

    def load_file(self, file: Path) -> None:
        """Load this rank's rows of the state that `tensors` gathered."""
        with safe_open(file, framework="pt") as state:
            self.load((key, self._read(state, key)) for key in state.keys())  # noqa: SIM118

    def _read(self, state: safe_open, key: str) -> Tensor:
        kind, name = key.split("/", 1)
        if name not in self.sharded or kind == "step":
            whole: Tensor = state.get_tensor(key)  # type: ignore[no-untyped-call]
            return whole
        rows = state.get_slice(key)  # type: ignore[no-untyped-call]
        part: Tensor = rows[row_range(rows.get_shape()[0], self.world)]
        return part

    def _bind(self) -> None:
        """Point at the memory of the shards, which FSDP may move before its first pass."""
        for name, shard in self.sharded.items():
            self.weights[name].data = local_rows(shard)

    def _gather(self, local: Tensor, like: DTensor) -> Tensor:
        device = local_rows(like).device
        shard = DTensor.from_local(
            local.to(device),
            like.device_mesh,
            like.placements,
            run_check=False,
            shape=like.shape,
            stride=like.stride(),
        )
        return shard.full_tensor()

    @torch.no_grad()
    def _add_whole_gradients(self) -> None:
        """Add up over ranks the gradients of weights that all ranks have whole."""
        names = [name for name in self.weights if name not in self.sharded]
        if not names or self.world.size == 1:
            return
        own = super().gradients()
        for name in names:
            if name not in own:
                weight = self.weights[name]
                own[name] = torch.zeros_like(weight, dtype=torch.float32)
                if self.masters[name] is weight:
                    weight.grad = own[name]
                else:
                    self._gradients[name] = own[name]
        flat = torch.cat([own[name].reshape(-1) for name in names])
        dist.all_reduce(flat)
        pieces = torch.split(flat, [own[name].numel() for name in names])
        for name, piece in zip(names, pieces, strict=True):
            own[name].copy_(piece.view_as(own[name]))


class RankLearner(LocalLearner):
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

    def make_room(self, examples: Sequence[Example]) -> None:
        super().make_room(examples[self.world.share_index :: self.world.num_shares])
        if self.memory is not None:  # the ranks decide alike
            layers = self.world.exchange(self.model.num_checkpointed, "room for an update")
            self.model.num_checkpointed = max(layers)

    def accumulate(
        self, examples: Sequence[Example], objective: Objective | ValueObjective
    ) -> Sums:
        self.make_room(examples)
        groups = _share(self.model, examples, self.cfg.micro_tokens, self.world)
        own = [[examples[index] for index in indices] for indices in groups if indices]
        sums = self.add_gradients(own, objective)
        if isinstance(self.model, FSDPModule):
            for _ in range(len(groups) - len(own)):
                self.forward_backward(to_batch(_smallest(examples), self.device), objective)
        at = f"update {self.num_steps + 1}, on {len(examples)} examples"
        first, *others = self.world.exchange(sums, at)
        return sum(others, start=first)

    def optim_step(self) -> Metrics:
        metrics = super().optim_step()
        if self.whole is not None and self.whole is not self.model:
            gather_weights(self.model, self.whole)
        return metrics

    def logprobs(self, examples: Sequence[Example]) -> list[Floats]:
        model = self.whole or self.model
        return read_shared(
            self.world,
            model,
            examples,
            self.cfg.micro_tokens,
            lambda batch: score_batch(model, batch)[0],
        )

    def values(self, examples: Sequence[Example]) -> list[Floats]:
        return read_shared(self.world, self.model, examples, self.cfg.micro_tokens, self._values)

    def save(self, folder: Path) -> None:
        if self.value_model is not None:
            self._save_critic(self.value_model, folder)
        tensors = self.optimizer.tensors()
        if self.world.is_first:
            write_tensors(folder / OPTIMIZER, tensors)

    def load(self, folder: Path, num_steps: int) -> None:
        if self.value_model is not None:
            self._load_critic(self.value_model, folder)
        elif self.whole is not None and self.whole is not self.model:
            fill_shards(self.model, self.whole, self.world)
        self.optimizer.load_file(folder / OPTIMIZER)
        self.num_steps = num_steps

    def _save_critic(self, critic: ValueModel, folder: Path) -> None:
        body = critic.body
        if isinstance(body, FSDPModule):
            plain = _plain_copy(body, self.dtype)
            gather_weights(body, plain)
            body = plain
        if self.world.is_first:
            save_trained(body, folder)
            write_tensors(folder / VALUE_HEAD, critic.head.state_dict())

    def _load_critic(self, critic: ValueModel, folder: Path) -> None:
        body = critic.body
        if isinstance(body, FSDPModule):
            plain = _plain_copy(body, self.dtype)
            load_trained(plain, folder)
            fill_shards(body, plain, self.world)
        else:
            load_trained(body, folder)
        critic.head.load_state_dict(load_file(folder / VALUE_HEAD))


class RankScorer(Scorer):
    """A frozen model in shards that scores tokens; every rank scores a share of the examples."""

    def __init__(self, model: Transformer, micro_tokens: int, *, offload: bool) -> None:
        self.world = rank_world()
        self.micro_tokens = micro_tokens
        is_adapted = isinstance(model, LoraTransformer)
        self.model = model if is_adapted else shard_model(model, self.world, offload=offload)

    def logprobs(self, examples: Sequence[Example]) -> list[Floats]:
        return read_shared(
            self.world,
            self.model,
            examples,
            self.micro_tokens,
            lambda batch: score_batch(self.model, batch)[0],
        )


@torch.no_grad()
def read_shared(
    world: RankWorld,
    model: Transformer,
    examples: Sequence[Example],
    micro_tokens: int,
    read: Callable[[Batch], Tensor],
) -> list[Floats]:
    """Apply `read` to this rank's share of the examples, and return the values of all."""
    ranks = world.size
    groups = micro_batches(model, examples, micro_tokens, ranks=ranks)[world.rank :: ranks]
    arrays = read_groups(model, examples, [indices for indices in groups if indices], read)
    if isinstance(model, FSDPModule):
        for indices in groups:
            if not indices:  # ranks run as many passes, or they wait for each other
                read(to_batch(_smallest(examples), model.device))
        model.reshard()
    merged: dict[int, Floats] = {}
    for part in world.exchange(arrays, f"scores of {len(examples)} examples"):
        merged |= part
    return [merged[index] for index in range(len(examples))]


def _share(
    model: Transformer, examples: Sequence[Example], micro_tokens: int, world: RankWorld
) -> list[list[int]]:
    """Return this rank's micro-batches, some of which may be empty."""
    ranks = world.num_shares
    return micro_batches(model, examples, micro_tokens, ranks=ranks)[world.share_index :: ranks]


def _smallest(examples: Sequence[Example]) -> list[Example]:
    """Return a small example without weight, with the other of its pair, for a pass that adds
    nothing."""
    shortest = min(examples, key=lambda example: len(example.tokens))
    is_paired = shortest.pair is not None
    chosen = [e for e in examples if e.pair == shortest.pair] if is_paired else [shortest]
    return [replace(example, weight=0.0) for example in chosen]


def _plain_copy(sharded: Transformer, dtype: torch.dtype) -> Transformer:
    """Make an empty plain model of the same shape in host memory."""
    plain = Transformer(sharded.cfg, dtype=dtype, device="meta").to_empty(device="cpu")
    plain.rope_CD = sharded.rope_CD.cpu()
    return plain
