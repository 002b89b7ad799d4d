"""The key/value cache: one row a running request, kept dense from row 0 so that a step reads no holes.

Shapes: R rows, B rows in use, G key/value heads, C context length, D head size, T prompt tokens laid end to end.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from whet.models.attention import PackedAttention
from whet.models.config import ModelConfig


class Cache:
    """Keys and values of every layer, written in place."""

    def __init__(self, cfg: ModelConfig, *, rows: int, context: int, dtype: torch.dtype, device: torch.device) -> None:
        shape = (cfg.num_layers, rows, cfg.num_kv_heads, context, cfg.head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)

    def move(self, source_M: Tensor, target_M: Tensor, used: int) -> None:
        """Copy whole rows, to fill the places of finished requests."""
        for store in (self.keys, self.values):
            store[:, target_M, :, :used] = store[:, source_M, :, :used]


class Prefill:
    """Packed attention over prompts that also files their keys and values under the rows that will read them."""

    def __init__(self, cache: Cache, lengths_S: Tensor, row_M: Tensor, column_M: Tensor, source_M: Tensor) -> None:
        self.cache, self.packed = cache, PackedAttention(lengths_S)
        self.row_M, self.column_M, self.source_M = row_M, column_M, source_M

    def __call__(self, layer: int, q_TND: Tensor, k_TGD: Tensor, v_TGD: Tensor) -> Tensor:
        self.cache.keys[layer][self.row_M, :, self.column_M] = k_TGD[self.source_M]
        self.cache.values[layer][self.row_M, :, self.column_M] = v_TGD[self.source_M]
        return self.packed(layer, q_TND, k_TGD, v_TGD)


class Decode:
    """Attention of one new token a row over all that the row has cached, the new token included."""

    def __init__(self, cache: Cache, position_B: Tensor, used: int) -> None:
        self.cache, self.position_B, self.used = cache, position_B, used
        self.row_B = torch.arange(len(position_B), device=position_B.device)
        columns_C = torch.arange(used, device=position_B.device)
        self.mask_B11C = (columns_C <= position_B[:, None])[:, None, None, :]

    def __call__(self, layer: int, q_BND: Tensor, k_BGD: Tensor, v_BGD: Tensor) -> Tensor:
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        keys[self.row_B, :, self.position_B] = k_BGD
        values[self.row_B, :, self.position_B] = v_BGD
        rows, heads, size = q_BND.shape
        groups = k_BGD.shape[1]
        # Query heads that share a key head become rows of one small matrix: no key is read twice.
        q_BGXD = q_BND.reshape(rows, groups, heads // groups, size)
        mixed = F.scaled_dot_product_attention(
            q_BGXD, keys[:rows, :, : self.used], values[:rows, :, : self.used], attn_mask=self.mask_B11C
        )
        return mixed.reshape(rows, heads, size)
