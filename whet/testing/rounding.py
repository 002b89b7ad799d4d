"""How far apart float32 results may be when only the order of their sums differs.

A sum of n terms is off by about √n rounding units, relative to the size of its terms, and by five
times that hardly ever (Higham and Mary 2019, theorem 2.4). Sums that follow each other count
together.
"""

import math

from whet.models.config import ModelConfig
from whet.models.transformer import Transformer

UNIT = 2.0**-24
"""A float32 operation is off by at most this fraction of its result."""


def rounding_bound(num_terms: int) -> float:
    """Give the fraction of a result's size by which two orders of its sums may differ.

    >>> rounding_bound(2500)
    1.4901161193847656e-05
    """
    return 5 * math.sqrt(num_terms) * UNIT


def logprob_bound(model: Transformer) -> float:
    """Give how far apart two orders of summing may put a log-probability, or a logit.

    A logit's terms are no larger than its hidden state and its row of the head are long.
    """
    longest_state = math.sqrt(model.cfg.hidden_size) * float(model.norm.weight.detach().abs().max())
    longest_row = float(model.head_weight_VH.detach().float().norm(dim=1).max())
    return (
        rounding_bound(terms_of_pass(model.cfg, model.cfg.max_positions))
        * longest_state
        * longest_row
    )


def terms_of_gradient(cfg: ModelConfig, longest: int, tokens: int) -> int:
    """Count the terms summed on the way to a gradient: the pass there and back, then all tokens."""
    return 2 * terms_of_pass(cfg, longest) + tokens


def terms_of_pass(cfg: ModelConfig, longest: int) -> int:
    """Count the terms summed on the way to a logit, for sequences up to `longest` tokens."""
    attention = 3 * cfg.hidden_size + cfg.head_dim + longest + cfg.num_heads * cfg.head_dim
    feed_forward = 2 * cfg.hidden_size + cfg.intermediate_size
    head = 2 * cfg.hidden_size + cfg.vocab_size
    return cfg.num_layers * (attention + feed_forward) + head
