"""Whether the Triton kernels can run: they need the triton package, and tensors on a CUDA device.

With TRITON_INTERPRET=1 in the environment before the first import, Triton runs them on the CPU; only tests do that.
"""

import os
from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None
IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def usable(x: Tensor) -> bool:
    """Say whether a Triton kernel can take this tensor; where it cannot, the plain twin does the work."""
    return HAS_TRITON and (x.is_cuda or IS_INTERPRETED)


def needs_grad(*tensors: Tensor | None) -> bool:
    """Say whether a result of these tensors must remember how it was made."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
