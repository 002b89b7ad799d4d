"""Shared by the torch, C and Triton kernels: block sizes, devices, and the attention of a layer.

Each operation has a reference in plain torch (`torch_*`), which runs anywhere. Triton kernels run
on CUDA, C kernels in float32 on a CPU. With TRITON_INTERPRET=1 in the environment before the first
import, Triton runs on the CPU; only tests do that.
"""

import os
from dataclasses import dataclass
from importlib.util import find_spec

from torch import Tensor

BLOCK = 64
"""Keys read at a time, from the start of the sequence."""
CHUNK = 512
"""Keys whose softmax sums are computed on their own before they are merged with earlier ones."""
TILE = 32
"""Queries per program. Tiles begin at multiples of it, so none straddles two blocks of keys."""
LANES = 16
"""Vector width of the C kernels; the sizes of a model have to be multiples of it."""
HAS_TRITON = find_spec("triton") is not None
IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TRITON_DEVICES = (("cuda", "cpu") if IS_INTERPRETED else ("cuda",)) if HAS_TRITON else ()
"""Types of device on which Triton's kernels run."""

FEATURES = frozenset({"tied", "qkv_bias", "qk_norm", "rope_scaling", "sliding_window"})
"""The `ModelConfig.features` that the C and Triton kernels for attention and lm_head support; a
model with any other runs in plain torch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionOptions:
    """How the tokens of a layer attend, besides causally; a new feature of attention is a field."""

    window: int | None = None
    """Tokens that a token sees, including itself; None is all before it."""
    has_kernels: bool = True
    """C and Triton kernels may run: they support all features of the model."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttentionSpec:
    """The inputs of a layer's attention besides its fused projection."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_CD: Tensor
    positions_T: Tensor | None
    """Rows of the table; None if it has one row per token."""
    q_norm_D: Tensor | None
    k_norm_D: Tensor | None
    eps: float
    options: AttentionOptions = AttentionOptions()
