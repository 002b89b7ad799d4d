"""Write a task's problems to disk, one file per split."""

from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Literal

from pydantic import Field

from whet.data.problems import problem_file, write_problems
from whet.stages.stage import StageConfig
from whet.store.files import hash_file
from whet.store.run import RunStore
from whet.tasks.base import list_problems
from whet.tasks.task_config import build_task
from whet.track.progress import say
from whet.types import SPLITS, Json, Split


class MakeConfig(StageConfig):
    """Which problems to write."""

    ignored = (*StageConfig.ignored, "seed")
    lists_problems = True

    kind: Literal["make"] = "make"
    seed: int = 0
    """Every stage has one; the problems do not depend on it."""
    most: dict[Split, Annotated[int, Field(ge=0)]] = Field(default={})
    """Most problems of a split, from its start; a split that is not listed is written whole."""

    def run_in(self, run: RunStore) -> None:
        make(self, run)

    def smoke_changes(self) -> dict[str, Json]:
        """Write few problems; 24 random ones cover all levels."""
        few: Mapping[Split, int] = {"sft": 24, "rl": 24, "dev": 6, "test": 6}
        return {f"most.{split}": min(n, self.most.get(split, n)) for split, n in few.items()}


def make(cfg: MakeConfig, run: RunStore) -> None:
    """List every split of the task and write it."""
    task = build_task(cfg.task)
    counts: dict[str, Json] = {}
    for split in SPLITS:
        problems = list(islice(list_problems(task, split), cfg.most.get(split)))
        write_problems(run.folder, split, problems)
        counts[split] = len(problems)
        say(f"{len(problems):>7,} {split} problems in {problem_file(run.folder, split)}")
    names = [problem_file(run.folder, split).name for split in SPLITS]
    hashes = {name: hash_file(run.folder / name) for name in names}
    run.finish({"problems": counts, "files": hashes})
