# mypy: allow-untyped-calls
"""From hidden states to log-probabilities and tokens, through float32 logits in chunks.

Shapes: M targets, B rows decoding, H hidden, V vocabulary, Q rows of a chunk, K blocks of J tokens.
Engine and learner compute the log-probability of a token from the same statistics of the same
logits, so they agree bit for bit; on a CPU, where the learner uses lm_head.c, they agree up to
rounding.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from whet.kernels import HAS_TRITON, TRITON_DEVICES
from whet.kernels.layer_ops import addresses, c_kernels

if HAS_TRITON:
    from whet.kernels import triton_lm_head

CPU_ELEMENTS = 2**25
GPU_ELEMENTS = 2**29
"""Logits per chunk: 128 MiB on a CPU, 2 GiB on a GPU (3,500 tokens of 152,000)."""
ALIGNED = 8
"""On a GPU, the vocabulary is padded to a multiple of this."""
_BLOCK = 64
"""Vocabulary entries that are summed together to draw a token."""


def head_logits(hidden_MH: Tensor, weight_VH: Tensor) -> Tensor:
    """Multiply by the head; 16-bit products on a GPU return their float32 sums unrounded."""
    if hidden_MH.is_cuda and hidden_MH.element_size() == 2:
        logits_MV = torch.mm(hidden_MH, pad_vocab(weight_VH).t(), out_dtype=torch.float32)
        return logits_MV[:, : len(weight_VH)].contiguous()
    logits_MV = F.linear(hidden_MH, weight_VH)
    return logits_MV if logits_MV.element_size() >= 4 else logits_MV.float()


def pad_vocab(weight_VH: Tensor) -> Tensor:
    """Pad an odd vocabulary with zeros, so that rows of logits start at aligned addresses.

    Otherwise cuBLAS chooses a kernel, and so the order of sums, by batch size.
    """
    missing = -len(weight_VH) % ALIGNED
    return F.pad(weight_VH, (0, 0, 0, missing)) if missing else weight_VH


def token_logprobs(
    hidden_MH: Tensor,
    weight_VH: Tensor,
    label_M: Tensor,
    temperature_M: Tensor,
    *,
    entropy: bool,
    chunk_elements: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute log-probabilities of labels at a temperature, and entropies, 0 unless requested.

    Both have gradients; detach inputs that should have none. The backward pass recomputes chunks
    of logits, unless all fit in one chunk of the C kernel, which keeps them. A temperature of 0
    counts as 1, as in `sample_rows`.
    """
    elements = chunk_elements or (GPU_ELEMENTS if hidden_MH.is_cuda else CPU_ELEMENTS)
    if not hidden_MH.is_cuda and len(hidden_MH) * len(weight_VH) <= elements:
        library = c_kernels(hidden_MH, weight_VH)
        if library is not None:
            logits_MV = head_logits(hidden_MH, weight_VH)
            return c_token_logprobs(
                library, logits_MV, label_M, _scale(temperature_M), entropy=entropy
            )
    chunks = _chunks(len(hidden_MH), elements // len(weight_VH))
    outputs: tuple[Tensor, Tensor] = _ChunkedLogprobs.apply(
        hidden_MH, weight_VH, label_M, temperature_M, chunks, entropy
    )
    return outputs


def torch_token_logprobs(
    to_logits: Callable[[Tensor], Tensor],
    hidden_MH: Tensor,
    label_M: Tensor,
    temperature_M: Tensor,
    *,
    vocab: int,
) -> tuple[Tensor, Tensor]:
    """`token_logprobs` with entropies, for any function from hidden states to float32 logits."""

    def forward_chunk(at: slice) -> tuple[Tensor, Tensor]:
        outputs: tuple[Tensor, Tensor] = _LogitLogprobs.apply(
            to_logits(hidden_MH[at]), label_M[at], temperature_M[at]
        )
        return outputs

    elements = GPU_ELEMENTS if hidden_MH.is_cuda else CPU_ELEMENTS
    chunks = [
        checkpoint(forward_chunk, at, use_reentrant=False, preserve_rng_state=False)
        for at in _chunks(len(hidden_MH), elements // vocab)
    ]
    logprob_M, entropy_M = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    return logprob_M, entropy_M


def _chunks(rows: int, most: int) -> list[slice]:
    """Split rows into chunks of at most `most`, if possible in whole matmul tiles of 128."""
    size = max(1, most - most % 128 if most > 128 else most)
    return [slice(start, start + size) for start in range(0, max(rows, 1), size)]


@torch.no_grad()
def sample_rows(
    logits_BV: Tensor, uniform_B: Tensor, temperature_B: Tensor
) -> tuple[Tensor, Tensor]:
    """Sample one token per row from a uniform number in [0, 1), with its log-probability.

    The row's cumulative distribution is inverted. At temperature 0 the most likely token is taken,
    with its log-probability at temperature 1.
    """
    if logits_BV.device.type in TRITON_DEVICES:
        return triton_lm_head.sample_tokens_triton(logits_BV, uniform_B, temperature_B)
    return torch_sample_rows(logits_BV, uniform_B, temperature_B)


@torch.no_grad()
def row_logprobs(logits_BV: Tensor, token_B: Tensor, temperature_B: Tensor) -> Tensor:
    """Return the log-probabilities that `sample_rows` returns for these tokens."""
    return _logit_stats(logits_BV, token_B, temperature_B, has_entropy=False)[0]


def torch_sample_rows(
    logits_BV: Tensor, uniform_B: Tensor, temperature_B: Tensor
) -> tuple[Tensor, Tensor]:
    """`sample_rows` in plain torch, on any device."""
    scaled_BV = _scale_logits(logits_BV, temperature_B)
    probs_BV = torch.softmax(scaled_BV, dim=-1)
    token_B = _draw_tokens(probs_BV, uniform_B)
    is_greedy_B = temperature_B == 0
    if logits_BV.is_cuda or bool(is_greedy_B.any()):
        token_B = torch.where(is_greedy_B, logits_BV.argmax(-1), token_B)
    return token_B, scaled_BV.gather(1, token_B[:, None])[:, 0] - _lse(scaled_BV, probs_BV)


def _draw_tokens(probs_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """Find the block of each row's token, then the token within it."""
    rows, vocab = probs_BV.shape
    padded_BV = F.pad(probs_BV, (0, -vocab % _BLOCK)) if vocab % _BLOCK else probs_BV
    blocks_BKJ = padded_BV.view(rows, -1, _BLOCK)
    sums_BK = blocks_BKJ.sum(-1).cumsum(-1, dtype=torch.float64)
    target_B = uniform_B * sums_BK[:, -1]
    block_B1 = _first_above(sums_BK, target_B)[:, None]
    inside_BJ = blocks_BKJ.gather(1, block_B1[:, :, None].expand(-1, -1, _BLOCK))[:, 0]
    before_B = F.pad(sums_BK, (1, 0)).gather(1, block_B1)[:, 0]
    offset_B = _first_above(inside_BJ.cumsum(-1, dtype=torch.float64), target_B - before_B)
    return (block_B1[:, 0] * _BLOCK + offset_B).clamp(max=vocab - 1)


def _first_above(sums_BK: Tensor, target_B: Tensor) -> Tensor:
    """Find the first sum above each target, or the last sum if rounding leaves none."""
    within_B = target_B.minimum(sums_BK[:, -1] * (1 - 2**-52))
    return torch.searchsorted(sums_BK, within_B[:, None], right=True)[:, 0].clamp(
        max=sums_BK.shape[1] - 1
    )


def torch_logit_stats(
    logits_QV: Tensor, label_Q: Tensor, temperature_Q: Tensor, *, has_entropy: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return each label's log-probability, the entropy (or 0), and the log-sum-exp."""
    scaled_QV = _scale_logits(logits_QV, temperature_Q)
    probs_QV = torch.softmax(scaled_QV, dim=-1)
    lse_Q = _lse(scaled_QV, probs_QV)
    logprob_Q = scaled_QV.gather(1, label_Q[:, None])[:, 0] - lse_Q
    if not has_entropy:
        return logprob_Q, torch.zeros_like(logprob_Q), lse_Q
    # Relative to the row's maximum: a difference of large numbers would lose the entropy.
    below_QV = scaled_QV - scaled_QV.amax(-1, keepdim=True)
    mean_Q = torch.bmm(probs_QV[:, None], below_QV[:, :, None])[:, 0, 0]
    return logprob_Q, -probs_QV.amax(-1).log() - mean_Q, lse_Q


def torch_logits_grad(
    logits_QV: Tensor,
    label_Q: Tensor,
    temperature_Q: Tensor,
    stats: tuple[Tensor, Tensor],
    d_logprob_Q: Tensor,
    d_entropy_Q: Tensor | None,
    *,
    dtype: torch.dtype,
) -> Tensor:
    """Return the gradient of the logits, given entropy and log-sum-exp. The logits are overwritten.

    With probabilities p: d logprob = onehot(label) - p, d entropy = -p (log p + entropy).
    """
    entropy_Q, lse_Q = stats
    scale_Q = _scale(temperature_Q).to(logits_QV.dtype)
    logprobs_QV = logits_QV.div_(scale_Q[:, None]).sub_(lse_Q[:, None])
    probs_QV = logprobs_QV.exp()
    if d_entropy_Q is None:
        grad_QV = probs_QV.mul_(-d_logprob_Q[:, None])
    else:
        grad_QV = probs_QV.mul_(
            -d_logprob_Q[:, None] - d_entropy_Q[:, None] * (logprobs_QV + entropy_Q[:, None])
        )
    grad_QV.scatter_add_(1, label_Q[:, None], d_logprob_Q[:, None])
    return grad_QV.div_(scale_Q[:, None]).to(dtype)


def _lse(scaled_QV: Tensor, probs_QV: Tensor) -> Tensor:
    """Compute the log-sum-exp from the most likely token, without another pass."""
    return scaled_QV.amax(-1) - probs_QV.amax(-1).log()


def _scale(temperature_Q: Tensor) -> Tensor:
    return torch.where(temperature_Q == 0, 1.0, temperature_Q)


def _scale_logits(logits_QV: Tensor, temperature_Q: Tensor) -> Tensor:
    if not logits_QV.is_cuda and bool(((temperature_Q == 1) | (temperature_Q == 0)).all()):
        return logits_QV
    return logits_QV / _scale(temperature_Q).to(logits_QV.dtype)[:, None]


def _logit_stats(
    logits_QV: Tensor, label_Q: Tensor, temperature_Q: Tensor, *, has_entropy: bool
) -> tuple[Tensor, Tensor, Tensor]:
    has_triton = logits_QV.device.type in TRITON_DEVICES
    kernel = triton_lm_head.logit_stats if has_triton else torch_logit_stats
    return kernel(logits_QV, label_Q, temperature_Q, has_entropy=has_entropy)


class _LogitLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits_QV: Tensor, label_Q: Tensor, temperature_Q: Tensor
    ) -> tuple[Tensor, Tensor]:
        logprob_Q, entropy_Q, lse_Q = _logit_stats(
            logits_QV, label_Q, temperature_Q, has_entropy=True
        )
        ctx.save_for_backward(logits_QV, label_Q, temperature_Q, entropy_Q, lse_Q)
        return logprob_Q, entropy_Q

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        logits_QV, label_Q, temperature_Q, *stats = ctx.saved_tensors
        inputs = logits_QV.clone(), label_Q, temperature_Q, stats, *grads
        return _logits_grad_kernel(logits_QV)(*inputs, dtype=logits_QV.dtype), None, None


class _ChunkedLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_MH: Tensor,
        weight_VH: Tensor,
        label_M: Tensor,
        temperature_M: Tensor,
        chunks: list[slice],
        entropy: bool,
    ) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(hidden_MH.dtype, torch.float32)
        stats_3M = torch.zeros(3, len(hidden_MH), dtype=dtype, device=hidden_MH.device)
        for at in chunks:
            logits_QV = head_logits(hidden_MH[at], weight_VH)
            stats = _logit_stats(logits_QV, label_M[at], temperature_M[at], has_entropy=entropy)
            del logits_QV  # before the next chunk takes its place
            for stored_M, stat_Q in zip(stats_3M, stats, strict=True):
                stored_M[at] = stat_Q
        # Outputs of a function with gradient must be new tensors, not views.
        logprob_M, entropy_M, lse_M = (x.clone() for x in stats_3M)
        ctx.save_for_backward(hidden_MH, weight_VH, label_M, temperature_M, entropy_M, lse_M)
        ctx.chunks = chunks
        ctx.has_entropy = entropy
        ctx.set_materialize_grads(False)
        return logprob_M, entropy_M

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden_MH, weight_VH, *_ = ctx.saved_tensors
        d_logprob_M = grads[0]
        d_entropy_M = grads[1] if ctx.has_entropy else None
        if d_logprob_M is None:
            d_logprob_M = torch.zeros_like(ctx.saved_tensors[-1])
        d_hidden_MH = torch.empty_like(hidden_MH) if ctx.needs_input_grad[0] else None
        dtype = torch.promote_types(weight_VH.dtype, torch.float32)
        d_weight_VH = torch.zeros_like(weight_VH, dtype=dtype) if ctx.needs_input_grad[1] else None
        for at in ctx.chunks:
            grad_QV = _logits_grad(ctx.saved_tensors, at, d_logprob_M, d_entropy_M)
            if d_hidden_MH is not None:
                torch.mm(grad_QV, weight_VH, out=d_hidden_MH[at])
            if d_weight_VH is not None:
                _add_product(d_weight_VH, grad_QV.t(), hidden_MH[at])
            del grad_QV  # before the next chunk takes its place
        d_weight_VH = None if d_weight_VH is None else d_weight_VH.to(weight_VH.dtype)
        return d_hidden_MH, d_weight_VH, None, None, None, None


def _logits_grad(
    saved: tuple[Tensor, ...], at: slice, d_logprob_M: Tensor, d_entropy_M: Tensor | None
) -> Tensor:
    """Recompute a chunk's logits, and return their gradient in the dtype of the hidden states."""
    hidden_MH, weight_VH, label_M, temperature_M, entropy_M, lse_M = saved
    logits_QV = head_logits(hidden_MH[at], weight_VH)
    d_entropy_Q = None if d_entropy_M is None else d_entropy_M[at]
    stats = entropy_M[at], lse_M[at]
    inputs = logits_QV, label_M[at], temperature_M[at], stats, d_logprob_M[at], d_entropy_Q
    return _logits_grad_kernel(logits_QV)(*inputs, dtype=hidden_MH.dtype)


def _logits_grad_kernel(logits_QV: Tensor) -> Callable[..., Tensor]:
    has_triton = logits_QV.device.type in TRITON_DEVICES
    return triton_lm_head.logits_grad if has_triton else torch_logits_grad


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add left @ right to a total of higher precision without rounding the product."""
    if left.is_cuda and total.dtype != left.dtype:
        torch.addmm(total, left, right, out_dtype=total.dtype, out=total)
    else:
        total.addmm_(left.to(total.dtype), right.to(total.dtype))


def c_token_logprobs(
    library: ctypes.CDLL, logits_MV: Tensor, label_M: Tensor, scale_M: Tensor, *, entropy: bool
) -> tuple[Tensor, Tensor]:
    """Compute log-probabilities of labels at a scale, and entropies, 0 unless requested.

    Both have gradients. The backward pass reads the logits, so they must not be overwritten.
    """
    assert logits_MV.dtype == torch.float32 and logits_MV.device.type == "cpu", (
        "the C kernel takes float32 logits on a CPU"
    )
    assert label_M.shape == scale_M.shape == logits_MV.shape[:1], "one label and one scale per row"
    inputs = logits_MV.contiguous(), label_M.to(torch.int64).contiguous(), _to_float32(scale_M)
    outputs: tuple[Tensor, Tensor] = _CTokenLogprobs.apply(library, *inputs, entropy)
    return outputs


class _CTokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        library: ctypes.CDLL,
        logits_MV: Tensor,
        label_M: Tensor,
        scale_M: Tensor,
        entropy: bool,
    ) -> tuple[Tensor, Tensor]:
        rows, vocab = logits_MV.shape
        logprob_M, entropy_M, stats_M3 = (
            logits_MV.new_empty(shape) for shape in ((rows,), (rows,), (rows, 3))
        )
        inputs = logits_MV.data_ptr(), rows, vocab, *addresses(label_M, scale_M), entropy
        results = addresses(logprob_M, entropy_M, stats_M3)
        if library.lm_head_stats(*inputs, *results, torch.get_num_threads()):
            raise IndexError(f"a label is outside of a vocabulary of {vocab} tokens")
        ctx.save_for_backward(logits_MV, label_M, scale_M, stats_M3, logprob_M)
        ctx.library = library
        ctx.has_entropy = entropy
        ctx.set_materialize_grads(False)
        return logprob_M, entropy_M

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, d_logprob_M: Tensor | None, d_entropy_M: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        logits_MV, *saved = ctx.saved_tensors
        if not ctx.has_entropy:
            d_entropy_M = None
        grads = [None if grad is None else _to_float32(grad) for grad in (d_logprob_M, d_entropy_M)]
        # A second backward pass may need the logits, so the gradient does not overwrite them.
        grad_MV = torch.empty_like(logits_MV)
        pointers = addresses(*saved, *grads, grad_MV)
        ctx.library.lm_head_grad(
            logits_MV.data_ptr(), *logits_MV.shape, *pointers, torch.get_num_threads()
        )
        return None, grad_MV, None, None, None


def _to_float32(x: Tensor) -> Tensor:
    return x.to(torch.float32).contiguous()
