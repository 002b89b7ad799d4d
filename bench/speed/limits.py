"""The least time the hardware needs for a piece of work, from its copy bandwidth and matrix rate.

The formulas count what no implementation can avoid: each weight read once a decode step, or its
multiplications, whichever is slower; each cached key and value read once; the multiplications of
prefill and training. Logits are left out of the traffic, since they need not be written.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from speed.work import Work
from whet.models.config import ModelConfig

BYTES = {"float32": 4, "bfloat16": 2}
ADAM_BYTES = 28
"""Moved for one weight in one optimizer step: master, both moments and gradient, read and written
in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """Measured on the machine while the sides took turns."""

    copy_bytes_per_s: float
    matmul_flops_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Parameters that multiply each token: the layers, and the head."""

    body: int
    head: int
    kv_bytes: int
    """Of one cached token, all layers."""
    attention: int
    """Layers times query heads times head size."""

    @staticmethod
    def of(cfg: ModelConfig, dtype: str) -> "Counts":
        projections = (2 * cfg.num_heads + 2 * cfg.num_kv_heads) * cfg.head_dim * cfg.hidden_size
        inner = 3 * cfg.hidden_size * cfg.intermediate_size
        return Counts(
            body=cfg.num_layers * (projections + inner),
            head=cfg.vocab_size * cfg.hidden_size,
            kv_bytes=2 * BYTES[dtype] * cfg.num_layers * cfg.num_kv_heads * cfg.head_dim,
            attention=cfg.num_layers * cfg.num_heads * cfg.head_dim,
        )


def decode_step_seconds(
    counts: Counts, dtype: str, batch: float, context: float, top: Ceilings
) -> float:
    """One token for each of `batch` sequences that hold `context` tokens."""
    weights = counts.body + counts.head
    reading = BYTES[dtype] * weights / top.copy_bytes_per_s
    multiplying = 2 * weights * batch / top.matmul_flops_per_s
    return max(reading, multiplying) + batch * context * counts.kv_bytes / top.copy_bytes_per_s


def rollout_seconds(cfg: ModelConfig, work: Work, top: Ceilings) -> float:
    """Prefill of each prompt once, then decode with as many sequences at once as there are slots
    and requests."""
    counts, limits = Counts.of(cfg, work.dtype), work.limits()
    batch = min(work.slots, work.num_requests)
    decoded = [length - 1 for length in limits]
    steps = max(max(decoded), sum(decoded) / batch)
    filled = sum(decoded) / max(steps, 1)
    contexts = sum(n * work.prompt_tokens + n * (n + 1) / 2 for n in decoded)
    mean_context = contexts / max(sum(decoded), 1)
    decoding = steps * decode_step_seconds(counts, work.dtype, filled, mean_context, top)
    return prefill_seconds(counts, work, top) + decoding


def prefill_seconds(counts: Counts, work: Work, top: Ceilings) -> float:
    length = work.prompt_tokens
    flops = 2 * counts.body * length + 2 * counts.attention * length**2 + 2 * counts.head
    return work.prompts * flops / top.matmul_flops_per_s


def update_flops(
    cfg: ModelConfig, dtype: str, prompts: Sequence[int], responses: Sequence[int]
) -> float:
    """Forward and backward of one pass: layers and attention for all tokens, the head for response
    tokens."""
    counts = Counts.of(cfg, dtype)
    total = 0.0
    for prompt, response in zip(prompts, responses, strict=True):
        length = prompt + response
        total += (
            6 * counts.body * length + 6 * counts.attention * length**2 + 6 * counts.head * response
        )
    return total


def update_seconds(cfg: ModelConfig, work: Work, top: Ceilings) -> float:
    """One gradient over all completions, and one step of AdamW."""
    flops = update_flops(cfg, work.dtype, [work.prompt_tokens] * work.num_requests, work.limits())
    counts = Counts.of(cfg, work.dtype)
    weights = counts.body + counts.head * (1 if cfg.tied else 2)
    return flops / top.matmul_flops_per_s + ADAM_BYTES * weights / top.copy_bytes_per_s


def rl_step_seconds(cfg: ModelConfig, work: Work, top: Ceilings) -> float:
    return rollout_seconds(cfg, work, top) + update_seconds(cfg, work, top)
