"""Rotary positions in the half-split layout of Hugging Face checkpoints, with Llama 3's frequency
scaling."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from whet.kernels.rope import turn, turn_into
from whet.models.config import ModelConfig, RopeScaling


def rope_table(cfg: ModelConfig) -> Tensor:
    """Tabulate cosines then sines for every position: shape [max_positions, head_dim], float32."""
    half = torch.arange(0, cfg.head_dim, 2, dtype=torch.float32) / cfg.head_dim
    frequency = 1.0 / (cfg.rope_theta**half)
    if cfg.rope_scaling is not None:
        frequency = _stretch(frequency, cfg.rope_scaling)
    angle = torch.outer(torch.arange(cfg.max_positions, dtype=torch.float32), frequency)
    return torch.cat([angle.cos(), angle.sin()], dim=-1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Turn:
    """How the fused projection of a layer becomes heads: split, normalised where the family does
    so, rotated."""

    heads: int
    groups: int
    size: int
    rope_PD: Tensor
    positions_T: Tensor | None
    """Rows of the table; None where it has a row a token."""
    q_norm_D: Tensor | None
    k_norm_D: Tensor | None
    eps: float

    def __call__(self, qkv_TX: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [T, heads, size], keys and values [T, groups, size]."""
        return turn(
            qkv_TX,
            self.rope_PD,
            self.positions_T,
            self.heads,
            self.groups,
            self.q_norm_D,
            self.k_norm_D,
            self.eps,
        )

    def into(self, qkv_BX: Tensor, keys: Tensor, values: Tensor, cell_B: Tensor) -> Tensor:
        """The same, keys and values filed at once in the pages of a layer; returns the queries."""
        return turn_into(
            qkv_BX,
            self.rope_PD,
            self.positions_T,
            self.heads,
            self.groups,
            self.q_norm_D,
            self.k_norm_D,
            self.eps,
            keys,
            values,
            cell_B,
        )


def _stretch(frequency: Tensor, scaling: RopeScaling) -> Tensor:
    wavelength = 2 * math.pi / frequency
    low = scaling.original_max_positions / scaling.low_freq_factor
    high = scaling.original_max_positions / scaling.high_freq_factor
    smooth = (scaling.original_max_positions / wavelength - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    blended = (1 - smooth) * frequency / scaling.factor + smooth * frequency
    scaled = torch.where(wavelength > low, frequency / scaling.factor, frequency)
    return torch.where((wavelength <= low) & (wavelength >= high), blended, scaled)
