"""Import a data file: its rows become problems, and their responses rollouts.

Rows are streamed. A bad row is left out and listed; a strict import stops at it.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path

from whet.data.importers.base import Fields, ImportedResponse, ParsedRow
from whet.data.importers.mapped import Mapped
from whet.data.levels import LevelColumn
from whet.data.row_files import SourceRow, iterate_rows
from whet.errors import ConfigError, DataError
from whet.store.files import Row, atomic_path, write_rows
from whet.store.rollouts import stream_rollouts
from whet.tasks.registry import TASKS, build_default_task
from whet.types import Advance, Problem, Rollout, Score, Split, Verdict
from whet.user_code import is_code_path

_PROMPTS = ("prompt", "system", "id", "model")
_RESPONSES = ("response", "responses", "completion")
FORMS = "messages, or prompt and response"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    """A row that is left out, and the reason."""

    place: str
    source_id: str
    reason: str


@dataclass(kw_only=True)
class ImportCounts:
    """Counts of the rows read so far, by outcome."""

    tasks: Counter[str] = field(default_factory=Counter)
    num_rollouts: int = 0
    num_repeats: int = 0
    first_repeat: str = ""
    unsupported: list[Unsupported] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)
    """Rows by column, of the columns that the format does not know."""

    @property
    def num_problems(self) -> int:
        return self.tasks.total()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """How to read the rows of a file."""

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
    """Write the problems of a file to `out`, and beside it responses and a list of rows left out.

    Everything is written, or nothing. A row with the problem of an earlier row adds to its
    responses. A strict import stops at a bad row.
    """
    counts = ImportCounts()
    seen = dict[str, str]()
    answered = ResponseCounter()
    with atomic_path(out) as new:
        with new.open("wb") as lines, stream_rollouts(rollout_file(out)) as add_rollouts:
            for row in iterate_rows(file, advance=advance):
                try:
                    problem, parsed, line = parse_row(file, row, plan)
                except (ConfigError, DataError) as error:
                    if is_strict:
                        raise DataError(f"{file} {row.location}: {error}") from error
                    id = locate_row(file, row)
                    bad = Unsupported(place=row.location, source_id=id, reason=str(error))
                    counts.unsupported.append(bad)
                    continue
                counts.unread.update(parsed.unread)
                if parsed.unsupported is not None:
                    left_out = {"source_id": problem.source_id or "", "reason": parsed.unsupported}
                    counts.unsupported.append(Unsupported(place=row.location, **left_out))
                    continue
                if not (parsed.has_replies and problem.id in answered):
                    lines.write(line)
                    _count(counts, problem, row.location, seen)
                if parsed.responses:
                    add_rollouts(answered.add(problem, parsed.responses))
            if not counts.num_problems:
                raise DataError(_explain_empty(file, counts))
        if counts.unsupported:
            write_rows(unsupported_file(out), map(asdict, counts.unsupported))
        counts.num_rollouts = answered.num_responses
    _remove_old(out, counts)
    return counts


def _remove_old(out: Path, counts: ImportCounts) -> None:
    """Remove files beside `out` that an earlier import wrote and this one did not."""
    if not counts.num_rollouts:
        rollout_file(out).unlink(missing_ok=True)
    if not counts.unsupported:
        unsupported_file(out).unlink(missing_ok=True)


def check_gradable(problem: Problem) -> None:
    """Run the task's grader on a problem, so that an unusable row is refused at once.

    A user's own task is not run.
    """
    name = problem.task
    if is_code_path(name):
        return
    if name not in TASKS:
        raise DataError(f"task {name!r} is unknown; known tasks: {', '.join(TASKS)}")
    if problem.answer is not None or problem.payload:
        _cached_task(name).score(problem, "")


_cached_task = cache(build_default_task)


def rollout_file(out: Path) -> Path:
    """Return the path for responses that come with the problems of `out`."""
    return out.with_suffix(".rollouts.parquet")


def unsupported_file(out: Path) -> Path:
    """Return the path for the list of rows left out of `out`."""
    return out.with_suffix(".unsupported.jsonl")


def parse_row(file: Path, row: SourceRow, plan: ImportPlan) -> tuple[Problem, ParsedRow, bytes]:
    """Parse a row into a problem, and the line of strict JSON to write for it."""
    source = plan.source or file.name
    try:
        parsed = plan.read(row.fields)
        problem = parsed.to_problem(
            split=plan.default_split,
            override=plan.split,
            source=source,
            location=locate_row(file, row),
        )
        if parsed.unsupported is not None:
            return problem, parsed, b""
        check_gradable(problem)
        for response in parsed.responses:
            f"{response.text}{response.note}{response.model}".encode()
        row_json = problem.to_json()
        text = json.dumps(row_json, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return problem, parsed, text.encode() + b"\n"
    except (UnicodeError, RecursionError) as error:  # half a surrogate pair, too many brackets
        reason = str(error).split(":")[0]
        raise DataError(
            f"has a value that cannot be written as JSON ({reason}): fix the row or leave it out"
        ) from error


def locate_row(file: Path, row: SourceRow) -> str:
    """Name a row by its file and line."""
    return f"{file.name}:{row.location.split()[-1]}"


def _count(counts: ImportCounts, problem: Problem, location: str, seen: dict[str, str]) -> None:
    """Count a problem; one with the question of an earlier row is a repeat."""
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


class ResponseCounter:
    """Numbers the responses to each problem; a repeated problem continues the first row's numbers.

    Only what can differ between rows of one problem is kept in memory.
    """

    def __init__(self) -> None:
        self._counts = Counter[str]()
        self._firsts = dict[str, tuple[str | None, float | None, Split]]()

    def __contains__(self, id: str) -> bool:
        return id in self._counts

    @property
    def num_responses(self) -> int:
        return self._counts.total()

    def add(self, problem: Problem, responses: Sequence[ImportedResponse]) -> list[Rollout]:
        """Make rollouts of responses to a problem."""
        fields = (problem.source_id, problem.level, problem.split)
        source_id, level, split = self._firsts.setdefault(problem.id, fields)
        problem = replace(problem, source_id=source_id, level=level, split=split)
        first = self._counts[problem.id]
        self._counts[problem.id] += len(responses)
        return to_rollouts(problem, responses, first=first)


def to_rollouts(
    problem: Problem, responses: Sequence[ImportedResponse], *, first: int = 0
) -> list[Rollout]:
    """Make rollouts of responses to a problem, numbered from `first`."""
    return [_to_rollout(problem, response, n) for n, response in enumerate(responses, start=first)]


def _to_rollout(problem: Problem, response: ImportedResponse, number: int) -> Rollout:
    score = None
    if response.is_good is not None:
        verdict = Verdict.CORRECT if response.is_good else Verdict.WRONG
        parts = {"correct": float(response.is_good)}
        score = Score(verdict=verdict, parts=parts, note=response.note)
    model = response.model or problem.source
    return Rollout.from_text(problem, response.text, model=model, number=number, score=score)


def stream_problems(file: Path) -> Iterator[Problem]:
    """Read a file of problems one at a time; an error names the file and line."""
    for row in iterate_rows(file):
        try:
            yield Problem.from_json(row.fields)
        except DataError as error:
            raise DataError(f"{file} {row.location}: {error}") from error


def add_levels(plan: ImportPlan, levels: LevelColumn, file: Path) -> ImportPlan:
    """Extend a plan to read the level of each row from a column."""
    resolved = levels.resolve(row.fields for row in iterate_rows(file))

    def read(row: Row) -> ParsedRow:
        parsed = plan.read(row)
        unread = tuple(name for name in parsed.unread if name != levels.name)
        return replace(parsed, level=resolved.read(row), unread=unread)

    return replace(plan, read=read)


def read_response_rows(file: Path) -> list[Rollout]:
    """Read every row as responses to one prompt; an error names the line."""
    rollouts: list[Rollout] = []
    answered = ResponseCounter()
    for row in iterate_rows(file):
        try:
            parsed = _parse_responses(row)
            problem = parsed.to_problem(
                split="sft", override="sft", source=file.name, location=row.location
            )
        except DataError as error:
            raise DataError(f"{file} {row.location} {error}") from error
        rollouts += answered.add(problem, parsed.responses)
    if not rollouts:
        raise DataError(f"{file} has no rows: give a file with rows of {FORMS}")
    return rollouts


def is_response_file(columns: list[str]) -> bool:
    """Whether the columns are those of response rows, not of stored rollouts."""
    return "messages" in columns or ("prompt" in columns and bool({*_RESPONSES} & {*columns}))


def _parse_responses(row: SourceRow) -> ParsedRow:
    fields = Fields(row.fields)
    response = next((name for name in _RESPONSES if fields.get(name) is not None), None)
    names = [name for name in _PROMPTS if fields.get(name) is not None]
    columns = {name: name for name in names}
    if fields.get("messages") is not None:
        columns = {name: name for name in ("messages", *names) if name != "prompt"}
    elif response is None or "prompt" not in columns:
        raise DataError(f"should hold {FORMS}; its columns are {', '.join(row.fields) or 'none'}")
    else:
        columns["responses" if response == "responses" else "response"] = response
    parsed = Mapped(columns=columns, task=None).parse(fields)
    is_good = _read_verdict(fields)
    return replace(parsed, responses=tuple(replace(a, is_good=is_good) for a in parsed.responses))


def _read_verdict(fields: Fields) -> bool | None:
    verdict = fields.get("verdict")
    if verdict is not None:
        if verdict not in list(Verdict):
            raise DataError(f"has the verdict {verdict!r}; known verdicts: {', '.join(Verdict)}")
        return verdict == Verdict.CORRECT
    correct = fields.get("correct")
    if correct is None or isinstance(correct, bool):
        return correct
    raise DataError(f"has {correct!r} for `correct`, which should be true or false")
