"""Memory of one device, and how it is freed if an update does not fit.

First the KV caches of engines are freed; allocating them again takes a fraction of a second. Then
layers are checkpointed: they keep only their inputs and are recomputed in the backward pass.
`whet/models/cost.py` counts the bytes.
"""

import math
from collections.abc import Callable, Sequence

import torch

from whet.batching.examples import Example
from whet.engine.base import Engine
from whet.engine.cuda_graphs import graph_bytes
from whet.models.cost import MEMORY_FRACTION, Cost, layers_to_checkpoint, update_bytes
from whet.models.transformer import Transformer
from whet.train.optim import Optimizer


class DeviceMemory:
    """The memory that engines and learners on one device share.

    `free` returns the bytes available for new tensors; the default asks the device.
    """

    def __init__(self, device: torch.device, *, free: Callable[[], float] | None = None) -> None:
        self.device = device
        self.engines: list[Engine] = []
        self._free = free or self._ask_device

    def add(self, engine: Engine) -> None:
        """Allow freeing an engine's cache for updates on this device."""
        self.engines.append(engine)

    def reserve(self, model: Transformer, optimizer: Optimizer, examples: Sequence[Example]) -> int:
        """Free caches if an update would not fit; return how many layers to checkpoint.

        Optimizer state that the first step allocates is counted from the start, so that all steps
        decide alike.
        """
        cfg = optimizer.cfg
        layers = model.cfg.num_layers
        tokens = sum(len(example.tokens) for example in examples)
        size = min(cfg.micro_batch_tokens, max(tokens, 1))
        cost = Cost(cfg=model.cfg, width=model.dtype.itemsize)
        trained = sum(param.numel() for param in optimizer.params.values())

        def need(checkpointed: int) -> float:
            held = update_bytes(
                cost,
                micro_batch_tokens=size,
                passes=math.ceil(tokens / size),
                checkpointed=checkpointed,
                trained=trained,
            )
            return (sum(held.values()) + optimizer.unallocated_bytes) / MEMORY_FRACTION

        at_least = layers if cfg.gradient_checkpointing == "on" else 0
        if need(at_least) > self._free():
            for engine in self.engines:
                engine.sleep()
        return layers_to_checkpoint(
            need, free=self._free(), layers=layers, checkpointing=cfg.gradient_checkpointing
        )

    def _ask_device(self) -> float:
        """Count free memory and the allocator's unused part, without what CUDA graphs hold."""
        if self.device.type != "cuda":
            return math.inf
        free, _ = torch.cuda.mem_get_info(self.device)
        idle = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return float(free + idle - graph_bytes())


def peak_counter(device: torch.device) -> Callable[[], int] | None:
    """Return a function for the peak of allocated GPU memory in bytes; None on a CPU."""
    if device.type != "cuda":
        return None
    return lambda: torch.cuda.max_memory_allocated(device)


def device_memory(device: torch.device) -> DeviceMemory | None:
    """Return a GPU's memory; None on a CPU, where nothing is freed."""
    return DeviceMemory(device) if device.type == "cuda" else None
