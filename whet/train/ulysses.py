# mypy: allow-untyped-calls
"""Ulysses sequence parallelism (Jacobs et al. 2023): ranks of a group share one packed batch.

Each rank computes embeddings, norms, feed-forward layers and the head for its part of the tokens.
Around attention an all-to-all exchanges tokens for heads, so that a rank has all tokens of its part
of the heads. Ranks exchange numbers and add none, except gradients of repeated heads.

Every rank of the group has the whole batch, and gets the log-probabilities of all its targets:
losses may compare tokens of a sequence or of a pair. Only the parameters' gradients are partial;
their sum over the ranks is the gradient of the loss that every rank computes. A loss or metric is
therefore counted on one rank of the group.
"""

from collections.abc import Callable
from math import ceil
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from whet.batching.examples import Batch
from whet.errors import ConfigError
from whet.kernels import AttentionSpec
from whet.kernels.layer_ops import split_heads
from whet.models.config import ModelConfig
from whet.models.transformer import PackedAttention, Transformer
from whet.train.learner import ForwardPass
from whet.train.value_model import ValueModel


def check_sequence(cfg: ModelConfig, size: int) -> None:
    """Refuse a number of ranks that cannot share the heads evenly."""
    if not cfg.can_split_heads(size):
        sizes = [str(number) for number in range(1, 9) if cfg.can_split_heads(number)]
        raise ConfigError(
            f"cluster.sequence_parallel = {size} does not divide the model's attention: "
            f"{cfg.num_heads} query heads on {cfg.num_kv_heads} key-value heads; possible values: "
            f"{', '.join(sizes)}"
        )


class UlyssesForwardPass(ForwardPass):
    """Runs a model on the ranks of a group together, each on its part of the tokens."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group

    def token_logprobs(
        self, model: Transformer, batch: Batch, *, entropy_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        return forward_split_logprobs(model, batch, self.group, entropy_gradient=entropy_gradient)

    def token_values(self, model: ValueModel, batch: Batch) -> Tensor:
        def apply_head(hidden_MH: Tensor, _: Tensor) -> Tensor:
            return F.linear(hidden_MH.float(), model.head.weight, model.head.bias)[:, 0]

        return forward_targets(model.body, batch, self.group, apply_head)


def forward_split_logprobs(
    model: Transformer, batch: Batch, group: dist.ProcessGroup, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Compute log-probability and entropy at each target, as `whet/train/learner.py` does alone."""

    def apply_head(hidden_MH: Tensor, mine_M: Tensor) -> Tensor:
        targets = batch.label_M[mine_M], batch.temperature_M[mine_M]
        logprob_M, entropy_M = model.token_logprobs(hidden_MH, *targets)
        return torch.stack([logprob_M, entropy_M if entropy_gradient else entropy_M.detach()])

    logprob_M, entropy_M = forward_targets(model, batch, group, apply_head)
    return logprob_M, entropy_M


def forward_targets(
    model: Transformer,
    batch: Batch,
    group: dist.ProcessGroup,
    apply_head: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Run the model on this rank's tokens; return the outputs of `apply_head` for all targets.

    `apply_head` gets the hidden states of this rank's targets, and their indices among all M. Its
    last dimension is that of the targets.
    """
    rank = dist.get_rank(group)
    tokens = len(batch.tokens_T)
    attend = UlyssesAttention(batch, group)
    part = attend.part
    padding = 0, part * group.size() - tokens
    of_rank = slice(rank * part, (rank + 1) * part)
    hidden_TH: Tensor = model(
        F.pad(batch.tokens_T, padding)[of_rank], F.pad(batch.positions_T, padding)[of_rank], attend
    )
    mine_M = torch.nonzero(batch.predictor_M // part == rank)[:, 0]
    values = apply_head(hidden_TH[batch.predictor_M[mine_M] - rank * part], mine_M)
    gathered: Tensor = _GatherTargets.apply(values, mine_M, len(batch.predictor_M), group)
    return gathered


class UlyssesAttention:
    """An `Attend` for a part of a batch's tokens: equally many on all ranks, with padding."""

    def __init__(self, batch: Batch, group: dist.ProcessGroup) -> None:
        self.tokens = len(batch.tokens_T)
        self.part = ceil(self.tokens / group.size())
        """Tokens per rank."""
        self.group = group
        self.packed = PackedAttention(batch.lengths_S, batch.longest, self.tokens)

    def __call__(self, layer: int, qkv_TX: Tensor, spec: AttentionSpec) -> Tensor:
        """Attend from all tokens with this rank's heads, and return all heads of its tokens.

        Norms and rope are applied before the exchange, while each token is on one rank.
        """
        size = self.group.size()
        repeats = max(1, size // spec.num_kv_heads)
        q_TND, k_TGD, v_TGD = split_heads(qkv_TX, spec)
        heads = [q_TND, *(x.repeat_interleave(repeats, dim=1) for x in (k_TGD, v_TGD))]
        counts = [x.shape[1] // size for x in heads]
        by_rank = torch.cat([x.unflatten(1, (size, -1)) for x in heads], dim=2).transpose(0, 1)
        exchanged = _AllToAll.apply(by_rank, self.group).flatten(0, 1)[: self.tokens]
        q_TND, k_TGD, v_TGD = (x.contiguous() for x in exchanged.split(counts, dim=1))
        mixed_TND = self.packed.attend(q_TND, k_TGD, v_TGD, spec.options)
        padding = 0, 0, 0, 0, 0, size * self.part - self.tokens
        by_rank = F.pad(mixed_TND, padding).unflatten(0, (size, self.part))
        own_TND: Tensor = _AllToAll.apply(by_rank, self.group).transpose(0, 1).flatten(1, 2)
        return own_TND


class _AllToAll(torch.autograd.Function):
    """Send entry r of the first dimension to rank r; gradients travel back the same way."""

    @staticmethod
    def forward(ctx: Any, by_rank: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _all_to_all(by_rank, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _all_to_all(grads[0], ctx.group), None


def _all_to_all(by_rank: Tensor, group: dist.ProcessGroup) -> Tensor:
    by_rank = by_rank.contiguous()
    received = torch.empty_like(by_rank)
    dist.all_to_all_single(received, by_rank, group=group)
    return received


class _GatherTargets(torch.autograd.Function):
    """Join the values of all ranks' targets; a rank gets the gradient of its own."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, mine_M: Tensor, count: int, group: dist.ProcessGroup
    ) -> Tensor:
        ctx.save_for_backward(mine_M)
        gathered = values.new_zeros(*values.shape[:-1], count)
        gathered[..., mine_M] = values
        dist.all_reduce(gathered, group=group)
        return gathered

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return grads[0][..., ctx.saved_tensors[0]], None, None, None
