"""Write a task's problems to disk, one file a split."""

from typing import Literal

from whet.config import Config
from whet.data.problems import problem_file, write_problems
from whet.store.run import RunStore
from whet.tasks.game24.task import Game24Config
from whet.tasks.registry import TaskConfig, build
from whet.track.progress import say
from whet.types import SPLITS, Json


class MakeConfig(Config):
    """Which problems to write."""

    kind: Literal["make"] = "make"
    seed: int = 0
    task: TaskConfig = Game24Config()


def make(cfg: MakeConfig, run: RunStore) -> None:
    """List every split of the task and write it."""
    task = build(cfg.task)
    counts: dict[str, Json] = {}
    for split in SPLITS:
        problems = list(task.problems(split))
        write_problems(run.folder, split, problems)
        counts[split] = len(problems)
        say(f"{len(problems):>7,} {split} problems in {problem_file(run.folder, split)}")
    run.finish({"problems": counts})
