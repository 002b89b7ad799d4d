"""Commands on problems: import rows, make problems of a task, show problems, list tasks."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from rich.console import Console, Group
from rich.markup import escape
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from whet.data.import_rows import (
    ImportCounts,
    ImportPlan,
    add_levels,
    import_rows,
    rollout_file,
    stream_problems,
    unsupported_file,
)
from whet.data.importers import FORMATS, find_format
from whet.data.importers.mapped import parse_mapping
from whet.data.levels import LevelColumn
from whet.errors import ConfigError, DataError, visible
from whet.level_bands import NUM_LEVELS, level_band
from whet.rng import derive, make_rng
from whet.store.files import check_overwrite, write_rows
from whet.tasks.base import Task, list_problems
from whet.tasks.code.sandbox import describe_isolation
from whet.tasks.generated import Generator
from whet.tasks.registry import TASKS, build_default_task
from whet.tasks.user_task import load_user_task
from whet.track.progress import printer, progress_bar, say
from whet.types import SPLITS, Advance, Json, Problem, Split
from whet.user_code import is_code_path

MAX_TEXT = 4000
"""Longer texts are cut, with a note."""
MAX_VALUE = 100
"""Characters shown of a payload value."""
NUM_LISTED = 20
"""How many problems are read of a task with an unlimited supply."""


def format_heading(problem: Problem) -> str:
    """Write a problem's id, level, split and source in one line."""
    level = "no level"
    if problem.level is not None:
        level = f"level {level_band(problem.level) + 1} ({problem.level:.2f})"
    origin = " ".join(part for part in (problem.source, problem.source_id) if part)
    return visible(" · ".join(part for part in (problem.id, level, problem.split, origin) if part))


def list_sections(problem: Problem) -> list[tuple[str, str]]:
    """List the titles and texts below the heading."""
    parts: list[tuple[str, str]] = [(m.role, shorten_text(m.content)) for m in problem.prompt]
    parts.append(("answer", "none" if problem.answer is None else shorten_text(problem.answer)))
    values = [f"{key}: {format_payload_value(value)}" for key, value in problem.payload.items()]
    if values:
        parts.append(("payload", visible("\n".join(values))))
    return parts


def print_sections(console: Console, heading: str, sections: Sequence[tuple[str, str]]) -> None:
    """Print titles and texts: framed on a terminal, elsewhere as plain, indented lines."""
    if console.is_terminal:
        parts = [
            Text(f"{title}\n", style="bold").append(content, style="not bold")
            for title, content in sections
        ]
        console.print(
            Panel(Group(*parts), title=Text(heading), title_align="left", border_style="dim")
        )
        return
    lines = [heading]
    for title, content in sections:
        lines += [f"  {title}:", *(f"    {line}".rstrip() for line in content.splitlines())]
    console.print("\n".join(lines) + "\n", markup=False, soft_wrap=True)


def shorten_text(text: str) -> str:
    """Shorten a long text and say by how much; escape invisible characters.

    >>> shorten_text("x" * 4003)[-25:]
    'x … and 3 more characters'
    """
    text = visible(text.strip("\n"))
    rest = len(text) - MAX_TEXT
    return text if rest <= 0 else f"{text[:MAX_TEXT]} … and {rest:,} more characters"


def format_payload_value(value: Json) -> str:
    """Write a payload value in one line.

    >>> format_payload_value([1, 2, 3]), format_payload_value({"a": 1})
    ('[1, 2, 3]', '{"a": 1}')
    """
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= MAX_VALUE or not isinstance(value, str | list | dict):
        return text
    kind = "characters" if isinstance(value, str) else "items"
    return f"{text[:MAX_VALUE]} … ({len(value):,} {kind})"


MAX_REASONS = 10
"""How many reasons for leaving rows out are printed; the file lists all."""
MAX_DRAWS = 50
"""Draws per requested problem; if they give too few different problems, the level is reported as
too small."""


def import_file(
    file: Path,
    out: Path,
    *,
    format: str | None = None,
    map: Sequence[str] = (),
    task: str | None = None,
    split: str | None = None,
    is_strict: bool = False,
    force: bool = False,
    level: str | None = None,
    bins: str | None = None,
    is_reversed: bool = False,
) -> ImportCounts:
    """Turn the rows of a file into problems: in a known format, or by `field=column` pairs.

    `level` is a column of difficulty, cut into levels by `bins` (`whet/data/levels.py`).

    Unreadable rows are left out, and columns that the format does not know are not read; with
    `is_strict` they stop the import, and nothing is written.
    Responses in the rows go into a rollout file beside the problems. Files are replaced only with
    `force`.
    """
    if out.suffix != ".jsonl":
        raise ConfigError(f"--out {out} should end in .jsonl: problems are written as JSON lines")
    if out.resolve() == file.resolve():
        raise ConfigError(f"--out {out} is the file to import: choose another name")
    check_overwrite(out, force=force)
    plan = _choose_plan(format, map, task, split, is_strict=is_strict)
    if levels := LevelColumn.parse(level, bins, is_reversed=is_reversed):
        plan = add_levels(plan, levels, file)
    with progress_bar("import", file.stat().st_size if file.is_file() else 0) as advance:
        counts = import_rows(file, out, plan, is_strict=is_strict, advance=advance)
    _print_counts(counts, out)
    return counts


def make_problems(
    task: str,
    n: int,
    *,
    out: Path,
    level: float | None = None,
    split: str | None = None,
    seed: int = 0,
    force: bool = False,
) -> int:
    """Write n different problems of a task. Levels 1 to 5 are fifths of the difficulty; a fraction
    is a difficulty. An existing file is replaced only with `force`."""
    if n < 1:
        raise ConfigError(f"-n {n} should be at least 1")
    check_overwrite(out, force=force)
    source = build_default_task(task)
    wanted = None if level is None else _parse_level(level)
    chosen = _parse_split(split)
    splits: Counter[str] = Counter()
    with progress_bar("make", n) as advance:
        drawn = _draw_problems(source, n, wanted, chosen, seed, advance)
        write_rows(out, (_count_split(problem, splits).to_json() for problem in drawn))
    say(f"{n:>7,} {task} problems in {out}")
    if len(splits) > 1:
        counts = ", ".join(f"{splits[name]:,} {name}" for name in SPLITS if name in splits)
        say(f"{'':>7} {counts}: --split takes those of one")
    return n


def _count_split(problem: Problem, splits: Counter[str]) -> Problem:
    splits[problem.split] += 1
    return problem


def show_problems(file: Path, n: int = 3, *, console: Console | None = None) -> None:
    """Print the first problems of a file."""
    if n < 1:
        raise ConfigError(f"-n {n} should be at least 1")
    console = console or Console(highlight=False)
    shown = list(islice(stream_problems(file), n))
    for problem in shown:
        print_sections(console, format_heading(problem), list_sections(problem))
    if not shown:
        raise DataError(f"{file} has no problems")


def _print_counts(counts: ImportCounts, out: Path) -> None:
    by_task = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.tasks.items()))
    say(f"{counts.num_problems:>7,} problems in {out} ({by_task})")
    if counts.num_rollouts:
        say(f"{counts.num_rollouts:>7,} responses in {rollout_file(out)}")
    if counts.num_repeats:
        say(
            f"{counts.num_repeats:>7,} of them ask what an earlier row asks "
            f"({counts.first_repeat}); they are kept"
        )
    if counts.unread:
        columns = [f"{name} ({num:,})" for name, num in counts.unread.most_common(MAX_REASONS)]
        more = [f"{len(counts.unread) - MAX_REASONS:,} more"] * (len(counts.unread) > MAX_REASONS)
        say(
            f"{len(counts.unread):>7,} columns that the format does not know are not read (rows): "
            f"{', '.join([*columns, *more])}"
        )
    if counts.unsupported:
        say(f"{len(counts.unsupported):>7,} rows left out, listed in {unsupported_file(out)}:")
        reasons = Counter(row.reason for row in counts.unsupported)
        for reason, count in reasons.most_common(MAX_REASONS):
            first = next(row for row in counts.unsupported if row.reason == reason)
            say(f"{count:>15,} {reason} (first: {first.place}, {first.source_id})")
        if len(reasons) > MAX_REASONS:
            say(f"{'':>15} and {len(reasons) - MAX_REASONS:,} more reasons")


def _choose_plan(
    format: str | None,
    map: Sequence[str],
    task: str | None,
    split: str | None,
    *,
    is_strict: bool,
) -> ImportPlan:
    if task is not None and is_code_path(task):
        load_user_task(task)
    elif task is not None and task not in TASKS:
        raise ConfigError(
            f"there is no task {task!r}; known tasks: {', '.join(TASKS)}, or a file such as "
            "my_task.py:Name"
        )
    make_plan = partial(ImportPlan, split=_parse_split(split))
    if map and format is not None:
        raise ConfigError("--format and --map cannot be combined: a format knows its columns")
    if map:
        return make_plan(read=parse_mapping(map, task).parse, source="", default_split="rl")
    if format is None:
        raise ConfigError(
            "say how rows are laid out: --map field=column …, or --format with one of "
            f"{', '.join(FORMATS)}"
        )
    if task is not None:
        raise ConfigError(f"--task needs --map: format {format!r} knows the task of its rows")
    layout = find_format(format)
    read = layout.parse if is_strict else layout.parse_known
    return make_plan(read=read, source=format, default_split=layout.split)


def _parse_split(split: str | None) -> Split | None:
    chosen = next((name for name in SPLITS if name == split), None)
    if split is not None and chosen is None:
        raise ConfigError(f"--split {split} should be one of {', '.join(SPLITS)}")
    return chosen


def _parse_level(level: float) -> float:
    """Read 1 to 5 as the middle of a fifth, and a fraction below 1 as a difficulty."""
    if 0 <= level < 1:
        return level
    if level not in range(1, NUM_LEVELS + 1):
        raise ConfigError(f"--level {level:g} should be 1, 2, 3, 4 or 5, or a fraction from 0 to 1")
    return (level - 0.5) / NUM_LEVELS


def _draw_problems(
    task: Task, n: int, level: float | None, split: Split | None, seed: int, advance: Advance
) -> Iterator[Problem]:
    """Draw different problems from the task's generator, or from its own lists if it has none."""
    if isinstance(task, Generator):
        seeds = (derive(seed, "make", task.name, index) for index in range(n * MAX_DRAWS))
        problems: Iterator[Problem] = (task.generate(own, level, split) for own in seeds)
    else:
        problems = _list_problems(task, level, split, seed)
    seen: set[str] = set()
    for problem in problems:
        if problem.id not in seen:
            seen.add(problem.id)
            advance(1)
            yield problem
        if len(seen) == n:
            return
    has = f"has only {len(seen):,} different problems" if seen else "makes no problems of its own"
    at = "" if level is None else f" at level {level:g}"
    raise ConfigError(f"task {task.name!r} {has}{at}, and -n asks for {n:,}")


def _list_problems(
    task: Task, level: float | None, split: Split | None, seed: int
) -> Iterator[Problem]:
    splits = SPLITS if split is None else (split,)
    problems = [problem for name in splits for problem in list_problems(task, name)]
    if level is not None:
        problems = [
            p for p in problems if p.level is not None and level_band(p.level) == level_band(level)
        ]
    make_rng(seed, "make", task.name).shuffle(problems)
    yield from problems


def list_tasks() -> None:
    """Print every task with its number of problems, their levels, and an example."""
    widths = {
        "task": max(map(len, TASKS)),
        "problems": len("any number"),
        "levels": len("0.0 to 1.0"),
    }
    columns = [Column(name, no_wrap=True, min_width=width) for name, width in widths.items()]
    table = Table(
        *columns, Column("example", no_wrap=True, overflow="ellipsis"), box=None, pad_edge=False
    )
    for name in TASKS:
        task = build_default_task(name)
        problems = list(_own_problems(task, NUM_LISTED if isinstance(task, Generator) else None))
        levels = sorted(problem.level for problem in problems if problem.level is not None)
        span = f"{levels[0]:.1f} to {levels[-1]:.1f}" if levels else ""
        count = f"{len(problems):,}" if problems else ""
        example = problems[0].prompt[-1].content if problems else "from files: whet data import"
        table.add_row(
            name,
            "any number" if isinstance(task, Generator) else count,
            span,
            escape(" ".join(example.split())[:60]),
        )
    printer.print(table)
    say(describe_isolation())


def _own_problems(task: Task, count: int | None) -> Iterator[Problem]:
    """Take problems from a task's own lists, evenly over its splits; None takes all."""
    for split in SPLITS:
        yield from islice(
            list_problems(task, split), None if count is None else max(1, count // len(SPLITS))
        )
