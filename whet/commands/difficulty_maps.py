"""Difficulty maps: fill one from rollouts, show it, and filter problems by it."""

from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path

from rich.console import Console
from rich.table import Table

from whet.data.difficulty import (
    PassCount,
    ProblemRecord,
    RateRule,
    filter_problems,
    histogram,
    models_of,
    read_map,
    sum_by_problem,
    update_map,
)
from whet.data.import_rows import stream_problems
from whet.errors import ConfigError, DataError, visible
from whet.store.files import check_overwrite, write_rows
from whet.store.run import RunStore
from whet.track.progress import say
from whet.types import Json

BARS = "▁▂▃▄▅▆▇█"
NUM_HARDEST = 5
"""Problems listed one by one."""
_UNKNOWN = "unknown"
"""The tokens of responses that came as text, as a server sends them."""
_NONE = PassCount(num_answers=0, num_correct=0, num_tokens=0, last_seen="")


def add_to_map(map: Path, sources: Sequence[Path], model: str | None) -> None:
    """Count the rollouts of run folders and files into a map."""
    files = [file for source in sources for file in list_rollout_files(source)]
    update_map(map, files, model=model)
    show_map(map)


def list_rollout_files(source: Path) -> list[Path]:
    """List the rollout files of a run folder; a single file is itself."""
    if source.is_file():
        return [source]
    if not source.is_dir():
        raise DataError(f"{source} is neither a run folder nor a rollout file")
    run = RunStore(source, lock=None)
    files = sorted(run.rollout_file(name, step) for name, step in run.list_rollouts())
    if not files:
        raise DataError(f"{source} has no rollouts; give the folder of a teach, rl or eval stage")
    return files


def show_map(map: Path) -> None:
    """Print a line for each model: problems, responses, pass rate, tokens, and a histogram."""
    records = read_map(map)
    say(f"{len({record.problem for record in records}):,} problems in {map}")
    table = Table("model", "problems", "answers", "pass rate", "never", "always", "tokens each")
    table.add_column("by pass rate", no_wrap=True)
    for model, counts in models_of(records).items():
        total = sum(counts.values(), start=_NONE)
        never = sum(count.num_correct == 0 for count in counts.values())
        always = sum(count.num_correct == count.num_answers for count in counts.values())
        table.add_row(
            visible(model),
            f"{len(counts):,}",
            f"{total.num_answers:,}",
            f"{total.rate:.1%}",
            f"{never:,}",
            f"{always:,}",
            f"{total.num_tokens / total.num_answers:,.0f}" if total.num_tokens else _UNKNOWN,
            draw_histogram(histogram(counts)),
        )
    console = Console(highlight=False)
    console.print(table)
    console.print(_list_hardest(records))


def _list_hardest(records: Sequence[ProblemRecord]) -> Table:
    table = Table("hardest problems", "pass rate, 95 % interval", "answers", "tokens", "last seen")
    counts = sum_by_problem(records)
    for id in sorted(counts, key=lambda id: (counts[id].interval[1], id))[:NUM_HARDEST]:
        count = counts[id]
        low, high = count.interval
        table.add_row(
            visible(id),
            f"{count.rate:.1%} \\[{low:.1%}, {high:.1%}]",
            f"{count.num_answers:,}",
            f"{count.num_tokens:,}" if count.num_tokens else _UNKNOWN,
            count.last_seen,
        )
    return table


def draw_histogram(counts: Sequence[int]) -> str:
    """Draw a small histogram.

    >>> draw_histogram([0, 1, 4])
    ' ▂█'
    """
    most = max(counts)
    steps = [ceil(count * len(BARS) / most) if most else 0 for count in counts]
    return "".join(BARS[step - 1] if step else " " for step in steps)


def filter_file(
    map: Path, source: Path, out: Path, *, keep: Sequence[str], level: str | None, force: bool
) -> None:
    """Write the problems that pass the rules, with new levels if asked for."""
    if not keep and level is None:
        raise ConfigError(
            "--problems needs --keep RULE, such as --keep 'weak<0.9', or --level MODEL"
        )
    check_overwrite(out, force=force)
    rules = [RateRule.parse(text) for text in keep]
    dropped: dict[str, int] = {}
    kept = filter_problems(
        stream_problems(source), read_map(map), rules, level=level, dropped=dropped
    )
    ids: list[str] = []

    def to_rows() -> Iterator[dict[str, Json]]:
        for problem in kept:
            ids.append(problem.id)
            yield problem.to_json()

    write_rows(out, to_rows())
    say(f"{len(ids):,} problems in {out}")
    for rule, number in dropped.items():
        say(f"{number:>7,} left out: the pass rate is not {rule}")
