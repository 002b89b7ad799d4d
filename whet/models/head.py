"""Log-probabilities and entropies from final hidden states, in chunks, so that no step holds all its logits at once.

Shapes: M targets, H hidden, V vocabulary.
"""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from whet.models.transformer import Transformer

CHUNK_ELEMENTS = 2**25
"""Logits computed at a time: 128 MiB in float32, a chunk of 220 tokens for a vocabulary of 152,000."""


def token_logprobs(
    model: Transformer,
    hidden_MH: Tensor,
    label_M: Tensor,
    temperature_M: Tensor,
    *,
    entropy_gradient: bool = False,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> tuple[Tensor, Tensor]:
    """Score each label under softmax(logits / temperature); also the entropy of that distribution, both in float32.

    With gradient, chunks are computed again in the backward pass instead of being kept.
    """
    rows = max(1, chunk_elements // model.cfg.vocab_size)

    def score(hidden: Tensor, label: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
        logprobs_RV = torch.log_softmax(model.logits(hidden) / temperature[:, None], dim=-1)
        source_RV = logprobs_RV if entropy_gradient else logprobs_RV.detach()
        entropy_R = -(source_RV.exp() * source_RV).sum(-1)
        return logprobs_RV.gather(1, label[:, None])[:, 0], entropy_R

    if len(hidden_MH) <= rows:
        return score(hidden_MH, label_M, temperature_M)
    chunks = zip(*(torch.split(x, rows) for x in (hidden_MH, label_M, temperature_M)), strict=True)
    keep = not torch.is_grad_enabled()
    scored = [score(*chunk) if keep else checkpoint(score, *chunk, use_reentrant=False) for chunk in chunks]
    return torch.cat([logprob for logprob, _ in scored]), torch.cat([entropy for _, entropy in scored])
