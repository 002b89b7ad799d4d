"""Write teacher rollouts: several worked answers to each problem of a split, for SFT to imitate."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Literal

from pydantic import Field

from whet.data.problems import load_problems
from whet.errors import DataError
from whet.recipes.training import StageConfig
from whet.rng import derive
from whet.store.run import RunStore
from whet.tasks.base import Task, explain_user_errors
from whet.tasks.task_config import build_task
from whet.track.progress import console, progress_bar
from whet.types import Group, Problem, Rollout, Split, Verdict

CHUNK = 16


class TeachConfig(StageConfig):
    """Which problems are answered, how often; the task itself writes the answers."""

    kind: Literal["teach"] = "teach"
    problems: str | None = None
    """Folder of problems; None takes the task's own."""
    split: Split = "sft"
    """The split of the problems."""
    per_problem: int = Field(default=33, ge=1)
    """Answers written per problem; repeats of the same answer are dropped."""
    unsolvable: bool = False
    """Also answer problems that are known to have no solution."""
    workers: int = Field(default=2, ge=1)
    """Processes that write answers."""


def teach(cfg: TeachConfig, run: RunStore) -> None:
    """Write and grade the answers to every problem; a wrong one is a bug of the task."""
    problems = load_problems(
        build_task(cfg.task), cfg.problems, cfg.split, unsolvable=cfg.unsolvable
    )
    groups: list[Group] = []
    with progress_bar("traces", len(problems) * cfg.per_problem) as advance:
        for group in _write_all(cfg, problems):
            groups.append(group)
            advance(cfg.per_problem)
    run.write_rollouts("train", 0, groups)
    rows = sum(len(group) for group in groups)
    console.print(
        f"{rows:>7,} traces of {len(groups):,} problems, {cfg.per_problem} tries each, "
        "repeats left out"
    )
    run.finish({"problems": len(groups), "traces": rows})


def _write_all(cfg: TeachConfig, problems: Sequence[Problem]) -> Iterator[Group]:
    chunks = [problems[start : start + CHUNK] for start in range(0, len(problems), CHUNK)]
    if cfg.workers == 1:
        for chunk in chunks:
            yield from write_groups(cfg, chunk)
        return
    # A fresh interpreter per worker: forking one that runs torch's threads can hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        max_workers=cfg.workers, mp_context=context, initializer=_follow_parent
    ) as pool:
        # Workers start with Ctrl-C blocked: the parent handles it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            results = pool.map(write_groups, [cfg] * len(chunks), chunks)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for groups in results:
            yield from groups


def _follow_parent() -> None:
    """Exit when the parent ends; a worker of a killed run would wait forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def write_groups(cfg: TeachConfig, problems: Sequence[Problem]) -> list[Group]:
    """Answer some problems, in a worker process. Seeds come from the problem, so the split into
    chunks does not matter."""
    task = build_task(cfg.task)
    groups = []
    for problem in problems:
        rows: dict[tuple[str, str], Rollout] = {}
        for number in range(cfg.per_problem):
            seed = derive(cfg.seed, "teach", problem.id, number)
            with explain_user_errors(task):
                varied = task.vary(problem, seed)
                text = task.solve(varied, seed)
            if text is None:
                raise DataError(
                    f"{problem.task} has no worked answer for {problem.id}; choose another split"
                )
            rows.setdefault(
                (varied.prompt[-1].content, text),
                Rollout.from_text(varied, text, model=varied.task, number=number),
            )
        groups.append(tuple(_grade(task, row) for row in rows.values()))
    return groups


def _grade(task: Task, row: Rollout) -> Rollout:
    with explain_user_errors(task):
        score = task.score(row.problem, row.text)
    if score.verdict is not Verdict.CORRECT:
        raise DataError(
            f"the task's own answer to {row.problem.id} is graded {score.verdict} ({score.note}): "
            f"mend {task.name}'s "
            "solve or score"
        )
    return replace(row, score=score)
