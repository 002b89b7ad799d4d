# mypy: allow-untyped-calls
"""The gated feed-forward's middle: silu(gate) * up, computed in float32 and rounded once.

Shapes: T tokens, I inner. Gate and up lie side by side in one row of 2 I.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from whet.kernels.switch import HAS_TRITON, c_kernels, needs_grad, uses_triton

if HAS_TRITON:
    from whet.kernels import triton_gate


def swiglu(gate_up_TI: Tensor) -> Tensor:
    """Halve the rows: silu of the first half times the second."""
    if not uses_triton(gate_up_TI):
        library = c_kernels(*gate_up_TI.chunk(2, dim=-1))
        if library is None:
            return plain_swiglu(gate_up_TI)
        gated_TI: Tensor = _CompiledSwiGLU.apply(library, gate_up_TI)
        return gated_TI
    if not needs_grad(gate_up_TI):
        return triton_gate.forward(gate_up_TI)
    out_TI: Tensor = _SwiGLU.apply(gate_up_TI)
    return out_TI


def plain_swiglu(gate_up_TI: Tensor) -> Tensor:
    """Do the same in plain torch, on any device."""
    gate_TI, up_TI = gate_up_TI.chunk(2, dim=-1)
    if gate_up_TI.element_size() >= 4:
        return F.silu(gate_TI) * up_TI
    return (F.silu(gate_TI.float()) * up_TI.float()).to(gate_up_TI.dtype)


class _CompiledSwiGLU(torch.autograd.Function):
    """The kernels in C; the same way forward with and without gradients."""

    @staticmethod
    def forward(ctx: Any, library: ctypes.CDLL, gate_up_TI: Tensor) -> Tensor:
        gate_up_TI = gate_up_TI.contiguous()
        inner = gate_up_TI.shape[-1] // 2
        out_TI = gate_up_TI.new_empty((*gate_up_TI.shape[:-1], inner))
        rows = out_TI.numel() // inner
        threads = torch.get_num_threads()
        library.rows_swiglu(rows, inner, gate_up_TI.data_ptr(), out_TI.data_ptr(), threads)
        ctx.library = library
        ctx.save_for_backward(gate_up_TI)
        return out_TI

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        (gate_up_TI,) = ctx.saved_tensors
        d_out_TI = grads[0].contiguous()
        d_gate_up_TI = torch.empty_like(gate_up_TI)
        inner = d_out_TI.shape[-1]
        addresses = (x.data_ptr() for x in (gate_up_TI, d_out_TI, d_gate_up_TI))
        ctx.library.rows_swiglu_back(
            d_out_TI.numel() // inner, inner, *addresses, torch.get_num_threads()
        )
        return None, d_gate_up_TI


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_up_TI: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up_TI)
        return triton_gate.forward(gate_up_TI)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return triton_gate.backward(grads[0], *ctx.saved_tensors)
