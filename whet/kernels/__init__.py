"""Constants and types shared by the torch, C and Triton kernels.

Each operation has a reference in plain torch (`torch_*`), which runs anywhere. Triton kernels run
on CUDA, C kernels in float32 on a CPU. Tests set TRITON_INTERPRET=1 before the first import, which
runs Triton on the CPU.
"""

import os
from dataclasses import dataclass
from importlib.util import find_spec

from torch import Tensor

BLOCK = 64
"""Keys read at once, in blocks from the start of the sequence."""
CHUNK = 512
"""Keys whose softmax sums are computed separately and then merged with those of earlier chunks."""
TILE = 32
"""Queries per program. Tiles begin at multiples of TILE, so none straddles two blocks of keys."""
LANES = 16
"""Vector width of the C kernels; row lengths must be multiples of it."""
HAS_TRITON = find_spec("triton") is not None
IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TRITON_DEVICES = (("cuda", "cpu") if IS_INTERPRETED else ("cuda",)) if HAS_TRITON else ()
"""Device types that run the Triton kernels."""

FEATURES = frozenset({"tied", "qkv_bias", "qk_norm", "rope_scaling", "sliding_window"})
"""The `ModelConfig.features` of the C and Triton kernels; other models use plain torch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionOptions:
    """How the tokens of a layer attend besides causality; each feature of attention is a field."""

    window: int | None = None
    """Number of tokens that a token sees, including itself; None is all earlier tokens."""
    has_kernels: bool = True
    """Whether the C and Triton kernels support all features of the model."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttentionSpec:
    """The inputs of a layer's attention besides the fused projection."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_CD: Tensor
    positions_T: Tensor | None
    """Row of `rope_CD` for each token; None if `rope_CD` has one row per token."""
    q_norm_D: Tensor | None
    k_norm_D: Tensor | None
    eps: float
    options: AttentionOptions = AttentionOptions()
