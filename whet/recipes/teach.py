"""Write teacher rollouts: several responses to each problem of a split, for SFT to imitate.

They come from the task, the data, or a model here or on a server (`whet/recipes/teach_job.py`).
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator

from whet.data.problems import load_problems
from whet.endpoints.client import EndpointConfig
from whet.errors import ConfigError, DataError
from whet.grading.limits import GradingConfig
from whet.recipes.keep import KeepConfig
from whet.recipes.teach_job import (
    Shard,
    TeachJob,
    check_count,
    check_no_shards,
    collect_responses,
    find_solutions,
    gather_shards,
)
from whet.recipes.teachers import (
    TRANSPORT,
    AnyTeacher,
    Ask,
    DataTeacher,
    ModelTeacher,
    ServerTeacher,
    TaskTeacher,
    build_server_teacher,
    load_model_teacher,
)
from whet.rng import derive
from whet.stages.stage import StageConfig
from whet.store.run import RunStore
from whet.tasks.base import Task, explain_user_errors, grade_safely
from whet.tasks.task_config import build_task
from whet.text.chat import NO_PROMPT, PromptConfig
from whet.toml import Table
from whet.track.progress import console, progress_bar, say
from whet.types import Group, Json, Problem, Rollout, Split, Verdict

_CHUNK = 16
ASKED_PER_PROBLEM = 4
"""Responses asked of a model by default; they cost more than the task's own."""


class TeachConfig(StageConfig):
    """Which problems are answered, by whom, how often, and which responses are kept."""

    ignored = (*StageConfig.ignored, *(f"teacher.{key}" for key in TRANSPORT))
    smoke_limits: ClassVar[Mapping[str, int]] = {"per_problem": 2, "workers": 1}

    kind: Literal["teach"] = "teach"
    problems: str | None = None
    """Folder of problems; none takes the task's own."""
    split: Split = "sft"
    """The split of the problems."""
    teacher: AnyTeacher = TaskTeacher()
    """Who answers: task, data, model or server, by `kind`."""
    prompt: PromptConfig = NO_PROMPT
    """How problems are turned into prompts for a model or a server."""
    per_problem: int = Field(default=33, ge=1)
    """Responses per problem; 4 by default if a model is asked. Repeats of a response are
    dropped."""
    keep: KeepConfig = KeepConfig()
    """Which responses are kept; "correct" and "all" are short for a table."""
    solutions: bool = True
    """Also keep worked solutions that came with the problems, by the same rule."""
    unsolvable: bool = False
    """Also answer problems that are known to have no solution."""
    workers: int = Field(default=2, ge=1)
    """Processes that write responses of the task."""
    grading: GradingConfig = GradingConfig()
    """Limits of grading a response that the task itself did not write."""
    shard: str | None = None
    """Answer one part of the problems, such as 3/64, while other processes answer the rest; none
    answers all."""

    @classmethod
    def expand_table(cls, given: Mapping[str, Json]) -> Table:
        table = dict(given)
        teacher = table.get("teacher")
        if isinstance(teacher, dict) and teacher.get("kind") in ("model", "server"):
            table.setdefault("per_problem", ASKED_PER_PROBLEM)
        if table.get("keep") in ("correct", "all"):  # as `keep` of sft, which a pipeline may share
            table["keep"] = {"parts": ["correct"] if table["keep"] == "correct" else []}
        return table

    @field_validator("shard")
    @classmethod
    def _check_shard(cls, shard: str | None) -> str | None:
        if shard is not None:
            Shard.parse(shard)
        return shard

    def without_effect(self) -> dict[str, str]:
        if isinstance(self.teacher, TaskTeacher):
            return {"solutions": 'it is for other teachers; see kind = "data"'}
        reasons = {"workers": "the task writes no responses here"}
        if isinstance(self.teacher, DataTeacher):
            reason = 'the teacher is "data", and nobody is asked'
            reasons |= {"per_problem": reason, "solutions": reason}
        return reasons

    def run_in(self, run: RunStore) -> None:
        teach(self, run)

    @property
    def splits(self) -> list[Split]:
        return [self.split]

    @property
    def asks_unsolvable(self) -> bool:
        return self.unsolvable

    @property
    def grading_limits(self) -> GradingConfig:
        return self.grading

    @property
    def servers(self) -> dict[str, EndpointConfig]:
        return {"teacher": self.teacher} if isinstance(self.teacher, ServerTeacher) else {}

    def predict_responses(self, problems: Sequence[Problem]) -> list[Rollout] | None:
        if not isinstance(self.teacher, TaskTeacher):
            return None
        groups = write_groups(self.model_copy(update={"per_problem": 1}), problems)
        return [rollout for group in groups for rollout in group]

    def smoke_changes(self) -> dict[str, Json]:
        """Let the task answer: a model with random weights would get nothing right."""
        if isinstance(self.teacher, TaskTeacher):
            return {}
        return {"teacher": {"kind": "task", "bare": True}, "workers": 1}

    @property
    def response_prompt(self) -> PromptConfig | None:
        is_asked = isinstance(self.teacher, ModelTeacher | ServerTeacher)
        return self.prompt if is_asked else None

    @property
    def inputs(self) -> dict[str, str]:
        inputs = super().inputs
        if isinstance(self.teacher, ModelTeacher) and self.teacher.model.path is not None:
            inputs["teacher.model.path"] = self.teacher.model.path
        return inputs

    def with_inputs(self, inputs: Mapping[str, str]) -> Self:
        others = dict(inputs)
        path = others.pop("teacher.model.path", None)
        changed = super().with_inputs(others)
        if path is None or not isinstance(self.teacher, ModelTeacher):
            return changed
        model = self.teacher.model.model_copy(update={"path": path})
        teacher = self.teacher.model_copy(update={"model": model})
        return changed.model_copy(update={"teacher": teacher})

    def run_folder(self, folder: Path) -> Path:
        """Return the folder of the run, or of the shard in it."""
        if self.shard is None:
            check_no_shards(folder)
            return folder
        shard = Shard.parse(self.shard)
        check_count(folder, shard)
        return RunStore(folder, lock=None).shard_folder / shard.name

    def end_run(self, folder: Path) -> None:
        """Gather the shards of a run in its folder, if this was the last one."""
        if self.shard is not None:
            gather_shards(folder, self.model_copy(update={"shard": None}), Shard.parse(self.shard))


def teach(cfg: TeachConfig, run: RunStore) -> None:
    """Write or ask for the responses to every problem, and keep those that the rule accepts."""
    task = build_task(cfg.task)
    problems = load_problems(task, cfg.problems, cfg.split, include_unsolvable=cfg.unsolvable)
    shard = None if cfg.shard is None else Shard.parse(cfg.shard)
    if shard is not None and run.folder.name != shard.name:
        raise ConfigError("shard is for `whet teach` by itself; a pipeline answers all problems")
    problems = problems if shard is None else shard.take(problems)
    _check_parts(cfg.keep, task, problems)
    if isinstance(cfg.teacher, TaskTeacher):
        _write_own(cfg, task, problems, run)
    else:
        _ask_teacher(cfg, task, problems, run)


def _check_parts(keep: KeepConfig, task: Task, problems: Sequence[Problem]) -> None:
    """Refuse a part that no score of the task has, before anyone is asked."""
    if set(keep.parts) <= {"correct"} or not problems:
        return
    with explain_user_errors(task):
        texts = ("", task.solve(problems[0], 0) or "")
    known = {part for text in texts for part in grade_safely(task, problems[0], text).parts}
    if unknown := set(keep.parts) - known - {"correct"}:
        raise ConfigError(
            f"keep.parts has {min(unknown)!r}, which is not a part of {task.name}'s scores; those "
            f"are {', '.join(sorted(known))}"
        )


def _ask_teacher(cfg: TeachConfig, task: Task, listed: list[Problem], run: RunStore) -> None:
    problems = list({problem.id: problem for problem in listed}.values())
    if len(problems) < len(listed):
        say(f"{len(listed) - len(problems):,} problems are repeats of others, and left out")
    is_data = isinstance(cfg.teacher, DataTeacher)
    solutions = find_solutions(cfg.problems, cfg.split, problems) if cfg.solutions else []
    if is_data and not solutions:
        raise DataError(
            f"problems = {cfg.problems!r} has no worked solutions to its {cfg.split} problems: "
            f"problems-{cfg.split}.rollouts.parquet is missing, or answers others"
        )
    ask: Ask | None = None
    prices = (0.0, 0.0)
    if isinstance(cfg.teacher, ModelTeacher):
        ask, problems = load_model_teacher(cfg.teacher, cfg.prompt, run, problems)
    elif isinstance(cfg.teacher, ServerTeacher):
        ask = build_server_teacher(cfg.teacher, cfg.prompt)
        prices = (cfg.teacher.price_in, cfg.teacher.price_out)
    job = TeachJob(
        task=task,
        problems=problems,
        per_problem=cfg.per_problem,
        seed=cfg.seed,
        keep=cfg.keep,
        grading=cfg.grading,
        ask=ask,
        price_in=prices[0],
        price_out=prices[1],
    )
    collect_responses(job, solutions, run)


def _write_own(cfg: TeachConfig, task: Task, problems: Sequence[Problem], run: RunStore) -> None:
    """Write and grade the task's own responses; a wrong one is a bug of the task."""
    _refuse_bare(cfg, task, problems)
    groups: list[Group] = []
    with progress_bar("traces", len(problems) * cfg.per_problem) as advance:
        for group in _write_all(cfg, problems):
            groups.append(tuple(cfg.keep.choose(group)))
            advance(cfg.per_problem)
    run.write_rollouts("train", 0, groups)
    rows = sum(len(group) for group in groups)
    console.print(
        f"{rows:>7,} traces of {len(groups):,} problems, {cfg.per_problem} "
        f"{'try' if cfg.per_problem == 1 else 'tries'} each, repeats left out"
    )
    run.finish({"problems": len(groups), "traces": rows})


def _refuse_bare(cfg: TeachConfig, task: Task, problems: Sequence[Problem]) -> None:
    """Refuse bare reference answers, from which a model would learn not to reason."""
    bare = {subtask.name for subtask in task.subtasks if not subtask.has_worked_solutions}
    bare_tasks = {problem.task for problem in problems} & bare
    if not bare_tasks or not isinstance(cfg.teacher, TaskTeacher) or cfg.teacher.bare:
        return
    example = next(problem for problem in problems if problem.task in bare_tasks)
    answer = (task.solve(example, 0) or "nothing")[:60]
    raise ConfigError(
        f"{', '.join(sorted(bare_tasks))} has the answers to these problems but not the "
        f"reasoning: it would write {answer!r}, and a model would learn to answer without "
        "reasoning. Set teacher to a model or a server that solves them, or teacher.kind = "
        '"data" for worked solutions that came with them (docs/teach.md); teacher.bare = true '
        "teaches the bare answers"
    )


def _write_all(cfg: TeachConfig, problems: Sequence[Problem]) -> Iterator[Group]:
    chunks = [problems[start : start + _CHUNK] for start in range(0, len(problems), _CHUNK)]
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
                    f"{problem.task} has no worked solution for {problem.id}; choose another split"
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
            f"the task's own response to {row.problem.id} is graded {score.verdict} "
            f"({score.note}): fix {task.name}'s solve or score"
        )
    return replace(row, score=score)
