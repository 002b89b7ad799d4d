"""The settings of an algorithm: the name of a preset, and replacements for its parts."""

from dataclasses import replace
from typing import Literal

from pydantic import Field, model_validator

from whet.algos.advantages import ADVANTAGES, AdvantageName
from whet.algos.losses import (
    SURROGATES,
    EarlyStopConfig,
    ImportanceCorrectionConfig,
    KlEstimator,
    KlGradient,
    RatioBounds,
    RatioName,
    SurrogateName,
)
from whet.algos.presets import PRESETS, AlgoName, KlPlace, LossWeightsName, Preset
from whet.algos.step_credit import StepCreditConfig
from whet.config import CONSTANT, Config
from whet.user_code import CodePath


class AlgoConfig(Config):
    """How rewards become gradients. A setting of none takes the preset's value."""

    name: AlgoName = "grpo"
    """A preset of `whet/algos/presets.py`, with its paper; the settings below replace its parts."""
    advantage: AdvantageName | CodePath | None = None
    """The baseline of a reward: its group (zscore, center, leave_one_out), a running mean
    (momentum), nothing (to_go), or a critic (gae). Your own function is given as
    "my_algo.py:advantage"."""
    ddof: Literal[0, 1] = Field(default=1, json_schema_extra=CONSTANT)
    """For zscore: 1 divides by the sample standard deviation, 0 by the population's."""
    max_momentum: float = Field(default=0.2, ge=0.0, lt=1.0)
    """For momentum: the largest weight of earlier groups in the running mean and standard
    deviation; 0 is group-relative."""
    gamma: float = Field(default=1.0, gt=0.0, le=1.0)
    """For to_go and gae: the discount per token."""
    gae_lambda: float = Field(default=1.0, ge=0.0, le=1.0)
    """For gae: λ, from one-step TD errors (0) to rewards to go minus values (1)."""
    whiten: bool | None = None
    """Normalise advantages to mean 0 and standard deviation 1 over all tokens of a step; groups
    of equal reward stay at 0."""
    step_credit: StepCreditConfig = StepCreditConfig()
    """For tango: the fraction of judged steps in the advantage."""
    ratio: RatioName | None = None
    """Ratio of new to old probability: of each token, of the sequence (the geometric mean of its
    tokens), or off, which counts every ratio as 1."""
    surrogate: SurrogateName | CodePath | None = None
    """The loss from ratio and advantage: clip (PPO), cispo, or reinforce, which bounds nothing.
    Your own function is given as "my_algo.py:surrogate"."""
    clip_low: float | None = Field(default=None, ge=0.0)
    """For clip: at a negative advantage, a ratio below 1 - clip_low has no gradient."""
    clip_high: float | None = Field(default=None, ge=0.0)
    """For clip: at a positive advantage, a ratio above 1 + clip_high has no gradient. For cispo:
    ratios are capped at 1 + clip_high."""
    dual_clip: float | None = Field(default=None, gt=1.0)
    """Bound on the loss of a token of negative advantage, in multiples of the advantage; none is no
    bound."""
    loss_weights: LossWeightsName | None = None
    """How token losses are averaged: over all tokens of a step (token_mean), within each sequence
    first (sequence_mean), summed within each sequence (sequence_sum), or divided by the longest
    allowed response (constant)."""
    old_logprobs: Literal["learner", "engine"] = "learner"
    """The denominator of ratios, and the policy of a KL in the reward: the learner's
    log-probabilities at the start of the step, or the engine's when it sampled."""
    importance_correction: ImportanceCorrectionConfig = ImportanceCorrectionConfig()
    """Correction for tokens whose probabilities differ between engine and learner."""
    kl_coef: float = Field(default=0.0, ge=0.0)
    """Weight of the KL to the starting policy; 0 needs no reference model."""
    kl_in: KlPlace | None = None
    """Where the KL counts: in the loss of each token, or subtracted from its reward."""
    kl_estimator: KlEstimator | None = None
    """Estimator of the KL; none takes k2 in the loss and k1 in the reward, which have the gradient
    of the KL there."""
    kl_gradient: KlGradient = "exact"
    """For a KL in the loss: exact uses the gradient of the KL for every estimator, direct
    differentiates the estimate itself."""
    entropy_coef: float = 0.0
    """Weight of an entropy bonus in the loss; 0 only logs the entropy."""
    num_minibatches: int = Field(default=1, ge=1)
    """Optimizer steps per batch of rollouts."""
    early_stop: EarlyStopConfig = EarlyStopConfig()
    """Skips updates when the policy has moved too far within a step."""

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> "AlgoConfig":
        preset = resolve_preset(self)
        surrogate = SURROGATES.get(preset.surrogate)
        if preset.ratio == "off" and surrogate is not None and surrogate.bounds:
            raise ValueError(
                f'surrogate = "{preset.surrogate}" needs a ratio to bound: set ratio to "token" or '
                '"sequence"'
            )
        has_dual_clip = surrogate is not None and "dual_clip" in surrogate.bounds
        if self.dual_clip is not None and (
            not has_dual_clip or self.dual_clip <= 1 + preset.clip_high
        ):
            raise ValueError(
                f'dual_clip = {self.dual_clip} needs surrogate = "clip" and a bound above '
                "1 + clip_high"
            )
        if self.step_credit.alpha is not None and preset.step_rule is None:
            raise ValueError(
                f"step_credit.alpha = {self.step_credit.alpha} is for the tango algorithms, which "
                "credit judged steps"
            )
        if self.old_logprobs == "engine" and self.importance_correction.rule != "none":
            raise ValueError(
                "importance_correction corrects the gap between engine and learner, which "
                'old_logprobs = "engine" ignores: set only one of them'
            )
        low, high = self.importance_correction.low, self.importance_correction.high
        if low >= high:
            raise ValueError(
                f"importance_correction.low = {low} should be below "
                f"importance_correction.high = {high}"
            )
        if self.early_stop.limit is not None and self.has_unit_ratios:
            raise ValueError(
                "early_stop needs num_minibatches above 1: with one, every ratio is 1 when it is "
                "measured"
            )
        return self

    @property
    def has_unit_ratios(self) -> bool:
        """Whether every ratio is 1: the step's only update starts from the weights at its start."""
        return self.num_minibatches == 1 and self.old_logprobs == "learner"

    @property
    def needs_old_logprobs(self) -> bool:
        """Whether the learner computes log-probabilities at the start of a step: ratios need them
        after its first update, and a KL in the reward before."""
        has_ratios = self.num_minibatches > 1
        has_kl_in_reward = self.kl_coef > 0 and resolve_preset(self).kl_in == "reward"
        return self.old_logprobs == "learner" and (has_ratios or has_kl_in_reward)

    def without_effect(self) -> dict[str, str]:
        preset = resolve_preset(self)
        unused: dict[str, str] = {}
        for key in (key for spec in ADVANTAGES.values() for key in spec.settings):
            names = [name for name, spec in ADVANTAGES.items() if key in spec.settings]
            if preset.advantage not in names:
                choices = " or ".join(f'"{name}"' for name in names)
                unused[key] = f"it is for advantage = {choices}"
        if preset.step_rule is None:
            unused["step_credit"] = "it is for the tango algorithms, which credit judged steps"
        unused |= self._unused_bounds(preset)
        if self.kl_coef == 0:
            for key in ("kl_in", "kl_estimator", "kl_gradient"):
                unused[key] = "kl_coef is 0"
        elif preset.kl_in == "reward":
            unused["kl_gradient"] = "a KL in the reward is not differentiated"
        return unused

    def _unused_bounds(self, preset: Preset) -> dict[str, str]:
        """List the bounds on the ratio that the loss does not use, each with the reason."""
        bounds = RatioBounds._fields
        if self.has_unit_ratios:
            reason = "with num_minibatches = 1 every ratio is 1"
            return dict.fromkeys((*bounds, "early_stop"), reason)
        if preset.surrogate not in SURROGATES:
            return {}
        own = SURROGATES[preset.surrogate].bounds
        reason = f'surrogate = "{preset.surrogate}" bounds ' + (
            f"the ratio only by {' and '.join(own)}" if own else "nothing"
        )
        return dict.fromkeys((key for key in bounds if key not in own), reason)


def resolve_preset(cfg: AlgoConfig) -> Preset:
    """Return the named preset with the replacements of the settings."""
    preset = PRESETS[cfg.name]
    return replace(
        preset,
        advantage=cfg.advantage or preset.advantage,
        whiten=preset.whiten if cfg.whiten is None else cfg.whiten,
        ratio=cfg.ratio or preset.ratio,
        surrogate=cfg.surrogate or preset.surrogate,
        loss_weights=cfg.loss_weights or preset.loss_weights,
        clip_low=preset.clip_low if cfg.clip_low is None else cfg.clip_low,
        clip_high=preset.clip_high if cfg.clip_high is None else cfg.clip_high,
        kl_in=cfg.kl_in or preset.kl_in,
        step_credit_fraction=(
            preset.step_credit_fraction if cfg.step_credit.alpha is None else cfg.step_credit.alpha
        ),
    )


def resolve_kl_estimator(cfg: AlgoConfig) -> KlEstimator:
    """Return the configured estimator, or by default one whose gradient is the KL's own."""
    return cfg.kl_estimator or ("k2" if resolve_preset(cfg).kl_in == "loss" else "k1")
