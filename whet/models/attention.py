"""Causal attention over packed sequences: the learner's context, and the prompts of an engine without pages.

Shapes: T tokens of S sequences laid end to end, X tiles of queries.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from whet.kernels.attention import packed_attention, tile_table
from whet.kernels.switch import usable
from whet.models.rope import Turn


class PackedAttention:
    """Each sequence sees itself, up to and including the present token. `lengths_S` sum to T; `longest` is their most.

    Without `longest` the host reads it, and waits for the device.
    """

    def __init__(self, lengths_S: Tensor, longest: int | None = None, tokens: int | None = None) -> None:
        self.longest = int(lengths_S.max()) if longest is None else longest
        self.starts_S1 = F.pad(lengths_S.cumsum(0), (1, 0)).to(torch.int32)
        self.tiles_X2: Tensor | None = None
        if usable(lengths_S):
            tokens = int(lengths_S.sum()) if tokens is None else tokens
            self.tiles_X2 = tile_table(self.starts_S1, tokens)

    def __call__(self, layer: int, qkv_TX: Tensor, turn: Turn) -> Tensor:
        return self.mix(*turn(qkv_TX))

    def mix(self, q_TND: Tensor, k_TGD: Tensor, v_TGD: Tensor) -> Tensor:
        return packed_attention(q_TND, k_TGD, v_TGD, self.starts_S1, self.longest, self.tiles_X2)
