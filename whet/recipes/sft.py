"""Supervised fine-tuning (SFT) on stored answers, with the loss on responses only."""

from typing import Literal

from pydantic import Field

from whet.algos.losses import token_mean
from whet.algos.objectives import sft_objective
from whet.data.rollout_datasets import Keep, choose_answers, list_texts, make_sft_examples
from whet.errors import ConfigError, DataError
from whet.recipes.training import (
    STEPS_PER_LINE,
    TrainingConfig,
    finish,
    open_session,
    read_data,
    take_batch,
)
from whet.rng import derive
from whet.store.run import RunStore
from whet.track.metrics import open_trackers
from whet.track.progress import console, get_console, progress_bar
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

    allows_new_model = True

    kind: Literal["sft"] = "sft"
    steps: int = Field(default=1000, ge=1)
    """Optimiser steps."""
    batch_size: int = Field(default=32, ge=1)
    """Examples in an optimiser step."""
    data: str
    """A rollout file, a run folder with rollouts, or `@stage` in a pipeline."""
    keep: Keep = "correct"
    """Which answers to imitate: correct leaves out answers graded otherwise, all imitates
    whatever is there."""


def sft(cfg: SFTConfig, run: RunStore) -> None:
    """Fine-tune a model on stored answers: tokenise, shuffle, step, validate, save."""
    rollouts = read_answers(cfg)
    model_seed = derive(cfg.seed, "model")
    session = open_session(cfg, run, texts=list_texts(rollouts), model_seed=model_seed)
    policy = session.policy
    clock = session.clock
    view = make_sft_examples(rollouts, policy.chat, policy.engine.max_model_len)
    console.print(
        f"{len(view.examples):,} examples, {view.num_too_long:,} left out as longer than "
        f"{policy.engine.max_model_len} tokens"
    )
    longest = max(len(example.tokens) for example in view.examples)
    if longest > cfg.train.micro_batch_tokens:
        raise ConfigError(
            f"train.micro_batch_tokens = {cfg.train.micro_batch_tokens} is below {longest}, the "
            "tokens of the "
            "longest example: raise it"
        )
    learner = policy.make_learner(cfg.train, steps=cfg.steps)
    manager = session.build_manager(learner)
    objective = sft_objective()
    start = manager.resume()
    with (
        session.grader,
        open_trackers(
            cfg.track, run, COLUMNS, every=STEPS_PER_LINE, console=get_console()
        ) as tracker,
        progress_bar("sft", cfg.steps, done=start) as advance,
        manager.stop_on_signal(),
    ):
        manager.validate_first(start, tracker)
        for step in range(start, cfg.steps):
            clock.start()
            batch = set_loss_weights(
                take_batch(view.examples, cfg.batch_size, step, cfg.seed), token_mean
            )
            with clock.measure("update"):
                metrics = learner.update(batch, objective)
            tracker.log(step + 1, metrics | clock.lap())
            advance(1)
            manager.end_step(step + 1, tracker)
    finish(run, manager)


def read_answers(cfg: SFTConfig) -> list[Rollout]:
    """Read the answers to imitate, and say how many are left out for their verdict."""
    rollouts = read_data(cfg.data)
    kept, left_out = choose_answers(rollouts, cfg.keep)
    counts = ", ".join(
        f"{count:,} {verdict.replace('_', ' ')}" for verdict, count in left_out.items()
    )
    if not kept:
        raise DataError(
            f"data = {cfg.data!r} has no right answer among {len(rollouts):,} ({counts}): "
            'give others, or set keep = "all" to imitate these'
        )
    if left_out:
        console.print(
            f"{left_out.total():,} of {len(rollouts):,} answers left out as not right: {counts}"
        )
    return kept
