"""Small copies between host and device that nobody waits for, and the counts of what an engine did.

On a GPU a copy to the host is asked for now and read later, when its event has passed; the host waits for nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_ALIGNED = 16


@dataclass(slots=True)
class Counts:
    """What one call of an engine did, so that speed can be explained and waste be seen."""

    prefill_tokens: int = 0
    prefills: int = 0
    """Forward passes over prompts."""
    windows: int = 0
    steps: int = 0
    """Decode steps, each one token further for all rows."""
    row_steps: int = 0
    """Rows times steps, padding to a recorded size included."""
    begun: int = 0
    """Rows that began, each with a first token that no step decoded."""
    tokens: int = 0
    """Tokens handed out."""
    preemptions: int = 0
    """Rows that gave way to others; they begin again."""
    recordings: int = 0
    """Decode steps recorded as graphs."""
    sends: int = 0
    """Copies to the device."""
    fetches: int = 0
    """Copies to the host, one a window; the host waits for nothing else."""

    @property
    def wasted(self) -> int:
        """Rows times steps that gave no token: after the end of a row, or padding to a recorded size."""
        return self.row_steps - (self.tokens - self.begun)


class Link:
    """Copies for one device."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.counts = device, Counts()

    def send(self, *arrays: NDArray[Any]) -> list[Tensor]:
        """Bring arrays to the device in one copy."""
        self.counts.sends += 1
        if self.device.type == "cpu":
            return [torch.from_numpy(array) for array in arrays]
        spans = [-(-array.nbytes // _ALIGNED) * _ALIGNED for array in arrays]
        packed = torch.empty(sum(spans), dtype=torch.uint8, pin_memory=True)
        starts = np.cumsum(spans) - spans
        for start, array in zip(starts, arrays, strict=True):
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            packed.numpy()[start : start + array.nbytes] = flat
        there = packed.to(self.device, non_blocking=True)
        return [
            there[start : start + array.nbytes].view(torch.from_numpy(array[:0]).dtype).view(array.shape)
            for start, array in zip(starts, arrays, strict=True)
        ]

    def fetch(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Ask for a copy on the host; the function that comes back waits for it."""
        self.counts.fetches += 1
        if self.device.type == "cpu":
            copied = tensor.clone()
            return lambda: copied
        copied = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        copied.copy_(tensor, non_blocking=True)
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record()

        def wait() -> Tensor:
            event.synchronize()
            return copied

        return wait
