"""Rotary positions in the half-split layout of Hugging Face checkpoints, with Llama 3's frequency scaling."""

import math

import torch
from torch import Tensor

from whet.models.config import ModelConfig, RopeScaling


def rope_table(cfg: ModelConfig) -> Tensor:
    """Tabulate cosines then sines for every position: shape [max_positions, head_dim], float32."""
    half = torch.arange(0, cfg.head_dim, 2, dtype=torch.float32) / cfg.head_dim
    frequency = 1.0 / (cfg.rope_theta**half)
    if cfg.rope_scaling is not None:
        frequency = _stretch(frequency, cfg.rope_scaling)
    angle = torch.outer(torch.arange(cfg.max_positions, dtype=torch.float32), frequency)
    return torch.cat([angle.cos(), angle.sin()], dim=-1)


def rotate(x_TND: Tensor, rope_TD: Tensor) -> Tensor:
    """Rotate the two halves of each head against each other by the angle of its position."""
    cos, sin = rope_TD.to(x_TND.dtype).unsqueeze(1).chunk(2, dim=-1)
    first, second = x_TND.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


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
