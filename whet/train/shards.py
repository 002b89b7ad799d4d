"""A model in shards over the ranks (FSDP2), and the optimiser of the shards.

The policy's own model stays whole on every rank, since its engine samples from it and checkpoints
are written from it; after each optimiser step it is filled from the shards. Shards are float32 and
serve as masters; a layer is gathered in the type that the model computes in, so that a sharded
model computes the same bits. No reduction over ranks touches a logit.

Adapters (LoRA) are small, and their frozen weights are whole for the engine anyway: such a model is
not sharded, and its gradients are added up before each step.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import safe_open
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

from whet.cluster.ranks import RankWorld
from whet.errors import ConfigError
from whet.models.save import (
    MAX_FILE_BYTES,
    gather_own_tensors,
    plan_files,
    write_files,
    write_index,
)
from whet.models.transformer import Transformer
from whet.train.optim import Optimizer, TrainConfig
from whet.world import get_world

_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
"""Its name since torch 2.13, and before."""
MAX_GATHERED = 2**26
"""Numbers of the weights that are gathered in one exchange, unless one weight has more."""


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
        fully_shard(
            module,
            mesh=world.mesh,
            mp_policy=precision,
            offload_policy=policy,
            reshard_after_forward=None if world.shard_size > 1 else False,
        )
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
def gather_weights(sharded: Transformer, whole: Transformer, world: RankWorld) -> None:
    """Fill a whole model from the shards of all ranks, many weights in one exchange."""
    pairs = list(zip(sharded.parameters(), whole.parameters(), strict=True))
    while pairs:
        count = 1
        while count < len(pairs) and sum(w.numel() for _, w in pairs[: count + 1]) <= MAX_GATHERED:
            count += 1
        shards, weights = zip(*pairs[:count], strict=True)
        own = [local_rows(shard).to(whole.dtype) for shard in shards]
        shapes = [weight.shape for weight in weights]
        for weight, rows in zip(weights, gather_rows(own, shapes, world), strict=True):
            weight.copy_(rows)
        pairs = pairs[count:]


def gather_rows(
    parts: Sequence[Tensor], shapes: Sequence[torch.Size], world: RankWorld
) -> Iterator[Tensor]:
    """Gather tensors of one type in one exchange; each rank has the rows of `row_range`."""
    if world.shard_size == 1:
        yield from parts
        return
    # Shares are padded to equal sizes, as the last ranks may have fewer rows.
    sizes = [-(-shape[0] // world.shard_size) * shape[1:].numel() for shape in shapes]
    flat = parts[0].new_zeros(sum(sizes))
    for part, piece in zip(parts, torch.split(flat, sizes), strict=True):
        piece[: part.numel()].copy_(part.reshape(-1))
    gathered = flat.new_empty(world.shard_size * len(flat))
    _all_gather(gathered, flat, group=world.shard_group)
    columns = torch.split(gathered.view(world.shard_size, -1), sizes, dim=1)
    for shape, column in zip(shapes, columns, strict=True):
        yield column.reshape(-1)[: shape.numel()].view(shape)


def local_rows(shard: Tensor) -> Tensor:
    """Return the rows that this rank has of a sharded tensor."""
    assert isinstance(shard, DTensor), "all weights of a sharded model are sharded"
    return (
        shard._local_tensor.detach()
    )  # `to_local` costs 20 times as much, and this is called often


def row_range(count: int, world: RankWorld) -> slice:
    """Return the rows of a weight that this rank has, as `torch.chunk` divides them.

    The last ranks may have fewer, or none.
    """
    rows = -(-count // world.shard_size)
    start = min(count, world.rank % world.shard_size * rows)
    return slice(start, min(count, start + rows))


class RankOptimizer(Optimizer):
    """Updates the shards of this rank, and weights that all ranks have whole, such as adapters."""

    def __init__(self, model: nn.Module, cfg: TrainConfig, world: RankWorld) -> None:
        self.world = world
        self.sharded: dict[str, DTensor] = {}
        super().__init__(model, cfg)

    def list_params(self, model: nn.Module) -> dict[str, nn.Parameter]:
        weights = super().list_params(model)
        self.sharded = {n: weight for n, weight in weights.items() if isinstance(weight, DTensor)}
        own = {name: nn.Parameter(local_rows(shard)) for name, shard in self.sharded.items()}
        return weights | own

    def gradients(self) -> dict[str, Tensor]:
        gradients = super().gradients()
        self._bind()
        for name, shard in self.sharded.items():
            if shard.grad is not None:
                gradients[name] = local_rows(shard.grad)
        return {name: gradients[name] for name in self.params if name in gradients}

    def step(self, lr: float) -> float:
        self._add_whole_gradients()
        return super().step(lr)

    def clear(self) -> None:
        super().clear()
        for shard in self.sharded.values():
            shard.grad = None

    def total_norm(self, gradients: Mapping[str, Tensor]) -> float:
        """Add up the squares of one set of shards; whole gradients are counted once."""
        if not self.sharded or self.world.shard_size == 1:
            return super().total_norm(gradients)
        is_counted = self.world.rank % self.world.shard_size == 0
        own = {n: grad for n, grad in gradients.items() if is_counted or n in self.sharded}
        norms = self.world.all_gather(super().total_norm(own), "the norm of the gradient")
        return math.sqrt(sum(norm * norm for norm in norms[: self.world.shard_size]))

    def save(self, file: Path, *, limit: int = MAX_FILE_BYTES) -> None:
        """Write the state: one file, or where it is large a share of the layers by each rank."""
        own = dict(sorted(self.tensors().items()))
        num_bytes = {key: self._whole_shape(key, own).numel() * 4 for key in own}
        files = plan_files(num_bytes, size=self.world.size, limit=limit, file=file.name)
        rank = self.world.rank
        tensors = gather_own_tensors(files, lambda key: self._gather(key, own[key]), rank=rank)
        write_files(file.parent, files, tensors, rank=rank)
        if self.world.is_rank_zero:
            write_index(file.parent, files)

    def tensors(self) -> dict[str, Tensor]:
        """Return this rank's rows of the state."""
        own = super().tensors()
        self._bind()
        if self.has_masters:
            own |= {f"master/{name}": local_rows(shard) for name, shard in self.sharded.items()}
        return own

    def _is_sharded(self, key: str) -> bool:
        kind, name = key.split("/", 1)
        return name in self.sharded and kind != "step"

    def _whole_shape(self, key: str, own: Mapping[str, Tensor]) -> torch.Size:
        name = key.split("/", 1)[1]
        return self.sharded[name].shape if self._is_sharded(key) else own[key].shape

    def _gather(self, key: str, rows: Tensor) -> Tensor:
        if not self._is_sharded(key):
            return rows
        shard = self.sharded[key.split("/", 1)[1]]
        return next(gather_rows([rows.to(local_rows(shard).device)], [shard.shape], self.world))

    has_masters = False
    """Whether the model computes in a lower precision than its shards have."""

    def load(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        self._bind()
        super().load(tensors)

    def load_files(self, files: Sequence[Path]) -> None:
        """Load this rank's rows of the state that `save` wrote, or that of one device."""

        def read() -> Iterator[tuple[str, Tensor]]:
            for file in files:
                with safe_open(file, framework="pt") as state:
                    for key in state.keys():  # noqa: SIM118 - safe_open is no mapping
                        yield key, self._read(state, key)

        self.load(read())

    def _read(self, state: safe_open, key: str) -> Tensor:
        if not self._is_sharded(key):
            whole: Tensor = state.get_tensor(key)  # type: ignore[no-untyped-call]
            return whole
        rows = state.get_slice(key)  # type: ignore[no-untyped-call]
        part: Tensor = rows[row_range(rows.get_shape()[0], self.world)]
        return part

    def _bind(self) -> None:
        """Point at the memory of the shards, which FSDP may move before its first pass."""
        for name, shard in self.sharded.items():
            self.params[name].data = local_rows(shard)

    @torch.no_grad()
    def _add_whole_gradients(self) -> None:
        """Add up over ranks the gradients of weights that all ranks have whole."""
        names = [name for name in self.params if name not in self.sharded]
        if not names or self.world.size == 1:
            return
        own = super().gradients()
        for name in names:
            if name not in own:
                weight = self.params[name]
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
