"""The leaderboard as one static HTML page, in the style of the report, with no script."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.evals.charts import ticks
from whet.evals.page import render_static
from whet.evals.stats import Estimate
from whet.evals.summary import UNKNOWN
from whet.store.files import write_atomic
from whet.suites.leaderboard import Leaderboard
from whet.suites.result import Result

TONES = ("before", "after", "middle", "part-score", "part-update")
"""Colours of the models, in their order; they repeat beyond the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Estimates of the models under one label."""

    label: str
    note: str
    bars: Sequence[tuple[str, Estimate, str]]
    """Model, estimate, and a note behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Bars of one benchmark by task, source and level."""

    benchmark: str
    rows: Sequence[Bars]


def write_page(board: Leaderboard, path: Path) -> None:
    """Write the page atomically."""
    write_atomic(path, render_page(board).encode("utf-8", "replace"))


def render_page(board: Leaderboard) -> str:
    """Render the document; its content security policy allows its style and nothing else."""
    overall = [_overall(board, benchmark) for benchmark in board.benchmarks]
    mean = [(model, board.means[model], "") for model in board.models]
    overall.append(Bars(label="Mean", note="each benchmark counts the same", bars=mean))
    parts = [_parts(board, benchmark) for benchmark in board.benchmarks]
    rows = [*overall, *(row for part in parts for row in part.rows)]
    highest = max(estimate.high for row in rows for _, estimate, _ in row.bars)
    return render_static(
        "leaderboard.html",
        board=board,
        overall=overall,
        parts=[part for part in parts if part.rows],
        scale=ticks(0.0, max(0.1, highest), 6),
        tones={model: TONES[i % len(TONES)] for i, model in enumerate(board.models)},
    )


def _overall(board: Leaderboard, benchmark: str) -> Bars:
    results = [board.result(model, benchmark) for model in board.models]
    note = f"{results[0].metric}, {results[0].score.count:,} problems"
    return Bars(label=benchmark, note=note, bars=[(r.model, r.score, "") for r in results])


def _parts(board: Leaderboard, benchmark: str) -> Parts:
    """List the groups of a benchmark that tell more than its whole."""
    results = [board.result(model, benchmark) for model in board.models]
    rows = [
        *_group_rows("Task", {r.model: r.by_task for r in results}),
        *_group_rows("Source", {r.model: r.by_source for r in results}),
        *_group_rows("Level", {r.model: r.by_level for r in results}),
        *_rule_rows(results),
    ]
    return Parts(benchmark=benchmark, rows=rows)


def _group_rows(kind: str, groups: Mapping[str, Mapping[str, Estimate]]) -> list[Bars]:
    names = sorted({name for estimates in groups.values() for name in estimates} - {UNKNOWN})
    if len(names) < 2:
        return []
    rows = []
    for name in names:
        bars = [(model, found[name], "") for model, found in groups.items() if name in found]
        rows.append(Bars(label=f"{kind} {name}", note=f"{bars[0][1].count:,} problems", bars=bars))
    return rows


def _rule_rows(results: Sequence[Result]) -> list[Bars]:
    rows = []
    for label, note, estimates in (
        ("Feasible", "answers that keep the rules", [r.feasible for r in results]),
        ("Hallucinated", "answers that break them", [r.hallucinated for r in results]),
    ):
        pairs = zip(results, estimates, strict=True)
        bars = [(r.model, estimate, "") for r, estimate in pairs if estimate is not None]
        if bars:
            rows.append(Bars(label=label, note=note, bars=bars))
    return rows
