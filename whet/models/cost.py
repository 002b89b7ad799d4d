"""Predict the cost of a model: parameters, FLOPs, and time and memory on a GPU.

The fractions of peak hardware rates are fitted to runs of 0.5B, 1.5B and 7B models on one H200
(docs/performance.md), and assumed to be the same on other GPUs. Memory is counted, not fitted.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from whet.models.config import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Counts for one decoder. Bytes assume a compute dtype of `width` bytes."""

    cfg: ModelConfig
    width: int = 2

    @property
    def num_layer_weights(self) -> int:
        """Weights in the matrices of all layers, read in every decode step, used by every token."""
        cfg = self.cfg
        attention = cfg.hidden_size * (cfg.qkv_size + cfg.num_heads * cfg.head_dim)
        return cfg.num_layers * (attention + 3 * cfg.hidden_size * cfg.intermediate_size)

    @property
    def num_head_weights(self) -> int:
        return self.cfg.vocab_size * self.cfg.hidden_size

    @property
    def parameters(self) -> int:
        """All weights: matrices, embedding, head, norms and biases."""
        cfg = self.cfg
        biases = cfg.qkv_size if cfg.qkv_bias else 0
        norms = 2 * cfg.hidden_size + (2 * cfg.head_dim if cfg.qk_norm else 0)
        heads = self.num_head_weights * (1 if cfg.tied else 2)
        return self.num_layer_weights + heads + cfg.num_layers * (biases + norms) + cfg.hidden_size

    def adapters(self, rank: int, targets: Iterable[str]) -> int:
        """Count the weights of LoRA adapters on the matrices named in `targets`, in all layers."""
        cfg = self.cfg
        queries = cfg.num_heads * cfg.head_dim
        keys = cfg.num_kv_heads * cfg.head_dim
        other_side = {"q_proj": queries, "k_proj": keys, "v_proj": keys, "o_proj": queries}
        sides = (cfg.hidden_size + other_side.get(name, cfg.intermediate_size) for name in targets)
        return cfg.num_layers * rank * sum(sides)

    @property
    def kv_bytes(self) -> int:
        """Bytes of the keys and values of one token."""
        return 2 * self.cfg.num_layers * self.cfg.num_kv_heads * self.cfg.head_dim * self.width

    @property
    def activation_bytes(self) -> int:
        """Bytes of activations kept for the backward pass per token, in all layers."""
        cfg = self.cfg
        numbers = (
            4 * cfg.hidden_size
            + cfg.qkv_size
            + cfg.num_heads * cfg.head_dim
            + 3 * cfg.intermediate_size
        )
        logsumexp = 4 * cfg.num_heads
        return cfg.num_layers * (numbers * self.width + logsumexp)

    def gathered_bytes(self, *, trains: bool) -> float:
        """Count the bytes gathered while a sharded model runs: embedding, head, the current layer
        and the next; in training also the layers' gradients, with float32 copies."""
        layer = self.num_layer_weights / self.cfg.num_layers
        size = 2 * self.width + 4 if trains else self.width
        return self.width * (self.parameters - self.num_layer_weights) + 2.0 * size * layer

    def forward_flops(self, length: int, num_targets: int) -> float:
        """Count the FLOPs of one sequence in the layers, and of `num_targets` tokens in the head.

        Causal attention takes two products, each of half a square.
        """
        cfg = self.cfg
        attention = 2.0 * cfg.num_layers * cfg.num_heads * cfg.head_dim * length**2
        return (
            2.0 * (self.num_layer_weights * length + self.num_head_weights * num_targets)
            + attention
        )

    def update_flops(self, length: int, num_targets: int) -> float:
        """Count the FLOPs of forward and backward: three times the forward pass."""
        return 3 * self.forward_flops(length, num_targets)


GB = 1e9
Checkpointing = Literal["auto", "on", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GPU:
    """A GPU: its memory in bytes, and its rates, each in one direction."""

    memory: float
    copy_bytes_per_s: float
    matmul_flops_per_s: float
    """Matrix products in bfloat16."""
    host_bytes_per_s: float
    """Copies to and from pinned host memory."""
    link_bytes_per_s: float
    """Collectives among the GPUs of a node."""
    network_bytes_per_s: float
    """Traffic of one GPU to other nodes."""

    @property
    def usable(self) -> float:
        """Memory without the driver's share and fragmentation."""
        return self.memory * MEMORY_FRACTION


_CARDS: Mapping[str, tuple[float, ...]] = {
    "h200": (150.1e9, 4.3e12, 790e12, 50e9, 350e9, 45e9),
    "h100": (85.0e9, 3.0e12, 790e12, 50e9, 350e9, 45e9),
    "a100": (85.0e9, 1.75e12, 280e12, 22e9, 235e9, 22e9),
    "a100-40": (42.4e9, 1.4e12, 280e12, 22e9, 235e9, 22e9),
    "l40s": (48.0e9, 0.75e12, 330e12, 22e9, 20e9, 11e9),
    "rtx4090": (25.7e9, 0.9e12, 165e12, 22e9, 10e9, 1.1e9),
}
"""The H200's rates are measured; the others are vendors' figures, reduced by the same shortfall.
Links are NVLink, or PCIe for the last two GPUs; networks have one adapter for each GPU."""
GPUS: Mapping[str, GPU] = {
    name: GPU(
        memory=memory,
        copy_bytes_per_s=copy,
        matmul_flops_per_s=matmul,
        host_bytes_per_s=host,
        link_bytes_per_s=link,
        network_bytes_per_s=network,
    )
    for name, (memory, copy, matmul, host, link, network) in _CARDS.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLayout:
    """How ranks share a stage: `shard` ranks hold one set of float32 masters, `sequence` ranks run
    a sequence together, and a machine has `node` ranks."""

    ranks: int = 1
    node: int = 8
    shard: int = 1
    sequence: int = 1

    def gather_seconds(self, size: float, card: GPU) -> float:
        """Predict the time to gather or scatter `size` bytes among `shard` ranks. Traffic between
        nodes enters each node once, over all its adapters."""
        rate = (
            card.link_bytes_per_s
            if self.shard <= self.node
            else min(card.link_bytes_per_s, self.node * card.network_bytes_per_s)
        )
        return size * (1 - 1 / self.shard) / rate

    def reduce_seconds(self, size: float, card: GPU) -> float:
        """Predict the time to sum `size` bytes, sharded, over all replicas of the shards."""
        rate = card.link_bytes_per_s if self.ranks <= self.node else card.network_bytes_per_s
        return 2 * size / self.shard * (1 - self.shard / self.ranks) / rate


ALONE = RankLayout()

_LINEAR = 0.8
_CACHE = 0.85
_MATMUL = 0.75
"""Measured fractions of matrix and copy rates in decoding, and of matrix rates in updates."""
_LAYER_SECONDS = 32e-6
"""Fixed time of a layer in a decode step: nine small kernels in sequence."""
_REDUCE_SECONDS = 24e-6
"""Time of the two all-reduces of a layer in a decode step with tensor parallelism. Assumed."""
_PASSES = 8
"""Reads and writes by an update of each activation byte kept for the backward pass."""
_START_SECONDS = 0.02
WAKE_SECONDS = 0.15
"""Time to free a KV cache, and to allocate, clear and record it again."""
MEMORY_FRACTION = 0.95
STAGING = 9 * 4.0 * 2**24
"""Bytes of GPU buffers for copies to and from the host (`whet/train/offload.py`)."""
LOGITS = 2**29
"""Logits that an update holds at once (`whet/kernels/lm_head.py`)."""


def step_seconds(
    cost: Cost, card: GPU, rows: float, context: float, *, tensor_parallel: int = 1
) -> float:
    """Predict the time of a decode step: weights, cache, logits, and fixed kernel time."""
    weights = cost.num_layer_weights + cost.num_head_weights
    linear = max(
        weights * cost.width / card.copy_bytes_per_s,
        2 * weights * rows / (card.matmul_flops_per_s * _LINEAR),
    )
    cache = rows * context * cost.kv_bytes / (card.copy_bytes_per_s * _CACHE)
    logits = 3 * 4 * rows * cost.cfg.vocab_size / card.copy_bytes_per_s
    layer = _LAYER_SECONDS + (_REDUCE_SECONDS if tensor_parallel > 1 else 0.0)
    return (linear + cache + logits) / tensor_parallel + cost.cfg.num_layers * layer


def rollout_seconds(
    cost: Cost, card: GPU, *, requests: int, rows: int, prompt_tokens: int, new_tokens: int
) -> float:
    """Predict the time to decode `new_tokens` per request, `rows` at once; prefill is ignored."""
    waves, last = divmod(requests, rows)
    context = prompt_tokens + new_tokens / 2
    seconds = waves * new_tokens * step_seconds(cost, card, rows, context)
    return (
        _START_SECONDS
        + seconds
        + (new_tokens * step_seconds(cost, card, last, context) if last else 0.0)
    )


def ragged_rollout_seconds(
    cost: Cost, card: GPU, *, requests: int, rows: int, prompt_tokens: int, mean: int, longest: int
) -> float:
    """Predict the time of a rollout of responses that end one by one, until one runs alone.

    The fraction of responses above t tokens is assumed to be (1 - t / longest) ** tail, with the
    tail that gives the mean. If mean and longest are equal, all responses have the same length.
    """
    tail = longest / mean - 1
    slices = 64
    full = step_seconds(cost, card, rows, prompt_tokens + longest / (tail + 2))
    seconds = _START_SECONDS + (requests / rows - 1) * mean * full
    for i in range(slices):
        fraction = (i + 0.5) / slices
        running = max(1.0, rows * (1 - fraction) ** tail)
        context = prompt_tokens + fraction * longest
        seconds += longest / slices * step_seconds(cost, card, running, context)
    return seconds


def update_seconds(
    cost: Cost,
    card: GPU,
    *,
    sequences: int,
    length: int,
    num_targets: int,
    passes: int,
    checkpointed: int = 0,
    offload: bool = False,
    layout: RankLayout = ALONE,
    optimizer_steps: int = 1,
) -> float:
    """Predict the time of forward, backward and optimizer steps in `passes` micro-batches. With
    several ranks, `sequences` counts those of the ranks that share each sequence."""
    # The backward pass recomputes the head's logits: a fourth product besides the three.
    flops = cost.update_flops(length, num_targets) + 2.0 * cost.num_head_weights * num_targets
    flops += cost.forward_flops(length, 0) * checkpointed / cost.cfg.num_layers
    kept = cost.activation_bytes * length * _PASSES
    stepped = optimizer_steps * cost.parameters / layout.shard
    moved = (0 if offload else 28) * stepped + 14 * passes * cost.parameters
    carried = 12 * stepped / card.host_bytes_per_s if offload else 0.0
    return (
        sequences
        * (flops / (card.matmul_flops_per_s * _MATMUL) + kept / card.copy_bytes_per_s)
        / layout.sequence
        + moved / card.copy_bytes_per_s
        + carried
    )


def exchange_seconds(
    cost: Cost, card: GPU, layout: RankLayout, *, tokens: int, passes: int
) -> float:
    """Predict the time of the all-to-alls before and after attention among the ranks of a sequence
    (Ulysses), over `passes` through the layers."""
    cfg = cost.cfg
    numbers = cfg.num_layers * (cfg.qkv_size + cfg.num_heads * cfg.head_dim)
    fraction = (1 - 1 / layout.sequence) / layout.sequence
    return passes * tokens * numbers * cost.width * fraction / card.link_bytes_per_s


def logprob_seconds(
    cost: Cost,
    card: GPU,
    *,
    sequences: int,
    length: int,
    num_targets: int,
    offload: bool,
    layout: RankLayout = ALONE,
) -> float:
    """Predict the time of a forward pass over all sequences, by a model that may be offloaded."""
    flops = cost.forward_flops(length, num_targets)
    kept = cost.activation_bytes * length * _PASSES / 3
    brought = (
        cost.width * cost.parameters / layout.shard / card.host_bytes_per_s if offload else 0.0
    )
    seconds = sequences * (
        flops / (card.matmul_flops_per_s * _MATMUL) + kept / card.copy_bytes_per_s
    )
    return seconds / layout.sequence + brought


def sampling_bytes(cost: Cost, *, rows: int, prefill: int) -> dict[str, float]:
    """Count the bytes of a rollout besides the KV cache; `prefill` tokens run at once."""
    logits = 4.0 * rows * cost.cfg.vocab_size
    cfg = cost.cfg
    pass_bytes = float(
        prefill * cost.width * (3 * cfg.intermediate_size + 4 * cfg.hidden_size + cfg.qkv_size)
    )
    return {
        # Recorded steps hold one set; first tokens are sampled from another, after the prefill.
        "logits": 2 * logits,
        "prompts": max(0.0, pass_bytes - logits),
    }


def update_bytes(
    cost: Cost,
    *,
    micro_batch_tokens: int,
    passes: int = 2,
    checkpointed: int = 0,
    trained: int | None = None,
) -> dict[str, float]:
    """Count the peak bytes of an update besides weights and optimizer.

    `trained` counts the weights that have gradients; by default all. With several passes, later
    ones hold gradients and activations together; in a single pass, gradients replace activations.
    """
    cfg = cost.cfg
    trained = cost.parameters if trained is None else trained
    layer = cost.activation_bytes / cfg.num_layers
    inputs = 2 * cfg.hidden_size * cost.width
    kept = micro_batch_tokens * (layer * (cfg.num_layers - checkpointed) + inputs * checkpointed)
    logits = min(LOGITS, micro_batch_tokens * cfg.vocab_size) * (4.0 + cost.width)
    logits += 4.0 * cost.num_head_weights if trained == cost.parameters else 0.0
    if checkpointed:
        # A layer runs again after the logits are freed; it and its gradients can be larger.
        again = micro_batch_tokens * (
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
    """Find the fewest layers to checkpoint for an update to fit; all if no number fits.

    >>> layers_to_checkpoint(lambda layers: 100.0 - 10 * layers, free=75.0, layers=8)
    3
    """
    if checkpointing != "auto":
        return layers if checkpointing == "on" else 0
    return next((count for count in range(layers) if needed(count) <= free), layers)


def optimizer_bytes(trained: float, width: int) -> float:
    """Count the bytes of float32 moments, and of float32 masters if weights are narrower."""
    return (12.0 if width < 4 else 8.0) * trained


def state_bytes(
    parameters: float,
    width: int,
    *,
    trained: float = 0.0,
    offload: bool = False,
    reference: bool = False,
) -> dict[str, float]:
    """Count the bytes that a model with `trained` trained weights holds between phases."""
    weights = float(width * parameters)
    optimizer = optimizer_bytes(trained, width)
    return {
        "weights": weights,
        "optimizer": STAGING if offload and trained else optimizer,
        "reference": weights if reference else 0.0,
    }
