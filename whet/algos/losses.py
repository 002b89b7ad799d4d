"""Formulas of losses: ratios, surrogates, KL penalties, and token weights.

Every loss is minimised and has shape [M], for M response tokens of S sequences. The learner sums
weight times loss, so a mean over tokens, a mean over sequences and a fixed divisor differ only in
the weights. Weights are known before the first backward pass, and do not depend on the split into
micro-batches. `whet/algos/preferences.py` has the losses of pairs, `whet/algos/values.py` that of a
critic.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor

from whet.config import Config
from whet.types import TokenFields


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossInputs(TokenFields[Tensor]):
    """The inputs of a loss, per response token."""

    logprob_M: Tensor
    """Log-probability under the weights being trained, with gradient."""
    entropy_M: Tensor
    """Entropy of the next-token distribution, with gradient if the objective needs it."""
    advantage_M: Tensor
    segment_M: Tensor
    """Index of the token's sequence in the batch."""
    chosen_P: Tensor | None = None
    """Index of the preferred response's sequence in each pair; None without pairs."""
    rejected_P: Tensor | None = None


PolicyLoss = tuple[Tensor, dict[str, Tensor]]
"""The policy loss [M], and metrics, also [M]."""
Surrogate = Callable[[Tensor, LossInputs], PolicyLoss]
"""Ratios [M] and inputs -> the policy loss."""


def old_logprobs(inputs: LossInputs) -> Tensor:
    """Return the denominator of ratios: log-probabilities at the step's start, or the engine's."""
    return inputs.logprob_M.detach() if inputs.old_logprob_M is None else inputs.old_logprob_M


def sampling_logprobs(inputs: LossInputs) -> Tensor:
    """Return the log-probabilities that the engine computed when it sampled the tokens."""
    assert inputs.sampling_logprob_M is not None, "a policy loss is for tokens that were sampled"
    return inputs.sampling_logprob_M


def segment_sum(value_M: Tensor, segment_M: Tensor) -> Tensor:
    """Sum over each sequence, and give every token the sum of its sequence.

    >>> segment_sum(torch.tensor([1.0, 2.0, 5.0]), torch.tensor([0, 0, 1])).tolist()
    [3.0, 3.0, 5.0]
    """
    # At most M sequences: reading their exact number would synchronise with the GPU.
    sum_M = torch.zeros_like(value_M).index_add(0, segment_M, value_M)
    return sum_M[segment_M]


def segment_mean(value_M: Tensor, segment_M: Tensor) -> Tensor:
    """Give every token the mean of its sequence."""
    return segment_sum(value_M, segment_M) / segment_sum(torch.ones_like(value_M), segment_M)


KlEstimator = Literal["k1", "k2", "k3"]
KlGradient = Literal["exact", "direct"]

MAX_LOG_RATIO = 20.0
"""Bound against overflow; policies whose ratio is beyond e^20 have nothing in common."""


def nll(inputs: LossInputs) -> Tensor:
    """Negative log-likelihood, the loss of SFT."""
    return -inputs.logprob_M


def token_ratio(inputs: LossInputs) -> Tensor:
    """Compute the ratio of a token's probability to that at the start of the step."""
    return torch.exp(_bound(inputs.logprob_M - old_logprobs(inputs)))


def sequence_ratio(inputs: LossInputs) -> Tensor:
    """Compute the geometric mean of a sequence's ratios (GSPO, Zheng et al. 2025, eq. 7 and 14).

    A token has the gradient of its own log-probability alone (GSPO-token). If a sequence's tokens
    share advantage and weight, the gradients sum to that of the sequence ratio; otherwise credit
    stays with its token.
    """
    log_ratio_M = inputs.logprob_M.detach() - old_logprobs(inputs)
    log_mean_M = segment_mean(_bound(log_ratio_M), inputs.segment_M)
    return torch.exp(inputs.logprob_M - inputs.logprob_M.detach() + log_mean_M)


def unit_ratio(inputs: LossInputs) -> Tensor:
    """Apply no correction, as if the current weights had sampled the tokens."""
    return torch.ones_like(inputs.logprob_M)


RatioName = Literal["token", "sequence", "off"]
"""The names in `RATIOS`, for type checkers. off counts every ratio as 1; the setting none takes the
preset's ratio."""
RATIOS: Mapping[str, Callable[[LossInputs], Tensor]] = {
    "token": token_ratio,
    "sequence": sequence_ratio,
    "off": unit_ratio,
}


def clip(ratio_M: Tensor, advantage_M: Tensor, *, low: float, high: float) -> Tensor:
    """Clip as PPO does: gains beyond 1 - low and 1 + high have no gradient (Schulman et al. 2017,
    eq. 7)."""
    bounded_M = ratio_M.clamp(1 - low, 1 + high)
    return -torch.minimum(ratio_M * advantage_M, bounded_M * advantage_M)


def dual_clip(
    ratio_M: Tensor, advantage_M: Tensor, *, low: float, high: float, cap: float
) -> Tensor:
    """Clip, and bound the loss of a negative advantage A by -cap × A (Ye et al. 2020, eq. 5)."""
    loss_M = clip(ratio_M, advantage_M, low=low, high=high)
    return torch.where(advantage_M < 0, torch.minimum(loss_M, -cap * advantage_M), loss_M)


def cispo(ratio_M: Tensor, advantage_M: Tensor, logprob_M: Tensor, *, high: float) -> Tensor:
    """Weigh the policy gradient by a capped ratio (CISPO, MiniMax-M1 2025, eq. 4 and 5)."""
    return -ratio_M.detach().clamp(max=1 + high) * advantage_M * logprob_M


def reinforce(ratio_M: Tensor, advantage_M: Tensor, logprob_M: Tensor) -> Tensor:
    """Weigh the plain policy gradient by the ratio."""
    return -ratio_M.detach() * advantage_M * logprob_M


class RatioBounds(NamedTuple):
    """The settings of `AlgoConfig` with these names."""

    clip_low: float
    clip_high: float
    dual_clip: float | None


class SurrogateSpec(NamedTuple):
    """A policy loss, and the settings that bound its ratio."""

    loss: Callable[[Tensor, LossInputs, RatioBounds], PolicyLoss]
    bounds: tuple[str, ...] = ()


def _bound_both_ways(ratio_M: Tensor, inputs: LossInputs, bounds: RatioBounds) -> PolicyLoss:
    low, high, cap = bounds
    if cap is None:
        loss_M = clip(ratio_M, inputs.advantage_M, low=low, high=high)
    else:
        loss_M = dual_clip(ratio_M, inputs.advantage_M, low=low, high=high, cap=cap)
    is_beyond_M = (ratio_M > 1 + high) | (ratio_M < 1 - low)
    return loss_M, {"policy/clip_fraction": is_beyond_M.float()}


def _bound_above(ratio_M: Tensor, inputs: LossInputs, bounds: RatioBounds) -> PolicyLoss:
    high = bounds.clip_high
    loss_M = cispo(ratio_M, inputs.advantage_M, inputs.logprob_M, high=high)
    return loss_M, {"policy/clip_fraction": (ratio_M > 1 + high).float()}


def _bound_nothing(ratio_M: Tensor, inputs: LossInputs, bounds: RatioBounds) -> PolicyLoss:
    return reinforce(ratio_M, inputs.advantage_M, inputs.logprob_M), {}


SurrogateName = Literal["clip", "cispo", "reinforce"]
"""The names in `SURROGATES`, for type checkers."""
SURROGATES: Mapping[str, SurrogateSpec] = {
    "clip": SurrogateSpec(_bound_both_ways, bounds=("clip_low", "clip_high", "dual_clip")),
    "cispo": SurrogateSpec(_bound_above, bounds=("clip_high",)),
    "reinforce": SurrogateSpec(_bound_nothing),
}


def kl(logprob_M: Tensor, ref_logprob_M: Tensor, estimator: KlEstimator) -> Tensor:
    """Estimate KL(policy || reference) from sampled tokens (Schulman).

    As a value, k1 and k3 are unbiased, and k3 is never negative. As a loss, only k2 has the right
    gradient for tokens that the policy sampled: in expectation, the gradient of k1 is zero, and
    that of k3 is the forward KL's.
    """
    difference_M = _bound(logprob_M - ref_logprob_M)
    if estimator == "k1":
        return difference_M
    if estimator == "k2":
        return 0.5 * difference_M.square()
    return torch.expm1(-difference_M) + difference_M


def exact_kl(
    logprob_M: Tensor, ref_logprob_M: Tensor, ratio_M: Tensor, estimator: KlEstimator
) -> Tensor:
    """Estimate the KL with its own gradient, also for tokens that older weights sampled.

    The ratio is that of current to older weights. The expectation of ratio × k3 is the KL for any
    current weights, so its gradient is the KL's (DeepSeek-V3.2): ratio × d × ∇logprob, with d =
    logprob - reference. k1 and k2 get the same gradient, so the three estimators differ only in
    value.
    """
    if estimator == "k1":
        return ratio_M * kl(logprob_M, ref_logprob_M, "k1").detach()
    if estimator == "k2":
        return ratio_M.detach() * kl(logprob_M, ref_logprob_M, "k2")
    return ratio_M * kl(logprob_M, ref_logprob_M, "k3")


def teacher_advantage(logprob_M: Tensor, teacher_M: Tensor) -> Tensor:
    """Compute the log of the teacher's over the policy's probability of each sampled token.

    >>> teacher_advantage(torch.tensor([0.5]).log(), torch.tensor([0.25]).log()).item()
    -0.6931471824645996
    """
    return (teacher_M - logprob_M).detach()


def reverse_kl(inputs: LossInputs) -> Tensor:
    """Estimate the KL to the teacher with its own gradient, by ratio × k3 (DeepSeek-V3.2).

    It is never negative. For tokens sampled with the current weights, the gradient is that of
    REINFORCE with the teacher's advantage, -(log teacher - log policy) × ∇log policy: exact in
    expectation, unlike the gradient of k3 itself.
    """
    assert inputs.ref_logprob_M is not None, "distillation needs a teacher"
    return exact_kl(inputs.logprob_M, inputs.ref_logprob_M, token_ratio(inputs), "k3")


def step_kl(ratio_M: Tensor) -> Tensor:
    """Estimate KL(policy at the start of the step || policy now) from token ratios (k3)."""
    return ratio_M - 1 - ratio_M.log()


def _bound(log_ratio_M: Tensor) -> Tensor:
    return log_ratio_M.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


class ImportanceCorrectionConfig(Config):
    """Correction of losses for the gap between engine and learner."""

    rule: Literal["none", "truncate", "mask"] = "none"
    """Use of the importance factor, learner over engine: none ignores it, truncate bounds it (TIS,
    Yao et al. 2025), mask drops tokens out of bounds (IcePop, MIS)."""
    level: Literal["token", "sequence"] = "token"
    """Scope of a factor; sequence takes the product over all tokens of a sequence."""
    low: float = Field(default=0.0, ge=0.0)
    """Smallest factor within bounds."""
    high: float = Field(default=2.0, gt=0.0)
    """Largest factor within bounds."""

    def without_effect(self) -> dict[str, str]:
        reason = 'importance_correction.rule is "none"'
        return dict.fromkeys(("level", "low", "high"), reason) if self.rule == "none" else {}


@torch.no_grad()
def importance_factors(
    inputs: LossInputs, cfg: ImportanceCorrectionConfig
) -> tuple[Tensor, Tensor]:
    """Compute the factor of each token's loss, and which tokens are out of bounds.

    `cfg.rule` is truncate or mask.
    """
    log_factor_M = old_logprobs(inputs) - sampling_logprobs(inputs)
    if cfg.level == "sequence":
        log_factor_M = segment_sum(log_factor_M, inputs.segment_M)
    factor_M = torch.exp(_bound(log_factor_M))
    is_outside_M = (factor_M < cfg.low) | (factor_M > cfg.high)
    if cfg.rule == "truncate":
        return factor_M.clamp(cfg.low, cfg.high), is_outside_M
    return factor_M.masked_fill(is_outside_M, 0.0), is_outside_M


SCOPES_AND_ACTIONS = {
    ("micro_batch", "zero"),
    ("mini_batch", "zero"),
    ("mini_batch", "skip"),
    ("step", "stop"),
}
"""The allowed combinations of scope and action."""


class EarlyStopConfig(Config):
    """When to skip an update, decided before its optimizer step."""

    limit: float | None = Field(default=None, gt=0.0)
    """Largest value of the statistic for an update to be taken; none disables the early stop."""
    statistic: Literal["mean", "max", "quantile", "kl"] = "mean"
    """Statistic of the ratio over the tokens in scope; kl is the KL since the start of the step, in
    nats per token."""
    quantile: float = Field(default=0.99, gt=0.0, lt=1.0)
    """The quantile, for statistic = "quantile"."""
    scope: Literal["micro_batch", "mini_batch", "step"] = "mini_batch"
    """The unit to skip: a micro-batch (the result then depends on the packing), a mini-batch, or
    the mini-batch and the rest of the step. The statistic is over the micro-batch in the first
    case, and over the mini-batch in the others."""
    action: Literal["zero", "skip", "stop"] = "skip"
    """zero sets the unit's loss to 0 and takes the optimizer step, skip takes no optimizer step,
    stop ends the step."""

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> "EarlyStopConfig":
        if (self.scope, self.action) not in SCOPES_AND_ACTIONS:
            allowed = ", ".join(
                f"{scope} with {action}" for scope, action in sorted(SCOPES_AND_ACTIONS)
            )
            raise ValueError(
                f"scope = {self.scope} cannot be combined with action = {self.action}; "
                f"possible: {allowed}"
            )
        return self

    def without_effect(self) -> dict[str, str]:
        if self.limit is None:
            reason = "early_stop.limit is none"
            return dict.fromkeys(("statistic", "quantile", "scope", "action"), reason)
        return {} if self.statistic == "quantile" else {"quantile": 'it is for "quantile"'}


def stop_statistic(ratio_M: Tensor, cfg: EarlyStopConfig) -> Tensor:
    """Return the per-token values whose mean is the statistic."""
    if cfg.statistic == "mean":
        return ratio_M.detach()
    if cfg.statistic == "kl":
        return step_kl(ratio_M.detach())
    assert cfg.limit is not None, "only an early stop with a limit has a statistic"
    return (ratio_M.detach() > cfg.limit).float()


def exceeds_limit(mean: Tensor | float, cfg: EarlyStopConfig) -> bool:
    """Whether the mean of `stop_statistic` is beyond the limit; NaN counts as beyond."""
    assert cfg.limit is not None, "only an early stop with a limit has a statistic"
    bounds = {"mean": cfg.limit, "kl": cfg.limit, "max": 0.0, "quantile": 1 - cfg.quantile}
    return not bool(mean <= bounds[cfg.statistic])


LossWeightRule = Callable[[Sequence[int]], list[float]]
"""Lengths of all sequences of an optimizer step -> the weight of each token of each sequence."""


def token_mean(lengths: Sequence[int]) -> list[float]:
    """Weigh every token equally (DAPO, Yu et al. 2025).

    >>> token_mean([1, 3])
    [0.25, 0.25]
    """
    return [1.0 / sum(lengths)] * len(lengths)


def sequence_mean(lengths: Sequence[int]) -> list[float]:
    """Weigh every sequence equally, divided among its tokens (GRPO, Shao et al. 2024).

    >>> sequence_mean([1, 4])
    [0.5, 0.125]
    """
    return [1.0 / (len(lengths) * length) for length in lengths]


def sequence_sum(lengths: Sequence[int]) -> list[float]:
    """Sum the tokens of a sequence, and average sequences (RLOO)."""
    return [1.0 / len(lengths)] * len(lengths)


def constant(divisor: int) -> LossWeightRule:
    """Divide by a fixed length and average sequences, without a length bias (Dr. GRPO).

    >>> constant(10)([1, 3])
    [0.05, 0.05]
    """

    def weights(lengths: Sequence[int]) -> list[float]:
        return [1.0 / (divisor * len(lengths))] * len(lengths)

    return weights
