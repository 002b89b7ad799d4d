"""The dense cache, for CPUs: one row of the full context a request, so that a step reads no holes and copies nothing.

Shapes: R rows, B rows in use, G key/value heads, C context length, D head size, T tokens of a forward pass, M rows that
are copied.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from whet.engine.prompts import Layout
from whet.engine.seats import Indices
from whet.engine.state import Rows
from whet.engine.transfer import Link
from whet.models.attention import PackedAttention
from whet.models.rope import Turn
from whet.models.transformer import Transformer


class Slots:
    """Keys and values of every layer, written in place. The last row is the scheduler's spare."""

    has_lag = splits = is_recorded = False

    def __init__(self, model: Transformer, *, slots: int, context: int) -> None:
        cfg, weight = model.cfg, model.embed.weight
        shape = (cfg.num_layers, slots + 1, cfg.num_kv_heads, context, cfg.head_dim)
        self.keys = torch.zeros(shape, dtype=weight.dtype, device=weight.device)
        self.values = torch.zeros(shape, dtype=weight.dtype, device=weight.device)
        self.room = OwnRows()

    def holds(self, tokens: int) -> bool:
        return True

    def prefill(self, layout: Layout, link: Link) -> "Prefill":
        row_T, column_T, starts_S1 = link.send(layout.row_T, layout.positions_T, layout.starts_S1)
        return Prefill(self, row_T, column_T, starts_S1.diff())

    def copy(self, longest: int, link: Link) -> None:
        pairs_M2 = self.room.take_copies()
        if len(pairs_M2):
            source_M, target_M = link.send(pairs_M2[:, 0].copy(), pairs_M2[:, 1].copy())
            self.move(source_M, target_M, longest)

    def move(self, source_M: Tensor, target_M: Tensor, longest: int) -> None:
        for cached in (self.keys, self.values):
            cached[:, target_M, :, :longest] = cached[:, source_M, :, :longest]

    def sync(self, num_rows: int, longest: int, link: Link) -> None:
        """Nothing is kept outside the device."""

    def decode(self, rows: Rows, size: int, longest: int) -> "Decode":
        return Decode(self, rows.position_of(slice(0, size)), longest)


class OwnRows:
    """Room that never runs out: each row has its own, and samples of one prompt copy it."""

    def __init__(self) -> None:
        self._copies: list[tuple[int, int]] = []

    def place(self, row: int, *, tokens: int, ahead: int, most: int, source: int | None) -> bool:
        if source is not None:
            self._copies.append((source, row))
        return True

    def grow(self, row_M: Indices, tokens_M: Indices) -> bool:
        return True

    def release(self, row_M: Indices) -> None:
        """What a row held is written over."""

    def move(self, source_M: Indices, target_M: Indices) -> None:
        """The store moves the tokens themselves."""

    def clear(self) -> None:
        self._copies.clear()

    def take_copies(self) -> Indices:
        """Hand out, once, the rows to copy: pairs of source and target."""
        copies = np.array(self._copies, dtype=np.int64).reshape(-1, 2)
        self._copies.clear()
        return copies


class Prefill:
    """Packed attention over contexts that also files their keys and values."""

    def __init__(self, store: Slots, row_T: Tensor, column_T: Tensor, lengths_S: Tensor) -> None:
        self.store, self.packed = store, PackedAttention(lengths_S)
        self.row_T, self.column_T = row_T, column_T

    def __call__(self, layer: int, qkv_TX: Tensor, turn: Turn) -> Tensor:
        q_TND, k_TGD, v_TGD = turn(qkv_TX)
        self.store.keys[layer][self.row_T, :, self.column_T] = k_TGD
        self.store.values[layer][self.row_T, :, self.column_T] = v_TGD
        return self.packed.mix(q_TND, k_TGD, v_TGD)


class Decode:
    """Attention of one new token a row over all that the row has cached, the new token included."""

    def __init__(self, store: Slots, position_B: Tensor, used: int) -> None:
        self.store, self.position_B, self.used = store, position_B, used
        self.row_B = torch.arange(len(position_B), device=position_B.device)
        columns_C = torch.arange(used, device=position_B.device)
        self.mask_B11C = (columns_C <= position_B[:, None])[:, None, None, :]

    def __call__(self, layer: int, qkv_TX: Tensor, turn: Turn) -> Tensor:
        q_BND, k_BGD, v_BGD = turn(qkv_TX)
        keys, values = self.store.keys[layer], self.store.values[layer]
        keys[self.row_B, :, self.position_B] = k_BGD
        values[self.row_B, :, self.position_B] = v_BGD
        rows, heads, size = q_BND.shape
        # Query heads that share a key head become rows of one small matrix: no key is read twice.
        q_BGXD = q_BND.reshape(rows, turn.groups, heads // turn.groups, size)
        mixed = F.scaled_dot_product_attention(
            q_BGXD, keys[:rows, :, : self.used], values[:rows, :, : self.used], attn_mask=self.mask_B11C
        )
        return mixed.reshape(rows, heads, size)
