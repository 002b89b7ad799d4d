"""Statistics of problem files, in the terminal and as a page; and maps of difficulty: fill one from
rollouts, show it, and filter problems by it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from whet.data.clean.cleaning import CleaningResult, Reason
from whet.data.clean.word_hashes import hash_words, normalise
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
from whet.data.problem_counts import ProblemStats
from whet.data.problem_lines import ProblemLines, to_question
from whet.errors import ConfigError, DataError, visible
from whet.reports.data_page import BarChart, DataPage, write_page
from whet.store.files import check_overwrite, write_rows
from whet.store.run import RunStore, model_folder
from whet.text.chat import ChatFormat
from whet.text.tokenizer import Tokenizer
from whet.track.progress import printer, progress_bar, say
from whet.types import Json, Problem

_FRACTIONS = (0.0, 0.5, 0.9, 0.99, 1.0)
MAX_NAMES = 12
"""Tasks or sources that the terminal lists."""
BAR = 40
"""Characters of the longest bar."""
BARS = "▁▂▃▄▅▆▇█"
NUM_HARDEST = 5
"""Problems listed one by one."""
_UNKNOWN = "unknown"
"""The tokens of responses that came as text, as a server sends them."""
_NONE = PassCount(num_answers=0, num_correct=0, num_tokens=0, last_seen="")


def count_problems(
    files: Sequence[Path],
    *,
    model: str | None = None,
    report: Path | None = None,
    force: bool = False,
) -> ProblemStats:
    """Count problems by task, source, level, split and length, and print the counts."""
    if report is not None:
        check_overwrite(report, force=force)
    lines = ProblemLines(files)
    chat = None
    if model is not None:
        chat = ChatFormat(Tokenizer.load(find_tokenizer(model)))
    stats = ProblemStats(unit="words" if chat is None else "tokens")
    row = 0
    with progress_bar("read", lines.num_bytes) as advance:
        for chunk in lines.scan(advance):
            problems = [lines.parse(row + index, line) for index, line in enumerate(chunk)]
            for problem, length in zip(problems, _measure(problems, chat), strict=True):
                stats.add(problem, length)
            row += len(chunk)
    if not stats.num_problems:
        raise DataError(f"{', '.join(map(str, files))}: no problems found")
    print_stats(stats)
    if report is not None:
        write_page(make_page(", ".join(file.name for file in files), stats), report)
    return stats


def find_tokenizer(model: str) -> Path:
    """Find the folder of a model whose tokens are counted."""
    from whet.models.load import resolve  # noqa: PLC0415 - loads torch, for this alone

    return resolve(str(model_folder(model)))


def print_stats(stats: ProblemStats) -> None:
    """Print statistics as plain lines."""
    _print(f"{stats.num_problems:,} problems")
    for name, value in list_facts(stats):
        _print(f"{name:<9} {value}")
    _print(f"\n{stats.unit}")
    histogram = stats.histogram()
    most = max(count for _, count in histogram)
    width = max(len(label) for label, _ in histogram)
    for label, count in histogram:
        bar = "█" * round(BAR * count / most)
        _print(f"{label:>{width}}  {bar:<{BAR}} {count:,}")


def list_facts(stats: ProblemStats) -> list[tuple[str, str]]:
    """List what the problems are, a name and a sentence each."""
    shortest, median, ninth, last, longest = (f"{n:,}" for n in stats.quantiles(_FRACTIONS))
    facts = [
        ("tasks", _join(stats.tasks.most_common())),
        ("sources", _join(stats.sources.most_common())),
        ("splits", _join(stats.splits.most_common())),
        ("levels", _join(stats.level_counts())),
        (
            stats.unit,
            f"{shortest} to {longest}, half up to {median}, 90 % up to {ninth}, 99 % up to {last}",
        ),
    ]
    if stats.num_without_answer:
        facts.append(("no answer", f"{stats.num_without_answer:,} have no answer to grade against"))
    return facts


def make_page(title: str, stats: ProblemStats, outcome: CleaningResult | None = None) -> DataPage:
    """Make the page of problems, and of those that cleaning left out."""
    headline = f"{stats.num_problems:,} problems"
    charts = [
        BarChart(title=f"Length in {stats.unit}", bars=stats.histogram()),
        BarChart(title="Tasks", bars=stats.tasks.most_common()),
        BarChart(title="Sources", bars=stats.sources.most_common()),
        BarChart(
            title="Levels",
            bars=stats.level_counts(),
            note="Bands of the difficulty, from 1 (0 to 0.2) to 5 (0.8 to 1).",
        ),
        BarChart(title="Splits", bars=stats.splits.most_common()),
    ]
    if outcome is not None:
        headline += f" of {len(outcome.lines):,} are kept"
        reasons = [(reason.replace("_", " "), outcome.counts[reason]) for reason in Reason]
        charts.insert(0, BarChart(title="Left out", bars=[bar for bar in reasons if bar[1]]))
        overlap = outcome.overlap_files.most_common()
        charts.insert(1, BarChart(title="Overlap with evaluation files", bars=overlap))
    return DataPage(title=title, headline=f"{headline}.", facts=list_facts(stats), charts=charts)


def _measure(problems: Sequence[Problem], chat: ChatFormat | None) -> Iterator[int]:
    if chat is not None:
        yield from (len(chat.encode_prompt(problem.prompt)) for problem in problems)
    else:
        words = hash_words([normalise(to_question(problem)) for problem in problems])
        yield from words.counts.tolist()


def _join(counts: Sequence[tuple[str, int]]) -> str:
    parts = [f"{name} {count:,}" for name, count in counts[:MAX_NAMES]]
    if len(counts) > MAX_NAMES:
        parts.append(f"{len(counts) - MAX_NAMES:,} more")
    return " · ".join(parts)


def _print(line: str) -> None:
    printer.print(visible(line), markup=False)


def add_to_map(map: Path, sources: Sequence[Path], model: str | None) -> None:
    """Count the rollouts of run folders and files into a map."""
    files = [file for source in sources for file in list_rollout_files(source)]
    update_map(map, files, model=model)
    show_map(map)


def list_rollout_files(source: Path) -> list[Path]:
    """List the rollout files of a run folder, or the one file given."""
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
    steps = [-(-count * len(BARS) // most) if most else 0 for count in counts]
    return "".join(BARS[step - 1] if step else " " for step in steps)


def filter_file(
    map: Path, source: Path, out: Path, *, keep: Sequence[str], level: str | None, force: bool
) -> None:
    """Write the problems that the rules keep, with their levels where these are asked for."""
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
