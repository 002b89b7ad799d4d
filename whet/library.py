"""whet from a notebook: tasks, grading, sampling from a model, and the results of a run.

    import whet
    task = whet.task("countdown")
    policy = whet.load_policy("Qwen/Qwen3-0.6B")
    groups = whet.sample(policy, task, problems, samples=8)
    run = whet.read_run("runs/game24/05-rl")

`import whet` offers everything here and loads it on first use; only functions that run a model
load torch. `examples/grpo_loop.py` builds a training loop from these parts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from whet.config import Config
from whet.errors import ConfigError, DataError
from whet.grading.grader import Grader
from whet.models.sizes import SIZES
from whet.rng import derive
from whet.store.files import Row
from whet.store.rollouts import read_columns
from whet.store.run import RunStore, stage_folders
from whet.tasks.base import Task, grade_safely, is_builtin, list_problems
from whet.tasks.registry import build_default_task
from whet.tasks.task_config import TaskConfig, build_task
from whet.types import Group, Json, Message, Problem, Rollout, Score
from whet.user_code import validate_settings

if TYPE_CHECKING:
    from whet.train.policy import Policy

TOKENIZER_PROBLEMS = 1000
"""Problems of a task on which a new model's tokenizer is trained."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunTables:
    """A run as tables; `.to_pandas()` turns them into data frames."""

    metrics: pa.Table
    """One row per logged step; missing metrics are null."""
    rollouts: pa.Table
    """One row per response: `step`, `kind` (train, eval or rejected), and the columns of the
    rollout files."""
    evals: dict[int, Row]
    """All evaluations by step."""


class _TaskSettings(Config):
    task: TaskConfig


def task(name: str, **settings: Json) -> Task:
    """Make a task by name, such as "countdown", or a user's own by "file.py:Class".

    `settings` are keys of `task` in a settings file: `whet.task("countdown", count=50)`.
    """
    if not settings:
        return build_default_task(name)
    return build_task(validate_settings(_TaskSettings, {"task": {"name": name, **settings}}).task)


def grade(task: Task | str, problem: Problem, text: str) -> Score:
    """Grade one response in this process, without time or memory limits.

    Training grades in processes that can be killed; use this for texts you trust.
    """
    grading_task = build_default_task(task) if isinstance(task, str) else task
    if not isinstance(problem, Problem):
        raise ConfigError(
            f"whet.grade takes a Problem, not {_kind(problem)}: take one of task.problems(split), "
            "or build one from a row with whet.types.Problem.from_json"
        )
    if not isinstance(text, str):
        raise ConfigError(
            f"whet.grade takes the text of a response, not {_kind(text)}: of a rollout, pass "
            "rollout.text"
        )
    # The user should see errors of their own task.
    if not is_builtin(grading_task):
        return grading_task.score(problem, text)
    return grade_safely(grading_task, problem, text)


def solve(task: Task, problems: Iterable[Problem], *, seed: int = 0) -> list[Rollout]:
    """Write the task's gold response to each problem; problems without one are left out."""
    solutions = ((problem, task.solve(problem, seed)) for problem in problems)
    return [
        Rollout.from_text(problem, text, model=task.name)
        for problem, text in solutions
        if text is not None
    ]


def load_policy(
    model: str | Path, *, task: Task | None = None, positions: int = 256, seed: int = 0
) -> "Policy":
    """Load a model from a folder, a run or the hub, or make a new one of a size such as "tiny".

    A new model has random weights, a context of `positions` tokens, and a tokenizer trained on the
    problems and solutions of `task`. A folder with the name of a size is given as "./tiny". The
    model of a run gets the run's prompt.
    """
    from whet.batching.rollout_datasets import list_texts
    from whet.engine.native import NativeConfig
    from whet.models.source import (
        ModelSource,
        load_model,
        read_run_prompt,
        torch_device,
        torch_dtype,
    )
    from whet.text.chat import PromptConfig
    from whet.train.policy import build_policy

    name = str(model)
    if name not in SIZES:
        source = ModelSource(path=name)
        known_texts = []
    elif task is None:
        raise ConfigError(
            f"a new model of the size {name!r} needs a task whose texts its tokenizer is made from"
        )
    else:
        source = ModelSource(new=name, positions=positions)
        known_texts = list_texts(
            solve(task, islice(list_problems(task, "sft"), TOKENIZER_PROBLEMS))
        )
    transformer, tokenizer = load_model(
        source, dtype=torch_dtype("auto"), device=torch_device(), texts=known_texts, seed=seed
    )
    prompt = validate_settings(PromptConfig, read_run_prompt(name) if name not in SIZES else {})
    return build_policy(transformer, tokenizer, NativeConfig(), name=name, prompt=prompt)


def sample(
    policy: "Policy",
    task: Task,
    problems: Iterable[Problem],
    *,
    samples: int = 1,
    temperature: float = 1.0,
    max_tokens: int = 256,
    seed: int = 0,
) -> list[Group]:
    """Sample and grade a group of `samples` rollouts for each problem.

    Grading has the same limits as in training. After a learner's update, call `policy.publish`
    first.
    """
    from whet.engine.base import SamplingParams
    from whet.rollout.collect import sample_and_grade

    if isinstance(problems, Problem):
        raise ConfigError("whet.sample takes a list of problems, not one: pass [problem]")
    problems = list(problems)
    sampling = SamplingParams(temperature=temperature, max_tokens=max_tokens)
    with Grader(task) as grader:
        return sample_and_grade(
            policy.chat_engine, grader, problems, sampling, samples=samples, seed=seed
        )


def generate(
    policy: "Policy",
    prompts: Sequence[str],
    *,
    samples: int = 1,
    temperature: float = 1.0,
    max_tokens: int = 256,
    seed: int = 0,
) -> list[list[str]]:
    """Sample `samples` responses to each prompt, which is sent as a user message."""
    from whet.engine.base import Request, SamplingParams

    if isinstance(prompts, str):
        raise ConfigError("whet.generate takes a list of prompts, not one text: pass [prompt]")
    sampling = SamplingParams(temperature=temperature, max_tokens=max_tokens)
    requests = [
        Request(
            id=f"{index}/{number}",
            prompt=policy.chat.encode_prompt(
                policy.chat.prompt.wrap([Message(role="user", content=prompt)])
            ),
            sampling=sampling,
            seed=derive(seed, "generate", index, number),
        )
        for index, prompt in enumerate(prompts)
        for number in range(samples)
    ]
    completions = dict(policy.engine.generate(requests))
    return [
        [
            policy.chat.decode_message(completions[f"{index}/{number}"].tokens)
            for number in range(samples)
        ]
        for index in range(len(prompts))
    ]


def read_run(folder: str | Path) -> RunTables:
    """Read a run folder, finished or not; for a pipeline, pass the folder of a stage."""
    if stages := stage_folders(Path(folder)):
        listed = ", ".join(stage.name for stage in stages)
        raise DataError(f"{folder} is a pipeline; name one of its stages: {listed}")
    run = RunStore.view(Path(folder))
    rows = run.metrics()
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: pa.array([row.get(name) for row in rows], pa.float64()) for name in names}
    tables = []
    for kind in ("train", "eval", "rejected"):
        for step in run.rollout_steps(kind):
            table = read_columns(run.rollout_file(kind, step))
            labels = pa.table({"step": [step] * len(table), "kind": [kind] * len(table)})
            for name in table.column_names:
                labels = labels.append_column(name, table.column(name))
            tables.append(labels)
    rollouts = pa.concat_tables(tables).unify_dictionaries() if tables else pa.table({})
    return RunTables(metrics=pa.table(columns), rollouts=rollouts, evals=run.evals())


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"
