"""A leaderboard in the terminal, as CSV with every figure, as LaTeX, and as one static HTML page in
the style of the report."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from whet.errors import visible
from whet.evals.charts import ticks
from whet.evals.page import render_static
from whet.evals.stats import Estimate
from whet.evals.summary import UNKNOWN
from whet.store.files import write_atomic
from whet.suites.leaderboard import Leaderboard
from whet.suites.result import Result

COLUMNS = ("model", "benchmark", "metric", "figure", "group", "mean", "low", "high", "count")
SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
TONES = ("before", "after", "middle", "part-score", "part-update")
"""Colours of the models, in their order; they repeat beyond the last."""


def to_leaderboard_table(board: Leaderboard) -> Table:
    """Make the table of the terminal: a row a benchmark, a column a model."""
    table = Table(title=f"{board.suite}, {board.form}", title_justify="left", expand=False)
    table.add_column("benchmark")
    table.add_column("metric")
    table.add_column("problems", justify="right")
    for model in board.models:
        table.add_column(visible(model), justify="right", overflow="fold")
    for benchmark in board.benchmarks:
        rows = [board.result(model, benchmark) for model in board.models]
        cells = [_cell(row) for row in rows]
        table.add_row(benchmark, rows[0].metric, f"{rows[0].score.count:,}", *cells)
    table.add_section()
    means = [_percent(board.means[model]) for model in board.models]
    table.add_row("mean", "", "", *means, style="bold")
    return table


def _cell(result: Result) -> str:
    lines = [_percent(result.score)]
    if result.feasible is not None and result.hallucinated is not None:
        lines.append(f"feasible {100 * result.feasible.mean:.0f} %")
        lines.append(f"hallucinated {100 * result.hallucinated.mean:.0f} %")
    if result.unfinished.mean >= 0.005:
        lines.append(f"[bold red]cut off {100 * result.unfinished.mean:.0f} %[/]")
    return "\n".join(lines)


def _percent(estimate: Estimate) -> str:
    low, high = 100 * estimate.low, 100 * estimate.high
    return rf"{100 * estimate.mean:.1f} % \[{low:.1f}, {high:.1f}]"


def to_csv(board: Leaderboard) -> str:
    """Write every figure with its interval, one a line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for result in board.results:
        for figure, group, estimate in _figures(result):
            ends = (estimate.mean, estimate.low, estimate.high)
            place = (_plain(result.model), result.benchmark, result.metric)
            row = (*place, figure, _plain(group), *(f"{end:.6g}" for end in ends), estimate.count)
            writer.writerow(row)
    return text.getvalue()


def _figures(result: Result) -> Iterator[tuple[str, str, Estimate]]:
    yield "score", "", result.score
    named: Mapping[str, Mapping[str, Estimate]] = {
        "task": result.by_task,
        "source": result.by_source,
        "level": result.by_level,
    }
    for figure, estimates in named.items():
        for group, estimate in estimates.items():
            yield f"score by {figure}", group, estimate
    yield "unfinished", "", result.unfinished
    yield "no answer", "", result.no_answer
    yield "tokens", "", result.tokens
    for figure, part in (("feasible", result.feasible), ("hallucinated", result.hallucinated)):
        if part is not None:
            yield figure, "", part


def _plain(text: str) -> str:
    """Keep a spreadsheet from reading a name as a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def to_latex(board: Leaderboard) -> str:
    """Write a table for a paper, with the packages booktabs; intervals are 95 % ones."""
    head = " & ".join(["Benchmark", "Metric", *(_tex(model) for model in board.models)])
    lines = [
        rf"\begin{{tabular}}{{ll{'r' * len(board.models)}}}",
        r"\toprule",
        rf"{head} \\",
        r"\midrule",
    ]
    for benchmark in board.benchmarks:
        results = [board.result(model, benchmark) for model in board.models]
        cells = [_tex(benchmark), _tex(results[0].metric), *(_tex_cell(r.score) for r in results)]
        lines.append(rf"{' & '.join(cells)} \\")
    means = [_tex_cell(board.means[model]) for model in board.models]
    lines += [r"\midrule", rf"{' & '.join(['Mean', '', *means])} \\", r"\bottomrule"]
    return "\n".join([*lines, r"\end{tabular}", ""])


def _tex_cell(estimate: Estimate) -> str:
    low, high = 100 * estimate.low, 100 * estimate.high
    return f"{100 * estimate.mean:.1f} {{\\scriptsize[{low:.1f}, {high:.1f}]}}"


def _tex(text: str) -> str:
    signs = (SPECIAL.get(sign, f"\\{sign}" if sign in "&%$#_{}" else sign) for sign in text)
    return visible("".join(signs))


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


def write_leaderboard_page(board: Leaderboard, path: Path) -> None:
    """Write the page atomically."""
    write_atomic(path, render_leaderboard_page(board).encode("utf-8", "replace"))


def render_leaderboard_page(board: Leaderboard) -> str:
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
