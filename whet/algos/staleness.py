"""Correction for tokens that the engine sampled at other probabilities than the learner gives them.

Kernels, number formats and a lag of steps make the two differ. The factor is the learner's
probability at the start of the step over the engine's; the policy loss is multiplied by it, and it
has no gradient.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from whet.algos.losses import MAX_LOG_RATIO
from whet.algos.terms import TokenTerms, old_logprobs, segment_sum
from whet.config import Config


class Staleness(Config):
    """How losses are corrected for the gap between engine and learner."""

    rule: Literal["none", "truncate", "mask"] = "none"
    """What is done to the factor: nothing, truncate bounds it (TIS, Yao et al. 2025), mask drops
    tokens that are out of bounds (IcePop, MIS)."""
    level: Literal["token", "sequence"] = "token"
    """sequence multiplies the factors of all its tokens into one."""
    low: float = Field(default=0.0, ge=0.0)
    """Smallest factor within bounds."""
    high: float = Field(default=2.0, gt=0.0)
    """Largest factor within bounds."""

    def without_effect(self) -> dict[str, str]:
        reason = 'staleness.rule is "none"'
        return dict.fromkeys(("level", "low", "high"), reason) if self.rule == "none" else {}


@torch.no_grad()
def correction(terms: TokenTerms, cfg: Staleness) -> tuple[Tensor, Tensor]:
    """What multiplies each token's loss, and where a bound was hit."""
    log_factor_M = old_logprobs(terms) - terms.behaviour_M
    if cfg.level == "sequence":
        log_factor_M = segment_sum(log_factor_M, terms.segment_M)
    factor_M = torch.exp(log_factor_M.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    is_outside_M = (factor_M < cfg.low) | (factor_M > cfg.high)
    if cfg.rule == "none":
        return torch.ones_like(factor_M), torch.zeros_like(is_outside_M)
    if cfg.rule == "truncate":
        return factor_M.clamp(cfg.low, cfg.high), is_outside_M
    return factor_M.masked_fill(is_outside_M, 0.0), is_outside_M
