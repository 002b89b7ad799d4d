"""Preference learning, DPO and IPO: of two responses, make the better one more likely."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from whet.algos.preferences import PreferenceConfig, preference_objective
from whet.batching.rollout_datasets import (
    LeftOutReason,
    PairRule,
    PreferencePairs,
    make_preference_pairs,
    read_data,
)
from whet.config import Config
from whet.data.problem_sampler import EpochSampler
from whet.errors import DataError
from whet.reports.report_data import Unit
from whet.rng import derive
from whet.rollout.collect import sample_and_grade
from whet.stages.guard import CollapseGuard, GuardConfig
from whet.stages.held_out import drop_held_out, load_training_problems
from whet.stages.stage import ModelWork, TrainingConfig
from whet.stages.training import STEPS_PER_LINE, Session, finish_training, open_loop, open_session
from whet.store.run import RunStore
from whet.track.progress import console
from whet.train.frozen_models import add_pair_ref_logprobs, set_pair_loss_weights
from whet.types import Rollout, Split

COLUMNS = {
    "loss": "loss",
    "preference/accuracy": "accuracy",
    "preference/margin": "margin",
    "preference/chosen": "chosen",
    "preference/rejected": "rejected",
    "train/grad_norm": "gradient",
}
_LEFT_OUT: dict[LeftOutReason, str] = {
    "unscored": "without a verdict",
    "repeated": "repeated",
    "cut": "cut at the length limit",
    "too_long": "longer than the context",
}


class PairsConfig(Config):
    """Which responses are compared."""

    rules: tuple[PairRule, ...] = Field(default=("correct",), min_length=1)
    """correct: right against wrong; short: of two right ones the shorter; first_wrong: at the first
    wrong step."""
    per_problem: int = Field(default=8, ge=1)
    """Most pairs per problem and rule."""


class OwnResponsesConfig(Config):
    """Problems that the model answers, if its own responses are compared."""

    split: Literal["sft", "rl"] = "rl"
    """The split of the problems."""
    problems: int | None = Field(default=None, ge=1)
    """How many problems, from the start of the split; none asks all of them."""
    samples: int = Field(default=8, ge=2)
    """Responses per problem."""


class DPOConfig(TrainingConfig):
    """Settings of DPO and IPO: responses, pairs, loss, model, steps."""

    trains_on_wrong = True
    smoke_limits: ClassVar[Mapping[str, int]] = {"own.problems": 2, "own.samples": 2}
    curves: ClassVar[Mapping[str, tuple[str, Unit]]] = {
        "preference/accuracy": ("Pairs told apart", Unit.FRACTION),
        "preference/margin": ("Margin of pairs", Unit.NUMBER),
    }

    kind: Literal["dpo"] = "dpo"
    batch_size: int = Field(default=32, ge=1)
    """Pairs in an optimizer step."""
    data: str | None = None
    """A rollout file, a run folder with rollouts, or `@stage` in a pipeline; none samples responses
    of the model first."""
    own: OwnResponsesConfig = OwnResponsesConfig()
    """Problems for the model to answer if `data` is none."""
    pairs: PairsConfig = PairsConfig()
    """Which responses make pairs."""
    loss: PreferenceConfig = PreferenceConfig()
    """How a pair becomes a gradient."""
    guard: GuardConfig = GuardConfig()
    """The response to a collapse of the policy."""

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> "DPOConfig":
        self.guard.refuse_without(self.validation)
        return self

    def run_in(self, run: RunStore) -> None:
        dpo(self, run)

    @property
    def splits(self) -> list[Split]:
        return [*([self.own.split] if self.data is None else []), *super().splits]

    def list_work(self) -> list[ModelWork]:
        return [replace(super().list_work()[0], engine=None, problems=2 * self.batch_size)]

    def without_effect(self) -> dict[str, str]:
        unused = super().without_effect()
        return unused if self.data is None else unused | {"own": "data names the responses"}


def dpo(cfg: DPOConfig, run: RunStore) -> None:
    """Train on pairs of stored or own responses, which the starting model scores once before."""
    session = open_session(cfg, run)
    policy = session.policy
    clock = session.clock
    learner = policy.build_learner(cfg.train, steps=cfg.steps)
    objective = preference_objective(cfg.loss)
    manager = session.build_checkpoint_manager(
        learner, guard=CollapseGuard(cfg.guard, run, learner, cfg.validation)
    )
    with session.grader:
        rollouts = read_compared_responses(session)
        view = make_preference_pairs(
            rollouts,
            policy.chat,
            cfg.pairs.rules,
            comment=session.task.comment,
            max_tokens=policy.engine.max_model_len,
            per_problem=cfg.pairs.per_problem,
            seed=derive(cfg.seed, "pairs"),
        )
        check_pairs(view)
        # The starting model is the reference: score before a checkpoint replaces it.
        pairs = add_pair_ref_logprobs(view.pairs, learner)
        sampler = EpochSampler(pairs, cfg.seed, name="sft")  # another name, another order
        with open_loop(session, manager, COLUMNS, every=STEPS_PER_LINE) as loop:
            if cfg.data is None:
                run.write_rollouts("train", 0, [tuple(rollouts)])
            for step in loop:
                batch = set_pair_loss_weights(sampler.batch_at(step, cfg.batch_size))
                with clock.measure("update"):
                    metrics = learner.update(batch, objective)
                loop.log(step, metrics)
                loop.end_step(step)
    finish_training(run, manager)


def read_compared_responses(session: Session[DPOConfig]) -> list[Rollout]:
    """Read the responses to compare; without `data`, sample them from the starting model."""
    cfg = session.cfg
    run = session.run
    if cfg.data is not None:
        return drop_held_out(read_data(cfg.data), cfg, session.task)
    if 0 in run.rollout_steps("train"):
        return run.rollouts("train", 0)
    problems = load_training_problems(cfg, session.task, cfg.own.split)[: cfg.own.problems]
    groups = sample_and_grade(
        session.policy.chat_engine,
        session.grader,
        session.filter_fitting(problems),
        cfg.sampling,
        samples=cfg.own.samples,
        seed=derive(cfg.seed, "own"),
        label="sample",
    )
    return [rollout for group in groups for rollout in group]


def check_pairs(view: PreferencePairs) -> None:
    """Print the number of pairs and of rollouts left out; stop if there is no pair."""
    left_out = [
        f"{view.faults[fault]:,} {words}"
        for fault, words in _LEFT_OUT.items()
        if view.faults[fault]
    ]
    console.print(
        f"{view.num_responses:,} responses to {view.num_problems:,} problems; "
        f"left out: {', '.join(left_out) or 'none'}"
    )
    for rule, count in view.rules.items():
        console.print(
            f"{count.num_pairs:>7,} pairs by {rule}, {count.num_capped:,} more over the cap, "
            f"{count.num_empty:,} problems without any"
        )
    if not view.pairs:
        raise DataError(
            f"no two of the {view.num_responses:,} responses make a pair by "
            f"{', '.join(view.rules)}: give more responses per problem, or other pairs.rules"
        )
