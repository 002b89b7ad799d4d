"""Algorithms by name: a name is a row of choices, not a class. What a config sets replaces what the row says.

| name | advantage | surrogate | weights | source |
|---|---|---|---|---|
| grpo | z-score in the group, ddof 1 | clip .2 .2 | mean over tokens, then sequences | Shao et al. 2024, eq. 3 |
| dr_grpo | centred in the group | clip .2 .2 | sum over a constant length | Liu et al. 2025 |
| rloo | leave one out | reinforce | sum over tokens, mean over sequences | Ahmadian et al. 2024 |
| game24 | running mean and deviation | clip .2 .2 | mean over tokens, then sequences | LLM4Game24 report |
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from whet.algos import advantages, losses, weights
from whet.algos.losses import KlEstimator
from whet.algos.terms import TokenTerms
from whet.config import Config

AlgoName = Literal["grpo", "dr_grpo", "rloo", "game24"]


class AlgoConfig(Config):
    """How rewards become gradients."""

    name: AlgoName = "grpo"
    clip_low: float = Field(default=0.2, ge=0.0)
    clip_high: float = Field(default=0.2, ge=0.0)
    max_momentum: float = Field(default=0.2, ge=0.0, lt=1.0)
    """For game24: the largest share of history in the running mean and deviation; 0 is group-relative."""
    kl: float = Field(default=0.0, ge=0.0)
    """Weight of the KL to the starting policy in the loss; 0 needs no reference model."""
    kl_estimator: KlEstimator = "k2"
    """k2 is the one whose gradient is the KL's own; see `losses.kl`."""
    entropy: float = 0.0
    """Weight of an entropy bonus in the loss; 0 logs the entropy only."""
    minibatches: int = Field(default=1, ge=1)
    """Optimiser steps per batch of rollouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A per-token loss and the metrics that go with it; each metric is a tensor [M], averaged by the learner."""

    loss: Callable[[TokenTerms], tuple[Tensor, dict[str, Tensor]]]
    needs_entropy_gradient: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    advantage: advantages.Advantage
    objective: Objective
    weights: weights.Weights
    needs_reference: bool
    trains_on_zero_advantage: bool
    """Whether a rollout of zero advantage still has a gradient: through the KL or the entropy."""
    minibatches: int


def build(cfg: AlgoConfig, *, max_tokens: int) -> Algorithm:
    """Assemble the named algorithm; `max_tokens` is the constant length of dr_grpo."""
    rows: dict[AlgoName, tuple[advantages.Advantage, weights.Weights]] = {
        "grpo": (advantages.each(advantages.zscore), weights.sequence_mean),
        "dr_grpo": (advantages.each(advantages.center), weights.constant(max_tokens)),
        "rloo": (advantages.each(advantages.leave_one_out), weights.sequence_sum),
        "game24": (advantages.momentum(cfg.max_momentum), weights.sequence_mean),
    }
    advantage, weigh = rows[cfg.name]
    return Algorithm(
        advantage=advantage,
        objective=policy_objective(cfg),
        weights=weigh,
        needs_reference=cfg.kl > 0,
        trains_on_zero_advantage=cfg.kl > 0 or cfg.entropy != 0,
        minibatches=cfg.minibatches,
    )


def policy_objective(cfg: AlgoConfig) -> Objective:
    """The surrogate of the named algorithm, its penalties, and what to log of them."""

    def loss(terms: TokenTerms) -> tuple[Tensor, dict[str, Tensor]]:
        ratio_M = losses.token_ratio(terms)
        if cfg.name == "rloo":
            loss_M = losses.reinforce(terms.logprob_M, terms.advantage_M)
        else:
            loss_M = losses.clip(ratio_M, terms.advantage_M, low=cfg.clip_low, high=cfg.clip_high)
        is_clipped_M = (ratio_M < 1 - cfg.clip_low) | (ratio_M > 1 + cfg.clip_high)
        metrics = {
            "policy/entropy": terms.entropy_M,
            "policy/clip_fraction": is_clipped_M.float(),
            "policy/engine_gap": (terms.logprob_M - terms.behaviour_M).abs(),
        }
        if terms.reference_M is not None:
            loss_M = loss_M + cfg.kl * losses.kl(terms.logprob_M, terms.reference_M, cfg.kl_estimator)
            metrics["policy/kl"] = losses.kl(terms.logprob_M, terms.reference_M, "k3")
        if cfg.entropy:
            loss_M = loss_M - cfg.entropy * terms.entropy_M
        return loss_M, metrics

    return Objective(loss=loss, needs_entropy_gradient=cfg.entropy != 0)


def sft_objective() -> Objective:
    """The likelihood of given tokens."""

    def loss(terms: TokenTerms) -> tuple[Tensor, dict[str, Tensor]]:
        loss_M = losses.nll(terms)
        is_likely_M = (terms.logprob_M > torch.log(torch.tensor(0.5))).float()
        return loss_M, {"sft/token_loss": loss_M, "sft/likely_tokens": is_likely_M, "policy/entropy": terms.entropy_M}

    return Objective(loss=loss)
