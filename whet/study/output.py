"""The results of a study: study.json, study.html, and the last lines on the screen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from whet.reports.charts import (
    Bar,
    BarRow,
    ForestRow,
    average_seeds,
    draw_bars,
    draw_curves,
    draw_forest,
    draw_legend,
    tone,
)
from whet.reports.formatting import duration, percent_interval, points
from whet.reports.page import render_static
from whet.reports.report_data import Curve, Unit
from whet.store.files import write_atomic, write_json
from whet.store.run import RunStore
from whet.study.execution import Executor
from whet.study.results import RoundResult, StudyArm, write_p
from whet.study.runs import RunPlanner, StudyRun
from whet.toml import write
from whet.track.progress import printer
from whet.types import Json

_CURVES: tuple[tuple[str, str, Unit], ...] = (
    ("score/correct", "Solved while sampling", Unit.FRACTION),
    ("validation/pass@1", "Solved on dev problems", Unit.FRACTION),
    ("length/mean", "Response length", Unit.TOKENS),
)
"""Metrics of the last training stage that the page draws for each level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundView:
    """A round as the page shows it: charts as SVG."""

    result: RoundResult
    bars: str
    forest: str
    legend: str
    curves: Sequence[str]


def write_study_results(
    planner: RunPlanner, results: Sequence[RoundResult], executor: Executor, stopped: str
) -> None:
    """Write study.json and study.html; `stopped` is the reason for an early end, if any."""
    folder = planner.folder
    rows = [_describe_run(run, executor) for run in executor.runs.values()]
    chosen = _gather_chosen(results)
    summary: dict[str, Json] = {
        "study": planner.study.file.name,
        "seeds": list(planner.seeds),
        "chosen": dict(chosen),
        "rounds": [result.to_json() for result in results],
        "runs": list(rows),
        "hours": executor.hours,
        "stopped": stopped or None,
    }
    write_json(folder / "study.json", summary)
    num_computed, num_shared = executor.count_stages()
    facts = {
        "seeds": ", ".join(map(str, planner.seeds)),
        "runs": f"{len(executor.done)} done, {len(executor.failed)} failed",
        "stages": f"{num_computed} computed, {num_shared} shared with other runs",
        "time of all stages": duration(3600 * executor.hours),
        "where the data cannot tell": f"the {planner.study.config.if_unclear} level is kept",
    }
    page = render_static(
        "study.html",
        title=planner.study.file.stem,
        headline=_write_headline(planner, results, chosen),
        stopped=stopped,
        rounds=[_view_round(result) for result in results],
        seeds=planner.seeds,
        runs=rows,
        facts=facts,
        levels=_list_levels(planner),
    )
    write_atomic(folder / "study.html", page.encode("utf-8", "replace"))


def print_results(results: Sequence[RoundResult], folder: Path) -> None:
    """Print a table of differences, a sentence for each round, and the location of the page."""
    table = Table("round", "level", "measured", "against the first", "p", "seeds", box=None)
    for result in results:
        contrasts = {contrast.arm.label: contrast for contrast in result.contrasts}
        for arm in result.arms:
            contrast = contrasts.get(arm.label)
            table.add_row(
                f"{result.number} {result.title}" if arm is result.arms[0] else "",
                arm.label,
                "no results" if arm.estimate is None else percent_interval(arm.estimate, 1),
                "" if contrast is None else points(contrast.difference),
                ""
                if contrast is None
                else write_p(contrast.p_value).removeprefix("p ").removeprefix("= "),
                str(len(arm.by_seed)),
            )
    printer.print(table)
    for result in results:
        printer.print(f"{result.number}. {result.sentence}", markup=False)
    printer.print(f"Report   {folder / 'study.html'}", markup=False)


def _gather_chosen(results: Sequence[RoundResult]) -> dict[str, str]:
    return {factor: level for result in results for factor, level in result.winner.items()}


def _write_headline(
    planner: RunPlanner, results: Sequence[RoundResult], chosen: Mapping[str, str]
) -> str:
    """Say how many rounds had a clear result, and what they chose."""
    clear = sum(result.is_clear for result in results)
    levels = ", ".join(f"{factor} = {level}" for factor, level in chosen.items())
    left = len(planner.study.config.rounds) - len(results)
    sentence = f"{clear} of {len(results)} round{'s' * (len(results) > 1)} found a difference"
    return f"{sentence}{f', {left} to come' if left else ''}; chosen: {levels}."


def _describe_run(run: StudyRun, executor: Executor) -> dict[str, Json]:
    state = "done" if run.name in executor.done else "not ended"
    seconds = sum(stage.seconds or 0.0 for stage in run.stages)
    return {
        "name": run.name,
        "levels": dict(run.levels),
        "seed": run.seed,
        "state": "failed" if run.name in executor.failed else state,
        "sentence": executor.failed.get(run.name),
        "seconds": seconds,
    }


def _view_round(result: RoundResult) -> RoundView:
    names = [arm.label for arm in result.arms if arm.estimate is not None]
    bars = [
        Bar(name=arm.label, estimate=arm.estimate, tone=tone(index))
        for index, arm in enumerate(result.arms)
        if arm.estimate is not None
    ]
    forest = [
        ForestRow(label=f"{contrast.arm.label} − {names[0]}", difference=contrast.difference)
        for contrast in result.contrasts
    ]
    curves = _draw_panels(result.arms)
    return RoundView(
        result=result,
        bars=draw_bars([BarRow(label="", bars=bars)]) if bars else "",
        forest=draw_forest(forest) if forest else "",
        legend=draw_legend([arm.label for arm in result.arms]) if curves else "",
        curves=curves,
    )


def _draw_panels(arms: Sequence[StudyArm]) -> list[str]:
    """Draw the curves of the last training stage: the mean over an arm's seeds, and their range."""
    panels = []
    for key, name, unit in _CURVES:
        lines = []
        for arm in arms:
            seeds = [_read_curve(run, key, name, unit) for run in arm.runs if run.is_done]
            mean = average_seeds([curve for curve in seeds if curve is not None], arm.label)
            lines.append(mean or Curve(name=name, stage=arm.label, steps=(), values=(), unit=unit))
        if any(line.values for line in lines) and (panel := draw_curves(name, lines)):
            panels.append(panel)
    return panels


def _read_curve(run: StudyRun, key: str, name: str, unit: Unit) -> Curve | None:
    trained = [
        stage.folder
        for stage, settings in zip(run.stages, run.pipeline.stages.values(), strict=True)
        if settings.training_steps
    ]
    rows = [row for row in RunStore.view(trained[-1]).metrics() if key in row] if trained else []
    if len(rows) < 2:
        return None
    steps, values = zip(*((row["step"], row[key]) for row in rows), strict=True)
    return Curve(name=name, stage=run.name, steps=steps, values=values, unit=unit)


def _list_levels(planner: RunPlanner) -> list[tuple[str, str, str]]:
    """List the settings of every level as TOML."""
    return [
        (factor, level, write({**table}).strip() or "as the base")
        for factor, levels in planner.study.config.factors.items()
        for level, table in levels.items()
    ]
