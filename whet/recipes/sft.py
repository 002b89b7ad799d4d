"""Supervised fine-tuning (SFT) on stored responses, with the loss on responses only."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil
from typing import Literal

from pydantic import Field

from whet.algos.losses import token_mean
from whet.algos.objectives import sft_objective
from whet.batching.examples import Example
from whet.batching.rollout_datasets import (
    Keep,
    SftExamples,
    choose_responses,
    list_texts,
    make_sft_examples,
    read_data,
    split_off_responses,
)
from whet.data.problem_sampler import EpochSampler
from whet.errors import ConfigError, DataError
from whet.rng import derive
from whet.stages.held_out import drop_held_out
from whet.stages.stage import ModelWork, TrainingConfig
from whet.stages.training import STEPS_PER_LINE, finish_training, open_loop, open_session
from whet.store.run import RunStore
from whet.tasks.task_config import build_task
from whet.text.chat import ChatFormat
from whet.track.progress import console, say
from whet.train.learner import mean_loss, set_loss_weights
from whet.train.policy import Policy
from whet.types import Problem, Rollout

COLUMNS = {
    "loss": "loss",
    "policy/entropy": "entropy",
    "train/grad_norm": "gradient",
    "train/lr": "rate",
}


class SFTConfig(TrainingConfig):
    """Settings of SFT: responses to imitate, model, steps."""

    allows_new_model = True

    kind: Literal["sft"] = "sft"
    steps: int = Field(default=1000, ge=1)
    """Optimizer steps."""
    epochs: float | None = Field(default=None, gt=0)
    """Passes over the data, in place of `steps`; none uses `steps`."""
    batch_size: int = Field(default=32, ge=1)
    """Examples in an optimizer step."""
    data: str
    """The responses: a run folder, a rollout file, `@stage` in a pipeline, or your own file with
    rows of messages, or of prompt and response."""
    keep: Keep = "correct"
    """Which responses to imitate: correct leaves out responses with another grade, all imitates
    every response."""
    held_out: int = Field(default=0, ge=0)
    """Fewest responses to hold out of training, by whole problems; their mean loss is logged as
    validation/loss. 0 holds out none."""

    def run_in(self, run: RunStore) -> None:
        sft(self, run)

    def select_responses(self, rollouts: Sequence[Rollout]) -> list[Rollout]:
        return keep_right(self, rollouts)[0]

    def list_work(self) -> list[ModelWork]:
        """List the work of the one model; 0 steps if `epochs` is set and the responses do not exist
        yet."""
        work = super().list_work()[0]
        steps = predict_steps(self) or 0
        return [replace(work, engine=None, problems=self.batch_size, steps=steps)]

    def without_effect(self) -> dict[str, str]:
        unused = super().without_effect()
        if self.epochs is not None:
            unused["steps"] = "epochs says how long to train"
        return unused


def sft(cfg: SFTConfig, run: RunStore) -> None:
    """Fine-tune a model on stored responses: tokenise, shuffle, step, validate, save."""
    task = build_task(cfg.task)
    responses = drop_held_out(read_responses(cfg), cfg, task)
    rollouts, held_out = split_off_responses(responses, cfg.held_out, cfg.seed)
    model_seed = derive(cfg.seed, "model")
    texts = list_texts(rollouts, cfg.prompt)
    session = open_session(cfg, run, task=task, texts=texts, model_seed=model_seed)
    policy, clock = session.policy, session.clock
    examples = make_examples(cfg, rollouts, policy)
    validation = make_examples(cfg, held_out, policy, label="held out") if held_out else []
    if cfg.epochs is not None:
        cfg = cfg.model_copy(update={"steps": count_steps(cfg, len(examples))})
        session = replace(session, cfg=cfg)
        console.print(
            f"{cfg.epochs:g} epochs of {len(examples):,} examples are {cfg.steps:,} steps"
        )
    learner = policy.build_learner(cfg.train, steps=cfg.steps)
    manager = session.build_checkpoint_manager(learner)
    is_new = cfg.model.new is not None
    if is_new and (words := describe_unseen(examples, manager.validator.problems, policy.chat)):
        say(f"note: {words}")
        run.log_event("note", said=words)
    objective = sft_objective()
    sampler = EpochSampler(examples, cfg.seed, name="sft")
    with session.grader, open_loop(session, manager, COLUMNS, every=STEPS_PER_LINE) as loop:
        for step in loop:
            batch = set_loss_weights(sampler.batch_at(step, cfg.batch_size), token_mean)
            with clock.measure("update"):
                metrics = learner.update(batch, objective)
            if validation and cfg.validation.is_due(step + 1, cfg.steps):
                metrics["validation/loss"] = mean_loss(learner, validation)
                say(f"validation at step {step + 1:,}: loss {metrics['validation/loss']:.4f}")
            loop.log(step, metrics)
            loop.end_step(step)
    finish_training(run, manager)


def count_steps(cfg: SFTConfig, num_examples: int) -> int:
    """Count the optimizer steps of a run on this many examples."""
    return cfg.steps if cfg.epochs is None else ceil(cfg.epochs * num_examples / cfg.batch_size)


def predict_steps(cfg: SFTConfig) -> int | None:
    """Predict the steps of a run, as if no response were too long; None without responses."""
    if cfg.epochs is None:
        return cfg.steps
    try:
        kept, _, _ = keep_right(cfg, read_data(cfg.data))
        rollouts, _ = split_off_responses(kept, cfg.held_out, cfg.seed)
    except DataError:
        return None
    return count_steps(cfg, len(rollouts))


def make_examples(
    cfg: SFTConfig, rollouts: Sequence[Rollout], policy: Policy, label: str = "examples"
) -> list[Example]:
    """Tokenise responses; print how many are too long, and refuse those no micro-batch can hold."""
    context = policy.engine.max_model_len
    view = make_sft_examples(rollouts, policy.chat, context)
    console.print(
        f"{len(view.examples):,} {label}, {view.num_too_long:,} left out as longer than "
        f"{context} tokens"
    )
    refuse_mostly_long(view, context)
    longest = max(len(example.tokens) for example in view.examples)
    if longest > cfg.train.micro_batch_tokens:
        raise ConfigError(
            f"train.micro_batch_tokens = {cfg.train.micro_batch_tokens} is below {longest}, the "
            "tokens of the longest example: raise it"
        )
    return view.examples


def refuse_mostly_long(view: SftExamples, context: int) -> None:
    """Refuse to train on the rest if most examples do not fit the context."""
    if view.num_too_long > len(view.examples):
        count = view.num_too_long + len(view.examples)
        raise DataError(
            f"{view.num_too_long:,} of {count:,} examples are longer than the context of "
            f"{context:,} tokens: raise model.positions of a new model, or engine.max_model_len"
        )


def describe_unseen(
    examples: Iterable[Example], problems: Sequence[Problem], chat: ChatFormat
) -> str | None:
    """Return a note if most prompts have tokens that a new model cannot learn from the examples."""
    seen = {token for example in examples for token in example.tokens.tolist()}
    count = sum(not seen.issuperset(chat.encode_problem(row).tolist()) for row in problems)
    if 2 * count <= len(problems):
        return None
    return (
        f"{count:,} of {len(problems):,} prompts of the split {problems[0].split} have tokens that "
        "no training example has, so a new model cannot read them: set model.max_pieces = 0, which "
        "makes every character a token, or separate the parts of a question with spaces"
    )


def read_responses(cfg: SFTConfig) -> list[Rollout]:
    """Read the responses to imitate, and say how many are left out for their verdict."""
    rollouts = read_data(cfg.data)
    kept, num_left_out, counts = keep_right(cfg, rollouts)
    if num_left_out:
        console.print(
            f"{num_left_out:,} of {len(rollouts):,} responses left out as not right: {counts}"
        )
    return kept


def keep_right(cfg: SFTConfig, rollouts: Sequence[Rollout]) -> tuple[list[Rollout], int, str]:
    """Choose the responses to imitate; also return how many are left out, in all and by verdict."""
    kept, left_out = choose_responses(rollouts, cfg.keep)
    counts = ", ".join(
        f"{count:,} {verdict.replace('_', ' ')}" for verdict, count in left_out.items()
    )
    if not kept:
        raise DataError(
            f"data = {cfg.data!r} has no right response among {len(rollouts):,} ({counts}): "
            'give others, or set keep = "all" to imitate these'
        )
    return kept, left_out.total(), counts
