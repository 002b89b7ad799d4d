"""Bounds on the difference of float32 results that differ only in the order of sums.

The error of a sum of n terms is about √n rounding units relative to the size of its terms, and
hardly ever five times as large (Higham and Mary 2019, theorem 2.4). The terms of consecutive sums
add up.
"""

import math

from whet.models.config import ModelConfig
from whet.models.transformer import Transformer

UNIT = 2.0**-24
"""Largest relative error of a float32 operation."""


def rounding_bound(num_terms: int) -> float:
    """Bound the relative difference between two orders of summing `num_terms` terms.

    >>> rounding_bound(2500)
    1.4901161193847656e-05
    """
    return 5 * math.sqrt(num_terms) * UNIT


def logprob_bound(model: Transformer) -> float:
    """Bound the difference of a log-probability, or a logit, between two orders of summation.

    The size of a logit is at most the norm of its hidden state times that of its row of the head.
    """
    longest_state = math.sqrt(model.cfg.hidden_size) * float(model.norm.weight.detach().abs().max())
    longest_row = float(model.head_weight_VH.detach().float().norm(dim=1).max())
    return (
        rounding_bound(terms_of_pass(model.cfg, model.cfg.max_positions))
        * longest_state
        * longest_row
    )


def terms_of_gradient(cfg: ModelConfig, longest: int, tokens: int) -> int:
    """Count the terms summed for a gradient: forward and backward pass, then all tokens."""
    return 2 * terms_of_pass(cfg, longest) + tokens


def terms_of_pass(cfg: ModelConfig, longest: int) -> int:
    """Count the terms summed for a logit, for sequences of up to `longest` tokens."""
    attention = 3 * cfg.hidden_size + cfg.head_dim + longest + cfg.num_heads * cfg.head_dim
    feed_forward = 2 * cfg.hidden_size + cfg.intermediate_size
    head = 2 * cfg.hidden_size + cfg.vocab_size
    return cfg.num_layers * (attention + feed_forward) + head
