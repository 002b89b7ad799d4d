"""Small copies between host and device that nobody waits for.

On a GPU a copy to the host is asked for now and read later, when its event has passed; the host
waits for nothing else.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whet.engine.base import Counts

_ALIGNED = 16


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
