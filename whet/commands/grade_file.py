"""Grade a file of responses, with a verdict, parts, the extracted answer and a note for every row;
and check the graders of tasks, with a line for each failure."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from whet.config import load_settings
from whet.data.problems import read_problems
from whet.errors import ConfigError, DataError, WhetError
from whet.grading.check_task import GraderReport, GradingFailure, check_grader
from whet.grading.grader import Grader
from whet.grading.limits import MAX_WORKERS, GradingConfig
from whet.rewards.spec import RewardSpec, load_spec
from whet.store.files import (
    atomic_path,
    check_target,
    stream_rows,
    to_finite,
    to_line,
    write_errors,
)
from whet.tasks.base import UNGRADABLE, Task, list_problems
from whet.tasks.registry import TASKS, build_default_task
from whet.tasks.user_task import load_user_task
from whet.track.progress import progress_bar, say
from whet.types import RAISED, SPLITS, Author, Json, Message, Problem, Rollout, Score, Verdict
from whet.user_code import is_code_path

MakeTask = Callable[[str], Task]
"""Makes a task by its name; an unknown name is a ConfigError that lists the known ones."""
CHECKED = 5
"""Problems of each split that are tried if no file is given."""
EXAMPLES = Path(__file__).parents[1] / "tasks" / "examples.jsonl"
"""A few example problems for each task that generates none and needs no judge model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    line: int
    given: Mapping[str, Json]
    problem: Problem
    text: str


def grade_file(
    source: Path,
    out: Path,
    *,
    problems: Path | None = None,
    workers: int | None = None,
    reward: str | None = None,
    custom: Sequence[str] = (),
    judge: Task | None = None,
    make: MakeTask = build_default_task,
) -> Counter[Verdict]:
    """Grade the rows of `source` into `out` and count the verdicts; a broken row leaves nothing
    written.

    A row has an "id", a "response", and either "problem", an id or source_id in the file of
    problems, or "task", "answer" and "payload". `reward` is a TOML file or the name of a spec;
    `custom` are tasks such as "my_task.py:Name"; `judge` grades the rows of that task.
    """
    spec = _load_reward(reward)
    _check_flags(source, out, problems, workers)
    _check_writable(out)
    rows = list(_read_rows(source, _ProblemIndex(problems) if problems else None))
    if not rows:
        raise DataError(f"{source} has no rows")
    task_names = [(f"{source} line {row.line}", row.problem.task) for row in rows]
    if judge is not None and judge.name not in {name for _, name in task_names}:
        raise ConfigError(f"there is a judge, but no row of {source} is of the task {judge.name!r}")
    tasks = make_tasks(
        task_names, custom, lambda name: judge if judge and name == judge.name else make(name)
    )
    scores: dict[int, Score] = {}
    limits = GradingConfig(workers=workers, unscored_fraction=1.0)
    with (
        Grader(list(tasks.values()), limits, num_responses=len(rows)) as grader,
        progress_bar("grading", len(rows)) as advance,
    ):
        for index, score in grader.grade(
            (index, row.problem, row.text) for index, row in enumerate(rows)
        ):
            if score.note.startswith(UNGRADABLE):
                raise DataError(
                    f"{source} line {rows[index].line}: {score.note.removeprefix(UNGRADABLE)}"
                )
            scores[index] = score
            advance(1)
    with atomic_path(out) as new, new.open("wb") as file:
        file.writelines(_to_graded_line(row, scores[index], spec) for index, row in enumerate(rows))
    counts = Counter(score.verdict for score in scores.values())
    listed = ", ".join(f"{counts[verdict]:,} {verdict.replace('_', ' ')}" for verdict in Verdict)
    num_raised = sum(score.note.startswith(RAISED) for score in scores.values())
    raised = f" ({num_raised:,} of the wrong ones broke their grader)" if num_raised else ""
    say(f"{len(rows):,} responses: {listed}{raised}, in {out}")
    return counts


class _ProblemIndex:
    """Problems by id, and by their id in the file they came from."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._by_name: dict[str, list[Problem]] = {}
        for problem in read_problems(file):
            for name in {problem.id, problem.source_id} - {None}:
                same = self._by_name.setdefault(str(name), [])
                if problem not in same:
                    same.append(problem)

    def find(self, name: str) -> Problem:
        matches = self._by_name.get(name, [])
        if not matches:
            raise DataError(f"problem {name!r} is neither an id nor a source_id in {self.file}")
        if len(matches) > 1:
            raise DataError(
                f"problem {name!r} is the source_id of {len(matches)} problems in {self.file}; "
                "give its id"
            )
        return matches[0]


def _read_rows(source: Path, index: _ProblemIndex | None) -> Iterator[_Row]:
    for line, row in list(stream_rows(source)):  # a line that is not JSON is reported first
        try:
            yield _Row(
                line=line, given=row, problem=_problem(row, source, index), text=_read_response(row)
            )
        except DataError as error:
            raise DataError(f"{source} line {line}: {error}") from error


def _read_response(row: Mapping[str, Json]) -> str:
    response = row.get("response")
    if not isinstance(response, str):
        raise DataError(f'"response" should be text, not {_preview(response)}')
    return response


def _problem(row: Mapping[str, Json], source: Path, index: _ProblemIndex | None) -> Problem:
    if isinstance(row.get("id"), bool) or not isinstance(row.get("id"), str | int):
        raise DataError(f'"id" should be text or a whole number, not {_preview(row.get("id"))}')
    name = row.get("problem")
    if name is not None:
        if isinstance(name, bool) or not isinstance(name, str | int):
            raise DataError(
                f'"problem" should be an id in the file of problems, not {_preview(name)}'
            )
        if index is None:
            raise DataError(
                f'"problem" is {_preview(name)}, but no file of problems is given; add --problems'
            )
        problem = index.find(str(name))
        if row.get("task") not in (None, problem.task):
            raise DataError(
                f'"task" is {_preview(row["task"])}, but the problem {name!r} is of the task '
                f"{problem.task!r}"
            )
        return problem
    if not isinstance(row.get("task"), str):
        raise DataError('it needs "problem", or "task" with "answer" and "payload"')
    return _build_problem(row, source)


def _build_problem(row: Mapping[str, Json], source: Path) -> Problem:
    task = str(row["task"])
    answer = row.get("answer")
    payload = row.get("payload", {})
    prompt = row.get("prompt", "")
    if isinstance(answer, bool | list | dict):
        raise DataError(f'"answer" should be text, a number or null, not {_preview(answer)}')
    if not isinstance(payload, dict):
        raise DataError(f'"payload" should be an object, not {_preview(payload)}')
    if not isinstance(prompt, str):
        raise DataError(f'"prompt" should be text, not {_preview(prompt)}')
    return Problem(
        id=f"{task}/{row['id']}",
        task=task,
        prompt=(Message(role="user", content=prompt),),
        answer=None if answer is None else str(answer),
        payload=payload,
        level=None,
        split="test",
        source=source.name,
        source_id=str(row["id"]),
    )


def make_tasks(
    named: Iterable[tuple[str, str]], custom: Sequence[str], make: MakeTask = build_default_task
) -> dict[str, Task]:
    """Make the tasks named in data, given as (row, task name), and the user's `custom` tasks.

    A name in data never loads a file; only `custom` does.
    """
    tasks = {task.name: task for task in map(load_user_task, custom)}
    for row, name in named:
        if name in tasks:
            continue
        if is_code_path(name):
            raise DataError(
                f"{row}: task {name!r}: a row cannot load a file; name the task as its class "
                "does, and give it with --task"
            )
        try:
            tasks[name] = make(name)
        except WhetError as error:
            raise DataError(f"{row}: {error}") from error
    return tasks


def build_judge(**flags: str | None) -> Task | None:
    """Build the judge that the flags `--judge-url`, `-model`, `-key-env` and `-prompt` describe, if
    any."""
    endpoint: dict[str, Json] = {name: flag for name, flag in flags.items() if flag is not None}
    if not endpoint:
        return None
    if "url" not in endpoint:
        flag = f"--judge-{next(iter(endpoint)).replace('_', '-')}"
        raise ConfigError(f"{flag} needs --judge-url, the address of the judge")
    from whet.tasks.qa.judge import Judge, JudgeConfig  # noqa: PLC0415  # most files need no judge

    prompt = {"prompt": endpoint.pop("prompt")} if "prompt" in endpoint else {}
    table: dict[str, Json] = {"endpoint": endpoint, **prompt}
    return Judge(load_settings(JudgeConfig, None, (), defaults=table).config)


def _load_reward(reward: str | None) -> RewardSpec | None:
    spec = load_spec(reward) if reward is not None else None
    if spec is not None and spec.needs_tokens:
        raise ConfigError(
            f"the reward {reward} counts tokens, which a file of responses does not have"
        )
    return spec


def _to_graded_line(row: _Row, score: Score, spec: RewardSpec | None) -> bytes:
    graded = dict(row.given) | {
        "verdict": score.verdict.value,
        "parts": to_finite(dict(score.parts)),
        "extracted": score.answer,
        "note": score.note,
    }
    if spec is not None:
        rollout = Rollout.from_text(
            row.problem, row.text, model="", author=Author.SOLVER, score=score
        )
        graded["reward"] = to_finite(spec.apply_to(rollout).reward)
    return to_line(graded)


def _check_flags(source: Path, out: Path, problems: Path | None, workers: int | None) -> None:
    for given in (source, problems):
        if given is not None and out.resolve() == given.resolve():
            raise ConfigError(f"--out {out} is a file that is read: choose another name")
    if workers is not None and not 0 <= workers <= MAX_WORKERS:
        raise ConfigError(f"--workers {workers} should be from 0 to {MAX_WORKERS}")


def _check_writable(out: Path) -> None:
    """Fail before grading, not after it, if the result cannot be written."""
    check_target(out)
    with write_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        probe = out.with_name(f".{out.name}.new")
        probe.touch()
        probe.unlink()


def _preview(value: Json) -> str:
    return "missing" if value is None else json.dumps(value, ensure_ascii=False)[:60]


def check_graders(name: str | None, file: Path | None) -> None:
    """Check the grader of one task, of all, or of a file's problems; print failures and counts."""
    if file is not None:
        proofs = check_file(file, task=name)
    else:
        chosen = [build_default_task(task) for task in ([name] if name else TASKS)]
        proofs = [
            _check_and_print(task, problems, workers=None, is_only=name is not None)
            for task in chosen
            if (problems := _problems_to_try(task)) or name
        ]
    num_problems = sum(p.num_problems for p in proofs)
    responses = sum(p.num_responses for p in proofs)
    without = sum(p.num_without_gold for p in proofs)
    failures = sum(len(p.failures) for p in proofs)
    say(
        f"{num_problems:,} problems ({without:,} with no gold), {responses:,} responses graded, "
        f"{failures:,} failures"
    )
    raised = sum(_is_raised(failure) for p in proofs for failure in p.failures)
    if raised:
        others = f", and graded {failures - raised:,} wrongly" if failures > raised else ""
        raise DataError(f"the grader raised for {raised:,} responses{others}; see the lines above")
    if failures:
        raise DataError(f"{failures:,} responses were graded wrongly; the lines above name them")


def _problems_to_try(task: Task) -> list[Problem]:
    """Take the task's own problems, or its examples if it makes none."""
    problems = [
        problem for split in SPLITS for problem in islice(list_problems(task, split), CHECKED)
    ]
    return problems or [one for one in read_problems(EXAMPLES) if one.task == task.name]


def check_file(
    file: Path,
    *,
    task: str | None = None,
    workers: int | None = None,
    make: MakeTask = build_default_task,
) -> list[GraderReport]:
    """Check graders on the problems of a file, task by task; `task` selects one of them."""
    by_task: dict[str, list[Problem]] = {}
    for problem in read_problems(file):
        if task in (None, problem.task):
            by_task.setdefault(problem.task, []).append(problem)
    if not by_task:
        raise DataError(f"{file} has no problems{f' of the task {task}' if task else ''}")
    tasks = make_tasks(((str(file), name) for name in by_task), (), make)
    return [_check_and_print(tasks[name], problems, workers) for name, problems in by_task.items()]


def _check_and_print(
    task: Task, problems: Sequence[Problem], workers: int | None, *, is_only: bool = False
) -> GraderReport:
    with progress_bar(task.name, 0) as advance:
        proof = check_grader(task, problems, limits=GradingConfig(workers=workers), advance=advance)
    rows: dict[str, list[GradingFailure]] = {}
    for failure in proof.failures:
        error = failure.score.note.partition(":")[0]  # "the grader raised KeyError"
        key = error if _is_raised(failure) else failure.problem.id
        rows.setdefault(key, []).append(failure)
    for first, *rest in rows.values():
        like = " like this" if _is_raised(first) else ""
        say(f"{first}{f' (and {len(rest)} more{like})' if rest else ''}")
    if not is_only:
        say(f"{task.name}: {proof}")
    return proof


def _is_raised(failure: GradingFailure) -> bool:
    """Whether a user's grader raised an error, rather than gave a wrong verdict."""
    return failure.score.verdict is Verdict.UNSCORED
