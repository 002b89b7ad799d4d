# mypy: allow-untyped-calls
"""RMSNorm with residual, SwiGLU, and heads with rope: all of a layer but matmuls and attention.

Shapes: T tokens, H hidden, F width of the feed-forward, B rows decoding, X = (N + 2 G) D, N query
heads, G key/value heads, D head size, C positions. Norms and gates are computed in float32 and
rounded once; a residual sum is rounded to its dtype before the norm. Gate and up are side by side
in one row of 2 F. The rope table has D/2 cosines then D/2 sines per position, in float32, for heads
in the half-split layout; queries and keys are rounded to the dtype of the projection before rope.

The C functions at the end of this file and the Triton functions in triton_layer_ops.py have the
same names, and come in pairs of forward and backward.
"""

import ctypes
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from whet.kernels import HAS_TRITON, IS_INTERPRETED, LANES, TRITON_DEVICES, AttentionSpec
from whet.kernels.c import library as c_library

if HAS_TRITON:
    from whet.kernels import triton_layer_ops

KernelPair = tuple[Callable[..., Any], Callable[..., Any]]
NO_SECOND = "kernels have no second derivative"


def c_kernels(*tensors: Tensor | None) -> ctypes.CDLL | None:
    """Return the C kernels if they accept these tensors: float32, on a CPU, in whole vectors."""
    fits = all(
        x.dtype == torch.float32 and x.device.type == "cpu" and x.shape[-1] % LANES == 0
        for x in tensors
        if x is not None
    )
    return c_library.library() if fits and not IS_INTERPRETED else None


def addresses(*tensors: Tensor | None) -> list[int | None]:
    """Return the addresses of contiguous tensors for a C kernel; None becomes a null pointer."""
    return [None if x is None else x.data_ptr() for x in tensors]


def add_norm(
    x_TH: Tensor, residual_TH: Tensor | None, weight_H: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Return the norm of x + residual, and the sum itself. Without a residual the sum is x."""
    if x_TH.device.type in TRITON_DEVICES:
        if not torch.is_grad_enabled():
            return triton_layer_ops.norm_forward(x_TH, residual_TH, weight_H, eps)
        kernels: KernelPair = triton_layer_ops.norm_forward, triton_layer_ops.norm_backward
    elif c_kernels(x_TH, residual_TH, weight_H) is None:
        return torch_add_norm(x_TH, residual_TH, weight_H, eps)
    else:
        kernels = _norm_forward, _norm_backward
    normed_TH, sum_TH = _AddNorm.apply(kernels, x_TH, residual_TH, weight_H, eps)
    return normed_TH, x_TH if residual_TH is None else sum_TH


def torch_add_norm(
    x_TH: Tensor, residual_TH: Tensor | None, weight_H: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """`add_norm` in plain torch, on any device."""
    sum_TH = x_TH if residual_TH is None else x_TH + residual_TH
    return F.rms_norm(sum_TH, weight_H.shape, weight_H, eps), sum_TH


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        kernels: KernelPair,
        x_TH: Tensor,
        residual_TH: Tensor | None,
        weight_H: Tensor,
        eps: float,
    ) -> tuple[Tensor, Tensor]:
        normed_TH, sum_TH = kernels[0](x_TH, residual_TH, weight_H, eps)
        ctx.save_for_backward(sum_TH, weight_H)
        ctx.kernels = kernels
        ctx.eps = eps
        ctx.set_materialize_grads(False)
        # Without a residual the caller already has the sum, and an output must not be an input.
        return normed_TH, x_TH.new_empty(0) if residual_TH is None else sum_TH

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        assert not torch.is_grad_enabled(), NO_SECOND
        d_normed_TH, d_sum_TH = grads
        if d_normed_TH is None:
            return None, d_sum_TH, d_sum_TH, None, None
        _, _, has_residual, has_weight, _ = ctx.needs_input_grad
        d_x_TH, d_weight_H = ctx.kernels[1](
            d_normed_TH, d_sum_TH, *ctx.saved_tensors, ctx.eps, has_weight
        )
        return None, d_x_TH, d_x_TH if has_residual else None, d_weight_H, None


def swiglu(gate_up_TF: Tensor) -> Tensor:
    """Compute silu of the first half of each row times the second half."""
    if gate_up_TF.device.type in TRITON_DEVICES:
        if not torch.is_grad_enabled():
            return triton_layer_ops.swiglu_forward(gate_up_TF)
        kernels: KernelPair = triton_layer_ops.swiglu_forward, triton_layer_ops.swiglu_backward
    elif c_kernels(*gate_up_TF.chunk(2, dim=-1)) is None:
        return torch_swiglu(gate_up_TF)
    else:
        kernels = _swiglu_forward, _swiglu_backward
    out_TF: Tensor = _SwiGLU.apply(kernels, gate_up_TF)
    return out_TF


def torch_swiglu(gate_up_TF: Tensor) -> Tensor:
    """`swiglu` in plain torch, on any device."""
    gate_TF, up_TF = gate_up_TF.chunk(2, dim=-1)
    if gate_up_TF.element_size() >= 4:
        return F.silu(gate_TF) * up_TF
    return (F.silu(gate_TF.float()) * up_TF.float()).to(gate_up_TF.dtype)


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernels: KernelPair, gate_up_TF: Tensor) -> Any:
        ctx.save_for_backward(gate_up_TF)
        ctx.kernels = kernels
        return kernels[0](gate_up_TF)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        assert not torch.is_grad_enabled(), NO_SECOND
        return None, ctx.kernels[1](grads[0], *ctx.saved_tensors)


def split_heads(qkv_TX: Tensor, spec: AttentionSpec) -> tuple[Tensor, Tensor, Tensor]:
    """Split the projection into q_TND, k_TGD and v_TGD, and apply norms and rope to q and k.

    The kernels return contiguous tensors; plain torch may return views of one tensor.
    """
    has_kernels = spec.options.has_kernels
    if has_kernels and qkv_TX.device.type in TRITON_DEVICES:
        if not torch.is_grad_enabled():
            return triton_layer_ops.rope_forward(qkv_TX, spec)
        kernels: KernelPair = triton_layer_ops.rope_forward, triton_layer_ops.rope_backward
    elif has_kernels and c_kernels(qkv_TX, spec.rope_CD, spec.q_norm_D, spec.k_norm_D):
        if spec.positions_T is not None:
            spec = replace(spec, rope_CD=spec.rope_CD[spec.positions_T], positions_T=None)
        kernels = _rope_forward, _rope_backward
    else:
        return torch_split_heads(qkv_TX, spec)
    heads: tuple[Tensor, Tensor, Tensor] = _SplitHeads.apply(
        kernels, spec, qkv_TX, spec.q_norm_D, spec.k_norm_D
    )
    return heads


@torch.no_grad()
def split_heads_into(
    qkv_BX: Tensor, spec: AttentionSpec, keys_pages: Tensor, values_pages: Tensor, cell_B: Tensor
) -> Tensor:
    """Split heads with the same bits as `split_heads`; write k and v to pages, and return q_BND.

    Pages are [pages, G, page size, D]. A row goes to page `cell // page size`, offset `cell % page
    size`; a row with a negative cell is not written.
    """
    if spec.options.has_kernels and qkv_BX.device.type in TRITON_DEVICES:
        return triton_layer_ops.rope_forward_into(qkv_BX, spec, keys_pages, values_pages, cell_B)
    q_BND, k_BGD, v_BGD = split_heads(qkv_BX, spec)
    is_written_B = cell_B >= 0
    page_B = cell_B[is_written_B] // keys_pages.shape[2]
    offset_B = cell_B[is_written_B] % keys_pages.shape[2]
    keys_pages[page_B, :, offset_B] = k_BGD[is_written_B]
    values_pages[page_B, :, offset_B] = v_BGD[is_written_B]
    return q_BND


def torch_split_heads(qkv_TX: Tensor, spec: AttentionSpec) -> tuple[Tensor, Tensor, Tensor]:
    """`split_heads` in plain torch, on any device."""
    rope_TD = spec.rope_CD if spec.positions_T is None else spec.rope_CD[spec.positions_T]
    heads = spec.num_heads
    num_rotated = heads + spec.num_kv_heads
    qkv = qkv_TX.view(len(qkv_TX), num_rotated + spec.num_kv_heads, -1)
    if spec.q_norm_D is None or spec.k_norm_D is None:
        rotated = rotate(qkv[:, :num_rotated], rope_TD)
        return rotated[:, :heads], rotated[:, heads:], qkv[:, num_rotated:]
    q_TND = F.rms_norm(qkv[:, :heads], spec.q_norm_D.shape, spec.q_norm_D, spec.eps)
    k_TGD = F.rms_norm(qkv[:, heads:num_rotated], spec.k_norm_D.shape, spec.k_norm_D, spec.eps)
    return rotate(q_TND, rope_TD), rotate(k_TGD, rope_TD), qkv[:, num_rotated:]


def rotate(x_TND: Tensor, rope_TD: Tensor) -> Tensor:
    """Apply rope: rotate the two halves of each head by the angle of its position."""
    cos, sin = rope_TD.unsqueeze(1).chunk(2, dim=-1)
    first, second = x_TND.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(
        x_TND.dtype
    )


class _SplitHeads(torch.autograd.Function):
    """`split_heads` with gradients; norms are separate arguments so that they get gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        kernels: KernelPair,
        spec: AttentionSpec,
        qkv_TX: Tensor,
        q_norm_D: Tensor | None,
        k_norm_D: Tensor | None,
    ) -> Any:
        # Without norms the backward pass is only a rotation, and does not need the projection.
        ctx.save_for_backward(None if q_norm_D is None else qkv_TX)
        ctx.kernels = kernels
        ctx.spec = spec
        return kernels[0](qkv_TX, spec)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        assert not torch.is_grad_enabled(), NO_SECOND
        has_norms = any(ctx.needs_input_grad[3:])
        return None, None, *ctx.kernels[1](grads, *ctx.saved_tensors, ctx.spec, has_norms)


def _norm_forward(
    x_TH: Tensor, residual_TH: Tensor | None, weight_H: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    assert weight_H.shape == x_TH.shape[-1:], "the weight has one entry per column"
    assert residual_TH is None or residual_TH.shape == x_TH.shape, (
        "the residual has the shape of the input"
    )
    x_TH = x_TH.contiguous()
    weight_H = weight_H.contiguous()
    residual_TH = None if residual_TH is None else residual_TH.contiguous()
    normed_TH = torch.empty_like(x_TH)
    sum_TH = x_TH if residual_TH is None else torch.empty_like(x_TH)
    width = x_TH.shape[-1]
    inputs = addresses(x_TH, residual_TH, weight_H)
    results = addresses(normed_TH, None if residual_TH is None else sum_TH)
    _library().layer_add_norm(
        x_TH.numel() // width, width, *inputs, eps, *results, torch.get_num_threads()
    )
    return normed_TH, sum_TH


def _norm_backward(
    d_normed_TH: Tensor,
    d_sum_TH: Tensor | None,
    sum_TH: Tensor,
    weight_H: Tensor,
    eps: float,
    has_weight: bool,
) -> tuple[Tensor, Tensor | None]:
    library = _library()
    weight_H = weight_H.contiguous()
    d_normed_TH = d_normed_TH.contiguous()
    d_sum_TH = None if d_sum_TH is None else d_sum_TH.contiguous()
    width = len(weight_H)
    rows = d_normed_TH.numel() // width
    d_x_TH = torch.empty_like(d_normed_TH)
    d_weight_H = torch.empty_like(weight_H) if has_weight else None
    partials = weight_H.new_empty(library.layer_blocks(rows), width)
    grad_tensors = addresses(d_normed_TH, d_sum_TH, d_x_TH, d_weight_H, partials)
    library.layer_add_norm_backward(
        rows, width, *addresses(sum_TH, weight_H), eps, *grad_tensors, torch.get_num_threads()
    )
    return d_x_TH, d_weight_H


def _swiglu_forward(gate_up_TF: Tensor) -> Tensor:
    gate_up_TF = gate_up_TF.contiguous()
    inner = gate_up_TF.shape[-1] // 2
    out_TF = gate_up_TF.new_empty((*gate_up_TF.shape[:-1], inner))
    _library().layer_swiglu(
        out_TF.numel() // inner, inner, *addresses(gate_up_TF, out_TF), torch.get_num_threads()
    )
    return out_TF


def _swiglu_backward(d_out_TF: Tensor, gate_up_TF: Tensor) -> Tensor:
    d_out_TF = d_out_TF.contiguous()
    gate_up_TF = gate_up_TF.contiguous()
    d_gate_up_TF = torch.empty_like(gate_up_TF)
    inner = d_out_TF.shape[-1]
    _library().layer_swiglu_backward(
        d_out_TF.numel() // inner,
        inner,
        *addresses(gate_up_TF, d_out_TF, d_gate_up_TF),
        torch.get_num_threads(),
    )
    return d_gate_up_TF


class _Projection(ctypes.Structure):
    """The projection and the settings of rope: the struct of layer_ops.c."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "heads", "groups", "size")),
        *((name, ctypes.c_void_p) for name in ("qkv", "rope", "q_norm", "k_norm")),
        ("eps", ctypes.c_float),
        ("threads", ctypes.c_int64),
    )


def _rope_forward(qkv_TX: Tensor, spec: AttentionSpec) -> tuple[Tensor, Tensor, Tensor]:
    rows, size = spec.rope_CD.shape
    norms = spec.q_norm_D, spec.k_norm_D
    assert qkv_TX.shape == (rows, (spec.num_heads + 2 * spec.num_kv_heads) * size), (
        "the table has a row per token, as wide as a head"
    )
    assert len({norm is None for norm in norms}) == 1, "queries and keys have norms, or neither"
    assert all(norm is None or norm.shape == (size,) for norm in norms), "a head wide"
    q_TND = qkv_TX.new_empty(rows, spec.num_heads, size)
    k_TGD = qkv_TX.new_empty(rows, spec.num_kv_heads, size)
    v_TGD = torch.empty_like(k_TGD)
    _run_rope(_library().layer_rope, qkv_TX, spec, q_TND, k_TGD, v_TGD)
    return q_TND, k_TGD, v_TGD


def _rope_backward(
    grads: tuple[Tensor, ...], qkv_TX: Tensor | None, spec: AttentionSpec, has_norms: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    library = _library()
    rows, size = spec.rope_CD.shape
    d_qkv_TX = grads[0].new_empty(rows, (spec.num_heads + 2 * spec.num_kv_heads) * size)
    d_norms_2D = grads[0].new_empty(2, size) if has_norms else None
    partials = grads[0].new_empty(library.layer_blocks(rows), 2, size)
    grad_tensors = *(d.contiguous() for d in grads), d_qkv_TX, d_norms_2D, partials
    _run_rope(library.layer_rope_backward, qkv_TX, spec, *grad_tensors)
    return d_qkv_TX, *((None, None) if d_norms_2D is None else d_norms_2D.unbind())


def _run_rope(
    kernel: Callable[..., None], qkv_TX: Tensor | None, spec: AttentionSpec, *others: Tensor | None
) -> None:
    tensors = qkv_TX, spec.rope_CD, spec.q_norm_D, spec.k_norm_D
    # A variable keeps the copies alive during the call that reads their addresses.
    contiguous = [None if x is None else x.contiguous() for x in tensors]
    rows, size = spec.rope_CD.shape
    sizes = rows, spec.num_heads, spec.num_kv_heads, size
    projection = _Projection(*sizes, *addresses(*contiguous), spec.eps, torch.get_num_threads())
    kernel(ctypes.byref(projection), *addresses(*others))


def _library() -> ctypes.CDLL:
    library = c_library.library()
    assert library is not None, "the C kernels were chosen, so they are there"
    return library
