"""Rotary positions in the half-split layout of Hugging Face checkpoints, with their scalings."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from whet.kernels.rope import split_heads, split_heads_into
from whet.models.config import LinearRope, Llama3Rope, ModelConfig, YarnRope


def rope_table(cfg: ModelConfig) -> Tensor:
    """Tabulate cosines then sines for every position: shape [max_positions, head_dim], float32."""
    half = torch.arange(0, cfg.head_dim, 2, dtype=torch.float32) / cfg.head_dim
    frequency = 1.0 / (cfg.rope_theta**half)
    scaling = cfg.rope_scaling
    factor = 1.0
    if isinstance(scaling, LinearRope):
        frequency = frequency / scaling.factor
    elif isinstance(scaling, Llama3Rope):
        frequency = _scale_llama3(frequency, scaling)
    elif isinstance(scaling, YarnRope):
        frequency = _scale_yarn(frequency, scaling, cfg)
        factor = scaling.attention_factor
    angle = torch.outer(torch.arange(cfg.max_positions, dtype=torch.float32), frequency)
    return torch.cat([angle.cos(), angle.sin()], dim=-1) * factor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttentionSpec:
    """What the attention of a layer needs to know besides its fused projection."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_PD: Tensor
    positions_T: Tensor | None
    """Rows of the table; None where it has one row per token."""
    q_norm_D: Tensor | None
    k_norm_D: Tensor | None
    eps: float
    window: int | None = None
    """Tokens that a token sees, itself among them; None is all before it."""

    def split(self, qkv_TX: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split into heads, normalise and rotate: q_TND, k_TGD, v_TGD."""
        return split_heads(
            qkv_TX,
            self.rope_PD,
            self.positions_T,
            self.num_heads,
            self.num_kv_heads,
            self.q_norm_D,
            self.k_norm_D,
            self.eps,
        )

    def split_into(self, qkv_BX: Tensor, keys: Tensor, values: Tensor, cell_B: Tensor) -> Tensor:
        """Do the same, writing keys and values to the pages of a layer; returns the queries."""
        return split_heads_into(
            qkv_BX,
            self.rope_PD,
            self.positions_T,
            self.num_heads,
            self.num_kv_heads,
            self.q_norm_D,
            self.k_norm_D,
            self.eps,
            keys,
            values,
            cell_B,
        )


def _scale_llama3(frequency: Tensor, scaling: Llama3Rope) -> Tensor:
    wavelength = 2 * math.pi / frequency
    low = scaling.original_max_positions / scaling.low_freq_factor
    high = scaling.original_max_positions / scaling.high_freq_factor
    smooth = (scaling.original_max_positions / wavelength - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    blended = (1 - smooth) * frequency / scaling.factor + smooth * frequency
    scaled = torch.where(wavelength > low, frequency / scaling.factor, frequency)
    return torch.where((wavelength <= low) & (wavelength >= high), blended, scaled)


def _scale_yarn(frequency: Tensor, scaling: YarnRope, cfg: ModelConfig) -> Tensor:
    def dimension(turns: float) -> float:
        """Which dimension turns so often within the original length."""
        length = scaling.original_max_positions / (turns * 2 * math.pi)
        return cfg.head_dim * math.log(length) / (2 * math.log(cfg.rope_theta))

    low = dimension(scaling.beta_fast)
    high = dimension(scaling.beta_slow)
    if scaling.truncate:
        low = math.floor(low)
        high = math.ceil(high)
    low = max(low, 0)
    high = min(high, cfg.head_dim - 1)
    width = high - low or 0.001  # as transformers has it
    ramp = ((torch.arange(len(frequency), dtype=torch.float32) - low) / width).clamp(0, 1)
    return frequency / scaling.factor * ramp + frequency * (1 - ramp)
