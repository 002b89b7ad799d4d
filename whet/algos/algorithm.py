"""An algorithm, assembled from its settings: advantage, objective and token weights."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from whet.algos import losses
from whet.algos.advantages import (
    ADVANTAGES,
    AdvantageEstimator,
    AdvantageSpec,
    ResponseAdvantage,
    TokenAdvantage,
    TokenAdvantageEstimator,
)
from whet.algos.losses import EarlyStopConfig, KlEstimator
from whet.algos.objectives import LogprobObjective, policy_objective
from whet.algos.presets import LossWeightsName, Preset
from whet.algos.settings import AlgoConfig, resolve_kl_estimator, resolve_preset
from whet.algos.step_credit import StepCreditEstimator, build_step_credit, step_credit_fraction_at
from whet.algos.user_functions import load_advantage
from whet.user_code import is_code_path


def needs_critic(preset: Preset) -> bool:
    """Whether the advantage needs the values of a critic."""
    spec = find_advantage(preset)
    return isinstance(spec, TokenAdvantage) and spec.needs_critic


def compares_responses(preset: Preset) -> bool:
    """Whether the advantage compares responses to the same problem with each other."""
    return isinstance(find_advantage(preset), ResponseAdvantage)


def find_advantage(preset: Preset) -> AdvantageSpec:
    """Look up the advantage of a preset; a user's function is loaded from its file."""
    if is_code_path(preset.advantage):
        return load_advantage(preset.advantage)
    return ADVANTAGES[preset.advantage]


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """The functions and switches of one algorithm, as the RL step uses them."""

    advantage: AdvantageEstimator | None
    """For whole responses, by group; None if `token_advantage` credits single tokens."""
    token_advantage: TokenAdvantageEstimator | None
    compares_responses: bool
    """Whether responses to the same problem are compared with each other."""
    whitens: bool
    step_credit: StepCreditEstimator | None
    step_credit_fraction: Callable[[float], float]
    """Completed fraction of the run -> fraction of step credit."""
    objective: LogprobObjective
    loss_weights: losses.LossWeightRule
    kl_in_reward: float
    """Weight of the KL subtracted from the rewards; 0 if it is in the loss."""
    kl_estimator: KlEstimator
    needs_reference: bool
    needs_values: bool
    needs_old_logprobs: bool
    """Whether the learner must compute log-probabilities before its first step."""
    trains_on_zero_advantage: bool
    """Whether a rollout of zero advantage has a gradient, from the KL or the entropy."""
    num_minibatches: int
    early_stop: EarlyStopConfig


def build_algorithm(cfg: AlgoConfig, *, max_tokens: int) -> Algorithm:
    """Assemble the named algorithm; `max_tokens` is the divisor of constant loss weights."""
    preset = resolve_preset(cfg)
    in_loss = preset.kl_in == "loss"
    spec = find_advantage(preset)
    own_settings = cfg.model_dump(include=set(spec.settings))
    return Algorithm(
        advantage=spec.build(**own_settings) if isinstance(spec, ResponseAdvantage) else None,
        token_advantage=spec.build(**own_settings) if isinstance(spec, TokenAdvantage) else None,
        compares_responses=isinstance(spec, ResponseAdvantage),
        whitens=preset.whiten,
        step_credit=build_step_credit(preset.step_rule) if preset.step_rule else None,
        step_credit_fraction=partial(
            step_credit_fraction_at, preset.step_credit_fraction, cfg.step_credit
        ),
        objective=policy_objective(cfg),
        loss_weights=_build_loss_weights(preset.loss_weights, max_tokens),
        kl_in_reward=0.0 if in_loss else cfg.kl_coef,
        kl_estimator=resolve_kl_estimator(cfg),
        needs_reference=cfg.kl_coef > 0,
        needs_values=isinstance(spec, TokenAdvantage) and spec.needs_critic,
        needs_old_logprobs=cfg.needs_old_logprobs,
        trains_on_zero_advantage=(cfg.kl_coef > 0 and in_loss) or cfg.entropy_coef != 0,
        num_minibatches=cfg.num_minibatches,
        early_stop=cfg.early_stop,
    )


def _build_loss_weights(name: LossWeightsName, max_tokens: int) -> losses.LossWeightRule:
    by_name: dict[LossWeightsName, losses.LossWeightRule] = {
        "token_mean": losses.token_mean,
        "sequence_mean": losses.sequence_mean,
        "sequence_sum": losses.sequence_sum,
        "constant": losses.constant(max_tokens),
    }
    return by_name[name]
