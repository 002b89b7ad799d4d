"""Named sizes of small models with random weights: Qwen3 by default, with a tied head."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from whet.errors import ConfigError
from whet.models.config import ModelConfig, SlidingWindow


class ModelSize(NamedTuple):
    """The sizes of a model that do not depend on the task."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int


SIZES: Mapping[str, ModelSize] = {
    "tiny": ModelSize(2, 64, 4, 2, 16, 128),
    "mini": ModelSize(4, 128, 4, 4, 32, 384),
    "small": ModelSize(6, 256, 8, 4, 32, 768),
    "medium": ModelSize(8, 512, 8, 4, 64, 1536),
    "large": ModelSize(12, 768, 12, 4, 64, 2304),
}


def new_config(
    size: str, vocab_size: int, max_positions: int, family: str = "qwen3"
) -> ModelConfig:
    """Make the config of a named size for a vocabulary and a context length.

    Mistral layers get a sliding window of an eighth of the context.
    """
    if size not in SIZES:
        raise ConfigError(f"model size is {size!r}, expected one of {', '.join(SIZES)}")
    cfg = ModelConfig(
        family=family,
        vocab_size=vocab_size,
        max_positions=max_positions,
        rope_theta=10000.0,
        norm_eps=1e-6,
        tied=True,
        **SIZES[size]._asdict(),
    ).with_family(family)
    if family != "mistral":
        return cfg
    window = SlidingWindow(tokens=max(1, max_positions // 8), layers=tuple(range(cfg.num_layers)))
    return replace(cfg, sliding_window=window)
