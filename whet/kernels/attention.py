# mypy: allow-untyped-calls
"""Causal attention over packed sequences (learner) and over a paged cache (engine).

Shapes: T tokens laid end to end, S sequences, B rows decoding, N query heads, G key/value heads, D
head size, A pages of a sequence, K tiles, Y query heads that share a key head. The pages of a layer
are [pages, G, page size, D], with a page size that is a multiple of 64. In a grid, U tokens fill S
rows of C cells.

Training, prefill and decode compute the same bits for a token in Triton: they read keys in blocks
of 64, sum blocks in chunks of 512 from the start of the sequence, and merge chunks in order.
"""

import ctypes
from math import ceil
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from whet.errors import TrainError
from whet.kernels import CHUNK, HAS_TRITON, TILE, TRITON_DEVICES, AttentionOptions
from whet.kernels.layer_ops import addresses, c_kernels

if HAS_TRITON:
    from whet.kernels import triton_attention

CAUSAL = AttentionOptions()


def tile_table(starts_S1: Tensor, tokens: int, before_S: Tensor | None = None) -> Tensor:
    """List the sequence and first position of each Triton program, on the device: int32 [K, 2].

    `tokens` is the total number of tokens, passed so that the host need not wait for the device.
    Surplus rows have sequence -1. One table serves all layers. `before_S` counts the tokens of
    each sequence that are already cached.
    """
    sequences = len(starts_S1) - 1
    before_S = torch.zeros_like(starts_S1[1:]) if before_S is None else before_S
    first_S = before_S // TILE
    count_S = (before_S + starts_S1.diff() + TILE - 1) // TILE - first_S
    end_S = count_S.cumsum(0)
    tile_K = torch.arange(tokens // TILE + 2 * sequences, device=starts_S1.device)
    sequence_K = torch.searchsorted(end_S, tile_K, right=True)
    real_sequence_K = sequence_K.clamp(max=sequences - 1)
    position_K = (tile_K - (end_S - count_S - first_S)[real_sequence_K]) * TILE
    return torch.stack([torch.where(sequence_K < sequences, sequence_K, -1), position_K], 1).int()


def packed_attention(
    q_TND: Tensor,
    k_TGD: Tensor,
    v_TGD: Tensor,
    starts_S1: Tensor,
    longest: int,
    tiles_K2: Tensor | None = None,
    *,
    options: AttentionOptions = CAUSAL,
) -> Tensor:
    """Attend causally within each packed sequence.

    Sequence s is starts[s] : starts[s + 1], in int32. `longest` bounds the length of a sequence.
    Without `tiles_K2`, the tile table is built here.
    """
    if not _can_use_triton(q_TND, options):
        cells = packed_to_grid(starts_S1, longest, len(q_TND))
        return grid_attention(q_TND, k_TGD, v_TGD, *cells, options)
    window = None if options.window is not None and options.window >= longest else options.window
    tiles_K2 = tile_table(starts_S1, len(q_TND)) if tiles_K2 is None else tiles_K2
    if not torch.is_grad_enabled():
        return triton_attention.prefill(q_TND, k_TGD, v_TGD, starts_S1, tiles_K2, window=window)
    out_TND: Tensor = _Packed.apply(q_TND, k_TGD, v_TGD, starts_S1, longest, tiles_K2, window)
    return out_TND


def grid_attention(
    q_UND: Tensor,
    k_UGD: Tensor,
    v_UGD: Tensor,
    node_SC: Tensor,
    cell_U: Tensor,
    options: AttentionOptions = CAUSAL,
) -> Tensor:
    """Attend causally within each row of a grid.

    `node_SC` is the token in each cell, `cell_U` the cell from which a token takes its result.
    The C kernel has no sliding window, so plain torch runs if a window masks anything.
    """
    is_masked = options.window is not None and options.window < node_SC.shape[1]
    if len(q_UND) == 0 or is_masked or not options.has_kernels:
        return torch_grid_attention(q_UND, k_UGD, v_UGD, node_SC, cell_U, options)
    library = c_kernels(q_UND, k_UGD, v_UGD)
    if library is None:
        return torch_grid_attention(q_UND, k_UGD, v_UGD, node_SC, cell_U, options)
    out_UND: Tensor = GridAttention.apply(library, q_UND, k_UGD, v_UGD, node_SC, cell_U)
    return out_UND


@torch.no_grad()
def paged_prefill(
    q_TND: Tensor,
    keys_pages: Tensor,
    values_pages: Tensor,
    table_SA: Tensor,
    starts_S1: Tensor,
    before_S: Tensor,
    tiles_K2: Tensor | None = None,
    *,
    options: AttentionOptions = CAUSAL,
) -> Tensor:
    """Attend from packed queries to their cached sequences, which already contain them.

    `before_S` counts the tokens of each sequence before this chunk.
    """
    if not _can_use_triton(q_TND, options):
        return torch_paged_prefill(
            q_TND, keys_pages, values_pages, table_SA, starts_S1, before_S, options
        )
    tiles_K2 = tile_table(starts_S1, len(q_TND), before_S) if tiles_K2 is None else tiles_K2
    inputs = q_TND, keys_pages, values_pages, starts_S1, tiles_K2
    return triton_attention.prefill(*inputs, cached=(before_S, table_SA), window=options.window)


@torch.no_grad()
def paged_decode(
    q_BND: Tensor,
    keys_pages: Tensor,
    values_pages: Tensor,
    table_BA: Tensor,
    length_B: Tensor,
    scratch: tuple[Tensor, Tensor, Tensor] | None = None,
    *,
    options: AttentionOptions = CAUSAL,
) -> Tensor:
    """Attend from one query per row to the `length` cached tokens of the row; length 0 gives zeros.

    The table's width bounds the context. Without `scratch` (see `decode_scratch`), it is allocated
    here.
    """
    if not _can_use_triton(q_BND, options):
        return torch_paged_decode(q_BND, keys_pages, values_pages, table_BA, length_B, options)
    if scratch is None:
        scratch = decode_scratch(q_BND, table_BA.shape[1] * keys_pages.shape[2])
    return triton_attention.decode(
        q_BND, keys_pages, values_pages, table_BA, length_B, scratch, window=options.window
    )


def decode_scratch(q_BND: Tensor, context: int) -> tuple[Tensor, Tensor, Tensor]:
    """Allocate the maxima, sums and weighted values of every chunk of a context."""
    rows, heads, size = q_BND.shape
    chunks = ceil(context / CHUNK)
    parts = q_BND.new_empty(rows, chunks, heads, size, dtype=torch.float32)
    return parts.new_empty(rows, chunks, heads), parts.new_empty(rows, chunks, heads), parts


def packed_to_grid(starts_S1: Tensor, longest: int, tokens: int) -> tuple[Tensor, Tensor]:
    """Lay out packed sequences as a grid with a row for each, for `grid_attention`.

    >>> [x.tolist() for x in packed_to_grid(torch.tensor([0, 2, 5]), 3, 5)]
    [[[0, 1, 1], [2, 3, 4]], [0, 1, 3, 4, 5]]
    """
    starts_S1 = starts_S1.long()
    device = starts_S1.device
    node_SC = starts_S1[:-1, None] + torch.arange(longest, device=device)
    line_T = torch.repeat_interleave(
        torch.arange(len(node_SC), device=device), starts_S1.diff(), output_size=tokens
    )
    cell_T = torch.arange(tokens, device=device) - starts_S1[line_T] + line_T * longest
    return node_SC.minimum(starts_S1[1:, None] - 1).clamp(min=0), cell_T


def torch_packed_attention(
    q_TND: Tensor,
    k_TGD: Tensor,
    v_TGD: Tensor,
    starts_S1: Tensor,
    longest: int,
    options: AttentionOptions = CAUSAL,
) -> Tensor:
    """`packed_attention` in plain torch."""
    cells = packed_to_grid(starts_S1, longest, len(q_TND))
    return torch_grid_attention(q_TND, k_TGD, v_TGD, *cells, options)


def torch_grid_attention(
    q_UND: Tensor,
    k_UGD: Tensor,
    v_UGD: Tensor,
    node_SC: Tensor,
    cell_U: Tensor,
    options: AttentionOptions = CAUSAL,
) -> Tensor:
    """`grid_attention` in plain torch; causality masks the padding at the end of a row."""

    def to_grid(x_UND: Tensor) -> Tensor:
        grid = x_UND.index_select(0, node_SC.flatten())
        return grid.view(*node_SC.shape, *x_UND.shape[1:]).transpose(1, 2)

    mask_CC = _window_mask(node_SC.shape[1], options.window, q_UND.device)
    mixed = F.scaled_dot_product_attention(
        to_grid(q_UND),
        to_grid(k_UGD),
        to_grid(v_UGD),
        attn_mask=mask_CC,
        is_causal=mask_CC is None,
        enable_gqa=q_UND.shape[1] != k_UGD.shape[1],
    )
    return mixed.transpose(1, 2).flatten(0, 1).index_select(0, cell_U)


def _window_mask(longest: int, window: int | None, device: torch.device) -> Tensor | None:
    """Build the mask of keys that each of `longest` positions sees; None if causality suffices."""
    if window is None or window >= longest:
        return None
    position_C = torch.arange(longest, device=device)
    ahead_CC = position_C - position_C[:, None]
    return (ahead_CC <= 0) & (ahead_CC > -window)


def torch_paged_prefill(
    q_TND: Tensor,
    keys_pages: Tensor,
    values_pages: Tensor,
    table_SA: Tensor,
    starts_S1: Tensor,
    before_S: Tensor,
    options: AttentionOptions = CAUSAL,
) -> Tensor:
    """`paged_prefill` in plain torch, one sequence at a time."""
    out_TND = torch.empty_like(q_TND)
    starts = starts_S1.tolist()
    for index, before in enumerate(before_S.tolist()):
        start = starts[index]
        end = starts[index + 1]
        length = before + end - start
        k_GCD, v_GCD = (
            _context(pages, table_SA[index])[:, :length] for pages in (keys_pages, values_pages)
        )
        column_C = torch.arange(length, device=q_TND.device)
        mask = column_C <= column_C[before:, None]
        if options.window is not None:
            mask &= column_C > column_C[before:, None] - options.window
        q_NCD = q_TND[start:end].transpose(0, 1)
        mixed = F.scaled_dot_product_attention(
            q_NCD[None], k_GCD[None], v_GCD[None], attn_mask=mask, enable_gqa=True
        )
        out_TND[start:end] = mixed[0].transpose(0, 1)
    return out_TND


def torch_paged_decode(
    q_BND: Tensor,
    keys_pages: Tensor,
    values_pages: Tensor,
    table_BA: Tensor,
    length_B: Tensor,
    options: AttentionOptions = CAUSAL,
) -> Tensor:
    """`paged_decode` in plain torch, over a copy of the pages."""
    rows, heads, size = q_BND.shape
    groups = keys_pages.shape[1]
    context = table_BA.shape[1] * keys_pages.shape[2]
    column_C = torch.arange(context, device=q_BND.device)
    mask_BC = column_C < length_B[:, None]
    if options.window is not None:
        mask_BC &= column_C >= length_B[:, None] - options.window
    mask_B11C = mask_BC[:, None, None]
    # A page may hold anything past the end of its sequence, even NaN.
    k_BGCD, v_BGCD = (
        _context(pages, table_BA).where(mask_B11C.transpose(2, 3), 0)
        for pages in (keys_pages, values_pages)
    )
    # Query heads that share a key head become rows of one small matrix, so no key is read twice.
    q_BGYD = q_BND.reshape(rows, groups, heads // groups, size)
    mixed = F.scaled_dot_product_attention(q_BGYD, k_BGCD, v_BGCD, attn_mask=mask_B11C)
    return mixed.reshape(rows, heads, size).where((length_B > 0)[:, None, None], 0)


def _context(pages: Tensor, table: Tensor) -> Tensor:
    """Join the pages of each row of a table: [..., G, tokens, D]."""
    return pages[table].transpose(-4, -3).flatten(-3, -2)


def _can_use_triton(q: Tensor, options: AttentionOptions) -> bool:
    """Whether the Triton kernels apply: they need a head size of 16, 32, 64, 128 or 256."""
    if q.device.type not in TRITON_DEVICES or not options.has_kernels:
        return False
    size = q.shape[-1]
    return 16 <= size <= 256 and size & (size - 1) == 0 and len(q) > 0


class _Packed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q_TND: Tensor,
        k_TGD: Tensor,
        v_TGD: Tensor,
        starts_S1: Tensor,
        longest: int,
        tiles_K2: Tensor,
        window: int | None,
    ) -> Tensor:
        q_TND, k_TGD, v_TGD = (x.contiguous() for x in (q_TND, k_TGD, v_TGD))
        lse_NT = torch.empty(q_TND.shape[1], len(q_TND), dtype=torch.float32, device=q_TND.device)
        out_TND = triton_attention.prefill(
            q_TND, k_TGD, v_TGD, starts_S1, tiles_K2, lse_NT=lse_NT, window=window
        )
        ctx.save_for_backward(q_TND, k_TGD, v_TGD, out_TND, lse_NT, starts_S1)
        ctx.longest = longest
        ctx.window = window
        return out_TND

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, out_TND, lse_NT, starts_S1 = ctx.saved_tensors
        d_out_TND = grads[0].contiguous()
        if d_out_TND.is_cuda and d_out_TND.element_size() == 2:
            # Torch's flash-attention backward needs only our outputs and log-sum-exps.
            no_dropout = torch.zeros(2, dtype=torch.uint64, device=d_out_TND.device)
            unused = torch.empty(0, device=d_out_TND.device)
            sequences = starts_S1, starts_S1, ctx.longest, ctx.longest
            input_grads = torch.ops.aten._flash_attention_backward(
                *(d_out_TND, *inputs, out_TND, lse_NT, *sequences, 0.0, True, no_dropout, unused),
                window_size_left=-1 if ctx.window is None else ctx.window - 1,
                window_size_right=0,
            )
        else:
            options = AttentionOptions(window=ctx.window)
            with torch.enable_grad():
                q, k, v = (x.detach().requires_grad_() for x in inputs)
                recomputed = torch_packed_attention(q, k, v, starts_S1, ctx.longest, options)
            input_grads = torch.autograd.grad(recomputed, (q, k, v), d_out_TND)
        return *input_grads, None, None, None, None


_SIZES = ("lines", "longest", "heads", "groups", "size", "threads")
_TENSORS = ("node", "cell", "q", "k", "v", "out", "lse", "d_out", "d_q", "d_k", "d_v", "room")


class _AttentionArgs(ctypes.Structure):
    """The argument struct of the kernels in attention.c."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in _SIZES),
        *((name, ctypes.c_void_p) for name in _TENSORS),
    )


class GridAttention(torch.autograd.Function):
    """Attention over a padded grid in C, with its backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        library: ctypes.CDLL,
        q_UND: Tensor,
        k_UGD: Tensor,
        v_UGD: Tensor,
        node_SC: Tensor,
        cell_U: Tensor,
    ) -> Tensor:
        assert k_UGD.shape == v_UGD.shape and len(k_UGD) == len(q_UND) == len(cell_U), (
            "one key and one value per token"
        )
        assert k_UGD.shape[2] == q_UND.shape[2] and q_UND.shape[1] % k_UGD.shape[1] == 0, (
            "query heads are a multiple of key heads, all of one size"
        )
        inputs = tuple(x.contiguous() for x in (node_SC, cell_U, q_UND, k_UGD, v_UGD))
        out_UND = torch.empty_like(inputs[2])
        lse_UN = q_UND.new_empty(q_UND.shape[:2])
        _run(library.attention_forward, *inputs, out_UND, lse_UN)
        ctx.save_for_backward(*inputs, out_UND, lse_UN)
        ctx.library = library
        return out_UND

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        node_SC, _, q_UND, k_UGD, v_UGD, *_ = saved
        d_q_UND = torch.empty_like(q_UND)
        d_k_UGD = torch.zeros_like(k_UGD)
        d_v_UGD = torch.zeros_like(v_UGD)
        scratch = q_UND.new_empty(2, node_SC.numel(), *k_UGD.shape[1:])
        input_grads = grads[0].contiguous(), d_q_UND, d_k_UGD, d_v_UGD, scratch
        _run(ctx.library.attention_backward, *saved, *input_grads)
        return None, d_q_UND, d_k_UGD, d_v_UGD, None, None


def _run(
    kernel: Any, node_SC: Tensor, cell_U: Tensor, q_UND: Tensor, k_UGD: Tensor, *others: Tensor
) -> None:
    sizes = *node_SC.shape, *q_UND.shape[1:2], *k_UGD.shape[1:], torch.get_num_threads()
    arguments = _AttentionArgs(*sizes, *addresses(node_SC, cell_U, q_UND, k_UGD, *others))
    if kernel(ctypes.byref(arguments)):
        raise TrainError("there is no memory left for attention; lower train.micro_batch_tokens")
