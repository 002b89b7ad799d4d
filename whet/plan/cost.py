"""What a model costs, from its shape alone: parameters, bytes and floating-point operations."""

from collections.abc import Iterable
from dataclasses import dataclass

from whet.models.config import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Counts for one decoder. Bytes are for a compute type of `width` bytes a number."""

    cfg: ModelConfig
    width: int = 2

    @property
    def body(self) -> int:
        """Weights of the layers' matrices, each read once a decode step and used once a token."""
        cfg = self.cfg
        attention = cfg.hidden_size * (cfg.qkv_size + cfg.num_heads * cfg.head_dim)
        return cfg.num_layers * (attention + 3 * cfg.hidden_size * cfg.intermediate_size)

    @property
    def head(self) -> int:
        return self.cfg.vocab_size * self.cfg.hidden_size

    @property
    def parameters(self) -> int:
        """All weights: matrices, embedding, norms and biases."""
        cfg = self.cfg
        small = (
            2 * cfg.hidden_size
            + (cfg.qkv_size if cfg.qkv_bias else 0)
            + (2 * cfg.head_dim if cfg.qk_norm else 0)
        )
        return (
            self.body
            + self.head * (1 if cfg.tied else 2)
            + cfg.num_layers * small
            + cfg.hidden_size
        )

    def adapters(self, rank: int, targets: Iterable[str]) -> int:
        """Weights of low-rank adapters on matrices of every layer, by their Hugging Face names."""
        cfg = self.cfg
        hidden = cfg.hidden_size
        inner = cfg.intermediate_size
        queries = cfg.num_heads * cfg.head_dim
        keys = cfg.num_kv_heads * cfg.head_dim
        sides = {
            "q_proj": hidden + queries,
            "k_proj": hidden + keys,
            "v_proj": hidden + keys,
            "o_proj": queries + hidden,
            "gate_proj": hidden + inner,
            "up_proj": hidden + inner,
            "down_proj": inner + hidden,
        }
        return cfg.num_layers * rank * sum(sides[name] for name in targets)

    @property
    def kv_bytes(self) -> int:
        """Keys and values of one token."""
        return 2 * self.cfg.num_layers * self.cfg.num_kv_heads * self.cfg.head_dim * self.width

    @property
    def activation_bytes(self) -> int:
        """Count what the backward pass keeps of one token, in all layers."""
        cfg = self.cfg
        numbers = (
            4 * cfg.hidden_size
            + cfg.qkv_size
            + cfg.num_heads * cfg.head_dim
            + 3 * cfg.intermediate_size
        )
        logsumexp = 4 * cfg.num_heads
        return cfg.num_layers * (numbers * self.width + logsumexp)

    def attention_flops(self, length: int) -> float:
        """Count causal attention of one sequence, forward: two products of half a square."""
        return 2.0 * self.cfg.num_layers * self.cfg.num_heads * self.cfg.head_dim * length**2

    def forward_flops(self, length: int, scored: int) -> float:
        """One sequence through the layers, and `scored` of its tokens through the head."""
        return 2.0 * (self.body * length + self.head * scored) + self.attention_flops(length)

    def update_flops(self, length: int, scored: int) -> float:
        """Forward and backward: three times the forward pass."""
        return 3 * self.forward_flops(length, scored)
