"""An algorithm, assembled from its settings: advantage, objective and token weights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from whet.algos import advantages, losses
from whet.algos.losses import EarlyStopConfig, KlEstimator
from whet.algos.objectives import Objective, policy_objective
from whet.algos.presets import LossWeightsName, Preset
from whet.algos.settings import AlgoConfig, resolve_kl_estimator, resolve_preset
from whet.algos.step_credit import (
    StepCreditEstimator,
    build_step_credit,
    step_credit_fraction_at,
)
from whet.algos.user_functions import (
    load_advantage,
    load_critic_advantage,
    load_critic_mark,
    load_token_advantage,
    load_token_mark,
)
from whet.user_code import is_code_path

ADVANTAGES: Mapping[str, Callable[[AlgoConfig], advantages.AdvantageEstimator]] = {
    "zscore": lambda cfg: advantages.per_group(partial(advantages.zscore, ddof=cfg.ddof)),
    "momentum": lambda cfg: advantages.momentum(cfg.max_momentum),
}
"""Advantages of whole responses that have settings; others are in `advantages.GROUP_RULES`, which
also has zscore with its default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRule:
    """An advantage of single tokens, which compares no responses with each other."""

    build: Callable[[AlgoConfig], advantages.TokenAdvantageEstimator]
    needs_critic: bool


TOKEN_ADVANTAGES: Mapping[str, TokenRule] = {
    "to_go": TokenRule(
        build=lambda cfg: advantages.to_go_advantage(gamma=cfg.gamma), needs_critic=False
    ),
    "gae": TokenRule(
        build=lambda cfg: advantages.gae_advantage(gamma=cfg.gamma, decay=cfg.gae_lambda),
        needs_critic=True,
    ),
}


def needs_critic(preset: Preset) -> bool:
    """Whether the advantage compares with the values of a critic; for a user's function, its file
    says so."""
    if is_code_path(preset.advantage):
        return load_critic_mark(preset.advantage)
    rule = TOKEN_ADVANTAGES.get(preset.advantage)
    return rule is not None and rule.needs_critic


def compares_responses(preset: Preset) -> bool:
    """Whether the advantage compares the responses to a problem with each other; one of single
    tokens does not."""
    if is_code_path(preset.advantage):
        return not (load_critic_mark(preset.advantage) or load_token_mark(preset.advantage))
    return preset.advantage not in TOKEN_ADVANTAGES


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """The functions and switches of one algorithm, as the RL step uses them."""

    advantage: advantages.AdvantageEstimator | None
    """Of whole responses, group by group; None if `token_advantage` credits single tokens."""
    token_advantage: advantages.TokenAdvantageEstimator | None
    compares_responses: bool
    """Whether a response is compared with others to its problem."""
    whitens: bool
    step_credit: StepCreditEstimator | None
    step_credit_fraction: Callable[[float], float]
    """Fraction of step credit, by how much of the run is done."""
    objective: Objective
    loss_weights: losses.LossWeightRule
    kl_in_reward: float
    """Weight of the KL subtracted from the rewards; 0 if it is in the loss."""
    kl_estimator: KlEstimator
    needs_reference: bool
    needs_values: bool
    needs_old_logprobs: bool
    """Whether the learner must compute log-probabilities before its first step."""
    trains_on_zero_advantage: bool
    """Whether a rollout of zero advantage still has a gradient: through the KL or the entropy."""
    num_minibatches: int
    early_stop: EarlyStopConfig


def build_algorithm(cfg: AlgoConfig, *, max_tokens: int) -> Algorithm:
    """Assemble the named algorithm; `max_tokens` is the length that constant weights divide by."""
    preset = resolve_preset(cfg)
    in_loss = preset.kl_in == "loss"
    has_critic = needs_critic(preset)
    return Algorithm(
        advantage=_build_advantage(preset, cfg),
        token_advantage=_build_token_advantage(preset, cfg),
        compares_responses=compares_responses(preset),
        whitens=preset.whiten,
        step_credit=build_step_credit(preset.step_rule) if preset.step_rule else None,
        step_credit_fraction=partial(step_credit_fraction_at, preset.alpha, cfg.step_credit),
        objective=policy_objective(cfg),
        loss_weights=_build_loss_weights(preset.loss_weights, max_tokens),
        kl_in_reward=0.0 if in_loss else cfg.kl_coef,
        kl_estimator=resolve_kl_estimator(cfg),
        needs_reference=cfg.kl_coef > 0,
        needs_values=has_critic,
        needs_old_logprobs=cfg.num_minibatches > 1 and cfg.old_logprobs == "learner",
        trains_on_zero_advantage=(cfg.kl_coef > 0 and in_loss) or cfg.entropy_coef != 0,
        num_minibatches=cfg.num_minibatches,
        early_stop=cfg.early_stop,
    )


def _build_advantage(preset: Preset, cfg: AlgoConfig) -> advantages.AdvantageEstimator | None:
    if is_code_path(preset.advantage):
        return load_advantage(preset.advantage) if compares_responses(preset) else None
    if build := ADVANTAGES.get(preset.advantage):
        return build(cfg)
    rule = advantages.GROUP_RULES.get(preset.advantage)
    return None if rule is None else advantages.per_group(rule)


def _build_token_advantage(
    preset: Preset, cfg: AlgoConfig
) -> advantages.TokenAdvantageEstimator | None:
    if is_code_path(preset.advantage):
        if compares_responses(preset):
            return None
        load = load_critic_advantage if needs_critic(preset) else load_token_advantage
        return load(preset.advantage)
    rule = TOKEN_ADVANTAGES.get(preset.advantage)
    return None if rule is None else rule.build(cfg)


def _build_loss_weights(name: LossWeightsName, max_tokens: int) -> losses.LossWeightRule:
    by_name: dict[LossWeightsName, losses.LossWeightRule] = {
        "token_mean": losses.token_mean,
        "sequence_mean": losses.sequence_mean,
        "sequence_sum": losses.sequence_sum,
        "constant": losses.constant(max_tokens),
    }
    return by_name[name]
