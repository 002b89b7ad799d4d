"""Measure how often a model solves each problem: write a difficulty map, and a folder of the
problems whose pass rate is within bounds, which later stages take as their `problems`.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from whet.data.difficulty import RateRule, filter_problems, update_map
from whet.data.problems import load_problems, load_split, problem_file, write_problems
from whet.errors import ConfigError, DataError
from whet.recipes.evaluate import open_chat_engine
from whet.rng import derive
from whet.rollout.collect import sample_and_grade
from whet.stages.stage import ModelStageConfig, ModelWork
from whet.stages.training import drop_long_prompts
from whet.store.files import hash_file
from whet.store.run import RunStore
from whet.tasks.base import Task
from whet.tasks.task_config import build_task
from whet.track.progress import say
from whet.types import SPLITS, Dtype, Json, Split
from whet.world import get_world

MAP = "difficulty.jsonl"


class DifficultyConfig(ModelStageConfig):
    """Which problems are kept, by how often which model solves them."""

    needs_verdicts = True
    lists_problems = True

    kind: Literal["difficulty"] = "difficulty"
    split: Split = "rl"
    """The split of the problems; the others are copied whole."""
    samples: int = Field(default=8, ge=1)
    """Responses per problem."""
    rates: list[str] = Field(default=[">0", "<1"])
    """Bounds of the pass rate of problems that are kept, such as >0 and <=0.9; an empty list keeps
    all."""
    dtype: Dtype = "auto"
    """Compute type; auto is bfloat16 on a GPU and float32 elsewhere."""

    @field_validator("rates")
    @classmethod
    def _check_rates(cls, rates: list[str]) -> list[str]:
        for text in rates:
            try:
                is_bound = RateRule.parse(text).model is None
            except ConfigError:
                is_bound = False
            if not is_bound:
                raise ValueError(
                    f"{text!r} should be a bound from 0 to 1 without the name of a model, such as "
                    "<0.9"
                )
        return rates

    def run_in(self, run: RunStore) -> None:
        measure_difficulty(self, run)

    @property
    def splits(self) -> list[Split]:
        return [self.split]

    def list_work(self) -> list[ModelWork]:
        return [replace(work, samples=self.samples) for work in super().list_work()]

    def smoke_changes(self) -> dict[str, Json]:
        """Keep all problems: random weights solve none."""
        return {"rates": [">=0"]}


def measure_difficulty(cfg: DifficultyConfig, run: RunStore) -> None:
    """Answer every problem of the split; write the map, and the folder of problems."""
    task = build_task(cfg.task)
    problems = load_problems(task, cfg.problems, cfg.split)
    with open_chat_engine(cfg, task, cfg.dtype, name=cfg.model.path or "") as (chat_engine, grader):
        groups = sample_and_grade(
            chat_engine,
            grader,
            drop_long_prompts(problems, chat_engine, run),
            cfg.sampling,
            samples=cfg.samples,
            seed=derive(cfg.seed, "difficulty"),
            label="difficulty",
        )
    file = run.write_rollouts("eval", 0, groups)
    write = partial(_write_results, cfg, task, run, file)
    get_world().run_on_rank_zero(write, "the difficulty map")


def _write_results(cfg: DifficultyConfig, task: Task, run: RunStore, responses: Path) -> None:
    map = run.folder / MAP
    map.unlink(missing_ok=True)  # a killed attempt's counts would be added
    records = update_map(map, [responses])
    rules = [RateRule.parse(text) for text in cfg.rates]
    rows = {
        split: load_split(task, cfg.problems, split)
        for split in SPLITS
        if cfg.problems is None or problem_file(Path(cfg.problems), split).is_file()
    }
    dropped: dict[str, int] = {}
    kept = list(filter_problems(rows[cfg.split], records, rules, dropped=dropped))
    graded = {record.problem for record in records}
    num_asked = sum(problem.id in graded for problem in rows[cfg.split])
    num_kept = num_asked - sum(dropped.values())
    if not num_kept:
        raise DataError(
            f"none of the {num_asked:,} {cfg.split} problems has a pass rate within rates = "
            f"{cfg.rates}: give wider bounds, or another model"
        )
    words = f"{num_kept:,} of {num_asked:,} {cfg.split} problems kept"
    if dropped:
        bounds = dict.fromkeys(f"{rule.sign}{rule.rate:g}" for rule in rules)
        rejected = ", ".join(f"{dropped.get(bound, 0):,} not {bound}" for bound in bounds)
        words += f"; left out by pass rate: {rejected}"
    if len(kept) > num_kept:
        words += f"; {len(kept) - num_kept:,} without a graded response are kept as well"
    rows[cfg.split] = kept
    for split, problems in rows.items():
        write_problems(run.folder, split, problems)
    say(words)
    run.log_event("note", said=words)
    names = [*(problem_file(run.folder, split).name for split in rows), MAP]
    hashes: dict[str, Json] = {name: hash_file(run.folder / name) for name in names}
    counts: dict[str, Json] = {split: len(problems) for split, problems in rows.items()}
    run.finish({"problems": counts, "files": hashes})
