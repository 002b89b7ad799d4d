# mypy: allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators, allow-untyped-defs
"""The norm and the gate of rows.py: one program per row, or per set of rows of a norm backward.

Shapes: T tokens, H hidden, I inner, P programs.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS_EACH, MOST_PROGRAMS = 4, 1024
"""Rows per program of a backward pass, each of which leaves one partial weight gradient."""


def norm_forward(
    x_TH: Tensor, residual_TH: Tensor | None, weight_H: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    rows, width = x_TH.shape
    x_TH = x_TH.contiguous()
    normed_TH = torch.empty_like(x_TH)
    sum_TH = x_TH if residual_TH is None else torch.empty_like(x_TH)
    if rows:
        residual = x_TH if residual_TH is None else residual_TH.contiguous()
        _norm_forward[(rows,)](
            x_TH,
            residual,
            weight_H,
            normed_TH,
            sum_TH,
            width,
            eps,
            residual_TH is not None,
            **_norm_sizes(width),
        )
    return normed_TH, sum_TH


def norm_backward(
    d_normed_TH: Tensor, d_sum_TH: Tensor | None, sum_TH: Tensor, weight_H: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    rows, width = sum_TH.shape
    d_normed_TH = d_normed_TH.contiguous()
    d_x_TH = torch.empty_like(sum_TH)
    programs = max(1, min(triton.cdiv(rows, ROWS_EACH), MOST_PROGRAMS))
    parts_PH = torch.empty(programs, width, dtype=torch.float32, device=sum_TH.device)
    passed_on = d_normed_TH if d_sum_TH is None else d_sum_TH.contiguous()
    _norm_backward[(programs,)](
        d_normed_TH,
        passed_on,
        sum_TH,
        weight_H,
        d_x_TH,
        parts_PH,
        rows,
        width,
        eps,
        d_sum_TH is not None,
        steps=triton.cdiv(rows, programs),
        **_norm_sizes(width),
    )
    return d_x_TH, parts_PH.sum(0).to(weight_H.dtype)


def _norm_sizes(width: int) -> dict[str, int]:
    block = triton.next_power_of_2(width)
    return {"BLOCK": block, "num_warps": 4 if block <= 2048 else 8}


@triton.jit
def _norm_forward(
    x,
    residual,
    weight,
    normed,
    total,
    width,
    eps,
    HAS_RESIDUAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    column = tl.arange(0, BLOCK)
    is_real = column < width
    cell = tl.program_id(0).to(tl.int64) * width + column
    value = tl.load(x + cell, mask=is_real, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        value += tl.load(residual + cell, mask=is_real, other=0.0).to(tl.float32)
        rounded = value.to(total.dtype.element_ty)
        tl.store(total + cell, rounded, mask=is_real)
        value = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / width + eps)
    factor = tl.load(weight + column, mask=is_real, other=0.0).to(tl.float32)
    tl.store(normed + cell, (value * scale * factor).to(normed.dtype.element_ty), mask=is_real)


@triton.jit(do_not_specialize=["rows", "steps"])
def _norm_backward(
    d_normed,
    d_total,
    total,
    weight,
    d_x,
    parts,
    rows,
    width,
    eps,
    HAS_TOTAL: tl.constexpr,
    steps,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    is_real = column < width
    factor = tl.load(weight + column, mask=is_real, other=0.0).to(tl.float32)
    part = tl.zeros([BLOCK], tl.float32)
    for step in range(0, steps):
        row = program + step * tl.num_programs(0)
        cell = row * width + column
        is_here = is_real & (row < rows)
        value = tl.load(total + cell, mask=is_here, other=0.0).to(tl.float32)
        slope = tl.load(d_normed + cell, mask=is_here, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(value * value, 0) / width + eps)
        unit = value * scale
        part += slope * unit
        slope *= factor
        change = scale * (slope - unit * (tl.sum(slope * unit, 0) / width))
        if HAS_TOTAL:
            change += tl.load(d_total + cell, mask=is_here, other=0.0).to(tl.float32)
        tl.store(d_x + cell, change.to(d_x.dtype.element_ty), mask=is_here)
    tl.store(parts + program * width + column, part, mask=is_real)


SWIGLU_BLOCK = 2048


def swiglu_forward(gate_up_TI: Tensor) -> Tensor:
    rows = gate_up_TI.shape[0]
    inner = gate_up_TI.shape[1] // 2
    out_TI = torch.empty(rows, inner, dtype=gate_up_TI.dtype, device=gate_up_TI.device)
    if rows:
        _swiglu_forward[(rows, triton.cdiv(inner, SWIGLU_BLOCK))](
            gate_up_TI.contiguous(), out_TI, inner, SWIGLU_BLOCK
        )
    return out_TI


def swiglu_backward(d_out_TI: Tensor, gate_up_TI: Tensor) -> Tensor:
    rows, inner = d_out_TI.shape
    gate_up_TI = gate_up_TI.contiguous()
    d_gate_up_TI = torch.empty_like(gate_up_TI)
    if rows:
        _swiglu_backward[(rows, triton.cdiv(inner, SWIGLU_BLOCK))](
            d_out_TI.contiguous(), gate_up_TI, d_gate_up_TI, inner, SWIGLU_BLOCK
        )
    return d_gate_up_TI


@triton.jit
def _swiglu_forward(gate_up, out, inner, BLOCK: tl.constexpr):
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
def _swiglu_backward(d_out, gate_up, d_gate_up, inner, BLOCK: tl.constexpr):
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
