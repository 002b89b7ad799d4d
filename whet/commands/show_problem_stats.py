"""Statistics of problem files, in the terminal and as a page."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from whet.data.clean.cleaning import CleaningResult, Reason
from whet.data.clean.word_hashes import hash_words, normalise
from whet.data.problem_lines import ProblemLines, to_question
from whet.data.problem_stats import ProblemStats
from whet.errors import DataError, visible
from whet.reports.data_page import BarChart, DataPage, write_page
from whet.store.files import check_overwrite
from whet.store.run import model_folder
from whet.text.chat import ChatFormat
from whet.text.tokenizer import Tokenizer
from whet.track.progress import printer, progress_bar
from whet.types import Problem

_FRACTIONS = (0.0, 0.5, 0.9, 0.99, 1.0)
MAX_NAMES = 12
"""Tasks or sources that the terminal lists."""
BAR = 40
"""Characters of the longest bar."""


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
    """Find the model folder whose tokenizer counts tokens."""
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
    """List facts about the problems, each a name and a sentence."""
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
    """Build the page of problems, and of the rows that cleaning left out."""
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
