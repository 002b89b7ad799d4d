# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
"""The kernels of norm.py: a program a row forward, a program a set of rows backward.

Shapes: T tokens, H hidden, P programs.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS_EACH, MOST_PROGRAMS = 4, 1024
"""Rows per program of a backward pass, each of which leaves one partial weight gradient."""


def forward(
    x_TH: Tensor, residual_TH: Tensor | None, weight_H: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    rows, width = x_TH.shape
    x_TH = x_TH.contiguous()
    normed_TH = torch.empty_like(x_TH)
    sum_TH = x_TH if residual_TH is None else torch.empty_like(x_TH)
    if rows:
        residual = x_TH if residual_TH is None else residual_TH.contiguous()
        _forward[(rows,)](
            x_TH,
            residual,
            weight_H,
            normed_TH,
            sum_TH,
            width,
            eps,
            residual_TH is not None,
            **_sizes(width),
        )
    return normed_TH, sum_TH


def backward(
    d_normed_TH: Tensor, d_sum_TH: Tensor | None, sum_TH: Tensor, weight_H: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    rows, width = sum_TH.shape
    d_normed_TH = d_normed_TH.contiguous()
    d_x_TH = torch.empty_like(sum_TH)
    programs = max(1, min(triton.cdiv(rows, ROWS_EACH), MOST_PROGRAMS))
    parts_PH = torch.empty(programs, width, dtype=torch.float32, device=sum_TH.device)
    passed_on = d_normed_TH if d_sum_TH is None else d_sum_TH.contiguous()
    _backward[(programs,)](
        d_normed_TH, passed_on, sum_TH, weight_H, d_x_TH, parts_PH, rows, width, eps,
        d_sum_TH is not None,
        steps=triton.cdiv(rows, programs), **_sizes(width),
    )  # fmt: skip
    return d_x_TH, parts_PH.sum(0).to(weight_H.dtype)


def _sizes(width: int) -> dict[str, int]:
    block = triton.next_power_of_2(width)
    return {"BLOCK": block, "num_warps": 4 if block <= 2048 else 8}


@triton.jit
def _forward(
    x, residual, weight, normed, total, width, eps,
    HAS_RESIDUAL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
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
def _backward(
    d_normed, d_total, total, weight, d_x, parts, rows, width, eps,
    HAS_TOTAL: tl.constexpr, steps, BLOCK: tl.constexpr,
):  # fmt: skip
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
