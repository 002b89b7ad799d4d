"""How long a model takes on a card and how much memory, before anything runs.

The shares of the hardware's rates are fitted to runs of 0.5B, 1.5B and 7B models on one H200
(docs/performance.md); on other cards the same shares are assumed. Memory is counted, not fitted.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from whet.plan.cost import Cost

GB = 1e9
Checkpointing = Literal["auto", "on", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A GPU: bytes, bytes copied per second, bfloat16 operations per second.

    `host` is the copy rate to and from pinned host memory, in each direction.
    """

    memory: float
    copy: float
    matmul: float
    host: float

    @property
    def usable(self) -> float:
        """Memory without what the driver takes and gaps between tensors waste."""
        return self.memory * SHARE_OF_MEMORY


CARDS: Mapping[str, Card] = MappingProxyType(
    {
        "h200": Card(memory=150.1 * GB, copy=4.3e12, matmul=790e12, host=50e9),
        "h100": Card(memory=85.0 * GB, copy=3.0e12, matmul=790e12, host=50e9),
        "a100": Card(memory=85.0 * GB, copy=1.75e12, matmul=280e12, host=22e9),
        "a100-40": Card(memory=42.4 * GB, copy=1.4e12, matmul=280e12, host=22e9),
        "l40s": Card(memory=48.0 * GB, copy=0.75e12, matmul=330e12, host=22e9),
        "rtx4090": Card(memory=25.7 * GB, copy=0.9e12, matmul=165e12, host=22e9),
    }
)
"""The H200's rates are measured; the others are vendors' figures, less the same shortfall."""

_LINEAR = 0.8
_CACHE = 0.85
_MATMUL = 0.75
"""Shares of the matrix rate, the copy rate and, in an update, the matrix rate that are reached."""
_LAYER_SECONDS = 32e-6
"""What a layer of a decode step takes besides: nine small kernels, one after the other."""
_PASSES = 8
"""How often an update reads or writes each byte that it keeps for the backward pass."""
_START_SECONDS = 0.02
WAKE_SECONDS = 0.15
"""Time to free a cache and allocate, clear and record it again."""
SHARE_OF_MEMORY = 0.95
PIECES = 9 * 4.0 * 2**24
"""Memory for what passes through the card to and from the host (`whet/train/offload.py`)."""
LOGITS = 2**29
"""Logits that an update holds at a time (`whet/kernels/head.py`)."""


def step_seconds(cost: Cost, card: Card, rows: float, context: float) -> float:
    """Time one decode step: weights, cache, logits, and the kernels' own time."""
    weights = cost.body + cost.head
    linear = max(weights * cost.width / card.copy, 2 * weights * rows / (card.matmul * _LINEAR))
    cache = rows * context * cost.kv_bytes / (card.copy * _CACHE)
    logits = 3 * 4 * rows * cost.cfg.vocab_size / card.copy
    return linear + cache + logits + cost.cfg.num_layers * _LAYER_SECONDS


def rollout_seconds(
    cost: Cost, card: Card, *, requests: int, rows: int, prompt: int, new: int
) -> float:
    """Time a rollout of `new` tokens per request, `rows` at a time; prompts cost little."""
    waves, last = divmod(requests, rows)
    context = prompt + new / 2
    seconds = waves * new * step_seconds(cost, card, rows, context)
    return (
        _START_SECONDS + seconds + (new * step_seconds(cost, card, last, context) if last else 0.0)
    )


def update_seconds(
    cost: Cost,
    card: Card,
    *,
    sequences: int,
    length: int,
    scored: int,
    passes: int,
    checkpointed: int = 0,
    offload: bool = False,
) -> float:
    """Forward, backward and one optimiser step; `passes` is the number of micro-batches."""
    # The head's logits are made again in the backward pass: a fourth product besides the three.
    flops = cost.update_flops(length, scored) + 2.0 * cost.head * scored
    flops += cost.forward_flops(length, 0) * checkpointed / cost.cfg.num_layers
    kept = cost.activation_bytes * length * _PASSES
    moved = cost.parameters * ((0 if offload else 28) + 14 * passes)
    carried = 12 * cost.parameters / card.host if offload else 0.0
    return (
        sequences * (flops / (card.matmul * _MATMUL) + kept / card.copy)
        + moved / card.copy
        + carried
    )


def score_seconds(
    cost: Cost, card: Card, *, sequences: int, length: int, scored: int, offload: bool
) -> float:
    """Time one forward pass over all sequences, by a model that may wait in host memory."""
    flops = cost.forward_flops(length, scored)
    kept = cost.activation_bytes * length * _PASSES / 3
    brought = cost.width * cost.parameters / card.host if offload else 0.0
    return sequences * (flops / (card.matmul * _MATMUL) + kept / card.copy) + brought


def pool_bytes(cost: Cost, *, rows: int, context: int) -> float:
    """The cache of full rows, one spare among them, in pages of 64 tokens."""
    return (rows + 1) * math.ceil(context / 64) * 64 * float(cost.kv_bytes)


def sampling_bytes(cost: Cost, *, rows: int, context: int, prefill: int = 0) -> dict[str, float]:
    """Count what a rollout holds besides weights and optimiser; `prefill` tokens run at once."""
    logits = 4.0 * rows * cost.cfg.vocab_size
    cfg = cost.cfg
    pass_bytes = float(
        prefill * cost.width * (3 * cfg.intermediate_size + 4 * cfg.hidden_size + cfg.qkv_size)
    )
    return {
        "cache": pool_bytes(cost, rows=rows, context=context),
        # Recorded steps hold one set; first tokens are sampled from another, after the prompts have
        # run.
        "logits": 2 * logits,
        "prompts": max(0.0, pass_bytes - logits),
    }


def update_bytes(
    cost: Cost,
    *,
    micro_tokens: int,
    passes: int = 2,
    checkpointed: int = 0,
    trained: int | None = None,
) -> dict[str, float]:
    """What an update holds besides weights and optimiser, at its peak.

    `trained` counts the weights that have gradients, all if left out. The first of several passes
    begins without gradients; a single one ends with them, when the activations are gone.
    """
    cfg = cost.cfg
    trained = cost.parameters if trained is None else trained
    layer = cost.activation_bytes / cfg.num_layers
    inputs = 2 * cfg.hidden_size * cost.width
    kept = micro_tokens * (layer * (cfg.num_layers - checkpointed) + inputs * checkpointed)
    logits = min(LOGITS, micro_tokens * cfg.vocab_size) * (4.0 + cost.width)
    logits += 4.0 * cost.head if trained == cost.parameters else 0.0
    if checkpointed:
        # When a layer runs again, the logits are gone; it and its gradients can take more than they
        # did.
        again = micro_tokens * (
            inputs * checkpointed + layer + 3 * cfg.intermediate_size * cost.width
        )
        kept = max(kept, again - logits)
    gradients = 4.0 * trained
    return {
        "gradients": gradients if passes > 1 else max(0.0, gradients - kept - logits),
        "activations": float(kept),
        "logits": logits,
    }


def layers_to_checkpoint(
    needed: Callable[[int], float],
    *,
    free: float,
    layers: int,
    checkpointing: Checkpointing = "auto",
) -> int:
    """Find the fewest layers that must run twice for an update to fit; all where none do.

    >>> layers_to_checkpoint(lambda layers: 100.0 - 10 * layers, free=75.0, layers=8)
    3
    """
    if checkpointing != "auto":
        return layers if checkpointing == "on" else 0
    return next((count for count in range(layers) if needed(count) <= free), layers)


def optimizer_bytes(trained: float, width: int) -> float:
    """Count moments in float32, and a master of every weight that is smaller than that."""
    return (12.0 if width < 4 else 8.0) * trained


def state_bytes(
    parameters: float,
    width: int,
    *,
    trained: float = 0.0,
    offload: bool = False,
    reference: bool = False,
) -> dict[str, float]:
    """Count what stays between phases, of a model with so many weights that have gradients."""
    weights = float(width * parameters)
    optimiser = optimizer_bytes(trained, width)
    return {
        "weights": weights,
        "optimiser": PIECES if offload and trained else optimiser,
        "reference": weights if reference else 0.0,
    }
