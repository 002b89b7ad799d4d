# mypy: allow-untyped-calls
"""What a layer does row by row: add and norm, the gate of the feed-forward, split and rotate heads.

Shapes: T tokens, H hidden, I inner, B rows decoding, X = (N + 2 G) D, N query heads, G key/value
heads, D head size, P positions. Norms and gates are computed in float32 and rounded once, sums are
rounded to the dtype of their parts before their norm. Gate and up lie side by side in one row of
2 I. A rotation table holds D/2 cosines then D/2 sines a position, in float32, for heads in the
half-split layout; queries and keys are rounded to the dtype of the projection before they turn.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from whet.kernels.switch import HAS_TRITON, Heads, address, c_kernels, needs_grad, uses_triton

if HAS_TRITON:
    from whet.kernels import triton_rope, triton_rows


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
        return triton_rows.norm_forward(x_TH, residual_TH, weight_H, eps)
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
        return triton_rows.norm_forward(x_TH, None, weight_H, eps)[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        x_TH, weight_H = ctx.saved_tensors
        d_x_TH, d_weight_H = triton_rows.norm_backward(grads[0], None, x_TH, weight_H, ctx.eps)
        return d_x_TH, d_weight_H, None


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_TH: Tensor, residual_TH: Tensor, weight_H: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        normed_TH, sum_TH = triton_rows.norm_forward(x_TH, residual_TH, weight_H, eps)
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
        d_x_TH, d_weight_H = triton_rows.norm_backward(
            d_normed_TH, d_sum_TH, sum_TH, weight_H, ctx.eps
        )
        return d_x_TH, d_x_TH, d_weight_H, None


def swiglu(gate_up_TI: Tensor) -> Tensor:
    """Halve the rows: silu of the first half times the second."""
    if not uses_triton(gate_up_TI):
        library = c_kernels(*gate_up_TI.chunk(2, dim=-1))
        if library is None:
            return plain_swiglu(gate_up_TI)
        gated_TI: Tensor = _CompiledSwiGLU.apply(library, gate_up_TI)
        return gated_TI
    if not needs_grad(gate_up_TI):
        return triton_rows.swiglu_forward(gate_up_TI)
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
        return triton_rows.swiglu_forward(gate_up_TI)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return triton_rows.swiglu_backward(grads[0], *ctx.saved_tensors)


def split_heads(
    qkv_TX: Tensor,
    rope_PD: Tensor,
    positions_T: Tensor | None,
    heads: int,
    groups: int,
    q_norm_D: Tensor | None,
    k_norm_D: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Split the projection and turn queries and keys by their positions: q_TND, k_TGD, v_TGD.

    Without positions the table holds a row a token. The kernels return contiguous tensors; plain
    torch may return views of one tensor.
    """
    split = Heads(queries=heads, groups=groups, eps=eps)
    if not uses_triton(qkv_TX):
        library = c_kernels(qkv_TX, rope_PD, q_norm_D, k_norm_D)
        if library is None:
            return plain_split_heads(qkv_TX, rope_PD, positions_T, split, q_norm_D, k_norm_D)
        rope_TD = rope_PD if positions_T is None else rope_PD[positions_T]
        given = (
            None if x is None else x.contiguous() for x in (qkv_TX, rope_TD, q_norm_D, k_norm_D)
        )
        split_up: tuple[Tensor, Tensor, Tensor] = _CompiledSplit.apply(library, split, *given)
        return split_up
    positions_T = _row_each(qkv_TX) if positions_T is None else positions_T
    if not needs_grad(qkv_TX, q_norm_D, k_norm_D):
        return triton_rope.forward(qkv_TX, rope_PD, positions_T, split, q_norm_D, k_norm_D)
    turned: tuple[Tensor, Tensor, Tensor] = _TritonSplit.apply(
        qkv_TX, rope_PD, positions_T, split, q_norm_D, k_norm_D
    )
    return turned


@torch.no_grad()
def split_heads_into(
    qkv_BX: Tensor,
    rope_PD: Tensor,
    positions_B: Tensor | None,
    heads: int,
    groups: int,
    q_norm_D: Tensor | None,
    k_norm_D: Tensor | None,
    eps: float,
    keys_pages: Tensor,
    values_pages: Tensor,
    cell_B: Tensor,
) -> Tensor:
    """Do what `split_heads` does, bit for bit, writing keys and values to pages; returns q_BND.

    Pages are [pages, G, page size, D]. A row goes to page `cell // page size`, place `cell % page
    size`; where its cell is negative it is not filed.
    """
    split = Heads(queries=heads, groups=groups, eps=eps)
    if uses_triton(qkv_BX):
        norms = q_norm_D, k_norm_D
        positions_B = _row_each(qkv_BX) if positions_B is None else positions_B
        return triton_rope.forward_into(
            qkv_BX, rope_PD, positions_B, split, *norms, keys_pages, values_pages, cell_B
        )
    q_BND, k_BGD, v_BGD = split_heads(
        qkv_BX, rope_PD, positions_B, heads, groups, q_norm_D, k_norm_D, eps
    )
    is_filed_B = cell_B >= 0
    page_B = cell_B[is_filed_B] // keys_pages.shape[2]
    place_B = cell_B[is_filed_B] % keys_pages.shape[2]
    keys_pages[page_B, :, place_B] = k_BGD[is_filed_B]
    values_pages[page_B, :, place_B] = v_BGD[is_filed_B]
    return q_BND


def plain_split_heads(
    qkv_TX: Tensor,
    rope_PD: Tensor,
    positions_T: Tensor | None,
    split: Heads,
    q_norm_D: Tensor | None,
    k_norm_D: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Do the same in plain torch, on any device."""
    rope_TD = rope_PD if positions_T is None else rope_PD[positions_T]
    heads = split.queries
    turning = split.queries + split.groups
    qkv = qkv_TX.view(len(qkv_TX), turning + split.groups, -1)
    if q_norm_D is None or k_norm_D is None:
        both = rotate(qkv[:, :turning], rope_TD)
        return both[:, :heads], both[:, heads:], qkv[:, turning:]
    q_TND = F.rms_norm(qkv[:, :heads], q_norm_D.shape, q_norm_D, split.eps)
    k_TGD = F.rms_norm(qkv[:, heads:turning], k_norm_D.shape, k_norm_D, split.eps)
    return rotate(q_TND, rope_TD), rotate(k_TGD, rope_TD), qkv[:, turning:]


def rotate(x_TND: Tensor, rope_TD: Tensor) -> Tensor:
    """Rotate the two halves of each head against each other by the angle of its position."""
    cos, sin = rope_TD.unsqueeze(1).chunk(2, dim=-1)
    first, second = x_TND.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(
        x_TND.dtype
    )


def _row_each(x: Tensor) -> Tensor:
    return torch.arange(len(x), device=x.device)


class _Projection(ctypes.Structure):
    """What is to be turned, and how, as rows.c has it."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "heads", "groups", "size")),
        *((name, ctypes.c_void_p) for name in ("qkv", "rope", "q_norm", "k_norm")),
        ("eps", ctypes.c_float),
        ("threads", ctypes.c_int64),
    )


def _projection(rope_TD: Tensor, split: Heads, *given: Tensor | None) -> _Projection:
    """Lay out the projection, where it is needed, and the norms, where there are any."""
    qkv, q_norm, k_norm = (address(x) for x in given)
    sizes = len(rope_TD), split.queries, split.groups, rope_TD.shape[1]
    return _Projection(
        *sizes, qkv, address(rope_TD), q_norm, k_norm, split.eps, torch.get_num_threads()
    )


class _CompiledSplit(torch.autograd.Function):
    """The kernels in C; the same way forward with and without gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        library: ctypes.CDLL,
        split: Heads,
        qkv_TX: Tensor,
        rope_TD: Tensor,
        q_norm_D: Tensor | None,
        k_norm_D: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        wide = (split.queries + 2 * split.groups) * rope_TD.shape[1]
        assert qkv_TX.shape == (len(rope_TD), wide), (
            "the table has a row a token, as wide as a head"
        )
        assert (q_norm_D is None) == (k_norm_D is None), "queries and keys have norms, or neither"
        assert all(
            norm is None or norm.shape == rope_TD.shape[1:] for norm in (q_norm_D, k_norm_D)
        ), "a head wide"
        shapes = (
            (len(rope_TD), heads, rope_TD.shape[1])
            for heads in (split.queries, split.groups, split.groups)
        )
        q_TND, k_TGD, v_TGD = (qkv_TX.new_empty(shape) for shape in shapes)
        projection = _projection(rope_TD, split, qkv_TX, q_norm_D, k_norm_D)
        library.rows_rope(
            ctypes.byref(projection), q_TND.data_ptr(), k_TGD.data_ptr(), v_TGD.data_ptr()
        )
        # Without norms the backward pass is a rotation alone: the projection need not be kept.
        ctx.save_for_backward(rope_TD, q_norm_D, k_norm_D, None if q_norm_D is None else qkv_TX)
        ctx.library = library
        ctx.split = split
        return q_TND, k_TGD, v_TGD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rope_TD, q_norm_D, k_norm_D, qkv_TX = ctx.saved_tensors
        d_q_TND, d_k_TGD, d_v_TGD = (d.contiguous() for d in grads)
        (rows, size) = rope_TD.shape
        heads = ctx.split.queries + 2 * ctx.split.groups
        d_qkv_TX = rope_TD.new_empty(rows, heads * size)
        d_norms_2D = rope_TD.new_empty(2, size) if any(ctx.needs_input_grad[4:]) else None
        parts = rope_TD.new_empty(ctx.library.rows_blocks(rows), 2, size)
        projection = _projection(rope_TD, ctx.split, qkv_TX, q_norm_D, k_norm_D)
        slopes = (address(x) for x in (d_q_TND, d_k_TGD, d_v_TGD, d_qkv_TX, d_norms_2D, parts))
        ctx.library.rows_rope_back(ctypes.byref(projection), *slopes)
        d_norms = (None, None) if d_norms_2D is None else d_norms_2D.unbind()
        return None, None, d_qkv_TX, None, *d_norms


class _TritonSplit(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        qkv_TX: Tensor,
        rope_PD: Tensor,
        positions_T: Tensor,
        split: Heads,
        q_norm_D: Tensor | None,
        k_norm_D: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        # Without norms the backward pass is a rotation alone: the projection need not be kept.
        ctx.save_for_backward(
            rope_PD, positions_T, q_norm_D, k_norm_D, None if q_norm_D is None else qkv_TX
        )
        ctx.split = split
        return triton_rope.forward(qkv_TX, rope_PD, positions_T, split, q_norm_D, k_norm_D)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        d_q_TND, d_k_TGD, d_v_TGD = grads
        rope_PD, positions_T, q_norm_D, k_norm_D, qkv_TX = ctx.saved_tensors
        d_qkv_TX, d_q_norm_D, d_k_norm_D = triton_rope.backward(
            d_q_TND, d_k_TGD, d_v_TGD, rope_PD, positions_T, q_norm_D, k_norm_D, qkv_TX, ctx.split
        )
        return d_qkv_TX, None, None, None, d_q_norm_D, d_k_norm_D
