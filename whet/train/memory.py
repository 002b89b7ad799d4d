"""Whether an update fits beside what the device holds already, and what gives way where it does
not.

First an engine's cache goes; to take it again costs a fraction of a second. Then layers keep their
inputs alone for the way back and run twice.
"""

import math
from collections.abc import Callable, Sequence

import torch

from whet.data.examples import Example
from whet.engine.base import Engine
from whet.engine.graphs import recorded_bytes
from whet.models.transformer import Transformer
from whet.plan.cost import Cost
from whet.plan.memory import SHARE_OF_MEMORY, fewest_checkpointed, update_bytes
from whet.train.optim import Optimizer, TrainConfig


class Room:
    """The memory of a device that engines and a learner share. `free` counts its bytes; without it
    the device does."""

    def __init__(
        self,
        model: Transformer,
        cfg: TrainConfig,
        *,
        engines: Sequence[Engine] = (),
        free: Callable[[], float] | None = None,
    ) -> None:
        self.model = model
        self.cfg = cfg
        self.engines = [*engines]
        self._free = free or self._counted

    def make(self, optimizer: Optimizer, examples: Sequence[Example]) -> None:
        """See that an update on the examples fits: let caches go where it would not, then
        activations.

        What the first step will keep counts from the start, so that all steps come to the same
        answer.
        """
        layers = self.model.cfg.num_layers
        tokens = sum(len(example.tokens) for example in examples)
        size = min(self.cfg.micro_tokens, max(tokens, 1))
        cost = Cost(cfg=self.model.cfg, width=self.model.dtype.itemsize)
        trained = sum(weight.numel() for weight in optimizer.weights.values())

        def needed(checkpointed: int) -> float:
            found = update_bytes(
                cost,
                micro_tokens=size,
                passes=math.ceil(tokens / size),
                checkpointed=checkpointed,
                trained=trained,
            )
            return (sum(found.values()) + optimizer.bytes_to_come) / SHARE_OF_MEMORY

        at_least = layers if self.cfg.checkpointing == "on" else 0
        if needed(at_least) > self._free():
            for engine in self.engines:
                engine.sleep()
        self.model.num_checkpointed = fewest_checkpointed(
            needed, free=self._free(), layers=layers, checkpointing=self.cfg.checkpointing
        )

    def _counted(self) -> float:
        """Count what new tensors can have: free memory, and what the allocator holds and no
        recording needs."""
        device = self.model.device
        if device.type != "cuda":
            return math.inf
        free, _ = torch.cuda.mem_get_info(device)
        idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(free + idle - recorded_bytes())
