"""From settings to an algorithm: the row of a name, and what the settings replace in it.

The names, with their papers, are in `whet/algos/rows.py`. An algorithm is an advantage, a ratio, a
surrogate and token weights, and with them penalties, a correction for staleness and an early stop.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from whet.algos import advantages, losses, verifier
from whet.algos.losses import (
    EarlyStop,
    KlEstimator,
    KlGradient,
    Staleness,
    TokenTerms,
    correction,
    is_too_far,
    sampling_logprobs,
    stop_statistic,
)
from whet.algos.rows import (
    ROWS,
    AdvantageName,
    AlgoName,
    KlPlace,
    RatioName,
    Row,
    SurrogateName,
    WeightsName,
)
from whet.algos.verifier import StepCreditConfig
from whet.config import CONSTANT, Config
from whet.errors import ConfigError
from whet.user_code import Reference, is_reference, load_from_file

Surrogate = Callable[[Tensor, TokenTerms], tuple[Tensor, dict[str, Tensor]]]
"""Ratios [M] and terms -> the policy loss [M], and metrics of the same shape."""

KNOWN_BY_ADVANTAGE: Mapping[tuple[str, ...], tuple[AdvantageName, ...]] = {
    ("ddof",): ("zscore",),
    ("max_momentum",): ("momentum",),
    ("gamma",): ("to_go", "gae"),
    ("gae_decay",): ("gae",),
}
"""Settings that some advantages take and the others do not."""


class AlgoConfig(Config):
    """How rewards become gradients. A setting that is none is what the name's row says."""

    name: AlgoName = "grpo"
    """A row of `whet/algos/rows.py`, with its paper; the settings below replace what stands
    there."""
    advantage: AdvantageName | Reference | None = None
    """What a reward is compared with: its group (zscore, center, leave_one_out), a running mean
    (momentum), nothing (to_go), or a critic (gae). A function of your own is a file and its name,
    "my_algo.py:advantage"."""
    ddof: Literal[0, 1] = Field(default=1, json_schema_extra=CONSTANT)
    """For zscore: 1 divides by the sample's deviation, 0 by the population's."""
    max_momentum: float = Field(default=0.2, ge=0.0, lt=1.0)
    """For momentum: the largest share of history in the running mean and deviation; 0 is
    group-relative."""
    gamma: float = Field(default=1.0, gt=0.0, le=1.0)
    """For to_go and gae: what a reward is worth a token earlier."""
    gae_decay: float = Field(default=1.0, ge=0.0, le=1.0)
    """For gae: its λ, from one step of the critic (0) to rewards to go (1)."""
    whiten: bool | None = None
    """Bring advantages to mean 0 and deviation 1 over all tokens of a step; groups of equal reward
    stay at 0."""
    steps: StepCreditConfig = StepCreditConfig()
    """For tango: the share of judged steps in the advantage."""
    ratio: RatioName | None = None
    """Of new to old probability: of each token, of the whole sequence (its geometric mean), or one,
    which is none."""
    surrogate: SurrogateName | Reference | None = None
    """What ratio and advantage make the loss: clip (PPO), cispo, or reinforce, which bounds
    nothing. A function of your own is a file and its name, "my_algo.py:surrogate"."""
    clip_low: float | None = Field(default=None, ge=0.0)
    """For clip: where the advantage is negative, gains stop paying below a ratio of 1 -
    clip_low."""
    clip_high: float | None = Field(default=None, ge=0.0)
    """Gains stop paying above a ratio of 1 + clip_high; for cispo the cap of the ratio."""
    dual_clip: float | None = Field(default=None, gt=1.0)
    """Most that a token of negative advantage may cost, in multiples of it; none is no such
    bound."""
    weights: WeightsName | None = None
    """How the losses of tokens are averaged: over all tokens of a step, within each sequence first
    (sequence_mean), summed within it (sequence_sum), or divided by the longest answer allowed
    (constant)."""
    old: Literal["learner", "engine"] = "learner"
    """Whose log-probabilities at the start of the step ratios compare with: computed again, or as
    sampled."""
    staleness: Staleness = Staleness()
    """Correction for tokens that the engine sampled at other probabilities than the learner's."""
    kl: float = Field(default=0.0, ge=0.0)
    """Weight of the KL to the starting policy; 0 needs no reference model."""
    kl_in: KlPlace | None = None
    """In the loss of each token, or taken off its reward."""
    kl_estimator: KlEstimator | None = None
    """None is k2 in the loss and k1 in the reward, which have the KL's own gradient there."""
    kl_gradient: KlGradient = "exact"
    """In the loss: exact has the KL's own gradient for every estimator, direct differentiates the
    estimate as it is."""
    entropy: float = 0.0
    """Weight of an entropy bonus in the loss; 0 logs the entropy only."""
    minibatches: int = Field(default=1, ge=1)
    """Optimiser steps per batch of rollouts."""
    early_stop: EarlyStop = EarlyStop()
    """What is left out once the policy has moved too far within a step."""

    @model_validator(mode="after")
    def _fits(self) -> "AlgoConfig":
        if wrong := _contradiction(self, resolve(self)):
            raise ValueError(wrong)
        return self

    def without_effect(self) -> dict[str, str]:
        row = resolve(self)
        unused: dict[str, str] = {}
        for keys, names in KNOWN_BY_ADVANTAGE.items():
            if row.advantage not in names:
                choices = " or ".join(f'"{name}"' for name in names)
                unused |= dict.fromkeys(keys, f"it is for advantage = {choices}")
        if row.steps is None:
            unused["steps"] = "it is for the tango algorithms, which credit judged steps"
        unused |= self._unused_bounds(row)
        if self.kl == 0:
            for key in ("kl_in", "kl_estimator", "kl_gradient"):
                unused[key] = "kl is 0"
        elif row.kl_in == "reward":
            unused["kl_gradient"] = "a KL in the reward is not differentiated"
        return unused

    def _unused_bounds(self, row: Row) -> dict[str, str]:
        """Name the bounds of the ratio that the loss does not have."""
        bounds = ("clip_low", "clip_high", "dual_clip")
        if self.minibatches == 1 and self.old == "learner":
            reason = "with minibatches = 1 every ratio is 1"
            return dict.fromkeys((*bounds, "early_stop"), reason)
        if row.surrogate == "reinforce":
            return dict.fromkeys(bounds, 'surrogate = "reinforce" bounds nothing')
        if row.surrogate == "cispo":
            return dict.fromkeys(("clip_low", "dual_clip"), "cispo bounds the ratio above only")
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A loss per token with its metrics, each a tensor [M] that the learner averages.

    Where answers are compared, loss and metrics are those of pairs, [P].
    """

    loss: Callable[[TokenTerms], tuple[Tensor, dict[str, Tensor]]]
    needs_entropy_gradient: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    advantage: advantages.Advantage | None
    """Of whole answers, group by group; None where `spread` credits single tokens."""
    spread: advantages.Spread | None
    whitens: bool
    step_credit: verifier.StepCredit | None
    alpha: Callable[[float], float]
    """Share of step credit, by how much of the run is done."""
    objective: Objective
    weights: losses.Weights
    kl_in_reward: float
    """Weight of the KL taken off the rewards; 0 where it is in the loss."""
    kl_estimator: KlEstimator
    needs_reference: bool
    needs_values: bool
    needs_old: bool
    """Whether the learner must score the examples before its first step."""
    trains_on_zero_advantage: bool
    """Whether a rollout of zero advantage still has a gradient: through the KL or the entropy."""
    minibatches: int
    early_stop: EarlyStop


def resolve(cfg: AlgoConfig) -> Row:
    """The row of a name, with what the settings replace."""
    row = ROWS[cfg.name]
    return replace(
        row,
        advantage=cfg.advantage or row.advantage,
        whiten=row.whiten if cfg.whiten is None else cfg.whiten,
        ratio=cfg.ratio or row.ratio,
        surrogate=cfg.surrogate or row.surrogate,
        weights=cfg.weights or row.weights,
        clip_low=row.clip_low if cfg.clip_low is None else cfg.clip_low,
        clip_high=row.clip_high if cfg.clip_high is None else cfg.clip_high,
        kl_in=cfg.kl_in or row.kl_in,
        alpha=row.alpha if cfg.steps.alpha is None else cfg.steps.alpha,
    )


def build(cfg: AlgoConfig, *, max_tokens: int) -> Algorithm:
    """Assemble the named algorithm; `max_tokens` is the length that constant weights divide by."""
    row = resolve(cfg)
    in_loss = row.kl_in == "loss"
    return Algorithm(
        advantage=_advantage(row, cfg),
        spread=_spread(row, cfg),
        whitens=row.whiten,
        step_credit=verifier.step_credit(row.steps) if row.steps else None,
        alpha=partial(verifier.alpha_at, row.alpha, cfg.steps),
        objective=policy_objective(cfg),
        weights=_weights(row.weights, max_tokens),
        kl_in_reward=0.0 if in_loss else cfg.kl,
        kl_estimator=_estimator(row, cfg),
        needs_reference=cfg.kl > 0,
        needs_values=row.advantage == "gae",
        needs_old=cfg.minibatches > 1 and cfg.old == "learner",
        trains_on_zero_advantage=(cfg.kl > 0 and in_loss) or cfg.entropy != 0,
        minibatches=cfg.minibatches,
        early_stop=cfg.early_stop,
    )


def policy_objective(cfg: AlgoConfig) -> Objective:
    """Build the loss of the named algorithm with its penalties, and what to log."""
    row = resolve(cfg)
    surrogate = _surrogate(row, cfg)
    stop = cfg.early_stop

    def loss(given: TokenTerms) -> tuple[Tensor, dict[str, Tensor]]:
        terms = replace(given, old_logprob=given.sampling_logprob) if cfg.old == "engine" else given
        ratio_M = _ratio(row, terms)
        token_M = losses.token_ratio(terms)
        moved_M = token_M if row.ratio == "one" else ratio_M
        loss_M, metrics = surrogate(ratio_M, terms)
        metrics |= {
            "policy/entropy": terms.entropy_M,
            "policy/engine_gap": (terms.logprob_M - sampling_logprobs(terms)).abs(),
            "policy/ratio": moved_M,
            "policy/step_kl": losses.step_kl(token_M),
        }
        if cfg.staleness.rule != "none":
            factor_M, is_outside_M = correction(terms, cfg.staleness)
            loss_M = loss_M * factor_M
            metrics |= {"policy/correction": factor_M, "policy/corrected": is_outside_M.float()}
        if terms.ref_logprob is not None:
            metrics["policy/kl"] = losses.kl(terms.logprob_M, terms.ref_logprob, "k3")
            if row.kl_in == "loss":
                loss_M = loss_M + cfg.kl * _penalty(
                    row, cfg, terms.logprob_M, terms.ref_logprob, token_M
                )
        if cfg.entropy:
            loss_M = loss_M - cfg.entropy * terms.entropy_M
        if stop.limit is not None:
            metrics["policy/stop_signal"] = stop_statistic(
                token_M if stop.statistic == "kl" else moved_M, stop
            )
        if stop.limit is not None and stop.scope == "micro_batch":
            is_zeroed = is_too_far(metrics["policy/stop_signal"].mean(), stop)
            metrics["policy/zeroed"] = torch.full_like(loss_M, float(is_zeroed))
            loss_M = loss_M * 0.0 if is_zeroed else loss_M
        return loss_M, metrics

    return Objective(loss=loss, needs_entropy_gradient=cfg.entropy != 0)


def sft_objective() -> Objective:
    """The likelihood of given tokens."""

    def loss(terms: TokenTerms) -> tuple[Tensor, dict[str, Tensor]]:
        loss_M = losses.nll(terms)
        is_likely_M = (terms.logprob_M > torch.log(torch.tensor(0.5))).float()
        return loss_M, {
            "sft/token_loss": loss_M,
            "sft/likely_tokens": is_likely_M,
            "policy/entropy": terms.entropy_M,
        }

    return Objective(loss=loss)


def _advantage(row: Row, cfg: AlgoConfig) -> advantages.Advantage | None:
    if is_reference(row.advantage):
        return _load_advantage(row.advantage)
    if row.advantage == "zscore":
        return advantages.each(partial(advantages.zscore, ddof=cfg.ddof))
    if row.advantage == "center":
        return advantages.each(advantages.center)
    if row.advantage == "leave_one_out":
        return advantages.each(advantages.leave_one_out)
    return advantages.momentum(cfg.max_momentum) if row.advantage == "momentum" else None


def _load_advantage(reference: str) -> advantages.Advantage:
    """Load a user's estimator, which takes and returns what the shipped ones do."""
    function = _load_function(reference, "algo.advantage")

    def advantage(
        rewards: advantages.Rewards, state: advantages.State
    ) -> tuple[list[list[float]], advantages.State]:
        values, state = function(rewards, state)
        if [len(group) for group in values] != [len(group) for group in rewards]:
            raise ConfigError(
                f"algo.advantage = {reference!r} should return as many numbers as each group "
                "has rewards"
            )
        return values, state

    return advantage


def _load_surrogate(reference: str) -> Surrogate:
    """Load a user's surrogate: ratios [M] and terms -> losses [M]."""
    function = _load_function(reference, "algo.surrogate")

    def surrogate(ratio_M: Tensor, terms: TokenTerms) -> tuple[Tensor, dict[str, Tensor]]:
        loss_M = function(ratio_M, terms)
        if not isinstance(loss_M, Tensor) or loss_M.shape != ratio_M.shape:
            raise ConfigError(f"algo.surrogate = {reference!r} should return a loss per token")
        return loss_M, {}

    return surrogate


def _load_function(reference: str, key: str) -> Callable[..., Any]:
    function = load_from_file(reference)
    if not callable(function):
        raise ConfigError(f"{key} = {reference!r} should name a function")
    return function


def _spread(row: Row, cfg: AlgoConfig) -> advantages.Spread | None:
    if row.advantage == "to_go":
        return advantages.to_go(gamma=cfg.gamma)
    return (
        advantages.by_values(gamma=cfg.gamma, decay=cfg.gae_decay)
        if row.advantage == "gae"
        else None
    )


def _weights(name: WeightsName, max_tokens: int) -> losses.Weights:
    fixed: dict[WeightsName, losses.Weights] = {
        "token_mean": losses.token_mean,
        "sequence_mean": losses.sequence_mean,
        "sequence_sum": losses.sequence_sum,
        "constant": losses.constant(max_tokens),
    }
    return fixed[name]


def _ratio(row: Row, terms: TokenTerms) -> Tensor:
    if row.ratio == "one":
        return losses.no_ratio(terms)
    return losses.token_ratio(terms) if row.ratio == "token" else losses.sequence_ratio(terms)


def _surrogate(row: Row, cfg: AlgoConfig) -> Surrogate:
    if is_reference(row.surrogate):
        return _load_surrogate(row.surrogate)
    return partial(_shipped_surrogate, row, cfg)


def _shipped_surrogate(
    row: Row, cfg: AlgoConfig, ratio_M: Tensor, terms: TokenTerms
) -> tuple[Tensor, dict[str, Tensor]]:
    """The policy loss, and the share of tokens beyond its bounds where it has any."""
    low = row.clip_low
    high = row.clip_high
    advantage_M = terms.advantage_M
    if row.surrogate == "reinforce":
        return losses.reinforce(ratio_M, advantage_M, terms.logprob_M), {}
    is_above_M = ratio_M > 1 + high
    if row.surrogate == "cispo":
        loss_M = losses.cispo(ratio_M, advantage_M, terms.logprob_M, high=high)
        return loss_M, {"policy/clip_fraction": is_above_M.float()}
    if cfg.dual_clip is None:
        loss_M = losses.clip(ratio_M, advantage_M, low=low, high=high)
    else:
        loss_M = losses.dual_clip(ratio_M, advantage_M, low=low, high=high, most=cfg.dual_clip)
    return loss_M, {"policy/clip_fraction": (is_above_M | (ratio_M < 1 - low)).float()}


def _estimator(row: Row, cfg: AlgoConfig) -> KlEstimator:
    return cfg.kl_estimator or ("k2" if row.kl_in == "loss" else "k1")


def _penalty(
    row: Row, cfg: AlgoConfig, logprob_M: Tensor, ref_logprob_M: Tensor, ratio_M: Tensor
) -> Tensor:
    estimator = _estimator(row, cfg)
    if cfg.kl_gradient == "direct":
        return losses.kl(logprob_M, ref_logprob_M, estimator)
    return losses.exact_kl(logprob_M, ref_logprob_M, ratio_M, estimator)


def _contradiction(cfg: AlgoConfig, row: Row) -> str | None:
    """Say what of the settings cannot be meant together."""
    low, high = cfg.staleness.low, cfg.staleness.high
    wrong = {
        f'surrogate = "{row.surrogate}" needs a ratio to bound: set ratio to "token" or '
        '"sequence"': (row.ratio == "one" and row.surrogate in ("clip", "cispo")),
        f'dual_clip = {cfg.dual_clip} needs surrogate = "clip" and a bound above 1 + clip_high': (
            cfg.dual_clip is not None
            and (row.surrogate != "clip" or cfg.dual_clip <= 1 + row.clip_high)
        ),
        f"steps.alpha = {cfg.steps.alpha} is for the tango algorithms, which credit judged steps": (
            cfg.steps.alpha is not None and row.steps is None
        ),
        'staleness corrects from engine to learner, which old = "engine" does not tell apart: '
        "set one of them": (cfg.old == "engine" and cfg.staleness.rule != "none"),
        f"staleness.low = {low} should be below staleness.high = {high}": low >= high,
        "early_stop needs minibatches above 1: with one, every ratio is 1 when it is measured": (
            cfg.early_stop.limit is not None and cfg.minibatches == 1 and cfg.old == "learner"
        ),
    }
    return next((sentence for sentence, is_so in wrong.items() if is_so), None)
