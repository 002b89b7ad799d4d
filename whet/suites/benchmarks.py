"""The problems of a benchmark, and the task that grades them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.data.problems import problem_file, read_problems
from whet.data.sources import load_source
from whet.errors import ConfigError, DataError
from whet.rng import derive
from whet.store.files import sha256
from whet.suites.suite import Benchmark
from whet.tasks.base import Task, list_problems
from whet.tasks.registry import Mix, build_default_task
from whet.tasks.task_config import build_task
from whet.types import Problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedBenchmark:
    """The problems of a benchmark, without repeats, and the task that grades them."""

    name: str
    benchmark: Benchmark
    task: Task
    problems: Sequence[Problem]
    files: Mapping[str, str]
    """The files that the problems are from, with their hashes."""
    num_repeats: int = 0
    """Problems that were in the file before."""

    @property
    def num_responses(self) -> int:
        """The number of responses from each model."""
        return len(self.problems) * self.benchmark.samples

    def has_one_answer(self, problem: Problem) -> bool:
        """Whether all right answers of a problem are equal; in a mix, its own task decides."""
        by_name = {task.name: task for task in self.task.subtasks}
        return by_name.get(problem.task, self.task).has_one_answer


def load_benchmarks(benchmarks: Mapping[str, Benchmark], data: Path) -> list[LoadedBenchmark]:
    """Read the problems of every benchmark; a single error lists everything that is missing."""
    loaded_benchmarks = []
    missing = []
    for name, benchmark in benchmarks.items():
        file = find_problem_file(benchmark, data)
        if file is not None and not file.is_file():
            missing.append(f"{name}: {_explain_missing(benchmark, file, data)}")
        elif not missing:
            loaded_benchmarks.append(_load_benchmark(name, benchmark, file))
    if missing:
        raise DataError(
            f"{len(missing)} of {len(benchmarks)} benchmarks have no problems yet; nothing has "
            "run. " + "; ".join(missing) + ". `--only NAME` evaluates on one that is there"
        )
    return loaded_benchmarks


def find_problem_file(benchmark: Benchmark, data: Path) -> Path | None:
    """Find the file of problems; None if the task makes them."""
    if benchmark.source is not None:
        return problem_file(data / benchmark.source, benchmark.split)
    if benchmark.problems is None:
        return None
    path = Path(benchmark.problems).expanduser()
    return path if path.suffix == ".jsonl" else problem_file(path, benchmark.split)


def _explain_missing(benchmark: Benchmark, file: Path, data: Path) -> str:
    if benchmark.source is None:
        return f"there is no {file}"
    source, _ = load_source(benchmark.source)
    command = f"whet data prepare {benchmark.source}"
    if data != Path("data"):
        command += f" --out {data / benchmark.source}"
    remark = f" (its files are not on the hub: {source.where})" if source.where else ""
    return f"`{command}`{remark}"


def _load_benchmark(name: str, benchmark: Benchmark, file: Path | None) -> LoadedBenchmark:
    listed = _list_problems(benchmark, file)
    kept = {p.id: p for p in listed if not benchmark.tasks or p.task in benchmark.tasks}
    if not kept:
        where = file or f"the split {benchmark.split} of its task"
        raise DataError(f"benchmark {name}: {where} has no problem that it takes")
    problems = _choose(list(kept.values()), benchmark.limit)
    names = list(dict.fromkeys(problem.task for problem in problems))
    task = _build_task(names) if benchmark.task is None else build_task(benchmark.task)
    known = {subtask.name for subtask in task.subtasks} or {task.name}
    if others := set(names) - known - {task.name}:
        raise ConfigError(
            f"benchmark {name}: its problems are of the task {min(others)}, and task is {task.name}"
        )
    num_taken = sum(not benchmark.tasks or p.task in benchmark.tasks for p in listed)
    return LoadedBenchmark(
        name=name,
        benchmark=benchmark,
        task=task,
        problems=problems,
        files={} if file is None else {str(file): sha256(file)},
        num_repeats=num_taken - len(kept),
    )


def _list_problems(benchmark: Benchmark, file: Path | None) -> list[Problem]:
    if file is not None:
        return read_problems(file)
    assert benchmark.task is not None, "a benchmark has a file or a task"
    return list(list_problems(build_task(benchmark.task), benchmark.split))


def _build_task(names: Sequence[str]) -> Task:
    tasks = [build_default_task(name) for name in names]
    return tasks[0] if len(tasks) == 1 else Mix(tasks)


def _choose(problems: list[Problem], limit: int | None) -> list[Problem]:
    """Choose problems by the hash of their ids, the same for every model, in their order."""
    if limit is None or len(problems) <= limit:
        return problems
    chosen = {p.id for p in sorted(problems, key=lambda p: derive(0, "limit", p.id))[:limit]}
    return [problem for problem in problems if problem.id in chosen]
