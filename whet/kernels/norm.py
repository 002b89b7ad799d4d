"""The sum of the residual stream and its root-mean-square norm, in one pass over memory.

Shapes: T tokens, H hidden. The sum is rounded to the dtype of its parts, the norm is computed in float32 from the
rounded sum and rounded once.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from whet.kernels.switch import HAS_TRITON, needs_grad, usable

if HAS_TRITON:
    from whet.kernels import triton_norm


def add_norm(x_TH: Tensor, residual_TH: Tensor | None, weight_H: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the norm of x + residual, and that sum. Without a residual the sum is x itself."""
    if not usable(x_TH):
        return plain_add_norm(x_TH, residual_TH, weight_H, eps)
    if not needs_grad(x_TH, residual_TH, weight_H):
        return triton_norm.forward(x_TH, residual_TH, weight_H, eps)
    if residual_TH is None:
        normed_TH: Tensor = _Norm.apply(x_TH, weight_H, eps)  # type: ignore[no-untyped-call]
        return normed_TH, x_TH
    both: tuple[Tensor, Tensor] = _AddNorm.apply(x_TH, residual_TH, weight_H, eps)  # type: ignore[no-untyped-call]
    return both


def plain_add_norm(x_TH: Tensor, residual_TH: Tensor | None, weight_H: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Do the same in plain torch, on any device."""
    sum_TH = x_TH if residual_TH is None else x_TH + residual_TH
    return F.rms_norm(sum_TH, weight_H.shape, weight_H, eps), sum_TH


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_TH: Tensor, weight_H: Tensor, eps: float) -> Tensor:
        ctx.save_for_backward(x_TH, weight_H)
        ctx.eps = eps
        return triton_norm.forward(x_TH, None, weight_H, eps)[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        x_TH, weight_H = ctx.saved_tensors
        d_x_TH, d_weight_H = triton_norm.backward(grads[0], None, x_TH, weight_H, ctx.eps)
        return d_x_TH, d_weight_H, None


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_TH: Tensor, residual_TH: Tensor, weight_H: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        normed_TH, sum_TH = triton_norm.forward(x_TH, residual_TH, weight_H, eps)
        ctx.save_for_backward(sum_TH, weight_H)
        ctx.eps = eps
        ctx.set_materialize_grads(False)
        return normed_TH, sum_TH

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        d_normed_TH, d_sum_TH = grads
        if d_normed_TH is None:
            return d_sum_TH, d_sum_TH, None, None
        sum_TH, weight_H = ctx.saved_tensors
        d_x_TH, d_weight_H = triton_norm.backward(d_normed_TH, d_sum_TH, sum_TH, weight_H, ctx.eps)
        return d_x_TH, d_x_TH, d_weight_H, None
