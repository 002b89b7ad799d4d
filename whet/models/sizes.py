"""Named shapes for models that start from random weights: small Qwen3s with a tied head."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from whet.errors import ConfigError
from whet.models.config import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The part of a shape that does not depend on the task."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int

    @property
    def num_parameters(self) -> int:
        """Count the weights of the layers and the final norm."""
        attention = 2 * (self.num_heads + self.num_kv_heads) * self.head_dim * self.hidden_size
        inner = 3 * self.hidden_size * self.intermediate_size
        norms = 2 * self.hidden_size + 2 * self.head_dim
        return self.num_layers * (attention + inner + norms) + self.hidden_size


SIZES: Mapping[str, Size] = MappingProxyType(
    {
        "tiny": Size(
            num_layers=2,
            hidden_size=64,
            num_heads=4,
            num_kv_heads=2,
            head_dim=16,
            intermediate_size=128,
        ),
        "mini": Size(
            num_layers=4,
            hidden_size=128,
            num_heads=4,
            num_kv_heads=4,
            head_dim=32,
            intermediate_size=384,
        ),
        "small": Size(
            num_layers=6,
            hidden_size=256,
            num_heads=8,
            num_kv_heads=4,
            head_dim=32,
            intermediate_size=768,
        ),
        "medium": Size(
            num_layers=8,
            hidden_size=512,
            num_heads=8,
            num_kv_heads=4,
            head_dim=64,
            intermediate_size=1536,
        ),
        "large": Size(
            num_layers=12,
            hidden_size=768,
            num_heads=12,
            num_kv_heads=4,
            head_dim=64,
            intermediate_size=2304,
        ),
    }
)


def new_config(size: str, vocab_size: int, max_positions: int) -> ModelConfig:
    """Complete a named size with what the task decides: its vocabulary and its longest sequence."""
    if size not in SIZES:
        raise ConfigError(f"model size is {size!r}, expected one of {', '.join(SIZES)}")
    shape = SIZES[size]
    return ModelConfig(
        family="qwen3",
        vocab_size=vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_layers=shape.num_layers,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        max_positions=max_positions,
        rope_theta=10000.0,
        norm_eps=1e-6,
        tied=True,
        qkv_bias=False,
        qk_norm=True,
    )
