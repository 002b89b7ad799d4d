"""Supervised fine-tuning: imitate stored answers, loss on responses only."""

from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field

from whet.algos.catalog import sft_objective
from whet.algos.weights import token_mean
from whet.config import Config
from whet.data.problems import problems_of
from whet.data.sft_data import imitation, texts
from whet.engine.base import Sampling
from whet.engine.native import EngineConfig
from whet.errors import DataError
from whet.evals.validation import ExamConfig, Examiner
from whet.grading.grader import Grader
from whet.grading.limits import Limits
from whet.recipes.training import Keeper, SaveConfig
from whet.rng import derive, stream
from whet.store.rollouts import read_rollouts
from whet.store.run import RunStore
from whet.tasks.game24.task import Game24Config
from whet.tasks.registry import TaskConfig, build
from whet.track.metrics import TrackConfig, open_trackers
from whet.track.progress import bar, console, screen
from whet.train.credit import weigh
from whet.train.determinism import settle
from whet.train.optim import TrainConfig
from whet.train.policy import ModelSource, Policy, open_model, torch_dtype
from whet.types import Rollout

T = TypeVar("T")
LINES = 20
"""Steps a line on the screen; every step is in the metrics."""
COLUMNS = {
    "loss": "loss",
    "policy/entropy": "entropy",
    "train/grad_norm": "gradient",
    "train/lr": "rate",
}


class SFTConfig(Config):
    """What to imitate, with which model, for how long."""

    kind: Literal["sft"] = "sft"
    seed: int = 0
    steps: int = Field(default=1000, ge=1)
    batch: int = Field(default=32, ge=1)
    """Examples an optimiser step."""
    data: str
    """A rollout file, a run folder that holds some, or `@stage` in a pipeline."""
    task: TaskConfig = Game24Config()
    problems: str | None = None
    """Folder of problems for exams; None takes the task's own."""
    model: ModelSource
    train: TrainConfig = TrainConfig()
    sampling: Sampling = Sampling()
    """For exams."""
    engine: EngineConfig = EngineConfig()
    exam: ExamConfig = ExamConfig()
    grading: Limits = Limits()
    save: SaveConfig = SaveConfig()
    track: TrackConfig = TrackConfig()


def sft(cfg: SFTConfig, run: RunStore) -> None:
    """Fit a model to teacher answers: tokenise, shuffle, step, examine, save."""
    settle(cfg.train.deterministic)
    rollouts = read_data(cfg.data)
    model, tokenizer = open_model(
        cfg.model,
        dtype=torch_dtype(cfg.train.dtype),
        texts=texts(rollouts),
        seed=derive(cfg.seed, "model"),
    )
    policy = Policy(model, tokenizer, engine=cfg.engine, name=run.folder.name)
    view = imitation(rollouts, policy.chat, policy.engine.context)
    console.print(
        f"{len(view.examples):,} examples, {view.num_too_long:,} left out as longer than {policy.engine.context} tokens"
    )
    learner = policy.learner(cfg.train, steps=cfg.steps)
    objective = sft_objective()
    task = build(cfg.task)
    grader = Grader(task, cfg.grading)
    exam = problems_of(task, cfg.problems, cfg.exam.split)
    examiner = Examiner(cfg.exam, grader, exam, cfg.sampling, seed=cfg.seed)
    keeper = Keeper(cfg.save, run, policy, learner, examiner)
    start, _ = keeper.resume()
    with (
        grader,
        open_trackers(cfg.track, run, COLUMNS, every=LINES, console=screen()) as tracker,
        bar("sft", cfg.steps, done=start) as advance,
    ):
        for step in range(start, cfg.steps):
            batch = weigh(take(view.examples, cfg.batch, step, cfg.seed), token_mean)
            tracker.log(step + 1, learner.update(batch, objective))
            advance(1)
            keeper.after(step + 1, cfg.steps, {})
    finish(run, keeper)


def read_data(place: str) -> list[Rollout]:
    """Read the rollouts of a file, or the training rollouts of a run folder."""
    path = Path(place)
    if path.is_dir():
        run = RunStore.view(path)
        rollouts = [
            rollout
            for step in run.rollout_steps("train")
            for rollout in run.rollouts("train", step)
        ]
        if not rollouts:
            raise DataError(
                f"data = {place!r} is a run without training rollouts; give one that teach wrote"
            )
        return rollouts
    if not path.is_file():
        raise DataError(f"data = {place!r} is neither a rollout file nor a run folder")
    return read_rollouts(path)


def take(examples: list[T], count: int, step: int, seed: int) -> list[T]:
    """The batch of a step: an endless walk over reshuffled epochs, so that a step number says it
    all."""
    if not examples:
        raise DataError("there is nothing to learn from: no example fits the model's context")
    places = [
        divmod(position, len(examples)) for position in range(step * count, (step + 1) * count)
    ]
    orders = {epoch: _order(len(examples), seed, epoch) for epoch in {epoch for epoch, _ in places}}
    return [examples[orders[epoch][index]] for epoch, index in places]


@lru_cache(maxsize=2)
def _order(count: int, seed: int, epoch: int) -> list[int]:
    order = list(range(count))
    stream(seed, "sft", epoch).shuffle(order)
    return order


def finish(run: RunStore, keeper: Keeper) -> None:
    """Close a training run: name the checkpoint it hands on, and sum up."""
    step, folder = keeper.result()
    run.finish(
        {
            "model": str(folder.relative_to(run.folder)),
            "step": step,
            "exam_pass@1": keeper.best.shown,
        }
    )
