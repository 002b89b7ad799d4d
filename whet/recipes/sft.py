"""Supervised fine-tuning (SFT) on stored answers, with the loss on responses only."""

from typing import Literal

from pydantic import Field

from whet.algos.losses import token_mean
from whet.algos.objectives import sft_objective
from whet.data.rollout_datasets import (
    Keep,
    choose_answers,
    list_texts,
    make_sft_examples,
    read_data,
    take_batch,
)
from whet.errors import ConfigError, DataError
from whet.recipes.held_out import leave_out_held
from whet.recipes.training import (
    STEPS_PER_LINE,
    TrainingConfig,
    finish,
    open_loop,
    open_session,
)
from whet.rng import derive
from whet.store.run import RunStore
from whet.tasks.task_config import build_task
from whet.track.progress import console
from whet.train.learner import set_loss_weights
from whet.types import Rollout

COLUMNS = {
    "loss": "loss",
    "policy/entropy": "entropy",
    "train/grad_norm": "gradient",
    "train/lr": "rate",
}


class SFTConfig(TrainingConfig):
    """Settings of SFT: answers to imitate, model, steps."""

    starts_anew = True

    kind: Literal["sft"] = "sft"
    steps: int = Field(default=1000, ge=1)
    """Optimiser steps."""
    batch: int = Field(default=32, ge=1)
    """Examples in an optimiser step."""
    data: str
    """A rollout file, a run folder with rollouts, or `@stage` in a pipeline."""
    keep: Keep = "correct"
    """Which answers to imitate: correct leaves out answers graded otherwise, all imitates
    whatever is there."""


def sft(cfg: SFTConfig, run: RunStore) -> None:
    """Fine-tune a model on stored answers: tokenise, shuffle, step, validate, save."""
    task = build_task(cfg.task)
    rollouts = leave_out_held(read_answers(cfg), cfg, task)
    model_seed = derive(cfg.seed, "model")
    texts = list_texts(rollouts, cfg.prompt)
    session = open_session(cfg, run, task=task, texts=texts, model_seed=model_seed)
    policy = session.policy
    clock = session.clock
    view = make_sft_examples(rollouts, policy.chat, policy.engine.context)
    console.print(
        f"{len(view.examples):,} examples, {view.num_too_long:,} left out as longer than "
        f"{policy.engine.context} tokens"
    )
    longest = max(len(example.tokens) for example in view.examples)
    if longest > cfg.train.micro_tokens:
        raise ConfigError(
            f"train.micro_tokens = {cfg.train.micro_tokens} is below {longest}, the tokens of the "
            "longest example: raise it"
        )
    learner = policy.make_learner(cfg.train, steps=cfg.steps)
    manager = session.build_manager(learner)
    objective = sft_objective()
    with session.grader, open_loop(session, manager, COLUMNS, every=STEPS_PER_LINE) as loop:
        for step in loop:
            batch = set_loss_weights(
                take_batch(view.examples, cfg.batch, step, cfg.seed), token_mean
            )
            with clock.measure("update"):
                metrics = learner.update(batch, objective)
            loop.log(step, metrics)
    finish(run, manager)


def read_answers(cfg: SFTConfig) -> list[Rollout]:
    """Read the answers to imitate, and say how many are left out for their verdict."""
    rollouts = read_data(cfg.data)
    kept, num_left_out, counts = keep_right(cfg, rollouts)
    if num_left_out:
        console.print(
            f"{num_left_out:,} of {len(rollouts):,} answers left out as not right: {counts}"
        )
    return kept


def keep_right(cfg: SFTConfig, rollouts: list[Rollout]) -> tuple[list[Rollout], int, str]:
    """Choose the answers to imitate; return also how many are left out, in all and by verdict."""
    kept, left_out = choose_answers(rollouts, cfg.keep)
    counts = ", ".join(
        f"{count:,} {verdict.replace('_', ' ')}" for verdict, count in left_out.items()
    )
    if not kept:
        raise DataError(
            f"data = {cfg.data!r} has no right answer among {len(rollouts):,} ({counts}): "
            'give others, or set keep = "all" to imitate these'
        )
    return kept, left_out.total(), counts
