"""A leaderboard in the terminal, as CSV with every figure, as LaTeX, and as a static HTML page in
the style of the report."""

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.table import Table

from whet.errors import visible
from whet.evals.stats import Estimate
from whet.evals.summary import UNKNOWN
from whet.reports.charts import Bar, BarRow, share_axis
from whet.reports.page import render_static
from whet.store.files import write_atomic
from whet.suites.leaderboard import Leaderboard
from whet.suites.result import BenchmarkResult

COLUMNS = ("model", "benchmark", "metric", "figure", "group", "mean", "low", "high", "count")
_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
TONES = ("before", "after", "middle", "part-score", "part-update")
"""Colours of the models, in their order; they repeat beyond the last."""


def to_leaderboard_table(board: Leaderboard) -> Table:
    """Make the table for the terminal: a row per benchmark, a column per model."""
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
    means = [board.means[model].in_percent() for model in board.models]
    table.add_row("mean", "", "", *means, style="bold")
    return table


def _cell(result: BenchmarkResult) -> str:
    lines = [result.score.in_percent()]
    if result.feasible is not None and result.hallucinated is not None:
        lines.append(f"feasible {100 * result.feasible.mean:.0f} %")
        lines.append(f"hallucinated {100 * result.hallucinated.mean:.0f} %")
    if result.unfinished.mean >= 0.005:
        lines.append(f"[bold red]cut off {100 * result.unfinished.mean:.0f} %[/]")
    return "\n".join(lines)


def to_csv(board: Leaderboard) -> str:
    """Write every figure with its interval, one per line."""
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


def _figures(result: BenchmarkResult) -> Iterator[tuple[str, str, Estimate]]:
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
    """Escape a name that a spreadsheet would read as a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def to_latex(board: Leaderboard) -> str:
    """Write a table for a paper, with 95 % intervals; it uses the package booktabs."""
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
    signs = (_SPECIAL.get(sign, f"\\{sign}" if sign in "&%$#_{}" else sign) for sign in text)
    return visible("".join(signs))


def write_leaderboard_page(board: Leaderboard, path: Path) -> None:
    """Write the page atomically."""
    write_atomic(path, render_leaderboard_page(board).encode("utf-8", "replace"))


def render_leaderboard_page(board: Leaderboard) -> str:
    """Render the document; its content security policy allows its style and nothing else."""
    tones = {model: TONES[i % len(TONES)] for i, model in enumerate(board.models)}
    overall = []
    parts = {}
    for benchmark in board.benchmarks:
        results = {model: board.result(model, benchmark) for model in board.models}
        first = results[board.models[0]]
        note = f"{first.metric}, {first.score.count:,} problems"
        scores = {model: result.score for model, result in results.items()}
        overall.append(_bar_row(benchmark, note, scores, tones))
        if rows := list(_list_parts(results, tones)):
            parts[benchmark] = rows
    overall.append(_bar_row("Mean", "each benchmark counts the same", board.means, tones))
    return render_static(
        "leaderboard.html",
        board=board,
        overall=overall,
        parts=parts,
        axis=share_axis([*overall, *(row for rows in parts.values() for row in rows)]),
        tones=tones,
    )


def _bar_row(
    label: str, note: str, estimates: Mapping[str, Estimate], tones: Mapping[str, str]
) -> BarRow:
    bars = [
        Bar(name=model, estimate=estimate, tone=tones[model])
        for model, estimate in estimates.items()
    ]
    return BarRow(label=label, note=note, bars=bars)


def _list_parts(
    results: Mapping[str, BenchmarkResult], tones: Mapping[str, str]
) -> Iterator[BarRow]:
    """List the groups of a benchmark, where there are several, and how often rules were kept."""
    kinds: Mapping[str, Mapping[str, Mapping[str, Estimate]]] = {
        "Task": {model: result.by_task for model, result in results.items()},
        "Source": {model: result.by_source for model, result in results.items()},
        "Level": {model: result.by_level for model, result in results.items()},
    }
    for kind, groups in kinds.items():
        names = sorted({name for estimates in groups.values() for name in estimates} - {UNKNOWN})
        for name in names if len(names) > 1 else ():
            own = {model: found[name] for model, found in groups.items() if name in found}
            note = f"{next(iter(own.values())).count:,} problems"
            yield _bar_row(f"{kind} {name}", note, own, tones)
    for label, note, rates in (
        ("Feasible", "answers that keep the rules", {m: r.feasible for m, r in results.items()}),
        (
            "Hallucinated",
            "answers that break them",
            {m: r.hallucinated for m, r in results.items()},
        ),
    ):
        if known := {model: rate for model, rate in rates.items() if rate is not None}:
            yield _bar_row(label, note, known, tones)
