"""Formulas of losses: ratios, surrogates, KL penalties, and token weights.

Every loss is to be minimised and has shape [M], for M response tokens of S sequences. The learner
sums weight times loss, so a mean over tokens, over sequences, or a fixed divisor is only a choice
of weights. They are known before the first backward pass, and do not depend on the split into
micro-batches. Losses of pairs are in `whet/algos/preferences.py`, of a critic in
`whet/algos/values.py`.
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
    """Under the weights being trained, with gradient."""
    entropy_M: Tensor
    """Of the whole next-token distribution, with gradient when the objective asks for it."""
    advantage_M: Tensor
    segment_M: Tensor
    """Index of the token's sequence in the batch."""
    chosen_P: Tensor | None = None
    """Index of the sequence that is the better response of each pair; None if nothing is
    compared."""
    rejected_P: Tensor | None = None


PolicyLoss = tuple[Tensor, dict[str, Tensor]]
"""The policy loss [M], and metrics of the same shape."""
Surrogate = Callable[[Tensor, LossInputs], PolicyLoss]
"""Ratios [M] and inputs -> the policy loss."""


def old_logprobs(inputs: LossInputs) -> Tensor:
    """Return the log-probabilities that ratios compare with: those at the start of the step, or the
    engine's."""
    return inputs.logprob_M.detach() if inputs.old_logprob_M is None else inputs.old_logprob_M


def sampling_logprobs(inputs: LossInputs) -> Tensor:
    """Return the log-probabilities at which the engine sampled."""
    assert inputs.sampling_logprob_M is not None, "a policy loss is for tokens that were sampled"
    return inputs.sampling_logprob_M


def segment_sum(value_M: Tensor, segment_M: Tensor) -> Tensor:
    """Add up each sequence's tokens, and give every token its sequence's sum.

    >>> segment_sum(torch.tensor([1.0, 2.0, 5.0]), torch.tensor([0, 0, 1])).tolist()
    [3.0, 3.0, 5.0]
    """
    # There are at most M sequences, and asking a GPU for their number would make it wait.
    sum_M = torch.zeros_like(value_M).index_add(0, segment_M, value_M)
    return sum_M[segment_M]


def segment_mean(value_M: Tensor, segment_M: Tensor) -> Tensor:
    """Give every token the mean over its sequence."""
    return segment_sum(value_M, segment_M) / segment_sum(torch.ones_like(value_M), segment_M)


KlEstimator = Literal["k1", "k2", "k3"]
KlGradient = Literal["exact", "direct"]

MAX_LOG_RATIO = 20.0
"""Beyond e^20 a ratio only says that the two policies have nothing in common, and its exponential
would overflow."""


def nll(inputs: LossInputs) -> Tensor:
    """Negative log-likelihood, the loss of SFT."""
    return -inputs.logprob_M


def token_ratio(inputs: LossInputs) -> Tensor:
    """The probability of a token now over that at the start of the step; 1 on first use."""
    return torch.exp(_bound(inputs.logprob_M - old_logprobs(inputs)))


def sequence_ratio(inputs: LossInputs) -> Tensor:
    """The geometric mean of a sequence's ratios (GSPO, Zheng et al. 2025, eq. 7 and 14).

    A token has the gradient of its own log-probability alone (GSPO-token). Where a sequence's
    tokens share advantage and weight, that sums to the gradient of the sequence ratio; where they
    do not, credit stays with its token.
    """
    log_ratio_M = inputs.logprob_M.detach() - old_logprobs(inputs)
    log_mean_M = segment_mean(_bound(log_ratio_M), inputs.segment_M)
    return torch.exp(inputs.logprob_M - inputs.logprob_M.detach() + log_mean_M)


def unit_ratio(inputs: LossInputs) -> Tensor:
    """Apply no correction: tokens count as if the current weights had sampled them."""
    return torch.ones_like(inputs.logprob_M)


RatioName = Literal["token", "sequence", "off"]
"""The names in `RATIOS`, for type checkers. off counts every ratio as 1; none as a setting would
leave it to the preset."""
RATIOS: Mapping[str, Callable[[LossInputs], Tensor]] = {
    "token": token_ratio,
    "sequence": sequence_ratio,
    "off": unit_ratio,
}


def clip(ratio_M: Tensor, advantage_M: Tensor, *, low: float, high: float) -> Tensor:
    """Clip as PPO does: no gradient for gains beyond 1 - low and 1 + high (Schulman et al. 2017,
    eq. 7)."""
    bounded_M = ratio_M.clamp(1 - low, 1 + high)
    return -torch.minimum(ratio_M * advantage_M, bounded_M * advantage_M)


def dual_clip(
    ratio_M: Tensor, advantage_M: Tensor, *, low: float, high: float, cap: float
) -> Tensor:
    """Clip, and cap the cost of a negative advantage at `cap` times it (Ye et al. 2020, eq. 5)."""
    loss_M = clip(ratio_M, advantage_M, low=low, high=high)
    return torch.where(advantage_M < 0, torch.minimum(loss_M, -cap * advantage_M), loss_M)


def cispo(ratio_M: Tensor, advantage_M: Tensor, logprob_M: Tensor, *, high: float) -> Tensor:
    """The policy gradient, weighted by a capped ratio (CISPO, MiniMax-M1 2025, eq. 4 and 5)."""
    return -ratio_M.detach().clamp(max=1 + high) * advantage_M * logprob_M


def reinforce(ratio_M: Tensor, advantage_M: Tensor, logprob_M: Tensor) -> Tensor:
    """The plain policy gradient, weighted by the ratio if there is one."""
    return -ratio_M.detach() * advantage_M * logprob_M


class RatioBounds(NamedTuple):
    """The settings of these names."""

    clip_low: float
    clip_high: float
    dual_clip: float | None


class SurrogateSpec(NamedTuple):
    """A policy loss with its metrics, and the settings that bound its ratio."""

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

    As a value k1 is unbiased, k3 too and never negative. As a loss only k2 has the right gradient
    for tokens the policy sampled: differentiating k1 gives zero in expectation, differentiating k3
    the forward KL's gradient.
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
    """The same estimates with the KL's own gradient, also for tokens sampled by older weights.

    The ratio is that of the token to those weights. The expectation of ratio × k3 is the KL for any
    current weights, so its gradient is the KL's (DeepSeek-V3.2): ratio × d × ∇logprob, with d =
    logprob - reference. k1 and k2 are given the same gradient, so that the three differ in value
    only.
    """
    if estimator == "k1":
        return ratio_M * kl(logprob_M, ref_logprob_M, "k1").detach()
    if estimator == "k2":
        return ratio_M.detach() * kl(logprob_M, ref_logprob_M, "k2")
    return ratio_M * kl(logprob_M, ref_logprob_M, "k3")


def teacher_advantage(logprob_M: Tensor, teacher_M: Tensor) -> Tensor:
    """How much more likely the teacher finds a sampled token than the policy does.

    >>> teacher_advantage(torch.tensor([0.5]).log(), torch.tensor([0.25]).log()).item()
    -0.6931471824645996
    """
    return (teacher_M - logprob_M).detach()


def reverse_kl(inputs: LossInputs) -> Tensor:
    """The KL to the teacher with its own gradient, ratio × k3 (DeepSeek-V3.2); never negative.

    For tokens sampled with the current weights, the gradient is that of REINFORCE with the
    teacher's advantage, -(log teacher - log policy) × ∇log policy: exact in expectation, unlike k3
    differentiated directly.
    """
    assert inputs.ref_logprob_M is not None, "distillation needs a teacher"
    return exact_kl(inputs.logprob_M, inputs.ref_logprob_M, token_ratio(inputs), "k3")


def step_kl(ratio_M: Tensor) -> Tensor:
    """Estimate KL(policy at the start of the step || policy now) from token ratios (k3)."""
    return ratio_M - 1 - ratio_M.log()


def _bound(log_ratio_M: Tensor) -> Tensor:
    return log_ratio_M.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


class ImportanceCorrectionConfig(Config):
    """How losses are corrected for the gap between engine and learner."""

    rule: Literal["none", "truncate", "mask"] = "none"
    """Treatment of the importance factor, learner over engine: none ignores it, truncate bounds
    it (TIS, Yao et al. 2025), mask drops tokens out of bounds (IcePop, MIS)."""
    level: Literal["token", "sequence"] = "token"
    """sequence multiplies the factors of all its tokens into one."""
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

    `cfg.rule` is one that corrects: truncate or mask.
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
"""The combinations that an early stop may have."""


class EarlyStopConfig(Config):
    """When to skip an update, measured before its optimizer step."""

    limit: float | None = Field(default=None, gt=0.0)
    """Largest value of the statistic at which an update is still taken; none disables the early
    stop."""
    statistic: Literal["mean", "max", "quantile", "kl"] = "mean"
    """Statistic of the ratio over the tokens in scope; kl is the KL from the start of the step, in
    nats per token."""
    quantile: float = Field(default=0.99, gt=0.0, lt=1.0)
    """Which quantile, for statistic = "quantile"."""
    scope: Literal["micro_batch", "mini_batch", "step"] = "mini_batch"
    """The unit to skip: a micro-batch (which makes the result depend on the packing), a mini-batch,
    or the mini-batch and the rest of the step. The statistic is over the micro-batch, otherwise the
    mini-batch."""
    action: Literal["zero", "skip", "stop"] = "skip"
    """zero sets its loss to 0 and still takes the optimizer step, skip takes none, stop ends the
    step."""

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
    """Whether the mean of `stop_statistic` is beyond the limit; NaN is."""
    assert cfg.limit is not None, "only an early stop with a limit has a statistic"
    bounds = {"mean": cfg.limit, "kl": cfg.limit, "max": 0.0, "quantile": 1 - cfg.quantile}
    return not bool(mean <= bounds[cfg.statistic])


LossWeightRule = Callable[[Sequence[int]], list[float]]
"""Lengths of all sequences of an optimizer step -> the weight of each token of each sequence."""


def token_mean(lengths: Sequence[int]) -> list[float]:
    """Every token counts the same (DAPO, Yu et al. 2025).

    >>> token_mean([1, 3])
    [0.25, 0.25]
    """
    return [1.0 / sum(lengths)] * len(lengths)


def sequence_mean(lengths: Sequence[int]) -> list[float]:
    """Every sequence counts the same, split over its tokens (GRPO, Shao et al. 2024).

    >>> sequence_mean([1, 4])
    [0.5, 0.125]
    """
    return [1.0 / (len(lengths) * length) for length in lengths]


def sequence_sum(lengths: Sequence[int]) -> list[float]:
    """Tokens add up within a sequence, sequences are averaged (RLOO)."""
    return [1.0 / len(lengths)] * len(lengths)


def constant(divisor: int) -> LossWeightRule:
    """Divide by a fixed length, and average sequences (Dr. GRPO): no length bias.

    >>> constant(10)([1, 3])
    [0.05, 0.05]
    """

    def weights(lengths: Sequence[int]) -> list[float]:
        return [1.0 / (divisor * len(lengths))] * len(lengths)

    return weights
