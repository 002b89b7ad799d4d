"""Which kernels can take a tensor (Triton on CUDA, C for float32 on a CPU, else torch), and sizes.

All attention kernels sum in one order, so that the bits of a token do not depend on its company.
With TRITON_INTERPRET=1 in the environment before the first import, Triton runs them on the CPU;
only tests do that.
"""

import ctypes
import os
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor

from whet.kernels.c import library as c_library

BLOCK = 64
"""Keys taken at a time, from the start of the sequence."""
CHUNK = 512
"""Keys summed on their own before they are joined with those before them."""
TILE = 32
"""Queries per program. Tiles begin at multiples of it, so none straddles two blocks of keys."""
HAS_TRITON = find_spec("triton") is not None
LANES = 16
"""Numbers that a kernel in C takes at a time; sizes of a model have to be multiples of it."""
IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Query heads, key/value heads, and the eps of their norms."""

    queries: int
    groups: int
    eps: float


def uses_triton(x: Tensor | torch.device) -> bool:
    """Say whether Triton kernels can take a tensor, or those of a device; else plain twins do."""
    device = x.device if isinstance(x, Tensor) else x
    return HAS_TRITON and (device.type == "cuda" or IS_INTERPRETED)


def c_kernels(*tensors: Tensor | None) -> ctypes.CDLL | None:
    """Give the C kernels where they can take these tensors, in rows of whole vectors."""
    given = [x for x in tensors if x is not None]
    fits = all(
        x.dtype == torch.float32 and x.device.type == "cpu" and x.shape[-1] % LANES == 0
        for x in given
    )
    return c_library.library() if fits and not IS_INTERPRETED else None


def address(x: Tensor | None) -> int | None:
    """Say where a kernel in C finds a contiguous tensor, if there is one."""
    return None if x is None else x.data_ptr()


def needs_grad(*tensors: Tensor | None) -> bool:
    """Say whether a result of these tensors must remember how it was made."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
