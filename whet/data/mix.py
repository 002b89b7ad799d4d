"""Mix problem files: deal a volume over inputs, tasks and levels, in the order of a curriculum.

Rows of a stratum are taken by the hash of their ids, so a larger volume contains a smaller one, and
added rows change little.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor
from pathlib import Path
from typing import Literal

from whet.data.import_rows import stream_problems
from whet.data.levels import LevelColumn
from whet.data.problem_lines import ProblemLines
from whet.data.problem_stats import NO_LEVEL
from whet.errors import ConfigError, DataError
from whet.level_bands import level_label
from whet.rng import derive
from whet.store.files import atomic_path, to_line
from whet.types import Advance, Problem

By = Literal["task", "level", "source", "split"]
STRATUM_FIELDS: tuple[By, ...] = ("task", "level", "source", "split")
Order = Literal["shuffle", "level"]
ORDERS: tuple[Order, ...] = ("shuffle", "level")
Stratum = tuple[str, ...]
"""The input, or "" if inputs are pooled, and the value of each field by which rows are divided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixPlan:
    """What to mix."""

    n: int | None
    """Rows of the mix; None takes all that quotas allow."""
    weights: tuple[float, ...] | None = None
    """The fraction of each input; None pools them."""
    by: tuple[By, ...] = ()
    """Fields over whose values rows are divided evenly, the first one first."""
    quotas: Mapping[str, int] = field(default_factory=dict)
    """The most rows for each value of the first of these fields, per input unless inputs are
    pooled."""
    order: Order = "shuffle"
    seed: int = 0
    levels: LevelColumn | None = None
    """The column from which levels are computed; None keeps the levels of the problems."""


@dataclass(kw_only=True)
class Strata:
    """The rows available in each stratum: their hashes, numbers and levels."""

    rows: dict[Stratum, list[tuple[int, int, float | None]]] = field(default_factory=dict)
    num_repeats: int = 0
    """Rows with the id of an earlier row, which are skipped."""


def resolve_levels(lines: ProblemLines, plan: MixPlan) -> MixPlan:
    """Find the edges if levels are equal parts."""
    if plan.levels is None:
        return plan
    rows = (problem.to_json() for file in lines.files for problem in stream_problems(file))
    return replace(plan, levels=plan.levels.resolve(rows))


def gather_strata(lines: ProblemLines, plan: MixPlan, advance: Advance) -> Strata:
    """Read all rows once, and sort them into strata."""
    strata = Strata()
    seen: set[int] = set()
    row = 0
    for chunk in lines.scan(advance):
        for line in chunk:
            problem = set_level(lines.parse(row, line), plan.levels, lines.locate(row))
            key = derive(plan.seed, "mix", problem.id)
            if key in seen:
                strata.num_repeats += 1
            else:
                seen.add(key)
                stratum = _find_stratum(problem, plan, lines.file_of(row))
                strata.rows.setdefault(stratum, []).append((key, row, problem.level))
            row += 1
    if not strata.rows:
        raise DataError(f"{', '.join(map(str, lines.files))}: no problems found")
    for rows in strata.rows.values():
        rows.sort()
    return strata


def set_level(problem: Problem, levels: LevelColumn | None, place: str) -> Problem:
    """Give a problem the level in its column, if there is one."""
    if levels is None:
        return problem
    try:
        return replace(problem, level=levels.read(problem.to_json()))
    except DataError as error:
        raise DataError(f"{place}: {error}") from error


def _find_stratum(problem: Problem, plan: MixPlan, file: int) -> Stratum:
    values = {
        "task": problem.task,
        "level": level_label(problem.level, unknown=NO_LEVEL),
        "source": problem.source,
        "split": problem.split,
    }
    return ("" if plan.weights is None else str(file), *(values[name] for name in plan.by))


def deal(sizes: Mapping[Stratum, int], plan: MixPlan) -> dict[Stratum, int]:
    """Decide how many rows each stratum gives.

    The volume is dealt over inputs by weight, then evenly over the values of each field in turn. A
    stratum with too few rows gives all of them, and its siblings share the rest.
    """
    values = {stratum[1] for stratum in sizes} if plan.by else set[str]()
    if unknown := sorted(plan.quotas.keys() - values):
        raise ConfigError(
            f"--quota {unknown[0]}: no row has this {plan.by[0]}; there are "
            f"{', '.join(sorted(values))}"
        )
    limit = sum(_sum_allowed(sizes, plan).values())
    if plan.n is not None and plan.n > limit:
        quotas = " that the quotas allow" if plan.quotas else ""
        raise ConfigError(
            f"-n {plan.n:,} is more than the {limit:,} different rows{quotas}: lower it"
        )
    return _deal_level(limit if plan.n is None else plan.n, sizes, plan, 0)


def _deal_level(
    n: int, sizes: Mapping[Stratum, int], plan: MixPlan, depth: int
) -> dict[Stratum, int]:
    """Deal rows over one field of the strata, and recursively over the next."""
    if depth == 1 + len(plan.by):
        (stratum,) = sizes
        return {stratum: n}
    groups: dict[str, dict[Stratum, int]] = {}
    for stratum in sorted(sizes):
        groups.setdefault(stratum[depth], {})[stratum] = sizes[stratum]
    limits = [sum(_sum_allowed(group, plan).values()) for group in groups.values()]
    weights = [1.0] * len(groups)
    if depth == 0 and plan.weights is not None:
        weights = [plan.weights[int(name)] for name in groups]
    shares = share_out(n, limits, weights)
    dealt: dict[Stratum, int] = {}
    for share, group in zip(shares, groups.values(), strict=True):
        dealt |= _deal_level(share, group, plan, depth + 1)
    return dealt


def _sum_allowed(sizes: Mapping[Stratum, int], plan: MixPlan) -> dict[tuple[str, str], int]:
    """Sum the rows of each input and value of the first field, up to its quota."""
    sums: dict[tuple[str, str], int] = {}
    for stratum, size in sizes.items():
        name = stratum[1] if plan.by else ""
        sums[stratum[0], name] = sums.get((stratum[0], name), 0) + size
    return {key: min(size, plan.quotas.get(key[1], size)) for key, size in sums.items()}


def share_out(n: int, limits: Sequence[int], weights: Sequence[float]) -> list[int]:
    """Divide a number by weight, within each limit; the first shares take what rounding left.

    >>> share_out(10, [2, 100, 100], [1.0, 1.0, 1.0])
    [2, 4, 4]
    """
    shares = [0] * len(limits)
    active = [index for index, weight in enumerate(weights) if weight > 0]
    while active:
        left = n - sum(shares)
        total_weight = sum(weights[index] for index in active)
        full = [i for i in active if limits[i] <= left * weights[i] / total_weight]
        if not full:
            for index in active:
                shares[index] = floor(left * weights[index] / total_weight)
            break
        for index in full:
            shares[index] = limits[index]
        active = [index for index in active if index not in full]
    for index in active[: n - sum(shares)]:
        shares[index] += 1
    return shares


def write_mix(
    lines: ProblemLines,
    out: Path,
    strata: Strata,
    dealt: Mapping[Stratum, int],
    plan: MixPlan,
    advance: Advance,
) -> None:
    """Write the chosen rows, shuffled or from the easiest to the hardest."""
    taken = [item for stratum, count in dealt.items() for item in strata.rows[stratum][:count]]
    taken.sort()
    if plan.order == "level":
        taken.sort(key=lambda item: (item[2] is None, item[2] or 0.0))
    rows = [row for _, row, _ in taken]
    with atomic_path(out) as new, new.open("wb") as file:
        for row, line in zip(rows, lines.read(rows), strict=True):
            if plan.levels is None:
                file.write(line.rstrip(b"\r\n") + b"\n")
            else:
                problem = set_level(lines.parse(row, line), plan.levels, lines.locate(row))
                file.write(to_line(problem.to_json()))
            advance(1)
        lines.check_unchanged()
