"""Problems held out of training for validation, if a folder of problems has no split for it."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from whet.data.problems import load_problems, load_validation, normalised_question
from whet.errors import DataError
from whet.stages.stage import TrainingConfig
from whet.tasks.base import Task
from whet.track.progress import say
from whet.types import Problem, Rollout, Split

T = TypeVar("T")


def load_training_problems(cfg: TrainingConfig, task: Task, split: Split = "rl") -> list[Problem]:
    """Load the problems to train on, without those that are held out for validation."""
    problems = load_problems(task, cfg.problems, split)
    return _leave_out(problems, cfg, task, lambda problem: problem)


def drop_held_out(rollouts: Sequence[Rollout], cfg: TrainingConfig, task: Task) -> list[Rollout]:
    """Leave out responses to problems that are held out for validation."""
    return _leave_out(rollouts, cfg, task, lambda rollout: rollout.problem)


def _leave_out(
    items: Sequence[T], cfg: TrainingConfig, task: Task, problem_of: Callable[[T], Problem]
) -> list[T]:
    """Leave out items that ask the same as held-out problems; print how many are held out."""
    held_out, is_made = load_validation(
        task, cfg.problems, cfg.validation.split, is_needed=cfg.validation.every > 0
    )
    if not is_made:
        return list(items)
    say(
        f"{cfg.problems} has no problems-{cfg.validation.split}.jsonl: {len(held_out):,} of its "
        "problems are held out of training, to validate on"
    )
    texts = {normalised_question(problem) for problem in held_out}
    kept = [item for item in items if normalised_question(problem_of(item)) not in texts]
    if not kept:
        raise DataError(f"{cfg.problems} has too few problems to train and to validate on")
    return kept
