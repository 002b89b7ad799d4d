"""Causal attention over packed sequences, the learner's context and the engine's prefill.

Sequences lie end to end in T tokens; for the attention alone they are laid out as a padded grid of S rows by L
columns. Padding stands right of every sequence, so a causal mask is all that is needed to keep it unseen.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


class PackedAttention:
    """Each sequence sees itself, up to and including the present token. `lengths_S` sum to T."""

    def __init__(self, lengths_S: Tensor) -> None:
        self.rows, self.columns = len(lengths_S), int(lengths_S.max())
        device = lengths_S.device
        sequence_T = torch.repeat_interleave(torch.arange(self.rows, device=device), lengths_S)
        starts_S = torch.cumsum(lengths_S, 0) - lengths_S
        offset_T = torch.arange(len(sequence_T), device=device) - starts_S[sequence_T]
        self.cell_T = sequence_T * self.columns + offset_T
        self.is_full = len(sequence_T) == self.rows * self.columns

    def __call__(self, layer: int, q_TND: Tensor, k_TGD: Tensor, v_TGD: Tensor) -> Tensor:
        q, k, v = (self._to_grid(x) for x in (q_TND, k_TGD, v_TGD))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        out_CND = mixed.transpose(1, 2).flatten(0, 1)
        return out_CND if self.is_full else out_CND[self.cell_T]

    def _to_grid(self, x_TND: Tensor) -> Tensor:
        if self.is_full:
            grid_CND = x_TND
        else:
            empty_CND = x_TND.new_zeros(self.rows * self.columns, *x_TND.shape[1:])
            grid_CND = empty_CND.index_copy(0, self.cell_T, x_TND)
        return grid_CND.view(self.rows, self.columns, *x_TND.shape[1:]).transpose(1, 2)
