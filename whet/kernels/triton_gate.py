# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
"""The kernels of gate.py: a program a row and 2,048 columns.

Shapes: T tokens, I inner.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048


def forward(gate_up_TI: Tensor) -> Tensor:
    rows = gate_up_TI.shape[0]
    inner = gate_up_TI.shape[1] // 2
    out_TI = torch.empty(rows, inner, dtype=gate_up_TI.dtype, device=gate_up_TI.device)
    if rows:
        _forward[(rows, triton.cdiv(inner, BLOCK))](gate_up_TI.contiguous(), out_TI, inner, BLOCK)
    return out_TI


def backward(d_out_TI: Tensor, gate_up_TI: Tensor) -> Tensor:
    rows, inner = d_out_TI.shape
    gate_up_TI = gate_up_TI.contiguous()
    d_gate_up_TI = torch.empty_like(gate_up_TI)
    if rows:
        _backward[(rows, triton.cdiv(inner, BLOCK))](
            d_out_TI.contiguous(), gate_up_TI, d_gate_up_TI, inner, BLOCK
        )
    return d_gate_up_TI


@triton.jit
def _forward(gate_up, out, inner, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_real = column < inner
    cell = row * 2 * inner + column
    gate = tl.load(gate_up + cell, mask=is_real, other=0.0).to(tl.float32)
    up = tl.load(gate_up + cell + inner, mask=is_real, other=0.0).to(tl.float32)
    tl.store(
        out + row * inner + column,
        (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty),
        mask=is_real,
    )


@triton.jit
def _backward(d_out, gate_up, d_gate_up, inner, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_real = column < inner
    cell = row * 2 * inner + column
    gate = tl.load(gate_up + cell, mask=is_real, other=0.0).to(tl.float32)
    up = tl.load(gate_up + cell + inner, mask=is_real, other=0.0).to(tl.float32)
    slope = tl.load(d_out + row * inner + column, mask=is_real, other=0.0).to(tl.float32)
    open_by = tl.sigmoid(gate)
    silu = gate * open_by
    d_gate = slope * up * (open_by + silu * (1.0 - open_by))
    tl.store(d_gate_up + cell, d_gate.to(d_gate_up.dtype.element_ty), mask=is_real)
    tl.store(d_gate_up + cell + inner, (slope * silu).to(d_gate_up.dtype.element_ty), mask=is_real)
