"""Prepare a source: turn its raw rows into a folder of problems for stages to read.

Rows are streamed. The folder is written whole or not at all; its `source.json` records what it was
made from.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from heapq import heappush, heapreplace
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from whet.data.import_rows import (
    ImportPlan,
    ResponseCounter,
    locate_row,
    parse_row,
    rollout_file,
    to_rollouts,
)
from whet.data.importers import find_format
from whet.data.importers.base import Fields, ParsedRow
from whet.data.importers.mapped import parse_mapping
from whet.data.problems import problem_file, split_by_hash
from whet.data.row_files import SourceRow, iterate_rows
from whet.data.sources import Source, SourceFile, SourcePrompt
from whet.data.sources.raw_files import RawFile
from whet.errors import ConfigError, DataError
from whet.rng import derive
from whet.store.files import Row, atomic_folder, hash_file, read_json, sha256, to_line, write_json
from whet.store.rollouts import stream_rollouts
from whet.types import Advance, Json, Message, Problem, Rollout, Split

PROVENANCE = "source.json"
LEFT_OUT = "left_out.jsonl"
"""Rows that cannot be read or graded, with reasons; rows that rules leave out are only counted."""
MAX_REASONS = 1000
"""Different reasons that are counted one by one."""
MAX_BAD = 100
"""Rows at the start of a file that may be unreadable; if all are, the file has another schema."""
OTHER = "other reasons"
REPEAT = "repeats the problem of an earlier row"

_PLAIN_NAME = re.compile(r"[\w-][\w.-]*")


@dataclass(kw_only=True)
class PrepareCounts:
    """Counts of the rows read so far, by outcome."""

    rows: int = 0
    problems: Counter[Split] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)
    responses: Counter[Split] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    firsts: dict[str, str] = field(default_factory=dict)
    """The first row that was left out for a reason."""
    num_listed: int = 0
    num_added: int = 0
    """Rows that add a response to the problem of an earlier row."""

    def leave_out(self, reason: str, place: str) -> None:
        if reason not in self.left_out and len(self.left_out) >= MAX_REASONS:
            reason = OTHER
        self.left_out[reason] += 1
        self.firsts.setdefault(reason, place)


def prepare_source(
    source: Source,
    raw_files: list[RawFile],
    out: Path,
    *,
    name: str,
    definition: Path,
    limit: int | None = None,
    advance: Advance | None = None,
) -> PrepareCounts:
    """Write a folder of problems, replacing one that was prepared before.

    `limit` is the most problems to read from a file. A file without a readable row is refused with
    the first error, which names the field.
    """
    check_replaceable(out)
    counts = PrepareCounts()
    with atomic_folder(out) as folder:
        with ExitStack() as stack:
            run = _Run(source, name, folder, counts, stack)
            for file in source.files:
                run.read_all([raw for raw in raw_files if raw.file is file], limit, advance)
            run.finish()
        if not counts.problems:
            raise DataError(_explain_empty(name, counts))
        if not counts.num_listed:
            (folder / LEFT_OUT).unlink()
        write_json(
            folder / PROVENANCE, _describe_folder(name, definition, raw_files, counts, limit)
        )
    return counts


def check_replaceable(out: Path) -> None:
    """Refuse to replace a folder that was not prepared from a source."""
    if out.exists() and not (out / PROVENANCE).is_file():
        raise ConfigError(
            f"{out} has no {PROVENANCE}, so it was not prepared from a source and is not replaced: "
            "choose another --out"
        )


@dataclass
class _FileResult:
    """The number of readable rows of a file, and the first error."""

    num_read: int = 0
    first_error: str = ""


class _Run:
    """One preparation: its open files and counts."""

    def __init__(
        self, source: Source, name: str, folder: Path, counts: PrepareCounts, stack: ExitStack
    ) -> None:
        self._source = source
        self._name = name
        self._folder = folder
        self._counts = counts
        self._stack = stack
        self._listed = stack.enter_context((folder / LEFT_OUT).open("wb"))
        self._writers: dict[Split, SplitWriter] = {}
        self._splits: dict[str, Split] = {}
        self._answered = ResponseCounter()

    def read_all(self, raws: list[RawFile], limit: int | None, advance: Advance | None) -> None:
        """Write the problems of files that are read alike; raise if no row can be read.

        A single unreadable file among several is refused too, if it has more than a few rows.
        """
        results = [self._read_raw_file(raw, limit, advance) for raw in raws]
        broken = [result for result in results if result.first_error and not result.num_read]
        if broken and not any(result.num_read for result in results):
            raise DataError(f"none of its rows can be read; the first, {broken[0].first_error}")

    def _read_raw_file(
        self, raw: RawFile, limit: int | None, advance: Advance | None
    ) -> "_FileResult":
        plan = make_plan(self._source, self._name, raw.file)
        result = _FileResult()
        num_kept = num_bad = 0
        for row in islice(iterate_rows(raw.path, advance=advance), raw.file.rows):
            self._counts.rows += 1
            try:
                num_kept += self._add_row(raw, row, plan)
                result.num_read += 1
            except (ConfigError, DataError) as error:
                num_bad += 1
                result.first_error = result.first_error or f"{raw.path} {row.location}: {error}"
                self._list(raw, row, str(error))
                if num_bad == MAX_BAD and not result.num_read:
                    raise DataError(
                        f"none of the first {MAX_BAD} rows can be read: {result.first_error}"
                    ) from error
            if limit is not None and num_kept >= limit:
                break
        return result

    def finish(self) -> None:
        """Write what the samples hold, and count what is in the files."""
        for split, writer in self._writers.items():
            writer.finish()
            self._counts.problems[split] = writer.num_problems
            self._counts.responses[split] = writer.num_responses
            self._counts.tasks += writer.tasks
            if writer.num_beyond:
                reason = f"is beyond the sample of {writer.size:,} of the split {split}"
                self._counts.left_out[reason] = writer.num_beyond

    def _add_row(self, raw: RawFile, row: SourceRow, plan: ImportPlan) -> bool:
        """Write a row's problem if it is kept; return whether it is new."""
        place = locate_row(raw.path, row)
        fields = _attach(self._source, raw, row.fields)
        for rule in self._source.keep:
            if reason := rule.explain(fields):
                self._counts.leave_out(reason, place)
                return False
        given = {name: fields[name] for name in fields if name not in self._source.ignore}
        problem, parsed, line = parse_row(raw.path, replace(row, fields=given), plan)
        if parsed.unsupported is not None:
            self._list(raw, row, parsed.unsupported)
            return False
        if problem.task not in self._source.tasks:
            raise DataError(f"is of the task {problem.task!r}, which the source does not list")
        if problem.id in self._splits and not parsed.has_replies:
            self._counts.leave_out(REPEAT, place)
            return False
        if parsed.has_replies:
            rollouts = self._answered.add(problem, parsed.responses)
        else:
            rollouts = to_rollouts(problem, parsed.responses)
        return self._write_problem(problem, line, rollouts)

    def _write_problem(self, problem: Problem, line: bytes, rollouts: list[Rollout]) -> bool:
        is_new = problem.id not in self._splits
        self._counts.num_added += not is_new
        split = self._splits.setdefault(problem.id, problem.split)
        if split not in self._writers:
            self._writers[split] = self._open_split(split)
        self._writers[split].add(problem, line if is_new else None, rollouts)
        return is_new

    def _open_split(self, split: Split) -> "SplitWriter":
        file = problem_file(self._folder, split)
        return SplitWriter(
            lines=self._stack.enter_context(file.open("wb")),
            rollouts=rollout_file(file),
            stack=self._stack,
            size=self._source.sample.get(split),
            seed=self._source.seed,
        )

    def _list(self, raw: RawFile, row: SourceRow, reason: str) -> None:
        place = locate_row(raw.path, row)
        self._counts.leave_out(reason, place)
        self._counts.num_listed += 1
        self._listed.write(to_line({"place": place, "reason": reason}))


def make_plan(source: Source, name: str, file: SourceFile) -> ImportPlan:
    """Choose how the rows of a file are read, prompted and split."""
    layout = file.format or source.format
    if layout is not None:
        known = find_format(layout)
        parse, default = known.parse, known.split
    else:
        pairs = [f"{field}={column}" for field, column in source.map.items()]
        parse, default = parse_mapping(pairs, source.tasks[0]).parse, "rl"
    fixed = file.split if isinstance(file.split, str) else None
    fractions = file.split if isinstance(file.split, Mapping) else None

    def read(row: Row) -> ParsedRow:
        parsed = parse(row)
        parsed = replace(parsed, prompt=change_prompt(parsed.prompt, source.prompt))
        if fractions is None:
            return parsed
        text = "\n\n".join(message.content for message in parsed.prompt)
        return replace(parsed, split=split_by_hash(text, fractions, source.seed))

    return ImportPlan(read=read, source=name, default_split=default, split=fixed)


def change_prompt(prompt: tuple[Message, ...], change: SourcePrompt) -> tuple[Message, ...]:
    """Apply a source's system message and template to the prompt of a row."""
    if change.system is not None:
        prompt = tuple(message for message in prompt if message.role != "system")
        new = (Message(role="system", content=change.system),) if change.system else ()
        prompt = (*new, *prompt)
    *before, last = prompt
    content = last.content
    for text in change.remove:
        content = content.replace(text, "")
    content = change.template.replace("{prompt}", content.strip())
    return (*before, replace(last, content=content))


def _attach(source: Source, raw: RawFile, row: Row) -> Row:
    """Add the JSON files that belong to a row; its columns give their names."""
    added: dict[str, Json] = {}
    for column, pattern in source.attach.items():

        def fill(match: re.Match[str]) -> str:
            value = Fields(row).scalar(match[1])
            if not _PLAIN_NAME.fullmatch(value):
                raise DataError(f"field {match[1]!r} should be part of a file name, not {value!r}")
            return value

        added[column] = read_json(raw.folder / re.sub(r"\{([^}]*)\}", fill, pattern))
    return {**row, **added}


def _describe_folder(
    name: str, definition: Path, raw_files: list[RawFile], counts: PrepareCounts, limit: int | None
) -> Json:
    """Record what a folder was made from, and the counts of its rows."""
    paths = {raw.path: raw.origin for raw in raw_files}
    facts: list[Json] = []
    for path, origin in paths.items():
        hashes = hash_file(path)
        assert isinstance(hashes, dict), "the hash of a file is a table"
        facts.append({"name": path.name, "origin": origin, **hashes})
    return {
        "source": name,
        "definition_sha256": sha256(definition),
        "definition": definition.read_text(encoding="utf-8"),
        "limit": limit,
        "raw_files": facts,
        "rows": counts.rows,
        "problems": {str(split): count for split, count in counts.problems.items()},
        "answers": {  # the key in stored files
            str(split): count for split, count in counts.responses.items() if count
        },
        "tasks": dict(counts.tasks),
        "rows_with_more_answers": counts.num_added,
        "left_out": dict(counts.left_out.most_common()),
    }


def _explain_empty(name: str, counts: PrepareCounts) -> str:
    if not counts.left_out:
        return f"the raw files of {name} have no rows"
    reason, count = counts.left_out.most_common(1)[0]
    first = counts.firsts.get(reason, "")
    return f"no row of {name} is kept: of {count:,}, the first ({first}) {reason}"


@dataclass(order=True, slots=True)
class _Drawn:
    """A sampled problem; the one with the largest rank is replaced first."""

    rank: int
    number: int
    problem: Problem = field(compare=False)
    line: bytes = field(compare=False)
    rollouts: list[Rollout] = field(compare=False)


class SplitWriter:
    """Writes the problems of one split, all of them or a sample."""

    def __init__(
        self, *, lines: BinaryIO, rollouts: Path, stack: ExitStack, size: int | None, seed: int
    ) -> None:
        self.size = size
        self.num_problems = self.num_responses = self.num_beyond = 0
        self.tasks = Counter[str]()
        self._seed = seed
        self._lines = lines
        self._add_rollouts: Callable[[Sequence[Rollout]], None] = stack.enter_context(
            stream_rollouts(rollouts)
        )
        self._sample: list[_Drawn] = []
        self._by_id: dict[str, _Drawn] = {}

    def add(self, problem: Problem, line: bytes | None, rollouts: list[Rollout]) -> None:
        """Add a problem with responses to it; without a line, more responses to an earlier one."""
        if self.size is None:
            self._write(problem if line is not None else None, line or b"", rollouts)
        elif line is None:
            if problem.id in self._by_id:
                self._by_id[problem.id].rollouts.extend(rollouts)
        else:
            self._draw(problem, line, rollouts, self.size)

    def finish(self) -> None:
        """Write the sample, in the order of the rows."""
        for drawn in sorted(self._sample, key=lambda one: one.number):
            self._write(drawn.problem, drawn.line, drawn.rollouts)
        self._sample.clear()

    def _draw(self, problem: Problem, line: bytes, rollouts: list[Rollout], size: int) -> None:
        number = len(self._sample) + self.num_beyond
        rank = -derive(self._seed, "sample", problem.id)
        new = _Drawn(rank, number, problem, line, list(rollouts))
        if len(self._sample) < size:
            heappush(self._sample, new)
            self._by_id[problem.id] = new
            return
        self.num_beyond += 1
        if self._sample and new > self._sample[0]:
            del self._by_id[heapreplace(self._sample, new).problem.id]
            self._by_id[problem.id] = new

    def _write(self, problem: Problem | None, line: bytes, rollouts: Sequence[Rollout]) -> None:
        self._lines.write(line)
        if problem is not None:
            self.num_problems += 1
            self.tasks[problem.task] += 1
        self.num_responses += len(rollouts)
        self._add_rollouts(rollouts)
