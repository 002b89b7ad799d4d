"""Prepare, split and mix problem files: check the options, show progress, and print the result."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from whet.commands.clean_files import check_out
from whet.data.import_rows import rollout_file
from whet.data.levels import LevelColumn
from whet.data.mix import (
    ORDERS,
    STRATUM_FIELDS,
    MixPlan,
    Strata,
    Stratum,
    deal,
    gather_strata,
    resolve_levels,
    write_mix,
)
from whet.data.problem_lines import ProblemLines
from whet.data.problems import normalised_question, problem_file, split_by_hash
from whet.data.sources import list_sources, load_source
from whet.data.sources.prepare import LEFT_OUT, PrepareCounts, check_replaceable, prepare_source
from whet.data.sources.raw_files import find_raw_files
from whet.errors import ConfigError, DataError
from whet.store.files import atomic_path, to_line
from whet.track.progress import printer, progress_bar, say
from whet.types import SPLITS, Split

MAX_STRATA = 40
"""Strata that are listed on the screen."""
_DATA = Path("data")
RAW = _DATA / "raw"
MAX_REASONS = 10
"""How many reasons for leaving rows out are printed; the folder has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixOptions:
    """The options of the command line."""

    n: int | None = None
    by: str | None = None
    quotas: tuple[str, ...] = ()
    order: str = "shuffle"
    seed: int = 0
    level: str | None = None
    bins: str | None = None
    is_reversed: bool = False


def split_problems(
    files: Sequence[Path], out: Path, *, fractions: str, seed: int = 0, force: bool = False
) -> Counter[Split]:
    """Write each problem into the file of its split, chosen by the hash of its question."""
    by_split = parse_fractions(fractions)
    lines = ProblemLines(files)
    targets = {split: problem_file(out, split) for split in by_split}
    for target in targets.values():
        check_out(files, target, force=force)
    counts: Counter[Split] = Counter()
    with ExitStack() as stack:
        opened = {
            split: stack.enter_context(stack.enter_context(atomic_path(target)).open("wb"))
            for split, target in targets.items()
        }
        row = 0
        advance = stack.enter_context(progress_bar("split", lines.num_bytes))
        for chunk in lines.scan(advance):
            for line in chunk:
                problem = lines.parse(row, line)
                split = split_by_hash(normalised_question(problem), by_split, seed)
                opened[split].write(to_line(replace(problem, split=split).to_json()))
                counts[split] += 1
                row += 1
        if not row:
            raise DataError(f"{', '.join(map(str, files))}: no problems found")
        lines.check_unchanged()
    for split, target in targets.items():
        say(f"{counts[split]:>9,} problems in {target}")
    return counts


def parse_fractions(text: str) -> dict[Split, float]:
    """Parse `rl=0.9,dev=0.1`.

    >>> parse_fractions("rl=0.9,dev=0.1")
    {'rl': 0.9, 'dev': 0.1}
    """
    fractions: dict[Split, float] = {}
    for part in text.split(","):
        name, _, number = part.strip().partition("=")
        split = next((known for known in SPLITS if known == name), None)
        try:
            fraction = float(number)
        except ValueError:
            fraction = 0.0
        if split is None or split in fractions or not 0 < fraction <= 1:
            raise ConfigError(
                f"--fractions {text} should give {', '.join(SPLITS)} a fraction each, such as "
                "rl=0.9,dev=0.05,test=0.05"
            )
        fractions[split] = fraction
    split_by_hash("", fractions, seed=0)
    return fractions


def mix_problems(
    inputs: Sequence[str], out: Path, options: MixOptions, *, force: bool = False
) -> dict[Stratum, int]:
    """Write a mix of problems, dealt over inputs and strata, and print what each contributed."""
    files, weights = _parse_inputs(inputs)
    check_out(files, out, force=force)
    lines = ProblemLines(files)
    plan = resolve_levels(lines, _make_plan(options, weights))
    with progress_bar("read", lines.num_bytes) as advance:
        strata = gather_strata(lines, plan, advance)
    sizes = {stratum: len(rows) for stratum, rows in strata.rows.items()}
    dealt = deal(sizes, plan)
    total = sum(dealt.values())
    with progress_bar("write", total) as advance:
        write_mix(lines, out, strata, dealt, plan, advance)
    say(f"{total:>9,} of {sum(sizes.values()):,} problems in {out}")
    _print_strata(strata, dealt, files)
    return dealt


def _parse_inputs(inputs: Sequence[str]) -> tuple[list[Path], tuple[float, ...] | None]:
    """Parse FILE or FILE=WEIGHT; without weights, all files are pooled."""
    files: list[Path] = []
    weights: list[float | None] = []
    for text in inputs:
        name, sign, number = text.rpartition("=")
        if not sign or Path(text).is_file():
            files.append(Path(text))
            weights.append(None)
            continue
        try:
            weight = float(number)
        except ValueError:
            weight = -1.0
        if not 0 < weight < float("inf"):
            raise ConfigError(f"{text} should be FILE=WEIGHT with a weight above 0, such as a=2")
        files.append(Path(name))
        weights.append(weight)
    if all(weight is None for weight in weights):
        return files, None
    return files, tuple(1.0 if weight is None else weight for weight in weights)


def _make_plan(options: MixOptions, weights: tuple[float, ...] | None) -> MixPlan:
    if options.n is not None and options.n < 1:
        raise ConfigError(f"-n {options.n} should be at least 1")
    names = [name.strip() for name in options.by.split(",")] if options.by else []
    by = tuple(field for name in names for field in STRATUM_FIELDS if field == name)
    if len(by) < len(names) or len(set(by)) < len(by):
        raise ConfigError(
            f"--by {options.by} should name some of {', '.join(STRATUM_FIELDS)}, each once"
        )
    order = next((known for known in ORDERS if known == options.order), None)
    if order is None:
        raise ConfigError(f"--order {options.order} should be one of {', '.join(ORDERS)}")
    if options.quotas and not by:
        raise ConfigError("--quota limits a value of the first field of --by: give --by too")
    return MixPlan(
        n=options.n,
        weights=weights,
        by=by,
        quotas=_parse_quotas(options.quotas),
        order=order,
        seed=options.seed,
        levels=LevelColumn.parse(options.level, options.bins, is_reversed=options.is_reversed),
    )


def _parse_quotas(texts: Sequence[str]) -> dict[str, int]:
    quotas: dict[str, int] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not name or not number.isdecimal():
            raise ConfigError(f"--quota {text} should be VALUE=ROWS, such as math=20000")
        quotas[name] = int(number)
    return quotas


def _print_strata(strata: Strata, dealt: Mapping[Stratum, int], files: Sequence[Path]) -> None:
    if strata.num_repeats:
        say(f"{strata.num_repeats:>9,} rows have the id of an earlier one and are skipped")
    if len(dealt) > 1:
        for stratum, count in sorted(dealt.items())[:MAX_STRATA]:
            first = [str(files[int(stratum[0])])] if stratum[0] else []
            label = " · ".join([*first, *stratum[1:]])
            say(f"{count:>17,} of {len(strata.rows[stratum]):,} {label}")
    if len(dealt) > MAX_STRATA:
        say(f"{'':>17} and {len(dealt) - MAX_STRATA:,} more strata")


def prepare_problems(
    name: str,
    *,
    out: Path | None = None,
    files: Sequence[str] = (),
    limit: int | None = None,
    force: bool = False,
) -> PrepareCounts:
    """Prepare a source's problems in a folder, by default `data/NAME`."""
    if limit is not None and limit < 1:
        raise ConfigError(f"--limit {limit} should be at least 1")
    source, definition = load_source(name)
    own = definition.stem
    folder = out if out is not None else _DATA / own
    if folder.exists():
        check_replaceable(folder)
        if not force:
            raise ConfigError(f"{folder} already exists: add --force to replace it")
    beside = definition.parent if name != own else None
    raw_files = find_raw_files(source, RAW / own, files, beside=beside)
    for file in source.files:
        if not any(raw.file is file for raw in raw_files):
            say(f"there is no raw file for {' or '.join(file.names)}: skipped")
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
        if counts.responses[split]:
            say(f"{counts.responses[split]:>9,} responses in {rollout_file(file)}")
    if counts.num_added:
        say(f"{counts.num_added:>9,} rows add responses to the problems of earlier rows")
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
    """Print the sources, one per line: splits, counts of rows, and where the rows are."""
    print_line = partial(printer.print, markup=False, soft_wrap=True)
    print_line(f"{'source':<20} {'splits':<14} {'known':<8} {'from':<46} rows")
    for name in list_sources():
        source, _ = load_source(name)
        hubs = dict.fromkeys(file.hub or source.hub or "files" for file in source.files)
        splits = ", ".join(source.splits)
        print_line(f"{name:<20} {splits:<14} {source.seen:<8} {', '.join(hubs):<46} {source.about}")
