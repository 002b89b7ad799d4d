"""Clean problem files: check the options, show progress, and print what was left out and why."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.commands.show_problem_stats import find_tokenizer, make_page
from whet.data.clean.cleaning import CleaningResult, CleanPlan, Reason, decide, write_outcome
from whet.data.clean.contamination import MIN_WORDS
from whet.data.clean.near import MIN_THRESHOLD
from whet.data.problem_stats import ProblemStats
from whet.errors import ConfigError, DataError
from whet.reports.data_page import write_page
from whet.store.files import check_overwrite
from whet.track.progress import progress_bar, say

MAX_WORKERS = 16
MAX_FILES = 10
"""Evaluation files named on the screen; the file of rows left out names all of them."""
SENTENCES = {
    Reason.TOO_LONG: "whose prompt is too long",
    Reason.OVERLAP: "that overlap with an evaluation",
    Reason.EXACT: "that repeat an earlier row",
    Reason.NEAR: "that nearly repeat an earlier row",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanOptions:
    """The options of the command line."""

    near: float = 0.8
    is_any_answer: bool = False
    against: tuple[Path, ...] = ()
    ngram: int = 13
    model: str | None = None
    max_tokens: int | None = None
    workers: int | None = None


def clean_problems(
    files: Sequence[Path],
    out: Path,
    options: CleanOptions,
    *,
    report: Path | None = None,
    force: bool = False,
) -> CleaningResult:
    """Write the rows of problem files that are worth training on, and a list of the others."""
    plan = _make_plan(options)
    left_out = left_out_file(out)
    check_out(files, out, force=force)
    for path in (left_out, *([report] if report else [])):
        check_overwrite(path, force=force)
    outcome = decide(files, plan, progress_bar)
    if not outcome.num_kept:
        raise DataError(f"no row would be left: {_join_counts(outcome)}; nothing is written")
    stats = ProblemStats(unit="words" if plan.tokenizer is None else "tokens")
    on_kept = None if report is None else stats.add
    write_outcome(outcome, out, left_out, progress_bar, on_kept=on_kept)
    _print_outcome(outcome, out, left_out)
    if report is not None:
        write_page(make_page(out.name, stats, outcome), report)
    return outcome


def left_out_file(out: Path) -> Path:
    """Return the path for the list of rows left out."""
    return out.with_suffix(".left_out.jsonl")


def check_out(files: Sequence[Path], out: Path, *, force: bool) -> None:
    """Refuse an output of another file type, one that is also an input, and an existing file."""
    if out.suffix != ".jsonl":
        raise ConfigError(f"--out {out} should end in .jsonl: problems are written as JSON lines")
    if out.resolve() in {file.resolve() for file in files}:
        raise ConfigError(f"--out {out} is one of the files to read: choose another name")
    check_overwrite(out, force=force)


def _make_plan(options: CleanOptions) -> CleanPlan:
    if not MIN_THRESHOLD <= options.near <= 1:
        raise ConfigError(
            f"--near {options.near:g} should be from {MIN_THRESHOLD:g} to 1, and 1 removes only "
            "exact duplicates"
        )
    if options.ngram < MIN_WORDS:
        raise ConfigError(
            f"--ngram {options.ngram} should be at least {MIN_WORDS}: shorter runs of words occur "
            "in every text"
        )
    if (options.model is None) != (options.max_tokens is None):
        raise ConfigError(
            "--max-tokens counts the tokens of a model: give --model and --max-tokens, or neither"
        )
    if options.max_tokens is not None and options.max_tokens < 1:
        raise ConfigError(f"--max-tokens {options.max_tokens} should be at least 1")
    if options.workers is not None and not 1 <= options.workers <= MAX_WORKERS:
        raise ConfigError(f"--workers {options.workers} should be from 1 to {MAX_WORKERS}")
    processors = min(len(os.sched_getaffinity(0)), MAX_WORKERS)
    return CleanPlan(
        threshold=options.near,
        is_any_answer=options.is_any_answer,
        against=options.against,
        ngram=options.ngram,
        tokenizer=None if options.model is None else find_tokenizer(options.model),
        max_tokens=options.max_tokens,
        workers=options.workers or processors,
    )


def _print_outcome(outcome: CleaningResult, out: Path, left_out: Path) -> None:
    say(f"{outcome.num_kept:>9,} of {len(outcome.lines):,} problems in {out}")
    if outcome.counts.total():
        say(f"{outcome.counts.total():>9,} left out, listed in {left_out}:")
    for reason in Reason:
        if count := outcome.counts[reason]:
            say(f"{count:>17,} {SENTENCES[reason]}")
    if outcome.conflicts:
        say(f"{outcome.conflicts:>17,} of the repeated rows have a different answer from the first")
    for file, count in outcome.overlap_files.most_common(MAX_FILES):
        say(f"{count:>17,} rows overlap with {file}")


def _join_counts(outcome: CleaningResult) -> str:
    return ", ".join(
        f"{count:,} {SENTENCES[reason]}" for reason, count in outcome.counts.items() if count
    )
