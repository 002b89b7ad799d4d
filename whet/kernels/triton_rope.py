# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
"""The heads of rows.py: one program per token forward, per set of tokens backward.

Shapes: T tokens, X = (N + 2 G) D, N query heads, G key/value heads, D head size, P positions, R
programs. One kernel writes packed tensors and cache pages. Products and sums are rounded as they
stand here (enable_fp_fusion is off), so the two agree bit for bit.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from whet.kernels.switch import Heads

ROWS_EACH, MOST_PROGRAMS = 4, 1024
"""Tokens per program of a backward pass through norms, with one partial gradient each."""


def forward(
    qkv_TX: Tensor,
    rope_PD: Tensor,
    positions_T: Tensor,
    split: Heads,
    q_norm_D: Tensor | None,
    k_norm_D: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    rows = len(qkv_TX)
    size = rope_PD.shape[1]
    k_TGD = qkv_TX.new_empty(rows, split.groups, size)
    v_TGD = torch.empty_like(k_TGD)
    q_TND = _launch(
        qkv_TX, rope_PD, positions_T, split, q_norm_D, k_norm_D, k_TGD, v_TGD, positions_T, page=0
    )
    return q_TND, k_TGD, v_TGD


def forward_into(
    qkv_BX: Tensor,
    rope_PD: Tensor,
    positions_B: Tensor,
    split: Heads,
    q_norm_D: Tensor | None,
    k_norm_D: Tensor | None,
    keys_pages: Tensor,
    values_pages: Tensor,
    cell_B: Tensor,
) -> Tensor:
    assert keys_pages.is_contiguous() and values_pages.is_contiguous(), (
        "pages of one layer lie in one piece"
    )
    norms = (q_norm_D, k_norm_D)
    pages = (keys_pages, values_pages)
    return _launch(
        qkv_BX, rope_PD, positions_B, split, *norms, *pages, cell_B, page=keys_pages.shape[2]
    )


def backward(
    d_q_TND: Tensor,
    d_k_TGD: Tensor,
    d_v_TGD: Tensor,
    rope_PD: Tensor,
    positions_T: Tensor,
    q_norm_D: Tensor | None,
    k_norm_D: Tensor | None,
    qkv_TX: Tensor | None,
    split: Heads,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    rows = len(d_q_TND)
    size = rope_PD.shape[1]
    all_heads = split.queries + 2 * split.groups
    d_qkv_TX = d_q_TND.new_empty(rows, all_heads * size)
    has_norm = q_norm_D is not None
    programs = max(1, min(triton.cdiv(rows, ROWS_EACH), MOST_PROGRAMS) if has_norm else rows)
    parts_R2D = torch.empty(
        programs if has_norm else 1, 2, size, dtype=torch.float32, device=d_qkv_TX.device
    )
    slopes = d_q_TND.contiguous(), d_k_TGD.contiguous(), d_v_TGD.contiguous()
    inputs = _or(q_norm_D, rope_PD), _or(k_norm_D, rope_PD), _or(qkv_TX, d_qkv_TX)
    numbers = rows, split.eps, triton.cdiv(rows, programs)
    sizes = has_norm, split.queries, split.groups, size // 2, triton.next_power_of_2(all_heads)
    _backward[(programs,)](
        *slopes,
        rope_PD,
        positions_T,
        *inputs,
        d_qkv_TX,
        parts_R2D,
        *numbers,
        *sizes,
        enable_fp_fusion=False,
    )
    if q_norm_D is None or k_norm_D is None:
        return d_qkv_TX, None, None
    d_q_norm_D, d_k_norm_D = parts_R2D.sum(0).unbind()
    return d_qkv_TX, d_q_norm_D.to(q_norm_D.dtype), d_k_norm_D.to(k_norm_D.dtype)


def _launch(
    qkv_TX: Tensor,
    rope_PD: Tensor,
    positions_T: Tensor,
    split: Heads,
    q_norm_D: Tensor | None,
    k_norm_D: Tensor | None,
    keys: Tensor,
    values: Tensor,
    cell_T: Tensor,
    *,
    page: int,
) -> Tensor:
    rows = len(qkv_TX)
    size = rope_PD.shape[1]
    assert size & (size - 1) == 0, f"a head size of {size} is no power of two"
    q_TND = qkv_TX.new_empty(rows, split.queries, size)
    if rows:
        norms = _or(q_norm_D, rope_PD), _or(k_norm_D, rope_PD)
        block = triton.next_power_of_2(split.queries + 2 * split.groups)
        sizes = q_norm_D is not None, page, split.queries, split.groups, size // 2, block
        inputs = qkv_TX.contiguous(), rope_PD, positions_T, *norms
        _forward[(rows,)](
            *inputs, q_TND, keys, values, cell_T, split.eps, *sizes, enable_fp_fusion=False
        )
    return q_TND


def _or(x: Tensor | None, other: Tensor) -> Tensor:
    """A kernel takes no None: another pointer stands in where it reads nothing."""
    return other if x is None else x


@triton.jit
def _unit(first, second, eps, HALF: tl.constexpr):
    """Scale each head, given as its two halves, to a mean square of one."""
    square = tl.sum(first * first, 1) + tl.sum(second * second, 1)
    scale = tl.rsqrt(square / (2 * HALF) + eps)[:, None]
    return first * scale, second * scale, scale


@triton.jit
def _factors(q_norm, k_norm, head, half, HEADS: tl.constexpr):
    """Load the norm weights that belong to each head, for one half of it."""
    q_factor = tl.load(q_norm + half).to(tl.float32)[None, :]
    k_factor = tl.load(k_norm + half).to(tl.float32)[None, :]
    return tl.where(head[:, None] < HEADS, q_factor, k_factor)


@triton.jit
def _store(where, mask, first, second, HALF: tl.constexpr):
    tl.store(where, first.to(where.dtype.element_ty), mask=mask)
    tl.store(where + HALF, second.to(where.dtype.element_ty), mask=mask)


@triton.jit
def _forward(
    qkv, rope, positions, q_norm, k_norm, queries, keys, values, cells, eps,
    HAS_NORM: tl.constexpr, PAGE: tl.constexpr, HEADS: tl.constexpr, GROUPS: tl.constexpr,
    HALF: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, BLOCK)
    half = tl.arange(0, HALF)
    size = 2 * HALF
    TURNING: tl.constexpr = HEADS + GROUPS
    ALL: tl.constexpr = HEADS + 2 * GROUPS
    offset = head[:, None] * size + half[None, :]
    is_real = (head < ALL)[:, None]
    source = qkv + token * ALL * size + offset
    first = tl.load(source, mask=is_real, other=0.0)
    second = tl.load(source + HALF, mask=is_real, other=0.0)
    x = first.to(tl.float32)
    y = second.to(tl.float32)
    if HAS_NORM:
        x, y, _ = _unit(x, y, eps, HALF)
        x = (x * _factors(q_norm, k_norm, head, half, HEADS)).to(first.dtype).to(tl.float32)
        y = (
            (y * _factors(q_norm + HALF, k_norm + HALF, head, half, HEADS))
            .to(first.dtype)
            .to(tl.float32)
        )
    angle = rope + tl.load(positions + token) * size + half
    cos = tl.load(angle)[None, :]
    sin = tl.load(angle + HALF)[None, :]
    turns = (head < TURNING)[:, None]
    turned_x = tl.where(turns, x * cos - y * sin, first.to(tl.float32))
    turned_y = tl.where(turns, y * cos + x * sin, second.to(tl.float32))

    if PAGE == 0:
        base = token * GROUPS * size
        stride = size
        is_filed = True
    else:
        cell = tl.load(cells + token)
        is_filed = cell >= 0
        cell = tl.maximum(cell, 0)
        base = (cell // PAGE * GROUPS * PAGE + cell % PAGE) * size
        stride = PAGE * size
    _store(
        queries + token * HEADS * size + offset, (head < HEADS)[:, None], turned_x, turned_y, HALF
    )
    is_key = ((head >= HEADS) & (head < TURNING))[:, None] & is_filed
    is_value = ((head >= TURNING) & (head < ALL))[:, None] & is_filed
    group = head - HEADS
    _store(keys + base + group[:, None] * stride + half[None, :], is_key, turned_x, turned_y, HALF)
    group = head - TURNING
    _store(
        values + base + group[:, None] * stride + half[None, :], is_value, turned_x, turned_y, HALF
    )


@triton.jit(do_not_specialize=["rows", "steps"])
def _backward(
    d_queries, d_keys, d_values, rope, positions, q_norm, k_norm, qkv, d_qkv, parts, rows, eps,
    steps,
    HAS_NORM: tl.constexpr, HEADS: tl.constexpr, GROUPS: tl.constexpr, HALF: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, BLOCK)
    half = tl.arange(0, HALF)
    size = 2 * HALF
    TURNING: tl.constexpr = HEADS + GROUPS
    ALL: tl.constexpr = HEADS + 2 * GROUPS
    offset = head[:, None] * size + half[None, :]
    is_query = (head < HEADS)[:, None]
    is_key = ((head >= HEADS) & (head < TURNING))[:, None]
    is_value = ((head >= TURNING) & (head < ALL))[:, None]
    q_part_x = tl.zeros([HALF], tl.float32)
    q_part_y = tl.zeros([HALF], tl.float32)
    k_part_x = tl.zeros([HALF], tl.float32)
    k_part_y = tl.zeros([HALF], tl.float32)
    for step in range(0, steps):
        token = program + step * tl.num_programs(0)
        is_row = token < rows
        from_q = d_queries + token * HEADS * size + offset
        from_k = d_keys + token * GROUPS * size + offset - HEADS * size
        from_v = d_values + token * GROUPS * size + offset - TURNING * size
        x = tl.load(from_q, mask=is_query & is_row, other=0.0).to(tl.float32)
        y = tl.load(from_q + HALF, mask=is_query & is_row, other=0.0).to(tl.float32)
        x += tl.load(from_k, mask=is_key & is_row, other=0.0).to(tl.float32)
        y += tl.load(from_k + HALF, mask=is_key & is_row, other=0.0).to(tl.float32)
        angle = rope + tl.load(positions + token, mask=is_row, other=0) * size + half
        cos = tl.load(angle)[None, :]
        sin = tl.load(angle + HALF)[None, :]
        back_x = x * cos + y * sin
        back_y = y * cos - x * sin
        if HAS_NORM:
            source = qkv + token * ALL * size + offset
            turns = (head < TURNING)[:, None] & is_row
            unit_x = tl.load(source, mask=turns, other=0.0).to(tl.float32)
            unit_y = tl.load(source + HALF, mask=turns, other=0.0).to(tl.float32)
            unit_x, unit_y, scale = _unit(unit_x, unit_y, eps, HALF)
            q_part_x += tl.sum(tl.where(is_query, back_x * unit_x, 0.0), 0)
            q_part_y += tl.sum(tl.where(is_query, back_y * unit_y, 0.0), 0)
            k_part_x += tl.sum(tl.where(is_key, back_x * unit_x, 0.0), 0)
            k_part_y += tl.sum(tl.where(is_key, back_y * unit_y, 0.0), 0)
            back_x *= _factors(q_norm, k_norm, head, half, HEADS)
            back_y *= _factors(q_norm + HALF, k_norm + HALF, head, half, HEADS)
            along = (tl.sum(back_x * unit_x, 1) + tl.sum(back_y * unit_y, 1)) / size
            back_x = scale * (back_x - unit_x * along[:, None])
            back_y = scale * (back_y - unit_y * along[:, None])
        back_x += tl.load(from_v, mask=is_value & is_row, other=0.0).to(tl.float32)
        back_y += tl.load(from_v + HALF, mask=is_value & is_row, other=0.0).to(tl.float32)
        _store(
            d_qkv + token * ALL * size + offset,
            (head < ALL)[:, None] & is_row,
            back_x,
            back_y,
            HALF,
        )
    if HAS_NORM:
        part = parts + program * 2 * size + half
        tl.store(part, q_part_x)
        tl.store(part + HALF, q_part_y)
        tl.store(part + size, k_part_x)
        tl.store(part + size + HALF, k_part_y)
