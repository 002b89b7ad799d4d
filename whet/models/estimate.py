"""How long a model takes on a card and how much memory, before anything runs.

The shares of the hardware's rates are fitted to runs of 0.5B, 1.5B and 7B models on one H200 (docs/performance.md); on
other cards the same shares are assumed. Memory is counted, not fitted.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from whet.models.cost import Cost

GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A GPU: memory in bytes, copy rate in bytes a second, bfloat16 matrix rate in operations a second."""

    memory: float
    copy: float
    matmul: float


CARDS: Mapping[str, Card] = MappingProxyType(
    {
        "h200": Card(memory=150.1 * GB, copy=4.3e12, matmul=790e12),
        "h100": Card(memory=85.0 * GB, copy=3.0e12, matmul=790e12),
        "a100": Card(memory=85.0 * GB, copy=1.75e12, matmul=280e12),
        "a100-40": Card(memory=42.4 * GB, copy=1.4e12, matmul=280e12),
        "l40s": Card(memory=48.0 * GB, copy=0.75e12, matmul=330e12),
        "rtx4090": Card(memory=25.7 * GB, copy=0.9e12, matmul=165e12),
    }
)
"""The H200's rates are measured; those of the others are their makers' figures, less the share an H200 falls short."""

_LINEAR, _CACHE, _MATMUL = 0.8, 0.85, 0.75
"""Shares of the matrix rate, the copy rate and, in an update, the matrix rate that are reached."""
_LAYER_SECONDS = 32e-6
"""What a layer of a decode step takes besides: nine small kernels, one after the other."""
_PASSES = 8
"""How often an update reads or writes each byte that it keeps for the way back."""
_START_SECONDS = 0.02
LOGITS = 2**29
"""Logits that an update holds at a time (`whet/kernels/head.py`)."""


def step_seconds(cost: Cost, card: Card, rows: float, context: float) -> float:
    """One decode step of rows with a mean context: the weights, the cache, the logits, and the kernels' own time."""
    weights = cost.body + cost.head
    linear = max(weights * cost.width / card.copy, 2 * weights * rows / (card.matmul * _LINEAR))
    cache = rows * context * cost.kv_bytes / (card.copy * _CACHE)
    logits = 3 * 4 * rows * cost.cfg.vocab_size / card.copy
    return linear + cache + logits + cost.cfg.num_layers * _LAYER_SECONDS


def rollout_seconds(cost: Cost, card: Card, *, requests: int, rows: int, prompt: int, new: int) -> float:
    """Sample `new` tokens for every request, `rows` at a time; prompts are shared and cost next to nothing."""
    waves, last = divmod(requests, rows)
    context = prompt + new / 2
    seconds = waves * new * step_seconds(cost, card, rows, context)
    return _START_SECONDS + seconds + (new * step_seconds(cost, card, last, context) if last else 0.0)


def update_seconds(cost: Cost, card: Card, *, sequences: int, length: int, scored: int, passes: int) -> float:
    """Forward, backward and one optimiser step; `passes` is the number of micro-batches."""
    # The head's logits are made again on the way back: a fourth product besides the three.
    flops = cost.update_flops(length, scored) + 2.0 * cost.head * scored
    kept = cost.activation_bytes * length * _PASSES
    moved = cost.parameters * (28 + 14 * passes)
    return sequences * (flops / (card.matmul * _MATMUL) + kept / card.copy) + moved / card.copy


def pool_bytes(cost: Cost, *, rows: int, context: int) -> float:
    """The cache of full rows, one spare among them, in pages of 64 tokens."""
    return (rows + 1) * math.ceil(context / 64) * 64 * float(cost.kv_bytes)


def sampling_bytes(cost: Cost, *, rows: int, context: int) -> dict[str, float]:
    """What a rollout holds besides weights and optimiser."""
    return {
        "cache": pool_bytes(cost, rows=rows, context=context),
        "logits": 2.0 * 4 * rows * cost.cfg.vocab_size,
    }


def update_bytes(cost: Cost, *, micro_tokens: int) -> dict[str, float]:
    """What an update holds besides weights and optimiser."""
    held = min(LOGITS, micro_tokens * cost.cfg.vocab_size)
    return {
        "gradients": 4.0 * cost.parameters,
        "activations": float(cost.activation_bytes * micro_tokens),
        "logits": held * (4.0 + cost.width) + 4.0 * cost.head,
    }


def state_bytes(cost: Cost, *, trains: bool, offload: bool, reference: bool) -> dict[str, float]:
    """What stays between phases: weights, masters and moments in float32, the reference."""
    masters = 4 if cost.width < 4 else 0
    return {
        "weights": float(cost.width * cost.parameters),
        "optimiser": 0.0 if offload or not trains else (8.0 + masters) * cost.parameters,
        "reference": float(cost.width * cost.parameters) if reference else 0.0,
    }
