# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
"""The Triton kernels of attention.py: online softmax over blocks of keys, then over chunks.

Shapes: T tokens, S sequences, B rows decoding, N query heads, G key/value heads, D head size, A
pages of a sequence, K tiles or chunks.

The kernels agree bit for bit for three reasons. Products and sums are rounded one by one, as
written (enable_fp_fusion is off). Softmax terms are added in fixed pairs, so their sum does not
depend on the thread layout. Tiles of 16 or 32 rows use the matrix instruction of one warp; from 64
rows, four warps would share Hopper's larger instruction.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from whet.kernels import BLOCK, CHUNK, TILE

LOG2_E = math.log2(math.e)
LAUNCH = {"num_warps": 4, "num_stages": 3, "enable_fp_fusion": False}


def prefill(
    q_TND: Tensor,
    keys: Tensor,
    values: Tensor,
    starts_S1: Tensor,
    tiles_K2: Tensor,
    *,
    cached: tuple[Tensor, Tensor] | None = None,
    lse_NT: Tensor | None = None,
    window: int | None = None,
) -> Tensor:
    """Attend to packed keys, or to pages if `cached` gives tokens before each chunk and page table.

    `lse_NT` receives the log-sum-exps, if given.
    """
    tokens, heads, size = q_TND.shape
    groups = keys.shape[1]
    out_TND = torch.empty_like(q_TND, memory_format=torch.contiguous_format)
    before_S, table_SA = (starts_S1, starts_S1) if cached is None else cached
    page = 0 if cached is None else _page_size(keys, values)
    width = 0 if cached is None else table_SA.shape[1]
    inputs = q_TND.contiguous(), keys.contiguous(), values.contiguous(), starts_S1, tiles_K2
    results = out_TND, out_TND if lse_NT is None else lse_NT
    numbers = LOG2_E / math.sqrt(size), width, tokens, lse_NT is not None
    sizes = groups, heads // groups, size, page, TILE, BLOCK, CHUNK, window or 0
    _prefill[(len(tiles_K2), heads)](
        *inputs, before_S, table_SA.contiguous(), *results, *numbers, *sizes, **LAUNCH
    )
    return out_TND


def decode(
    q_BND: Tensor,
    keys_pages: Tensor,
    values_pages: Tensor,
    table_BA: Tensor,
    length_B: Tensor,
    scratch: tuple[Tensor, Tensor, Tensor],
    *,
    window: int | None = None,
) -> Tensor:
    page = _page_size(keys_pages, values_pages)
    (rows, heads, size) = q_BND.shape
    groups = keys_pages.shape[1]
    width = table_BA.shape[1]
    q_BND = q_BND.contiguous()
    table_BA = table_BA.contiguous()
    queries = heads // groups
    out_BND = torch.empty_like(q_BND)
    accs_BKND = scratch[2]
    chunks = triton.cdiv(width * page, CHUNK)
    tile = max(16, triton.next_power_of_2(queries))
    assert accs_BKND.shape[0] >= rows and accs_BKND.shape[1] == chunks, (
        "scratch memory of another size"
    )
    tensors = q_BND, keys_pages, values_pages, table_BA, length_B, out_BND, *scratch
    sizes = groups, queries, size, page, tile, BLOCK, CHUNK, window or 0
    _decode[(rows, groups, chunks)](
        *tensors, LOG2_E / math.sqrt(size), width, chunks, *sizes, **LAUNCH
    )
    if chunks > 1:
        shape = groups, queries, size, tile, CHUNK, window or 0
        _combine_chunks[(rows, groups)](
            *scratch, length_B, out_BND, chunks, *shape, num_warps=2, enable_fp_fusion=False
        )
    return out_BND


def _page_size(keys_pages: Tensor, values_pages: Tensor) -> int:
    assert keys_pages.is_contiguous() and values_pages.is_contiguous(), (
        "pages of one layer lie in one piece"
    )
    page = keys_pages.shape[2]
    assert page % BLOCK == 0, f"pages of {page} tokens cannot be read in blocks of {BLOCK}"
    return page


@triton.jit
def _row_sum(x):
    """Sum rows of 64 in fixed pairs, unlike Triton's own sum, which follows the thread layout.

    Columns 32 apart are added first, then those inside each group of eight, then the four groups.
    If warps share a row, each holds whole groups, and only four numbers are exchanged.
    """
    x = tl.sum(tl.reshape(x, [x.shape[0], 2, 32]), 1)
    x = tl.sum(tl.reshape(x, [x.shape[0], 4, 2, 4]), 2)
    x = tl.sum(tl.reshape(x, [x.shape[0], 4, 2, 2]), 2)
    x = tl.sum(x, 2)
    x = tl.sum(tl.reshape(x, [x.shape[0], 2, 2]), 1)
    return tl.sum(x, 1)


@triton.jit
def _finite_max(row_max, WINDOW: tl.constexpr):
    """Return the offset of exponents: the maximum, or 0 if a window has masked every key so far."""
    if WINDOW > 0:
        row_max = tl.where(row_max == float("-inf"), 0.0, row_max)
    return row_max


@triton.jit
def _add_keys(q, k, v, mask, scale, row_max, total, acc, WINDOW: tl.constexpr):
    """Add a block of keys to a chunk's running maximum, sum of exponentials and weighted values."""
    score = tl.where(mask, tl.dot(q, k, input_precision="ieee") * scale, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(score, 1))
    base = _finite_max(new_max, WINDOW)
    rescale = tl.exp2(row_max - base)
    prob = tl.exp2(score - base[:, None])
    total = tl.fma(total, rescale, _row_sum(prob))
    acc = tl.dot(prob.to(v.dtype), v, acc * rescale[:, None], input_precision="ieee")
    return new_max, total, acc


@triton.jit
def _merge(row_max, total, acc, chunk_max, chunk_total, chunk_acc, WINDOW: tl.constexpr):
    """Merge a finished chunk into the result."""
    new_max = tl.maximum(row_max, chunk_max)
    base = _finite_max(new_max, WINDOW)
    old = tl.exp2(row_max - base)
    new = tl.exp2(chunk_max - base)
    total = tl.fma(total, old, chunk_total * new)
    acc = tl.fma(acc, tl.broadcast_to(old[:, None], acc.shape), chunk_acc * new[:, None])
    return new_max, total, acc


@triton.jit
def _empty_state(ROWS: tl.constexpr, SIZE: tl.constexpr):
    """Return the state of a chunk, or of the result, before any key."""
    row_max = tl.full([ROWS], float("-inf"), tl.float32)
    return row_max, tl.zeros([ROWS], tl.float32), tl.zeros([ROWS, SIZE], tl.float32)


@triton.jit(do_not_specialize=["width", "tokens"])
def _prefill(
    queries, keys, values, starts, tiles, before, table, out, lse, scale, width, tokens,
    HAS_LSE: tl.constexpr, GROUPS: tl.constexpr, GROUP_SIZE: tl.constexpr, SIZE: tl.constexpr,
    PAGE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    sequence = tl.load(tiles + 2 * tl.program_id(0))
    if sequence < 0:
        return
    first = tl.load(tiles + 2 * tl.program_id(0) + 1)
    head = tl.program_id(1)
    group = head // GROUP_SIZE
    start = tl.load(starts + sequence).to(tl.int64)
    past = 0
    if PAGE > 0:
        past = tl.load(before + sequence).to(tl.int32)
    length = past + (tl.load(starts + sequence + 1) - start).to(tl.int32)

    position = first + tl.arange(0, ROWS)
    key = tl.arange(0, BLOCK)
    offset = tl.arange(0, SIZE)
    is_own = (position >= past) & (position < length)
    row = start + position - past
    cell = ((row * (GROUPS * GROUP_SIZE) + head) * SIZE)[:, None] + offset[None, :]
    q = tl.load(queries + cell, mask=is_own[:, None], other=0.0)
    last = tl.minimum(first + ROWS, length)
    row_max, total, acc = _empty_state(ROWS, SIZE)
    lowest = 0
    if WINDOW > 0:
        lowest = tl.maximum(first + 1 - WINDOW, 0)
    for chunk in range(lowest // CHUNK * CHUNK, last, CHUNK):
        chunk_max, chunk_total, chunk_acc = _empty_state(ROWS, SIZE)
        begin = chunk
        if WINDOW > 0:
            begin = tl.maximum(chunk, lowest // BLOCK * BLOCK)
        for block in range(begin, tl.minimum(chunk + CHUNK, last), BLOCK):
            if PAGE > 0:
                page = tl.load(table + sequence * width + block // PAGE).to(tl.int64)
                base = ((page * GROUPS + group) * PAGE + block % PAGE) * SIZE
                stride = SIZE
            else:
                base = ((start + block) * GROUPS + group) * SIZE
                stride = GROUPS * SIZE
            is_there = block + key < length
            k = tl.load(
                keys + base + key[None, :] * stride + offset[:, None],
                mask=is_there[None, :],
                other=0.0,
            )
            v = tl.load(
                values + base + key[:, None] * stride + offset[None, :],
                mask=is_there[:, None],
                other=0.0,
            )
            mask = (block + key)[None, :] <= position[:, None]
            if WINDOW > 0:
                mask = mask & ((block + key)[None, :] > position[:, None] - WINDOW)
            chunk_max, chunk_total, chunk_acc = _add_keys(
                q, k, v, mask, scale, chunk_max, chunk_total, chunk_acc, WINDOW
            )
        row_max, total, acc = _merge(row_max, total, acc, chunk_max, chunk_total, chunk_acc, WINDOW)
    tl.store(out + cell, (acc / total[:, None]).to(out.dtype.element_ty), mask=is_own[:, None])
    if HAS_LSE:
        tl.store(
            lse + head * tokens + row, (row_max + tl.log2(total)) * 0.6931471805599453, mask=is_own
        )


@triton.jit(do_not_specialize=["width", "chunks"])
def _decode(
    queries, keys, values, table, lengths, out, maxes, sums, accs, scale, width, chunks,
    GROUPS: tl.constexpr, GROUP_SIZE: tl.constexpr, SIZE: tl.constexpr, PAGE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1)
    chunk = tl.program_id(2)
    length = tl.load(lengths + row)
    head = tl.arange(0, ROWS)
    key = tl.arange(0, BLOCK)
    offset = tl.arange(0, SIZE)
    is_own = head < GROUP_SIZE
    line = (row * GROUPS + group) * GROUP_SIZE + head
    cell = line[:, None] * SIZE + offset[None, :]
    if (length == 0) & (chunk == 0):
        tl.store(out + cell, tl.zeros([ROWS, SIZE], out.dtype.element_ty), mask=is_own[:, None])
    begin = chunk * CHUNK
    if begin >= length:
        return
    lowest = 0
    if WINDOW > 0:
        lowest = tl.maximum(length - WINDOW, 0).to(tl.int32)
        if begin + CHUNK <= lowest:
            return
        begin = tl.maximum(begin, lowest // BLOCK * BLOCK)
    q = tl.load(queries + cell, mask=is_own[:, None], other=0.0)
    row_max, total, acc = _empty_state(ROWS, SIZE)
    for block in range(begin, tl.minimum((chunk + 1) * CHUNK, length).to(tl.int32), BLOCK):
        page = tl.load(table + row * width + block // PAGE).to(tl.int64)
        base = ((page * GROUPS + group) * PAGE + block % PAGE) * SIZE
        is_there = block + key < length
        k = tl.load(keys + base + key[None, :] * SIZE + offset[:, None])
        v = tl.load(
            values + base + key[:, None] * SIZE + offset[None, :], mask=is_there[:, None], other=0.0
        )
        mask = is_there
        if WINDOW > 0:
            mask = mask & (block + key >= lowest)
        row_max, total, acc = _add_keys(q, k, v, mask[None, :], scale, row_max, total, acc, WINDOW)
    if length <= CHUNK:
        tl.store(out + cell, (acc / total[:, None]).to(out.dtype.element_ty), mask=is_own[:, None])
    else:
        line = ((row * chunks + chunk) * GROUPS + group) * GROUP_SIZE + head
        tl.store(maxes + line, row_max, mask=is_own)
        tl.store(sums + line, total, mask=is_own)
        tl.store(accs + line[:, None] * SIZE + offset[None, :], acc, mask=is_own[:, None])


@triton.jit(do_not_specialize=["chunks"])
def _combine_chunks(
    maxes, sums, accs, lengths, out, chunks,
    GROUPS: tl.constexpr, GROUP_SIZE: tl.constexpr, SIZE: tl.constexpr, ROWS: tl.constexpr,
    CHUNK: tl.constexpr,
    WINDOW: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1)
    length = tl.load(lengths + row).to(tl.int32)
    if length <= CHUNK:
        return
    head = tl.arange(0, ROWS)
    offset = tl.arange(0, SIZE)
    is_own = head < GROUP_SIZE
    row_max, total, acc = _empty_state(ROWS, SIZE)
    start = 0
    if WINDOW > 0:
        start = tl.maximum(length - WINDOW, 0) // CHUNK
    for chunk in range(start, tl.cdiv(length, CHUNK)):
        line = ((row * chunks + chunk) * GROUPS + group) * GROUP_SIZE + head
        chunk_max = tl.load(maxes + line, mask=is_own, other=0.0)
        chunk_total = tl.load(sums + line, mask=is_own, other=1.0)
        chunk_acc = tl.load(
            accs + line[:, None] * SIZE + offset[None, :], mask=is_own[:, None], other=0.0
        )
        row_max, total, acc = _merge(row_max, total, acc, chunk_max, chunk_total, chunk_acc, WINDOW)
    cell = ((row * GROUPS + group) * GROUP_SIZE + head)[:, None] * SIZE + offset[None, :]
    tl.store(out + cell, (acc / total[:, None]).to(out.dtype.element_ty), mask=is_own[:, None])
