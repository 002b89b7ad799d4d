"""From logits to tokens, row by row: pure functions, the same on every device.

Shapes: B rows, V vocabulary. A row's randomness is a function of its seed and position alone, so
neighbours, batch order and refill cannot change it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from whet.kernels.head import row_logprobs, sample_rows

_GOLDEN = 0x9E3779B97F4A7C15
_MIX1 = 0xBF58476D1CE4E5B9
_MIX2 = 0x94D049BB133111EB


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cuts:
    """The sampling settings of B rows, one tensor a setting."""

    temperature_B: Tensor
    top_k_B: Tensor
    top_p_B: Tensor
    min_p_B: Tensor

    @property
    def are_cut_B(self) -> Tensor:
        """Rows with top-k, top-p or min-p; at temperature 0 none of them matters."""
        cuts_B = (self.top_k_B > 0) | (self.top_p_B < 1) | (self.min_p_B > 0)
        return cuts_B & (self.temperature_B > 0)


def sample(
    logits_BV: Tensor, uniform_B: Tensor, cuts: Cuts, *, has_cuts: bool
) -> tuple[Tensor, Tensor]:
    """Choose a token a row and give its log-probability before any cut.

    `has_cuts` is false when no row uses top-k, top-p or min-p, which saves the sort.
    """
    token_B, logprob_B = sample_rows(logits_BV, uniform_B, cuts.temperature_B)
    if not has_cuts:
        return token_B, logprob_B
    scale_B = torch.where(cuts.temperature_B == 0, 1.0, cuts.temperature_B)
    probs_BV = cut(torch.softmax(logits_BV.float() / scale_B[:, None], dim=-1), cuts)
    # Rows without cuts keep their token: another way to add up must not change it when a row with
    # cuts comes beside.
    token_B = torch.where(cuts.are_cut_B, inverse_cdf(probs_BV, uniform_B), token_B)
    return token_B, row_logprobs(logits_BV, token_B, cuts.temperature_B)


def inverse_cdf(probs_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """Pick one token per row by inverting the cumulative sum; probability 0 is never picked."""
    sums_BV = probs_BV.cumsum(-1, dtype=torch.float64)
    # A product that rounds up to the total would point past the last likely token.
    target_B = (uniform_B * sums_BV[:, -1]).minimum(sums_BV[:, -1] * (1 - 2**-52))
    return torch.searchsorted(sums_BV, target_B[:, None], right=True)[:, 0].clamp(
        max=probs_BV.shape[1] - 1
    )


def cut(probs_BV: Tensor, cuts: Cuts) -> Tensor:
    """Zero what top-k, top-p and min-p leave out. The most likely token always stays."""
    order_BV = probs_BV.sort(dim=-1, descending=True, stable=True)
    sorted_BV = order_BV.values
    rank_V = torch.arange(probs_BV.shape[1], device=probs_BV.device)
    top_k_B = torch.where(cuts.top_k_B == 0, probs_BV.shape[1], cuts.top_k_B)
    before_BV = sorted_BV.cumsum(-1) - sorted_BV
    keep_BV = (rank_V < top_k_B[:, None]) & (
        (before_BV < cuts.top_p_B[:, None]) | (cuts.top_p_B[:, None] == 1)
    )
    keep_BV &= sorted_BV >= cuts.min_p_B[:, None] * sorted_BV[:, :1]
    keep_BV[:, 0] = True
    return torch.zeros_like(probs_BV).scatter(1, order_BV.indices, sorted_BV * keep_BV)


def uniforms(seed_B: Tensor, position_B: Tensor) -> Tensor:
    """Hash seed and position to a number in [0, 1) by SplitMix64, in wrapping int64."""
    x = seed_B + (position_B + 1) * _to_int64(_GOLDEN)
    x = (x ^ _shift_right(x, 30)) * _to_int64(_MIX1)
    x = (x ^ _shift_right(x, 27)) * _to_int64(_MIX2)
    return _shift_right(x ^ _shift_right(x, 31), 11).double() * 2.0**-53


def _to_int64(constant: int) -> int:
    return constant - 2**64 if constant >= 2**63 else constant


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Shift right without the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
