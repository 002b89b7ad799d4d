"""The learner: sums weight times loss over packed sequences, and steps the optimiser. It knows no
algorithm."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from whet.algos.catalog import Objective
from whet.algos.terms import TokenTerms
from whet.data.examples import Batch, Example, to_batch
from whet.data.pack import pack
from whet.data.prefixes import merge_prefixes
from whet.environment import keep_freed_memory
from whet.kernels.head import token_logprobs
from whet.kernels.switch import usable
from whet.models.attention import MergedAttention, PackedAttention
from whet.models.transformer import Transformer
from whet.train.memory import DeviceMemory
from whet.train.optim import Optimizer, TrainConfig, learning_rate
from whet.types import Floats

Metrics = dict[str, float]

CPU_TOKENS = 4096
"""Tokens of one pass on a CPU, where an example is not longer."""


class Learner:
    """Trains a model that an engine may share. `steps` is how many optimiser steps the schedule
    spans."""

    def __init__(
        self,
        model: Transformer,
        cfg: TrainConfig,
        *,
        steps: int,
        memory: DeviceMemory | None = None,
    ) -> None:
        self.model = model
        self.cfg = cfg
        self.steps = steps
        self.optimizer = Optimizer(model, cfg)
        self.memory = memory or DeviceMemory(model.device)
        self.device = model.device
        self.num_steps = 0
        if self.device.type == "cpu":
            keep_freed_memory()

    def update(self, examples: Sequence[Example], objective: Objective) -> Metrics:
        """Take one optimiser step on the sum of weight times loss over all examples, whatever the
        micro-batches."""
        self.make_room(examples)
        return self.accumulate(examples, objective) | self.optim_step()

    def accumulate(self, examples: Sequence[Example], objective: Objective) -> Metrics:
        """Add the gradient of all examples, without a step. Returns the loss, and each metric's
        mean.

        The mean is over tokens, or over pairs where answers are compared.
        """
        sums: dict[str, Tensor] = {}
        count = 0
        for group in micro_batches(self.model, examples, self.cfg.micro_tokens):
            batch = to_batch(group, self.device)
            for name, value in self.forward_backward(batch, objective).items():
                sums[name] = sums.get(name, torch.zeros((), device=self.device)) + value
            count += len(batch.weight)
        loss = float(sums.pop("loss", torch.zeros(())))
        return {"loss": loss} | {name: float(total) / max(count, 1) for name, total in sums.items()}

    def make_room(self, examples: Sequence[Example]) -> None:
        """See that an update on the examples fits on the device, before anything of it is there."""
        self.model.num_checkpointed = self.memory.make_room(self.model, self.optimizer, examples)

    def forward_backward(self, batch: Batch, objective: Objective) -> dict[str, Tensor]:
        """Add one batch's gradient. Returns the loss and, for each metric, its sum over tokens or
        pairs."""
        logprob_M, entropy_M = score_batch(
            self.model, batch, entropy_gradient=objective.needs_entropy_gradient
        )
        terms = TokenTerms(
            logprob_M=logprob_M,
            entropy_M=entropy_M,
            advantage_M=batch.advantage_M,
            behaviour_M=batch.behaviour_M,
            old_M=batch.old_M,
            reference_M=batch.reference_M,
            segment_M=batch.segment_M,
            chosen_P=batch.chosen_P,
            rejected_P=batch.rejected_P,
        )
        losses, metrics = objective.loss(terms)
        assert losses.shape == batch.weight.shape, (
            "an objective has a loss for each token, or for each pair"
        )
        loss = (losses * batch.weight).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return {"loss": loss.detach()} | {
            name: value.detach().sum() for name, value in metrics.items()
        }

    def optim_step(self) -> Metrics:
        """Move the weights by the gradient added so far."""
        lr = learning_rate(self.cfg, self.num_steps, self.steps)
        norm = self.optimizer.step(lr)
        self.num_steps += 1
        return {"train/lr": lr, "train/grad_norm": norm}

    def discard(self) -> None:
        """Forget the gradient added so far, as if it had been zero."""
        self.optimizer.forget()

    def logprobs(self, examples: Sequence[Example]) -> list[Floats]:
        """Score the response tokens of each example under the present weights, without gradient."""
        return score_examples(self.model, examples, self.cfg.micro_tokens)


def micro_batches(
    model: Transformer, examples: Sequence[Example], tokens: int
) -> list[list[Example]]:
    """Split examples for single passes of a model; only where it has kernels of its own is there no
    padding.

    A CPU gains nothing by passes that its caches cannot hold, so they stay small unless an example
    needs more.
    """
    if model.device.type == "cpu":
        longest = max((len(example.tokens) for example in examples), default=0)
        tokens = min(tokens, max(CPU_TOKENS, 2 * longest))
    return pack(examples, tokens, is_padded=not usable(model.device))


def score_batch(
    model: Transformer, batch: Batch, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Run the model over a packed batch; log-probability and entropy at each target."""
    logprob_M, entropy_M = token_logprobs(
        _hidden(model, batch),
        model.head_weight_VH,
        batch.label_M,
        batch.temperature_M,
        entropy=True,
    )
    return logprob_M, entropy_M if entropy_gradient else entropy_M.detach()


def _hidden(model: Transformer, batch: Batch) -> Tensor:
    """Run the model; its final hidden state where each target is predicted.

    On a CPU, what sequences have in common at their start is run once, and their last tokens are
    not run at all.
    """
    if batch.tokens_T.is_cuda or usable(model.device):
        attend = PackedAttention(batch.lengths_S, batch.longest, len(batch.tokens_T))
        hidden_TH: Tensor = model(batch.tokens_T, batch.positions_T, attend)
        return hidden_TH[batch.source_M]
    merged = merge_prefixes(batch.tokens_T.numpy(), batch.lengths_S.numpy())
    first_U, node_T, node_C, cell_U = map(
        torch.from_numpy, (merged.first_U, merged.node_T, merged.node_C, merged.cell_U)
    )
    hidden_UH: Tensor = model(
        batch.tokens_T[first_U],
        batch.positions_T[first_U],
        MergedAttention(node_C, cell_U, merged.longest),
    )
    return hidden_UH.index_select(0, node_T[batch.source_M])


@torch.no_grad()
def score_examples(
    model: Transformer, examples: Sequence[Example], micro_tokens: int
) -> list[Floats]:
    """Log-probabilities of each example's response tokens, in the order given."""
    found: dict[int, Floats] = {}
    for group in micro_batches(model, examples, micro_tokens):
        logprob_M, _ = score_batch(model, to_batch(group, model.device))
        ends = np.cumsum([example.num_targets for example in group])
        parts = np.split(logprob_M.cpu().numpy(), ends[:-1])
        found |= {id(example): part for example, part in zip(group, parts, strict=True)}
    return [found[id(example)] for example in examples]
