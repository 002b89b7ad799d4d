# mypy: allow-untyped-calls
"""The sum of the residual stream and its root-mean-square norm, in one pass over memory.

Shapes: T tokens, H hidden. The sum is rounded to the dtype of its parts, the norm is computed in
float32 from the rounded sum and rounded once.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from whet.kernels.switch import HAS_TRITON, address, c_kernels, needs_grad, uses_triton

if HAS_TRITON:
    from whet.kernels import triton_norm


def add_norm(
    x_TH: Tensor, residual_TH: Tensor | None, weight_H: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Return the norm of x + residual, and that sum. Without a residual the sum is x itself."""
    if not uses_triton(x_TH):
        library = c_kernels(x_TH, residual_TH, weight_H)
        if library is None:
            return plain_add_norm(x_TH, residual_TH, weight_H, eps)
        normed_TH, sum_TH = _CompiledAddNorm.apply(library, x_TH, residual_TH, weight_H, eps)
        return normed_TH, x_TH if residual_TH is None else sum_TH
    if not needs_grad(x_TH, residual_TH, weight_H):
        return triton_norm.forward(x_TH, residual_TH, weight_H, eps)
    if residual_TH is None:
        normed_TH = _Norm.apply(x_TH, weight_H, eps)
        return normed_TH, x_TH
    both: tuple[Tensor, Tensor] = _AddNorm.apply(x_TH, residual_TH, weight_H, eps)
    return both


def plain_add_norm(
    x_TH: Tensor, residual_TH: Tensor | None, weight_H: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Do the same in plain torch, on any device."""
    sum_TH = x_TH if residual_TH is None else x_TH + residual_TH
    return F.rms_norm(sum_TH, weight_H.shape, weight_H, eps), sum_TH


class _CompiledAddNorm(torch.autograd.Function):
    """The kernels in C; the same way forward with and without gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        library: ctypes.CDLL,
        x_TH: Tensor,
        residual_TH: Tensor | None,
        weight_H: Tensor,
        eps: float,
    ) -> tuple[Tensor, Tensor]:
        assert weight_H.shape == x_TH.shape[-1:], "the weight has a number for each of a row"
        assert residual_TH is None or residual_TH.shape == x_TH.shape, (
            "what is added has the shape of the stream"
        )
        x_TH = x_TH.contiguous()
        weight_H = weight_H.contiguous()
        residual_TH = None if residual_TH is None else residual_TH.contiguous()
        normed_TH = torch.empty_like(x_TH)
        width = x_TH.shape[-1]
        # Where nothing is added the caller has the sum already, and an output must not be an input.
        sum_TH = x_TH.new_empty(0) if residual_TH is None else torch.empty_like(x_TH)
        given = x_TH.data_ptr(), address(residual_TH), weight_H.data_ptr()
        results = normed_TH.data_ptr(), sum_TH.data_ptr()
        library.rows_add_norm(
            x_TH.numel() // width, width, *given, eps, *results, torch.get_num_threads()
        )
        ctx.library = library
        ctx.eps = eps
        ctx.has_residual = residual_TH is not None
        ctx.save_for_backward(x_TH if residual_TH is None else sum_TH, weight_H)
        ctx.set_materialize_grads(False)
        return normed_TH, sum_TH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        d_normed_TH, d_sum_TH = (None if d is None else d.contiguous() for d in grads)
        if d_normed_TH is None:
            return None, d_sum_TH, d_sum_TH, None, None
        sum_TH, weight_H = ctx.saved_tensors
        rows = d_normed_TH.numel() // len(weight_H)
        width = len(weight_H)
        d_x_TH = torch.empty_like(d_normed_TH)
        d_weight_H = torch.empty_like(weight_H) if ctx.needs_input_grad[3] else None
        parts = weight_H.new_empty(ctx.library.rows_blocks(rows), width)
        slopes = (address(x) for x in (d_normed_TH, d_sum_TH, d_x_TH, d_weight_H, parts))
        given = sum_TH.data_ptr(), weight_H.data_ptr(), ctx.eps
        ctx.library.rows_add_norm_back(rows, width, *given, *slopes, torch.get_num_threads())
        return None, d_x_TH, d_x_TH if ctx.has_residual else None, d_weight_H, None


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
    def forward(
        ctx: Any, x_TH: Tensor, residual_TH: Tensor, weight_H: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        normed_TH, sum_TH = triton_norm.forward(x_TH, residual_TH, weight_H, eps)
        ctx.save_for_backward(sum_TH, weight_H)
        ctx.eps = eps
        ctx.set_materialize_grads(False)
        return normed_TH, sum_TH

    @staticmethod
    def backward(
        ctx: Any, *grads: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        d_normed_TH, d_sum_TH = grads
        if d_normed_TH is None:
            return d_sum_TH, d_sum_TH, None, None
        sum_TH, weight_H = ctx.saved_tensors
        d_x_TH, d_weight_H = triton_norm.backward(d_normed_TH, d_sum_TH, sum_TH, weight_H, ctx.eps)
        return d_x_TH, d_x_TH, d_weight_H, None
