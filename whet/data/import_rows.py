"""Import a data file: rows become problems, and rollouts where they hold answers.

Rows are streamed. A bad row is left out and named, or stops the import where that is asked for.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from whet.data.importers.base import Answer, ParsedRow
from whet.data.row_files import Advance, Row, SourceRow, iterate_rows
from whet.errors import ConfigError, DataError
from whet.store.files import atomic_path, write_rows
from whet.store.rollouts import write_rollouts
from whet.tasks.registry import TASKS, make_task
from whet.types import Problem, Rollout, Score, Split, Verdict
from whet.user_code import is_code_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    """A row that is left out, and why."""

    place: str
    source_id: str
    reason: str


@dataclass(kw_only=True)
class ImportCounts:
    """Rows that an import has read so far, by outcome."""

    tasks: Counter[str] = field(default_factory=Counter)
    num_rollouts: int = 0
    num_repeats: int = 0
    first_repeat: str = ""
    unsupported: list[Unsupported] = field(default_factory=list)

    @property
    def num_problems(self) -> int:
        return self.tasks.total()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """How the rows of a file are read."""

    read: Callable[[Row], ParsedRow]
    source: str
    default_split: Split
    split: Split | None
    """None takes it from the rows."""


def import_rows(
    file: Path,
    out: Path,
    plan: ImportPlan,
    *,
    is_strict: bool = False,
    advance: Advance | None = None,
) -> ImportCounts:
    """Write the problems of a file to `out`, and next to it their answers and the rows left out.

    Everything is written, or nothing. A row that answers the problem of an earlier row adds to its
    answers. A bad row stops a strict import.
    """
    counts = ImportCounts()
    seen = dict[str, str]()
    answered = dict[str, list[Rollout]]()
    with atomic_path(out) as new:
        with new.open("wb") as lines:
            for row in iterate_rows(file, advance=advance):
                try:
                    problem, parsed, line = _parse_row(file, row, plan)
                except (ConfigError, DataError) as error:
                    if is_strict:
                        raise DataError(f"{file} {row.location}: {error}") from error
                    id = _locate(file, row)
                    bad = Unsupported(place=row.location, source_id=id, reason=str(error))
                    counts.unsupported.append(bad)
                    continue
                if parsed.unsupported is not None:
                    left_out = {"source_id": problem.source_id or "", "reason": parsed.unsupported}
                    counts.unsupported.append(Unsupported(place=row.location, **left_out))
                    continue
                if not (parsed.answers and problem.id in answered):
                    lines.write(line)
                    _count(counts, problem, row.location, seen)
                if parsed.answers:
                    _add_answers(answered.setdefault(problem.id, []), problem, parsed.answers)
        if not counts.num_problems:
            raise DataError(_explain_empty(file, counts))
        if answered:
            write_rollouts(rollout_file(out), [tuple(rollouts) for rollouts in answered.values()])
        if counts.unsupported:
            write_rows(unsupported_file(out), map(asdict, counts.unsupported))
        counts.num_rollouts = sum(len(rollouts) for rollouts in answered.values())
    return counts


def check_gradable(problem: Problem) -> None:
    """Try a problem on its task's grader, so that an unusable row is refused at once.

    A user's own task is not run.
    """
    name = problem.task
    if is_code_path(name):
        return
    if name not in TASKS:
        raise DataError(f"task {name!r} is not known; known are {', '.join(TASKS)}")
    if problem.answer is not None or problem.payload:
        _make_task(name).score(problem, "")


_make_task = cache(make_task)


def rollout_file(out: Path) -> Path:
    """Return where the answers that come with problems are written."""
    return out.with_suffix(".rollouts.parquet")


def unsupported_file(out: Path) -> Path:
    """Return where the rows that are left out are listed."""
    return out.with_suffix(".unsupported.jsonl")


def _parse_row(file: Path, row: SourceRow, plan: ImportPlan) -> tuple[Problem, ParsedRow, bytes]:
    """Read a row into a problem, and the line of strict JSON that is written for it."""
    source = plan.source or file.name
    try:
        parsed = plan.read(row.fields)
        problem = parsed.to_problem(
            split=plan.default_split,
            override=plan.split,
            source=source,
            location=_locate(file, row),
        )
        if parsed.unsupported is not None:
            return problem, parsed, b""
        check_gradable(problem)
        for answer in parsed.answers:
            f"{answer.text}{answer.note}{answer.model}".encode()
        row_json = problem.to_json()
        text = json.dumps(row_json, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return problem, parsed, text.encode() + b"\n"
    except (UnicodeError, RecursionError) as error:  # half a surrogate pair, too many brackets
        reason = str(error).split(":")[0]
        raise DataError(
            f"holds what cannot be written as JSON ({reason}): fix the row or leave it out"
        ) from error


def _locate(file: Path, row: SourceRow) -> str:
    return f"{file.name}:{row.location.split()[-1]}"


def _count(counts: ImportCounts, problem: Problem, location: str, seen: dict[str, str]) -> None:
    """Add a problem; one with the question of an earlier row is a repeat."""
    counts.tasks[problem.task] += 1
    first = seen.setdefault(problem.id, location)
    if first is not location:
        counts.num_repeats += 1
        counts.first_repeat = counts.first_repeat or f"{location} repeats {first}"


def _explain_empty(file: Path, counts: ImportCounts) -> str:
    if not counts.unsupported:
        return f"{file} has no rows"
    first = counts.unsupported[0]
    rows = len(counts.unsupported)
    where = f": none of {rows:,} rows can be imported; the first," if rows > 1 else ""
    return f"{file}{where} {first.place}: {first.reason}"


def _add_answers(rollouts: list[Rollout], problem: Problem, answers: Sequence[Answer]) -> None:
    """Add answers to those a problem has; all of them share one problem object."""
    problem = rollouts[0].problem if rollouts else problem
    for answer in answers:
        model = answer.model or problem.source
        score = None
        if answer.is_good is not None:
            verdict = Verdict.CORRECT if answer.is_good else Verdict.WRONG
            parts = {"correct": float(answer.is_good)}
            score = Score(verdict=verdict, parts=parts, note=answer.note)
        number = len(rollouts)
        rollouts.append(
            Rollout.from_text(problem, answer.text, model=model, number=number, score=score)
        )


def stream_problems(file: Path) -> Iterator[Problem]:
    """Read a file of problems one at a time; a broken row is named by file and line."""
    for row in iterate_rows(file):
        try:
            yield Problem.from_json(row.fields)
        except DataError as error:
            raise DataError(f"{file} {row.location}: {error}") from error
