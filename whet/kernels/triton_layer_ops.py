# mypy: allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators, allow-untyped-defs
"""The Triton kernels of layer_ops.py: one program per row or set of rows.

Shapes: as in layer_ops.py, and K programs. One kernel applies rope for packed tensors and for cache
pages; products and sums are rounded one by one, as written (enable_fp_fusion is off), so both agree
bit for bit.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from whet.kernels import AttentionSpec

ROWS_PER_PROGRAM, MAX_PROGRAMS = 4, 1024
"""Rows per program and most programs of a backward pass; each writes a partial weight gradient."""


def norm_forward(
    x_TH: Tensor, residual_TH: Tensor | None, weight_H: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    rows, width = x_TH.shape
    x_TH = x_TH.contiguous()
    normed_TH = torch.empty_like(x_TH)
    sum_TH = x_TH if residual_TH is None else torch.empty_like(x_TH)
    if rows:
        residual = x_TH if residual_TH is None else residual_TH.contiguous()
        tensors = x_TH, residual, weight_H, normed_TH, sum_TH
        has_residual = residual_TH is not None
        _norm_forward[(rows,)](*tensors, width, eps, has_residual, **_norm_sizes(width))
    return normed_TH, sum_TH


def norm_backward(
    d_normed_TH: Tensor,
    d_sum_TH: Tensor | None,
    sum_TH: Tensor,
    weight_H: Tensor,
    eps: float,
    has_weight: bool,
) -> tuple[Tensor, Tensor | None]:
    rows, width = sum_TH.shape
    d_normed_TH = d_normed_TH.contiguous()
    d_x_TH = torch.empty_like(sum_TH)
    programs = max(1, min(triton.cdiv(rows, ROWS_PER_PROGRAM), MAX_PROGRAMS))
    partials_KH = torch.empty(programs, width, dtype=torch.float32, device=sum_TH.device)
    d_residual = d_normed_TH if d_sum_TH is None else d_sum_TH.contiguous()
    tensors = d_normed_TH, d_residual, sum_TH, weight_H, d_x_TH, partials_KH
    numbers = rows, width, eps, d_sum_TH is not None, triton.cdiv(rows, programs)
    _norm_backward[(programs,)](*tensors, *numbers, **_norm_sizes(width))
    return d_x_TH, partials_KH.sum(0).to(weight_H.dtype) if has_weight else None


def _norm_sizes(width: int) -> dict[str, int]:
    block = triton.next_power_of_2(width)
    return {"BLOCK": block, "num_warps": 4 if block <= 2048 else 8}


@triton.jit
def _norm_forward(
    x, residual, weight, normed, total, width, eps, HAS_RESIDUAL: tl.constexpr, BLOCK: tl.constexpr
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
    partials,
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
    partial_grad = tl.zeros([BLOCK], tl.float32)
    for step in range(0, steps):
        row = program + step * tl.num_programs(0)
        cell = row * width + column
        is_here = is_real & (row < rows)
        value = tl.load(total + cell, mask=is_here, other=0.0).to(tl.float32)
        grad = tl.load(d_normed + cell, mask=is_here, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(value * value, 0) / width + eps)
        unit = value * scale
        partial_grad += grad * unit
        grad *= factor
        d_value = scale * (grad - unit * (tl.sum(grad * unit, 0) / width))
        if HAS_TOTAL:
            d_value += tl.load(d_total + cell, mask=is_here, other=0.0).to(tl.float32)
        tl.store(d_x + cell, d_value.to(d_x.dtype.element_ty), mask=is_here)
    tl.store(partials + program * width + column, partial_grad, mask=is_real)


SWIGLU_BLOCK = 2048


def swiglu_forward(gate_up_TF: Tensor) -> Tensor:
    rows = gate_up_TF.shape[0]
    inner = gate_up_TF.shape[1] // 2
    out_TF = torch.empty(rows, inner, dtype=gate_up_TF.dtype, device=gate_up_TF.device)
    if rows:
        _swiglu_forward[(rows, triton.cdiv(inner, SWIGLU_BLOCK))](
            gate_up_TF.contiguous(), out_TF, inner, SWIGLU_BLOCK
        )
    return out_TF


def swiglu_backward(d_out_TF: Tensor, gate_up_TF: Tensor) -> Tensor:
    rows, inner = d_out_TF.shape
    gate_up_TF = gate_up_TF.contiguous()
    d_gate_up_TF = torch.empty_like(gate_up_TF)
    if rows:
        _swiglu_backward[(rows, triton.cdiv(inner, SWIGLU_BLOCK))](
            d_out_TF.contiguous(), gate_up_TF, d_gate_up_TF, inner, SWIGLU_BLOCK
        )
    return d_gate_up_TF


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
    grad = tl.load(d_out + row * inner + column, mask=is_real, other=0.0).to(tl.float32)
    sigmoid = tl.sigmoid(gate)
    silu = gate * sigmoid
    d_gate = grad * up * (sigmoid + silu * (1.0 - sigmoid))
    tl.store(d_gate_up + cell, d_gate.to(d_gate_up.dtype.element_ty), mask=is_real)
    tl.store(d_gate_up + cell + inner, (grad * silu).to(d_gate_up.dtype.element_ty), mask=is_real)


def rope_forward(qkv_TX: Tensor, spec: AttentionSpec) -> tuple[Tensor, Tensor, Tensor]:
    k_TGD = qkv_TX.new_empty(len(qkv_TX), spec.num_kv_heads, spec.head_dim)
    v_TGD = torch.empty_like(k_TGD)
    return _launch_rope(qkv_TX, spec, k_TGD, v_TGD, None), k_TGD, v_TGD


def rope_forward_into(
    qkv_BX: Tensor, spec: AttentionSpec, keys_pages: Tensor, values_pages: Tensor, cell_B: Tensor
) -> Tensor:
    assert keys_pages.is_contiguous() and values_pages.is_contiguous(), (
        "pages of one layer lie in one piece"
    )
    return _launch_rope(qkv_BX, spec, keys_pages, values_pages, cell_B)


def rope_backward(
    grads: tuple[Tensor, ...], qkv_TX: Tensor | None, spec: AttentionSpec, has_norms: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    rows = len(grads[0])
    size = spec.head_dim
    all_heads = spec.num_heads + 2 * spec.num_kv_heads
    d_qkv_TX = grads[0].new_empty(rows, all_heads * size)
    has_norm = spec.q_norm_D is not None
    programs = max(1, min(triton.cdiv(rows, ROWS_PER_PROGRAM), MAX_PROGRAMS) if has_norm else rows)
    partials_K2D = torch.empty(
        programs if has_norm else 1, 2, size, dtype=torch.float32, device=d_qkv_TX.device
    )
    projection = d_qkv_TX if qkv_TX is None else qkv_TX.contiguous()
    d_heads = (d.contiguous() for d in grads)
    tensors = *d_heads, *_rope_args(spec, rows), projection, d_qkv_TX, partials_K2D
    numbers = rows, spec.eps, triton.cdiv(rows, programs), has_norm
    heads = spec.num_heads, spec.num_kv_heads, size // 2, triton.next_power_of_2(all_heads)
    _rope_backward[(programs,)](*tensors, *numbers, *heads, enable_fp_fusion=False)
    if spec.q_norm_D is None or not has_norms:
        return d_qkv_TX, None, None
    d_q_norm_D, d_k_norm_D = partials_K2D.sum(0).to(spec.q_norm_D.dtype).unbind()
    return d_qkv_TX, d_q_norm_D, d_k_norm_D


def _launch_rope(
    qkv_TX: Tensor, spec: AttentionSpec, keys: Tensor, values: Tensor, cell_T: Tensor | None
) -> Tensor:
    """Write keys and values packed, or to the cache cells in `cell_T`."""
    rows = len(qkv_TX)
    size = spec.head_dim
    assert size & (size - 1) == 0, f"a head size of {size} is no power of two"
    q_TND = qkv_TX.new_empty(rows, spec.num_heads, size)
    if rows:
        block = triton.next_power_of_2(spec.num_heads + 2 * spec.num_kv_heads)
        page = 0 if cell_T is None else keys.shape[2]
        turns = _rope_args(spec, rows)
        cells = turns[1] if cell_T is None else cell_T
        tensors = qkv_TX.contiguous(), *turns, q_TND, keys, values, cells
        sizes = spec.q_norm_D is not None, page, spec.num_heads, spec.num_kv_heads, size // 2, block
        _rope_forward[(rows,)](*tensors, spec.eps, *sizes, enable_fp_fusion=False)
    return q_TND


def _rope_args(spec: AttentionSpec, rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return table, positions and norms; the table stands in for absent norms, as None cannot."""
    rope_CD = spec.rope_CD
    positions_T = spec.positions_T
    if positions_T is None:
        positions_T = torch.arange(rows, device=rope_CD.device)
    if spec.q_norm_D is None or spec.k_norm_D is None:
        return rope_CD, positions_T, rope_CD, rope_CD
    return rope_CD, positions_T, spec.q_norm_D, spec.k_norm_D


@triton.jit
def _normalize(first, second, eps, HALF: tl.constexpr):
    """Scale each head, given as its two halves, to a mean square of one."""
    square = tl.sum(first * first, 1) + tl.sum(second * second, 1)
    scale = tl.rsqrt(square / (2 * HALF) + eps)[:, None]
    return first * scale, second * scale, scale


@triton.jit
def _norm_weights(q_norm, k_norm, head, half, HEADS: tl.constexpr):
    """Load the norm weights of each head, for one half of its columns."""
    q_factor = tl.load(q_norm + half).to(tl.float32)[None, :]
    k_factor = tl.load(k_norm + half).to(tl.float32)[None, :]
    return tl.where(head[:, None] < HEADS, q_factor, k_factor)


@triton.jit
def _store(pointer, mask, first, second, HALF: tl.constexpr):
    tl.store(pointer, first.to(pointer.dtype.element_ty), mask=mask)
    tl.store(pointer + HALF, second.to(pointer.dtype.element_ty), mask=mask)


@triton.jit
def _rope_forward(
    qkv, rope, positions, q_norm, k_norm, queries, keys, values, cells, eps,
    HAS_NORM: tl.constexpr, PAGE: tl.constexpr, HEADS: tl.constexpr, GROUPS: tl.constexpr,
    HALF: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, BLOCK)
    half = tl.arange(0, HALF)
    size = 2 * HALF
    ROTATED: tl.constexpr = HEADS + GROUPS
    ALL: tl.constexpr = HEADS + 2 * GROUPS
    offset = head[:, None] * size + half[None, :]
    is_real = (head < ALL)[:, None]
    source = qkv + token * ALL * size + offset
    first = tl.load(source, mask=is_real, other=0.0)
    second = tl.load(source + HALF, mask=is_real, other=0.0)
    x = first.to(tl.float32)
    y = second.to(tl.float32)
    if HAS_NORM:
        x, y, _ = _normalize(x, y, eps, HALF)
        x = (x * _norm_weights(q_norm, k_norm, head, half, HEADS)).to(first.dtype).to(tl.float32)
        y = (
            (y * _norm_weights(q_norm + HALF, k_norm + HALF, head, half, HEADS))
            .to(first.dtype)
            .to(tl.float32)
        )
    angle = rope + tl.load(positions + token) * size + half
    cos = tl.load(angle)[None, :]
    sin = tl.load(angle + HALF)[None, :]
    turns = (head < ROTATED)[:, None]
    out_x = tl.where(turns, x * cos - y * sin, first.to(tl.float32))
    out_y = tl.where(turns, y * cos + x * sin, second.to(tl.float32))

    if PAGE == 0:
        base = token * GROUPS * size
        stride = size
        is_written = True
    else:
        cell = tl.load(cells + token)
        is_written = cell >= 0
        cell = tl.maximum(cell, 0)
        base = (cell // PAGE * GROUPS * PAGE + cell % PAGE) * size
        stride = PAGE * size
    _store(queries + token * HEADS * size + offset, (head < HEADS)[:, None], out_x, out_y, HALF)
    is_key = ((head >= HEADS) & (head < ROTATED))[:, None] & is_written
    is_value = ((head >= ROTATED) & (head < ALL))[:, None] & is_written
    group = head - HEADS
    _store(keys + base + group[:, None] * stride + half[None, :], is_key, out_x, out_y, HALF)
    group = head - ROTATED
    _store(values + base + group[:, None] * stride + half[None, :], is_value, out_x, out_y, HALF)


@triton.jit(do_not_specialize=["rows", "steps"])
def _rope_backward(
    d_queries, d_keys, d_values, rope, positions, q_norm, k_norm, qkv, d_qkv, partials,
    rows, eps, steps,
    HAS_NORM: tl.constexpr, HEADS: tl.constexpr, GROUPS: tl.constexpr, HALF: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, BLOCK)
    half = tl.arange(0, HALF)
    size = 2 * HALF
    ROTATED: tl.constexpr = HEADS + GROUPS
    ALL: tl.constexpr = HEADS + 2 * GROUPS
    offset = head[:, None] * size + half[None, :]
    is_query = (head < HEADS)[:, None]
    is_key = ((head >= HEADS) & (head < ROTATED))[:, None]
    is_value = ((head >= ROTATED) & (head < ALL))[:, None]
    q_part_x = tl.zeros([HALF], tl.float32)
    q_part_y = tl.zeros([HALF], tl.float32)
    k_part_x = tl.zeros([HALF], tl.float32)
    k_part_y = tl.zeros([HALF], tl.float32)
    for step in range(0, steps):
        token = program + step * tl.num_programs(0)
        is_row = token < rows
        from_q = d_queries + token * HEADS * size + offset
        from_k = d_keys + token * GROUPS * size + offset - HEADS * size
        from_v = d_values + token * GROUPS * size + offset - ROTATED * size
        x = tl.load(from_q, mask=is_query & is_row, other=0.0).to(tl.float32)
        y = tl.load(from_q + HALF, mask=is_query & is_row, other=0.0).to(tl.float32)
        x += tl.load(from_k, mask=is_key & is_row, other=0.0).to(tl.float32)
        y += tl.load(from_k + HALF, mask=is_key & is_row, other=0.0).to(tl.float32)
        angle = rope + tl.load(positions + token, mask=is_row, other=0) * size + half
        cos = tl.load(angle)[None, :]
        sin = tl.load(angle + HALF)[None, :]
        d_x = x * cos + y * sin
        d_y = y * cos - x * sin
        if HAS_NORM:
            source = qkv + token * ALL * size + offset
            turns = (head < ROTATED)[:, None] & is_row
            unit_x = tl.load(source, mask=turns, other=0.0).to(tl.float32)
            unit_y = tl.load(source + HALF, mask=turns, other=0.0).to(tl.float32)
            unit_x, unit_y, scale = _normalize(unit_x, unit_y, eps, HALF)
            q_part_x += tl.sum(tl.where(is_query, d_x * unit_x, 0.0), 0)
            q_part_y += tl.sum(tl.where(is_query, d_y * unit_y, 0.0), 0)
            k_part_x += tl.sum(tl.where(is_key, d_x * unit_x, 0.0), 0)
            k_part_y += tl.sum(tl.where(is_key, d_y * unit_y, 0.0), 0)
            d_x *= _norm_weights(q_norm, k_norm, head, half, HEADS)
            d_y *= _norm_weights(q_norm + HALF, k_norm + HALF, head, half, HEADS)
            projection = (tl.sum(d_x * unit_x, 1) + tl.sum(d_y * unit_y, 1)) / size
            d_x = scale * (d_x - unit_x * projection[:, None])
            d_y = scale * (d_y - unit_y * projection[:, None])
        d_x += tl.load(from_v, mask=is_value & is_row, other=0.0).to(tl.float32)
        d_y += tl.load(from_v + HALF, mask=is_value & is_row, other=0.0).to(tl.float32)
        _store(d_qkv + token * ALL * size + offset, (head < ALL)[:, None] & is_row, d_x, d_y, HALF)
    if HAS_NORM:
        partial_grad = partials + program * 2 * size + half
        tl.store(partial_grad, q_part_x)
        tl.store(partial_grad + HALF, q_part_y)
        tl.store(partial_grad + size, k_part_x)
        tl.store(partial_grad + size + HALF, k_part_y)
