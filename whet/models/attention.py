"""Causal attention over packed sequences, for the learner and for prompts.

Shapes: T tokens of S sequences laid end to end, X tiles of queries, U tokens without those that
sequences have in common at their start, C cells of a grid with a line a sequence.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from whet.kernels.attention import packed_attention, tile_table, window_mask
from whet.kernels.c.attention_ops import attend
from whet.kernels.switch import c_kernels, uses_triton
from whet.models.rope import AttentionSpec


class PackedAttention:
    """Each sequence sees itself up to the present token; `lengths_S` sum to T.

    Without `longest` the host reads it, and waits for the device.
    """

    def __init__(
        self, lengths_S: Tensor, longest: int | None = None, tokens: int | None = None
    ) -> None:
        self.longest = int(lengths_S.max()) if longest is None else longest
        self.starts_S1 = F.pad(lengths_S.cumsum(0), (1, 0)).to(torch.int32)
        self.tiles_X2: Tensor | None = None
        if uses_triton(lengths_S):
            tokens = int(lengths_S.sum()) if tokens is None else tokens
            self.tiles_X2 = tile_table(self.starts_S1, tokens)

    def __call__(self, layer: int, qkv_TX: Tensor, spec: AttentionSpec) -> Tensor:
        return self.mix(*spec.split(qkv_TX), window=spec.window)

    def mix(
        self, q_TND: Tensor, k_TGD: Tensor, v_TGD: Tensor, *, window: int | None = None
    ) -> Tensor:
        return packed_attention(
            q_TND, k_TGD, v_TGD, self.starts_S1, self.longest, self.tiles_X2, window=window
        )


class MergedAttention:
    """The same on a CPU, where tokens that sequences have in common at their start are given once.

    `node_C` says which token stands in each cell, padded on the right, which causality hides;
    `cell_U` names a cell of each token.
    """

    def __init__(self, node_C: Tensor, cell_U: Tensor, longest: int) -> None:
        self.node_C = node_C
        self.cell_U = cell_U
        self.longest = longest

    def __call__(self, layer: int, qkv_TX: Tensor, spec: AttentionSpec) -> Tensor:
        q_UND, k_UGD, v_UGD = spec.split(qkv_TX)
        mask_CC = window_mask(self.longest, spec.window, q_UND.device)
        library = c_kernels(q_UND, k_UGD, v_UGD) if mask_CC is None else None
        if library is not None:
            return attend(
                library, q_UND, k_UGD, v_UGD, self.node_C.view(-1, self.longest), self.cell_U
            )
        q_SNCD, k_SGCD, v_SGCD = (self._to_grid(x) for x in (q_UND, k_UGD, v_UGD))
        mixed = F.scaled_dot_product_attention(
            q_SNCD,
            k_SGCD,
            v_SGCD,
            attn_mask=mask_CC,
            is_causal=mask_CC is None,
            enable_gqa=spec.num_heads != spec.num_kv_heads,
        )
        return mixed.transpose(1, 2).flatten(0, 1).index_select(0, self.cell_U)

    def _to_grid(self, x_UND: Tensor) -> Tensor:
        return (
            x_UND.index_select(0, self.node_C)
            .view(-1, self.longest, *x_UND.shape[1:])
            .transpose(1, 2)
        )
