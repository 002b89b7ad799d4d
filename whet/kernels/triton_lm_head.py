# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
"""The Triton kernels of lm_head.py, over blocks of 4,096 logits.

Shapes: Q rows, V vocabulary, K blocks of a row.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 4096
WIDE = {"num_warps": 8, "enable_fp_fusion": False}
NARROW = {"num_warps": 1, "enable_fp_fusion": False}


def logit_stats(
    logits_QV: Tensor, label_Q: Tensor, temperature_Q: Tensor, *, has_entropy: bool
) -> tuple[Tensor, Tensor, Tensor]:
    rows, width = logits_QV.shape
    logprob_Q = torch.empty(rows, dtype=torch.float32, device=logits_QV.device)
    entropy_Q = torch.zeros_like(logprob_Q)
    lse_Q = torch.empty_like(logprob_Q)
    if rows:
        parts = _block_stats(logits_QV, temperature_Q, has_entropy)
        blocks = triton.cdiv(width, _BLOCK)
        inputs = logits_QV, label_Q, temperature_Q, *parts
        sizes = width, blocks, has_entropy, triton.next_power_of_2(blocks)
        _combine_blocks[(rows,)](*inputs, logprob_Q, entropy_Q, lse_Q, *sizes, **NARROW)
    return logprob_Q, entropy_Q, lse_Q


def sample_tokens_triton(
    logits_QV: Tensor, uniform_Q: Tensor, temperature_Q: Tensor
) -> tuple[Tensor, Tensor]:
    rows, width = logits_QV.shape
    token_Q = torch.empty(rows, dtype=torch.int64, device=logits_QV.device)
    logprob_Q = torch.empty(rows, dtype=torch.float32, device=logits_QV.device)
    max_QK, sums_QK, _ = _block_stats(logits_QV, temperature_Q, False)
    blocks = triton.cdiv(width, _BLOCK)
    lanes = triton.next_power_of_2(blocks)
    lse_Q = torch.empty_like(logprob_Q)
    chosen_Q = torch.empty_like(token_Q)
    target_Q = torch.empty(rows, dtype=torch.float64, device=logits_QV.device)
    _pick_block[(rows,)](
        max_QK,
        sums_QK,
        uniform_Q,
        temperature_Q,
        chosen_Q,
        target_Q,
        lse_Q,
        blocks,
        lanes,
        **NARROW,
    )
    inputs = logits_QV, max_QK, temperature_Q, chosen_Q, target_Q, lse_Q
    _pick_token[(rows,)](*inputs, token_Q, logprob_Q, width, blocks, _BLOCK, **WIDE)
    return token_Q, logprob_Q


def logits_grad(
    logits_QV: Tensor,
    label_Q: Tensor,
    temperature_Q: Tensor,
    stats: tuple[Tensor, Tensor],
    d_logprob_Q: Tensor,
    d_entropy_Q: Tensor | None,
    *,
    dtype: torch.dtype,
) -> Tensor:
    rows, width = logits_QV.shape
    grad_QV = torch.empty(rows, width, dtype=dtype, device=logits_QV.device)
    if rows:
        d_entropy = d_logprob_Q if d_entropy_Q is None else d_entropy_Q
        inputs = logits_QV, label_Q, temperature_Q, *stats
        grads = d_logprob_Q.contiguous(), d_entropy.contiguous()
        sizes = width, d_entropy_Q is not None, _BLOCK
        _logits_grad[(rows, triton.cdiv(width, _BLOCK))](*inputs, *grads, grad_QV, *sizes, **WIDE)
    return grad_QV


def _block_stats(
    logits_QV: Tensor, temperature_Q: Tensor, has_entropy: bool
) -> tuple[Tensor, Tensor, Tensor]:
    assert logits_QV.dtype == torch.float32 and logits_QV.is_contiguous(), (
        "logits are float32, row after row"
    )
    rows, width = logits_QV.shape
    blocks = triton.cdiv(width, _BLOCK)
    max_QK = torch.empty(rows, blocks, dtype=torch.float32, device=logits_QV.device)
    sums_QK = torch.empty_like(max_QK)
    weighted_QK = torch.empty_like(max_QK) if has_entropy else sums_QK
    if rows:
        tensors = logits_QV, temperature_Q, max_QK, sums_QK, weighted_QK
        _block_stats_kernel[(rows, blocks)](*tensors, width, blocks, has_entropy, _BLOCK, **WIDE)
    return max_QK, sums_QK, weighted_QK


@triton.jit
def _scale(logit, temperature):
    if (temperature != 1.0) & (temperature != 0.0):
        logit = tl.div_rn(logit, temperature)
    return logit


@triton.jit
def _rescale(block_max, total):
    """Return the row's maximum, and each block's factor and sum relative to it."""
    row_max = tl.max(block_max, 0)
    rescale = tl.exp(block_max - row_max)
    return row_max, rescale, total * rescale


@triton.jit
def _block_stats_kernel(
    logits,
    temperatures,
    maxes,
    sums,
    weighted,
    width,
    blocks,
    HAS_ENTROPY: tl.constexpr,
    _BLOCK: tl.constexpr,
):
    """Compute a block's maximum m, sum of exp(z - m) and, for entropy, of (z - m) exp(z - m)."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    column = block * _BLOCK + tl.arange(0, _BLOCK)
    logit = tl.load(logits + row * width + column, mask=column < width, other=float("-inf"))
    logit = _scale(logit, tl.load(temperatures + row))
    block_max = tl.max(logit, 0)
    below = logit - tl.where(block_max > float("-inf"), block_max, 0.0)
    power = tl.exp(below)
    tl.store(maxes + row * blocks + block, block_max)
    tl.store(sums + row * blocks + block, tl.sum(power, 0))
    if HAS_ENTROPY:
        tl.store(
            weighted + row * blocks + block, tl.sum(tl.where(power > 0.0, below, 0.0) * power, 0)
        )


@triton.jit
def _combine_blocks(
    logits,
    labels,
    temperatures,
    maxes,
    sums,
    weighted,
    logprobs,
    entropies,
    lses,
    width,
    blocks,
    HAS_ENTROPY: tl.constexpr,
    LANES: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LANES)
    cell = row * blocks + lane
    is_real = lane < blocks
    block_max = tl.load(maxes + cell, mask=is_real, other=float("-inf"))
    row_max, rescale, scaled = _rescale(block_max, tl.load(sums + cell, mask=is_real, other=0.0))
    total = tl.sum(scaled, 0)
    lse = row_max + tl.log(total)
    tl.store(lses + row, lse)
    logit = tl.load(logits + row * width + tl.load(labels + row))
    tl.store(logprobs + row, _scale(logit, tl.load(temperatures + row)) - lse)
    if HAS_ENTROPY:
        # Relative to the row's maximum M, a term (z - m) exp(z - m) becomes
        # (z - m + m - M) exp(z - m) exp(m - M).
        term = tl.load(weighted + cell, mask=is_real, other=0.0)
        shift = tl.where(rescale > 0.0, block_max - row_max, 0.0)
        tl.store(
            entropies + row, tl.log(total) - tl.sum(term * rescale + shift * scaled, 0) / total
        )


@triton.jit
def _pick_block(
    maxes, sums, uniforms, temperatures, chosen, targets, lses, blocks, LANES: tl.constexpr
):
    """Choose the block in which the running sum passes the target, and the target within it."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LANES)
    cell = row * blocks + lane
    is_real = lane < blocks
    block_max = tl.load(maxes + cell, mask=is_real, other=float("-inf"))
    row_max, rescale, scaled = _rescale(block_max, tl.load(sums + cell, mask=is_real, other=0.0))
    tl.store(lses + row, row_max + tl.log(tl.sum(scaled, 0)))
    running = tl.cumsum(scaled.to(tl.float64), 0)
    total = tl.max(running, 0)
    # A product that rounds up to the total would point past the last likely token, so the target
    # stays below the total by a factor of 1 - 2**-52.
    target = tl.minimum(tl.load(uniforms + row).to(tl.float64) * total, total * 0.9999999999999998)
    block = tl.sum(tl.where(is_real & (running <= target), 1, 0), 0)
    before = tl.max(tl.where(lane < block, running, 0.0), 0)
    inside = tl.max(tl.where(lane == block, rescale, 0.0), 0).to(tl.float64)
    tl.store(targets + row, (target - before) / inside)
    is_greedy = tl.load(temperatures + row) == 0.0
    tl.store(chosen + row, tl.where(is_greedy, tl.argmax(block_max, 0), block).to(tl.int64))


@triton.jit
def _pick_token(
    logits,
    maxes,
    temperatures,
    chosen,
    targets,
    lses,
    tokens,
    logprobs,
    width,
    blocks,
    _BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    block = tl.load(chosen + row)
    offset = tl.arange(0, _BLOCK)
    column = block * _BLOCK + offset
    logit = tl.load(logits + row * width + column, mask=column < width, other=float("-inf"))
    temperature = tl.load(temperatures + row)
    logit = _scale(logit, temperature)
    power = tl.exp(logit - tl.load(maxes + row * blocks + block))
    running = tl.cumsum(power.to(tl.float64), 0)
    inner = tl.sum(tl.where(running <= tl.load(targets + row), 1, 0), 0)
    # Block sums are float32, so rounding may put a target beyond the last token with nonzero
    # probability.
    inner = tl.minimum(inner, tl.max(tl.where(power > 0.0, offset, 0), 0))
    inner = tl.where(temperature == 0.0, tl.argmax(logit, 0), inner)
    tl.store(tokens + row, block * _BLOCK + inner)
    chosen_logit = tl.sum(tl.where(offset == inner, logit, 0.0), 0)
    tl.store(logprobs + row, chosen_logit - tl.load(lses + row))


@triton.jit
def _logits_grad(
    logits,
    labels,
    temperatures,
    entropies,
    lses,
    d_logprobs,
    d_entropies,
    grads,
    width,
    HAS_ENTROPY: tl.constexpr,
    _BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * _BLOCK + tl.arange(0, _BLOCK)
    is_real = column < width
    temperature = tl.load(temperatures + row)
    logit = tl.load(logits + row * width + column, mask=is_real, other=float("-inf"))
    logprob = _scale(logit, temperature) - tl.load(lses + row)
    prob = tl.exp(logprob)
    d_logprob = tl.load(d_logprobs + row)
    grad = -d_logprob * prob
    if HAS_ENTROPY:
        excess = tl.where(prob > 0.0, logprob, 0.0) + tl.load(entropies + row)
        grad -= tl.load(d_entropies + row) * prob * excess
    grad = _scale(grad + tl.where(column == tl.load(labels + row), d_logprob, 0.0), temperature)
    tl.store(grads + row * width + column, grad.to(grads.dtype.element_ty), mask=is_real)
