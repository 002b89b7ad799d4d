"""Small copies between host and device that nobody waits for, and the counts of what an engine did.

On a GPU a copy to the host is asked for now and read later, when its event has passed; the host
waits for nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
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
        """Rows times steps that gave no token: after the end of a row, or padding to a recorded
        size."""
        return self.row_steps - (self.tokens - self.begun)


class Link:
    """Copies for one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.counts = Counts()

    def send(self, *arrays: NDArray[Any]) -> list[Tensor]:
        """Bring arrays to the device in one copy."""
        self.counts.sends += 1
        if self.device.type == "cpu":
            return [torch.from_numpy(array) for array in arrays]
        there = torch.from_numpy(pack(arrays)).pin_memory().to(self.device, non_blocking=True)
        return unpack(there, arrays)

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


def pack(arrays: Sequence[NDArray[Any]]) -> NDArray[np.uint8]:
    """Lay the bytes of arrays one after the other, each at an aligned place."""
    starts = _starts(arrays)
    packed = np.zeros(starts[-1], dtype=np.uint8)
    for start, array in zip(starts[:-1], arrays, strict=True):
        packed[start : start + array.nbytes] = (
            np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        )
    return packed


def unpack(packed: Tensor, arrays: Sequence[NDArray[Any]]) -> list[Tensor]:
    """Find the arrays again in a tensor of their bytes; they share its memory."""
    return [
        packed[start : start + array.nbytes]
        .view(torch.from_numpy(array[:0]).dtype)
        .view(array.shape)
        for start, array in zip(_starts(arrays)[:-1], arrays, strict=True)
    ]


def _starts(arrays: Sequence[NDArray[Any]]) -> list[int]:
    return [0, *accumulate(-(-array.nbytes // _ALIGNED) * _ALIGNED for array in arrays)]
