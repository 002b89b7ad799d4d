"""Prepare a source for training or evaluation, and list the sources that there are."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from whet.data.import_rows import rollout_file
from whet.data.problems import problem_file
from whet.data.sources import list_sources, load_source
from whet.data.sources.prepare import (
    LEFT_OUT,
    PrepareCounts,
    check_replaceable,
    prepare_source,
)
from whet.data.sources.raw_files import find_raw_files
from whet.errors import ConfigError
from whet.track.progress import printer, progress_bar, say
from whet.types import SPLITS

DATA = Path("data")
RAW = DATA / "raw"
MAX_REASONS = 10
"""How many reasons for leaving rows out are printed; the folder has all."""


def prepare(
    name: str,
    *,
    out: Path | None = None,
    files: Sequence[str] = (),
    limit: int | None = None,
    force: bool = False,
) -> PrepareCounts:
    """Make a folder of problems, `data/NAME` by default, of a source's rows."""
    if limit is not None and limit < 1:
        raise ConfigError(f"--limit {limit} should be at least 1")
    source, definition = load_source(name)
    own = definition.stem
    folder = out if out is not None else DATA / own
    if folder.exists():
        check_replaceable(folder)
        if not force:
            raise ConfigError(f"{folder} is there already: add --force to replace it")
    raw_files = find_raw_files(source, RAW / own, files)
    total = sum(raw.path.stat().st_size for raw in raw_files)
    with progress_bar("prepare", total) as advance:
        counts = prepare_source(
            *(source, raw_files, folder),
            name=own,
            definition=definition,
            limit=limit,
            advance=advance,
        )
    _print_counts(counts, folder)
    return counts


def _print_counts(counts: PrepareCounts, folder: Path) -> None:
    say(f"{counts.rows:>9,} rows read")
    for split in SPLITS:
        file = problem_file(folder, split)
        if counts.problems[split]:
            say(f"{counts.problems[split]:>9,} problems in {file}")
        if counts.answers[split]:
            say(f"{counts.answers[split]:>9,} answers in {rollout_file(file)}")
    if not counts.left_out:
        return
    listed = f"; {counts.num_listed:,} are listed in {folder / LEFT_OUT}" * bool(counts.num_listed)
    say(f"{counts.left_out.total():>9,} rows left out{listed}:")
    for reason, count in counts.left_out.most_common(MAX_REASONS):
        first = counts.firsts.get(reason)
        say(f"{count:>17,} {reason}{f' (first: {first})' if first else ''}")
    if len(counts.left_out) > MAX_REASONS:
        say(f"{'':>17} and {len(counts.left_out) - MAX_REASONS:,} more reasons")


def print_sources() -> None:
    """Print the sources, one a line: splits, what is known of the rows, where they are."""
    print_line = partial(printer.print, markup=False, soft_wrap=True)
    print_line(f"{'source':<20} {'splits':<14} {'known':<8} {'from':<46} rows")
    for name in list_sources():
        source, _ = load_source(name)
        hubs = dict.fromkeys(file.hub or source.hub or "files" for file in source.files)
        splits = ", ".join(source.splits)
        print_line(f"{name:<20} {splits:<14} {source.seen:<8} {', '.join(hubs):<46} {source.about}")
