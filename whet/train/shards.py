"""A model in shards over the ranks (FSDP2), and the optimizer of the shards.

The policy's own model stays whole on every rank, for sampling and for checkpoints; the shards are
copied into it before either. Shards are float32 and serve as masters; a layer is gathered in the
model's compute type, so that a sharded model computes the same bits. No reduction over ranks
touches a logit.

In deterministic training, gradients are added in the order of a single process
(`OrderedReduceScatter`), and the norm is that of whole gradients, so that the number of ranks
changes no bit of an update.

Two kinds of models are not sharded; their gradients are summed before each step. Adapters (LoRA)
are small, and the engine needs their frozen weights whole anyway. With `cluster.shard = 1`, shards
would only repeat the whole model, and FSDP's hooks take two fifths more host time.
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
from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter
from torch.distributed.tensor import DTensor

from whet.cluster.ranks import RankWorld
from whet.errors import ConfigError
from whet.models.load import load_shards, locate_tensors, read_shapes
from whet.models.lora import LoraTransformer
from whet.models.save import (
    MAX_FILE_BYTES,
    gather_own_tensors,
    plan_files,
    write_config,
    write_files,
    write_index,
)
from whet.models.transformer import Transformer
from whet.train.optim import Optimizer
from whet.train.settings import TrainConfig
from whet.world import get_world

_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
"""The name since torch 2.13, else the older one."""
MAX_GATHERED = 2**26
"""Elements gathered or reduced in one exchange, unless one weight has more."""


def rank_world() -> RankWorld:
    """Return the ranks of this run."""
    world = get_world()
    if not isinstance(world, RankWorld):
        raise ConfigError(
            'train.learner = "fsdp" trains over ranks: start the command with --gpus, or with '
            "torchrun"
        )
    return world


def needs_shards(model: Transformer, world: RankWorld) -> bool:
    """Whether a model is sharded; adapters and a model of one rank stay whole."""
    return world.shard_size > 1 and not isinstance(model, LoraTransformer)


def shard_model(
    model: Transformer, world: RankWorld, *, offload: bool = False, is_ordered: bool = False
) -> Transformer:
    """Copy a model into shards: each rank has its rows of every weight.

    With `offload`, shards stay in host memory. With `is_ordered`, gradients are added in rank
    order, if there is one copy of the shards.
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
    if is_ordered and world.shard_size == world.size:
        for module in sharded.modules():
            if isinstance(module, FSDPModule):  # each has its first weight: a layer, or the rest
                reducer = OrderedReduceScatter(next(module.parameters()), model.dtype)
                module.set_custom_reduce_scatter(reducer)
    sharded.rope_CD = model.rope_CD
    sharded.compute_dtype = model.dtype
    sharded.requires_grad_(any(weight.requires_grad for weight in model.parameters()))
    fill_shards(sharded, model, world)
    return sharded


class OrderedReduceScatter(ReduceScatter):
    """Adds the gradients of a pass to the total one rank after the other, as one process adds those
    of its micro-batches.

    They are sent in their compute type. From the second pass on, FSDP would add the output to the
    total, which is another order; so the output stays zero, and the total changes in place.
    """

    def __init__(self, weight: Tensor, dtype: torch.dtype) -> None:
        """`weight` is the module's first; its gradient, None at first, locates the total."""
        self.weight = weight
        self.dtype = dtype

    def allocate(
        self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: object,
        async_op: bool = False,
    ) -> None:
        parts = input_tensor.to(self.dtype)
        received = torch.empty_like(parts)
        dist.all_to_all_single(received, parts, group=group)
        output_tensor.zero_()
        total = output_tensor
        if self.weight.grad is not None:  # gradients are views of the first output
            total = local_rows(self.weight.grad).as_strided(output_tensor.shape, (1,), 0)
        for rows in received.chunk(group.size()):
            total.add_(rows)


@torch.no_grad()
def fill_shards(sharded: Transformer, whole: Transformer, world: RankWorld) -> None:
    """Copy this rank's rows of a whole model."""
    for shard, weight in zip(sharded.parameters(), whole.parameters(), strict=True):
        local_rows(shard).copy_(weight[row_range(len(weight), world)])


@torch.no_grad()
def load_own_rows(sharded: Transformer, folder: Path, world: RankWorld) -> None:
    """Load this rank's rows of a Hugging Face folder, and read no others."""
    shards = {
        name: (local_rows(shard), row_range(len(shard), world).start)
        for name, shard in sharded.named_parameters()
    }
    load_shards(sharded.cfg, shards, folder)


@torch.no_grad()
def save_shards(sharded: Transformer, folder: Path, world: RankWorld) -> None:
    """Write a Hugging Face folder; a rank gathers only what it writes."""
    locations = locate_tensors(sharded.cfg)
    shards = dict(sharded.named_parameters())
    num_bytes = {
        name: location.shape.numel() * sharded.dtype.itemsize
        for name, location in locations.items()
    }

    def gather(name: str) -> Tensor:
        parameter, start, shape = locations[name]
        rows = local_rows(shards[parameter]).to(sharded.dtype)
        whole = next(gather_rows([rows], [shards[parameter].shape], world))
        return whole[start : start + shape[0]]

    files = plan_files(num_bytes, size=world.size, limit=MAX_FILE_BYTES)
    tensors = gather_own_tensors(files, gather, rank=world.rank)
    write_files(folder, files, tensors, rank=world.rank)
    if world.is_rank_zero:
        write_index(folder, files)
        write_config(folder, sharded.cfg, sharded.dtype)


@torch.no_grad()
def gather_weights(sharded: Transformer, whole: Transformer, world: RankWorld) -> None:
    """Fill a whole model from the shards of all ranks, many weights in one exchange."""
    shards = list(sharded.parameters())
    weights = list(whole.parameters())
    for part in _split_exchanges(weights):
        local = [local_rows(shard).to(whole.dtype) for shard in shards[part]]
        shapes = [weight.shape for weight in weights[part]]
        for weight, rows in zip(weights[part], gather_rows(local, shapes, world), strict=True):
            weight.copy_(rows)


def _split_exchanges(tensors: Sequence[Tensor]) -> Iterator[slice]:
    """Split tensors into runs that are exchanged together."""
    start = 0
    while start < len(tensors):
        end = start + 1
        size = tensors[start].numel()
        while end < len(tensors) and (size := size + tensors[end].numel()) <= MAX_GATHERED:
            end += 1
        yield slice(start, end)
        start = end


def gather_rows(
    parts: Sequence[Tensor], shapes: Sequence[torch.Size], world: RankWorld
) -> Iterator[Tensor]:
    """Gather tensors of one type in one exchange; each rank has the rows of `row_range`."""
    # Parts are padded to equal sizes, as the last ranks may have fewer rows.
    sizes = [math.ceil(shape[0] / world.shard_size) * shape[1:].numel() for shape in shapes]
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
    # `to_local` costs 20 times as much, and this is called often.
    return shard._local_tensor.detach()


def row_range(count: int, world: RankWorld) -> slice:
    """Return the rows of a weight that this rank has, as `torch.chunk` divides them.

    The last ranks may have fewer, or none.
    """
    rows = math.ceil(count / world.shard_size)
    start = min(count, world.rank % world.shard_size * rows)
    return slice(start, min(count, start + rows))


class RankOptimizer(Optimizer):
    """Updates the shards of this rank, and weights that all ranks have whole, such as adapters."""

    def __init__(
        self, model: nn.Module, cfg: TrainConfig, world: RankWorld, *, has_masters: bool
    ) -> None:
        """`has_masters` tells whether the model computes in a lower precision than its shards."""
        self.world = world
        self.has_masters = has_masters
        self.sharded: dict[str, DTensor] = {}
        super().__init__(model, cfg)

    def list_params(self, model: nn.Module) -> dict[str, nn.Parameter]:
        weights = super().list_params(model)
        self.sharded = {n: weight for n, weight in weights.items() if isinstance(weight, DTensor)}
        local = {name: nn.Parameter(local_rows(shard)) for name, shard in self.sharded.items()}
        return weights | local

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
        """Compute the norm over one copy of the shards; whole gradients are counted once."""
        if not self.sharded:
            return super().total_norm(gradients)
        if self.cfg.deterministic:
            return self._whole_norm(gradients)
        is_counted = self.world.rank % self.world.shard_size == 0
        counted = {n: grad for n, grad in gradients.items() if is_counted or n in self.sharded}
        norms = self.world.all_gather(super().total_norm(counted), "the norm of the gradient")
        return math.sqrt(sum(norm * norm for norm in norms[: self.world.shard_size]))

    def _whole_norm(self, gradients: Mapping[str, Tensor]) -> float:
        """Compute the norm from whole gradients, which has the bits of one process."""
        norms: list[Tensor] = []
        for name, gradient in gradients.items():
            whole = gradient
            if name in self.sharded:
                whole = next(gather_rows([gradient], [self.sharded[name].shape], self.world))
            norms += torch._foreach_norm([whole])
        return float(torch.linalg.vector_norm(torch.stack(norms)))

    def save(self, file: Path, *, limit: int = MAX_FILE_BYTES) -> None:
        """Write the state: one file or, if it is large, several that ranks share between them."""
        state = dict(sorted(self.tensors().items()))
        num_bytes = {key: self._whole_shape(key, state).numel() * 4 for key in state}
        files = plan_files(num_bytes, size=self.world.size, limit=limit, file=file.name)
        rank = self.world.rank
        tensors = gather_own_tensors(files, lambda key: self._gather(key, state[key]), rank=rank)
        write_files(file.parent, files, tensors, rank=rank)
        if self.world.is_rank_zero:
            write_index(file.parent, files)

    def tensors(self) -> dict[str, Tensor]:
        """Return this rank's rows of the state."""
        tensors = super().tensors()
        self._bind()
        if self.has_masters:
            tensors |= {f"master/{name}": local_rows(shard) for name, shard in self.sharded.items()}
        return tensors

    def _is_sharded(self, key: str) -> bool:
        kind, name = key.split("/", 1)
        return name in self.sharded and kind != "step"

    def _whole_shape(self, key: str, tensors: Mapping[str, Tensor]) -> torch.Size:
        name = key.split("/", 1)[1]
        return self.sharded[name].shape if self._is_sharded(key) else tensors[key].shape

    def _gather(self, key: str, rows: Tensor) -> Tensor:
        if not self._is_sharded(key):
            return rows
        shard = self.sharded[key.split("/", 1)[1]]
        return next(gather_rows([rows.to(local_rows(shard).device)], [shard.shape], self.world))

    def load(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        self._bind()
        super().load(tensors)

    def load_files(self, files: Sequence[Path]) -> None:
        """Load this rank's rows of the state that `save` wrote, or that of one device."""

        self.load((key, self._read(file, key)) for file in files for key in read_shapes(file))

    def _read(self, file: Path, key: str) -> Tensor:
        """Read a tensor or this rank's rows; a file left open would count as memory in use."""
        with safe_open(file, framework="pt") as state:
            if not self._is_sharded(key):
                whole: Tensor = state.get_tensor(key)
                return whole
            rows = state.get_slice(key)
            part: Tensor = rows[row_range(rows.get_shape()[0], self.world)]
            return part

    def _bind(self) -> None:
        """Point at the memory of the shards, which FSDP may move before its first pass."""
        for name, shard in self.sharded.items():
            self.params[name].data = local_rows(shard)

    @torch.no_grad()
    def _add_whole_gradients(self) -> None:
        """Sum over ranks the gradients of weights that are not sharded."""
        names = [name for name in self.params if name not in self.sharded]
        if not names or self.world.size == 1:
            return
        by_name = super().gradients()
        for name in names:
            if name not in by_name:
                weight = self.params[name]
                by_name[name] = torch.zeros_like(weight, dtype=self.masters[name].dtype)
                if self.masters[name] is weight:
                    weight.grad = by_name[name]
                else:
                    self._gradients[name] = by_name[name]
        gradients = [by_name[name] for name in names]
        for part in _split_exchanges(gradients):
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients[part]])
            dist.all_reduce(flat)
            pieces = torch.split(flat, [gradient.numel() for gradient in gradients[part]])
            for gradient, piece in zip(gradients[part], pieces, strict=True):
                gradient.copy_(piece.view_as(gradient))
