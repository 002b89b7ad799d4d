"""Objectives: the loss of each token with its metrics, for RL, SFT and distillation.

An objective combines the formulas of `whet/algos/losses.py`; the learner sums weight times loss.
Shapes: M response tokens; P pairs for the objective in `whet/algos/preferences.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from whet.algos import losses
from whet.algos.losses import (
    EarlyStopConfig,
    ImportanceCorrectionConfig,
    KlEstimator,
    LossInputs,
    Surrogate,
    sampling_logprobs,
)
from whet.algos.presets import Preset
from whet.algos.settings import AlgoConfig, resolve_kl_estimator, resolve_preset
from whet.algos.user_functions import load_surrogate
from whet.types import Metrics
from whet.user_code import is_code_path


class TokenLoss(NamedTuple):
    """The losses of tokens, [M], or of preference pairs, [P], with their metrics."""

    loss: Tensor
    """Minimised; the learner sums weight times loss."""
    metrics: dict[str, Tensor]
    """By `area/name`. The learner averages each; nothing else reads them."""
    stop_signal: Tensor | None = None
    """The statistic of the early stop; None without an early stop."""


class BatchSums(NamedTuple):
    """Sums over the losses of one micro-batch, on the device until `LossSums` adds them up."""

    loss: Tensor
    """Sum of weight times loss."""
    metrics: dict[str, Tensor]
    stop_signal: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSums:
    """The result of `Learner.accumulate`; the sums of ranks can be added."""

    loss: float
    """Sum of weight times loss; the weights already make it a mean."""
    num_losses: int
    """Number of tokens with a loss, or of pairs."""
    metrics: Metrics
    stop_signal: float | None = None
    """None if the objective has no early stop."""

    @property
    def means(self) -> Metrics:
        """The loss, and the mean of each metric."""
        means = {name: self._mean(total) for name, total in self.metrics.items()}
        return {"loss": self.loss} | means

    @property
    def mean_stop_signal(self) -> float | None:
        """Return the mean of the early stop's statistic over its tokens."""
        return None if self.stop_signal is None else self._mean(self.stop_signal)

    def _mean(self, total: float) -> float:
        return total / max(self.num_losses, 1)

    def __add__(self, other: "LossSums") -> "LossSums":
        names = self.metrics.keys() | other.metrics.keys()
        signals = [s.stop_signal for s in (self, other) if s.stop_signal is not None]
        return LossSums(
            loss=self.loss + other.loss,
            num_losses=self.num_losses + other.num_losses,
            metrics={
                name: self.metrics.get(name, 0.0) + other.metrics.get(name, 0.0)
                for name in sorted(names)
            },
            stop_signal=sum(signals) if signals else None,
        )


class ValueInputs(NamedTuple):
    """The inputs of a critic's loss, per response token."""

    value_M: Tensor
    """Value under the weights being trained, with gradient."""
    old_value_M: Tensor
    target_M: Tensor


class BatchForward(Protocol):
    """Forward passes over one batch; an objective runs one of them, with gradient."""

    def compute_logprobs(self, *, entropy_gradient: bool) -> LossInputs: ...

    def compute_values(self) -> ValueInputs: ...


class Objective(Protocol):
    """Computes the losses of a batch from a forward pass that it chooses."""

    def compute_loss(self, forward: BatchForward) -> TokenLoss: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogprobObjective:
    """Computes the losses of a batch from log-probabilities."""

    loss: Callable[[LossInputs], TokenLoss]
    needs_entropy_gradient: bool = False

    def compute_loss(self, forward: BatchForward) -> TokenLoss:
        return self.loss(forward.compute_logprobs(entropy_gradient=self.needs_entropy_gradient))


def policy_objective(cfg: AlgoConfig) -> LogprobObjective:
    """Build the objective of the named algorithm, with its penalties and metrics."""
    preset = resolve_preset(cfg)
    ratio = losses.RATIOS[preset.ratio]
    surrogate = _build_surrogate(preset, cfg)
    estimator = resolve_kl_estimator(cfg) if preset.kl_in == "loss" else None

    def loss(inputs: LossInputs) -> TokenLoss:
        if cfg.old_logprobs == "engine":
            inputs = replace(inputs, old_logprob_M=inputs.sampling_logprob_M)
        ratio_M = ratio(inputs)
        token_ratio_M = losses.token_ratio(inputs)
        measured_ratio_M = token_ratio_M if preset.ratio == "off" else ratio_M
        loss_M, metrics = surrogate(ratio_M, inputs)
        metrics = metrics | {
            "policy/entropy": inputs.entropy_M,
            "policy/engine_gap": (inputs.logprob_M - sampling_logprobs(inputs)).abs(),
            "policy/ratio": measured_ratio_M,
            "policy/step_kl": losses.step_kl(token_ratio_M),
        }
        token_loss = TokenLoss(loss_M, metrics)
        token_loss = _correct_importance(token_loss, inputs, cfg.importance_correction)
        token_loss = _add_penalties(token_loss, inputs, token_ratio_M, cfg, estimator)
        stop_ratio_M = token_ratio_M if cfg.early_stop.statistic == "kl" else measured_ratio_M
        return _stop_early(token_loss, inputs, stop_ratio_M, cfg.early_stop)

    return LogprobObjective(loss=loss, needs_entropy_gradient=cfg.entropy_coef != 0)


def _build_surrogate(preset: Preset, cfg: AlgoConfig) -> Surrogate:
    if is_code_path(preset.surrogate):
        return load_surrogate(preset.surrogate)
    spec = losses.SURROGATES[preset.surrogate]
    bounds = losses.RatioBounds(preset.clip_low, preset.clip_high, cfg.dual_clip)
    return lambda ratio_M, inputs: spec.loss(ratio_M, inputs, bounds)


def _correct_importance(
    token_loss: TokenLoss, inputs: LossInputs, cfg: ImportanceCorrectionConfig
) -> TokenLoss:
    """Multiply losses by the importance factors of learner over engine."""
    if cfg.rule == "none":
        return token_loss
    factor_M, is_outside_M = losses.importance_factors(inputs, cfg)
    metrics = {"policy/correction": factor_M, "policy/corrected": is_outside_M.float()}
    return token_loss._replace(
        loss=token_loss.loss * factor_M, metrics=token_loss.metrics | metrics
    )


def _add_penalties(
    token_loss: TokenLoss,
    inputs: LossInputs,
    token_ratio_M: Tensor,
    cfg: AlgoConfig,
    estimator: KlEstimator | None,
) -> TokenLoss:
    """Add the KL, if the loss has an estimator of it, and subtract the entropy bonus."""
    loss_M, metrics, _ = token_loss
    logprob_M, ref_logprob_M = inputs.logprob_M, inputs.ref_logprob_M
    if ref_logprob_M is not None:
        metrics = metrics | {"policy/kl": losses.kl(logprob_M, ref_logprob_M, "k3")}
        if estimator is not None:
            if cfg.kl_gradient == "direct":
                kl_M = losses.kl(logprob_M, ref_logprob_M, estimator)
            else:
                kl_M = losses.exact_kl(logprob_M, ref_logprob_M, token_ratio_M, estimator)
            loss_M = loss_M + cfg.kl_coef * kl_M
    if cfg.entropy_coef:
        loss_M = loss_M - cfg.entropy_coef * inputs.entropy_M
    return token_loss._replace(loss=loss_M, metrics=metrics)


def _stop_early(
    token_loss: TokenLoss, inputs: LossInputs, ratio_M: Tensor, cfg: EarlyStopConfig
) -> TokenLoss:
    """Measure the statistic of the early stop, and zero a micro-batch's loss beyond the limit."""
    if cfg.limit is None:
        return token_loss
    loss_M, metrics, _ = token_loss
    signal_M = losses.stop_statistic(ratio_M, cfg)
    metrics = metrics | {"policy/stop_signal": signal_M}
    if cfg.scope == "micro_batch":
        is_zeroed = losses.exceeds_limit(signal_M.mean(), cfg)
        metrics["policy/zeroed"] = torch.full_like(loss_M, float(is_zeroed))
        # The loss times 0 would be NaN where the loss is NaN.
        loss_M = inputs.logprob_M * 0.0 if is_zeroed else loss_M
    return TokenLoss(loss_M, metrics, signal_M)


def sft_objective() -> LogprobObjective:
    """Build the negative log-likelihood of given responses."""

    def loss(inputs: LossInputs) -> TokenLoss:
        loss_M = losses.nll(inputs)
        is_likely_M = (inputs.logprob_M > log(0.5)).float()
        metrics = {
            "sft/token_loss": loss_M,
            "sft/likely_tokens": is_likely_M,
            "policy/entropy": inputs.entropy_M,
        }
        return TokenLoss(loss_M, metrics)

    return LogprobObjective(loss=loss)


def distill_objective() -> LogprobObjective:
    """Build the reverse KL to a teacher, KL(policy ‖ teacher), on the policy's own responses.

    The teacher's log-probabilities take the reference's place. A token is credited for its own
    distribution only, not for its effect on later tokens, and rewards are not used.
    """

    def loss(inputs: LossInputs) -> TokenLoss:
        assert inputs.ref_logprob_M is not None, "distillation needs a teacher"
        metrics = {
            "distill/kl": losses.kl(inputs.logprob_M, inputs.ref_logprob_M, "k3"),
            "distill/advantage": losses.teacher_advantage(inputs.logprob_M, inputs.ref_logprob_M),
            "policy/entropy": inputs.entropy_M,
            "policy/engine_gap": (inputs.logprob_M - sampling_logprobs(inputs)).abs(),
        }
        return TokenLoss(losses.reverse_kl(inputs), metrics)

    return LogprobObjective(loss=loss)
