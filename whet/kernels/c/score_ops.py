# mypy: allow-untyped-calls
"""Log-probabilities and entropies of float32 logits on a CPU, by scores.c.

Shapes: M targets, V vocabulary. The twin in plain torch is in `whet/kernels/head.py`, which says
when which one runs.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from whet.kernels.switch import address


def scores(
    library: ctypes.CDLL, logits_MV: Tensor, label_M: Tensor, scale_M: Tensor, *, entropy: bool
) -> tuple[Tensor, Tensor]:
    """Score each label under softmax(logits / scale); the entropy too if wanted, else 0.

    Both have gradients, for which the logits are kept as they are: nobody may change them.
    """
    assert logits_MV.dtype == torch.float32 and logits_MV.device.type == "cpu", (
        "the kernel takes no other logits"
    )
    assert label_M.shape == scale_M.shape == logits_MV.shape[:1], "a label and a scale a row"
    given = logits_MV.contiguous(), label_M.to(torch.int64).contiguous(), _floats(scale_M)
    both: tuple[Tensor, Tensor] = _Scores.apply(library, *given, entropy)
    return both


class _Scores(torch.autograd.Function):
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
        logprob_M, entropy_M, kept_M3 = (
            logits_MV.new_empty(shape) for shape in ((rows,), (rows,), (rows, 3))
        )
        given = logits_MV.data_ptr(), rows, vocab, label_M.data_ptr(), scale_M.data_ptr(), entropy
        results = (x.data_ptr() for x in (logprob_M, entropy_M, kept_M3))
        if library.scores_measure(*given, *results, torch.get_num_threads()):
            raise IndexError(f"a label is outside of a vocabulary of {vocab} tokens")
        ctx.save_for_backward(logits_MV, label_M, scale_M, kept_M3, logprob_M)
        ctx.library = library
        ctx.has_entropy = entropy
        ctx.set_materialize_grads(False)
        return logprob_M, entropy_M

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, d_logprob_M: Tensor | None, d_entropy_M: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        logits_MV, *rest = ctx.saved_tensors
        if not ctx.has_entropy:
            d_entropy_M = None
        grads = (None if grad is None else _floats(grad) for grad in (d_logprob_M, d_entropy_M))
        # What is kept serves a second way back too, so the gradient gets memory of its own.
        slope_MV = torch.empty_like(logits_MV)
        tensors = *rest, *grads, slope_MV
        addresses = (address(x) for x in tensors)
        ctx.library.scores_slope(
            logits_MV.data_ptr(), *logits_MV.shape, *addresses, torch.get_num_threads()
        )
        return None, slope_MV, None, None, None


def _floats(x: Tensor) -> Tensor:
    return x.to(torch.float32).contiguous()
