# mypy: allow-untyped-calls
"""Attention of packed sequences in C, and the backward pass.

Shapes: U tokens, S lines of C cells, N query heads, G key/value heads, D head size.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from whet.errors import TrainError

_POINTER, _INT = ctypes.c_void_p, ctypes.c_int64


class _Attention(ctypes.Structure):
    _fields_ = (
        *((name, _INT) for name in ("lines", "longest", "heads", "groups", "size", "threads")),
        *((name, _POINTER) for name in ("node", "cell", "q", "k", "v", "out", "lse")),
        *((name, _POINTER) for name in ("d_out", "d_q", "d_k", "d_v", "room")),
    )


def attend(
    library: ctypes.CDLL,
    q_UND: Tensor,
    k_UGD: Tensor,
    v_UGD: Tensor,
    node_SC: Tensor,
    cell_U: Tensor,
) -> Tensor:
    """Let each token see the cells of its line up to its own.

    `node_SC` says which token stands in each cell, `cell_U` which of its cells each token answers
    for.
    """
    out_UND: Tensor = _Attend.apply(library, q_UND, k_UGD, v_UGD, node_SC, cell_U)
    return out_UND


def packed_lines(starts_S1: Tensor, longest: int, tokens: int) -> tuple[Tensor, Tensor]:
    """Give the cells of packed sequences that share nothing: one line each, for `attend`.

    >>> [x.tolist() for x in packed_lines(torch.tensor([0, 2, 5]), 3, 5)]
    [[[0, 1, 1], [2, 3, 4]], [0, 1, 3, 4, 5]]
    """
    starts_S1 = starts_S1.long()
    node_SC = starts_S1[:-1, None] + torch.arange(longest)
    line_T = torch.repeat_interleave(
        torch.arange(len(node_SC)), starts_S1.diff(), output_size=tokens
    )
    cell_T = torch.arange(tokens) - starts_S1[line_T] + line_T * longest
    return node_SC.minimum(starts_S1[1:, None] - 1).clamp(min=0), cell_T


class _Attend(torch.autograd.Function):
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
            "a key and a value a token"
        )
        assert k_UGD.shape[2] == q_UND.shape[2] and q_UND.shape[1] % k_UGD.shape[1] == 0, (
            "heads of one size, in groups"
        )
        inputs = tuple(x.contiguous() for x in (node_SC, cell_U, q_UND, k_UGD, v_UGD))
        out_UND = torch.empty_like(inputs[2])
        lse_UN = q_UND.new_empty(q_UND.shape[:2])
        _run(library.attend_forward, *inputs, out_UND, lse_UN)
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
        room = q_UND.new_empty(2, node_SC.numel(), *k_UGD.shape[1:])
        _run(
            ctx.library.attend_backward,
            *saved,
            grads[0].contiguous(),
            d_q_UND,
            d_k_UGD,
            d_v_UGD,
            room,
        )
        return None, d_q_UND, d_k_UGD, d_v_UGD, None, None


def _run(
    kernel: Any, node_SC: Tensor, cell_U: Tensor, q_UND: Tensor, k_UGD: Tensor, *others: Tensor
) -> None:
    sizes = *node_SC.shape, *q_UND.shape[1:2], *k_UGD.shape[1:], torch.get_num_threads()
    given = _Attention(*sizes, *(x.data_ptr() for x in (node_SC, cell_U, q_UND, k_UGD, *others)))
    if kernel(ctypes.byref(given)):
        raise TrainError("there is no memory left for attention; lower train.micro_tokens")
