"""`whet compare`: several runs and seeds side by side, in the terminal, on a page and as JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter
from rich.markup import escape
from rich.table import Table

from whet.errors import ConfigError, visible
from whet.evals.comparison import Rates, compare_arms, estimate_over_seeds
from whet.evals.summary import EvalSummary, pass_rates
from whet.pipeline.curves import is_varied, read_curves
from whet.pipeline.pipeline_config import STAGE_KINDS
from whet.recipes.evaluate import GREEDY, SAMPLED
from whet.reports.charts import average_seeds
from whet.reports.formatting import (
    detectable,
    p_equation,
    p_value,
    percent_interval,
    points,
)
from whet.reports.report_data import Curve, Unit
from whet.reports.report_pages import (
    ArmFacts,
    ArmScore,
    ComparisonPage,
    ScoreRow,
    SettingRow,
    write_comparison,
)
from whet.results.arms import Arm, RunFolder, group_arms
from whet.rollout.collect import group_rollouts
from whet.store.run import RunStore
from whet.toml import read
from whet.track.progress import printer, say
from whet.types import Json

_EVAL = "eval"
LAST_VALIDATION = "last validation"
SEEDS_ONLY = "interval over seeds alone"
NOT_PAIRED = "not paired: no problem in common"
NO_SHARED_PROBLEM = "not compared: no problem in common"
FACTS = {"commit": "code", "torch": "version of torch"}
"""Facts of a run that should be the same in all, with their names in a note."""


def compare_runs(locations: Sequence[Path], out: Path | None, *, as_json: bool) -> None:
    """Compare runs; print a table or JSON, and write the page."""
    page = build_comparison(locations)
    if as_json:
        printer.print_json(json.dumps(comparison_to_json(page)))
    else:
        print_comparison(page)
    if out is not None:
        write_comparison(page, out)
        say(f"page in {out}")


def build_comparison(locations: Sequence[Path]) -> ComparisonPage:
    """Group runs into arms and compare each with the first."""
    if len(locations) < 2:
        raise ConfigError("a comparison needs at least two runs: folders of runs or pipelines")
    arms, changes, repeats = group_arms(locations)
    scores = list(_compare_evals(arms)) or list(_compare_validations(arms))
    headline, detail = _describe_result(arms, scores)
    return ComparisonPage(
        title=" against ".join(arm.name for arm in arms) if len(arms) < 4 else f"{len(arms)} arms",
        headline=headline,
        detail=detail,
        arms=[
            ArmFacts(
                name=arm.name,
                seeds=[run.seed for run in arm.runs],
                folders=[str(run.folder) for run in arm.runs],
            )
            for arm in arms
        ],
        settings=[SettingRow(key=c.key, meaning=c.meaning, values=c.values) for c in changes],
        scores=scores,
        curves=_average_curves(arms),
        notes=[*repeats, *_list_not_compared(arms, scores), *_list_cautions(arms)],
    )


def print_comparison(page: ComparisonPage) -> None:
    """Print what differs and a table of the scores."""
    for arm in page.arms:
        folders = " ".join(arm.folders)
        _print(f"[bold]{{}}[/]  seeds {', '.join(arm.seeds)}  {{}}", arm.name, folders)
    for line in [*describe_settings(page.settings), *page.notes]:
        _print("{}", line)
    table = Table(box=None, pad_edge=False)
    for column in ("figure", "arm", "score", "against the first", "p"):
        table.add_column(column)
    for row in page.scores:
        for arm, score in zip(page.arms, row.scores, strict=True):
            if score is None:
                continue
            test = score.comparison
            cells = (
                row.name,
                arm.name,
                percent_interval(score.estimate, 1),
                "" if test is None else points(test.difference),
                "" if test is None else p_value(test.p_value),
            )
            table.add_row(*(escape(visible(cell)) for cell in cells))
    printer.print(table)
    _print("[bold]{}[/] {}", page.headline, page.detail)


def describe_settings(settings: Sequence[SettingRow]) -> list[str]:
    """Describe how the arms differ: a line per setting, its values in the order of the arms."""
    if not settings:
        return ["The settings are the same but for the seeds."]
    lines = []
    for row in settings:
        meaning = f" ({row.meaning[:1].lower()}{row.meaning[1:]})" if row.meaning else ""
        lines.append(f"{row.key}{meaning}: {' against '.join(row.values)}")
    return lines


def comparison_to_json(page: ComparisonPage) -> dict[str, Json]:
    """Write the comparison as JSON, without its curves."""
    row: dict[str, Json] = TypeAdapter(ComparisonPage).dump_python(page, mode="json")
    return {key: item for key, item in row.items() if key != "curves"}


def _print(template: str, *texts: str) -> None:
    printer.print(template.format(*(escape(visible(text)) for text in texts)))


def _compare_evals(arms: Sequence[Arm]) -> Iterator[ScoreRow]:
    """Compare evaluation stages, by stage name and figure."""
    for name in _eval_names(arms):
        figures = [[_read_rates(_find_eval(run, name)) for run in arm.runs] for arm in arms]
        labels = dict.fromkeys(label for arm in figures for rates in arm for label in rates)
        for label in labels:
            by_arm = [[rates[label] for rates in arm if label in rates] for arm in figures]
            note = "" if _shared_problems(by_arm) else NOT_PAIRED
            yield ScoreRow(stage=name, figure=label, scores=_score_arms(by_arm), note=note)


def _eval_names(arms: Sequence[Arm]) -> list[str]:
    """Name the evaluations to compare; if each run has just one, its name does not matter."""
    names = [[n for n, s in run.stages.items() if _is_eval(s)] for arm in arms for run in arm.runs]
    if all(len(stage_names) == 1 for stage_names in names):
        return names[0][:1]
    return list(dict.fromkeys(name for stage_names in names for name in stage_names))


def _find_eval(run: RunFolder, name: str) -> RunStore | None:
    evals = {key: store for key, store in run.stages.items() if _is_eval(store)}
    only = next(iter(evals.values())) if len(evals) == 1 else None
    return evals.get(name, only)


def _is_eval(store: RunStore) -> bool:
    return read(store.config_file).get("kind") == _EVAL


def _read_rates(store: RunStore | None) -> dict[str, dict[str, float]]:
    """Read the rates of each problem by figure: pass@1, pass@k of all responses, greedy."""
    if store is None or not store.is_finished:
        return {}
    groups = group_rollouts(store.rollouts("eval", SAMPLED))
    samples = max((len(group) for group in groups), default=1)
    figures = {f"pass@{k}": pass_rates(groups, k) for k in sorted({1, samples})}
    greedy = pass_rates(group_rollouts(store.rollouts("eval", GREEDY)))
    return {name: rates for name, rates in {**figures, "greedy": greedy}.items() if rates}


def _score_arms(
    by_arm: Sequence[Sequence[Rates]], *, only_paired: bool = False
) -> list[ArmScore | None]:
    """Score each arm and compare it with the first, if `only_paired` only over shared problems."""
    scores: list[ArmScore | None] = []
    for index, seeds in enumerate(by_arm):
        if not seeds or not set(seeds[0]).intersection(*seeds[1:]):
            scores.append(None)
            continue
        first = by_arm[0]
        comparison = None
        is_paired = _shared_problems([first, seeds])
        if index and first and (is_paired or not only_paired):
            comparison = compare_arms(first, seeds, paired=is_paired)
        means = [sum(rates.values()) / len(rates) for rates in seeds]
        scores.append(
            ArmScore(estimate=estimate_over_seeds(seeds), by_seed=means, comparison=comparison)
        )
    return scores


def _shared_problems(by_arm: Sequence[Sequence[Rates]]) -> bool:
    """Whether all seeds of all arms share a problem, so that results can be paired."""
    seeds = [set(rates) for arm in by_arm for rates in arm]
    return bool(seeds and set.intersection(*seeds))


def _compare_validations(arms: Sequence[Arm]) -> Iterator[ScoreRow]:
    """Compare the last validations of training stages, paired by problem.

    Those of earlier versions have no rates of problems. Where one is among them, the interval is
    over seeds if there are several, else over problems, and single seeds are not compared.
    """
    for stage in dict.fromkeys(name for arm in arms for run in arm.runs for name in run.stages):
        validations = [list(_last_validations(arm, stage)) for arm in arms]
        if not any(validations):
            continue
        by_arm = [[summary.rates for summary in summaries] for summaries in validations]
        if all(_shared_problems([seeds]) for seeds in by_arm if seeds):
            scores = _score_arms(by_arm, only_paired=True)
            note = "" if _shared_problems(by_arm) else NO_SHARED_PROBLEM
        else:
            estimates = [[summary.pass_at[1] for summary in arm] for arm in validations]
            is_seeded = all(len(of_seeds) > 1 for of_seeds in estimates)
            note = SEEDS_ONLY if is_seeded else "one seed each"
            if is_seeded:
                scores = _score_arms([[{"mean": e.mean} for e in arm] for arm in estimates])
            else:
                scores = [
                    ArmScore(estimate=o[0], by_seed=[o[0].mean]) if o else None for o in estimates
                ]
        yield ScoreRow(stage=stage, figure=LAST_VALIDATION, scores=scores, note=note)


def _last_validations(arm: Arm, stage: str) -> Iterator[EvalSummary]:
    """Read the last validation of each seed that has graded responses in it."""
    for run in arm.runs:
        store = run.stages.get(stage)
        evals = {} if store is None or _is_eval(store) else store.evals()
        summary = EvalSummary.from_json(evals[max(evals)]) if evals else None
        if summary is not None and 1 in summary.pass_at:
            yield summary


def _average_curves(arms: Sequence[Arm]) -> dict[str, dict[str, list[Curve]]]:
    """Average each metric over the seeds of each arm; colours stay if an arm lacks the metric.

    A metric that never changes beyond rounding in any run is not drawn.
    """
    by_arm = [[_curves_by_name(run) for run in arm.runs] for arm in arms]
    keys = dict.fromkeys(key for runs in by_arm for curves_of in runs for key in curves_of)
    stages: dict[str, dict[str, list[Curve]]] = {}
    for stage, metric in keys:
        curves = []
        for arm, runs in zip(arms, by_arm, strict=True):
            of_seeds = [
                curves_of[stage, metric] for curves_of in runs if (stage, metric) in curves_of
            ]
            mean = average_seeds(of_seeds, arm.name)
            curves.append(mean or Curve(name=metric, stage=arm.name, steps=(), values=()))
        if is_varied(curves):
            stages.setdefault(stage, {})[metric] = curves
    return stages


def _curves_by_name(run: RunFolder) -> dict[tuple[str, str], Curve]:
    return {
        (name, curve.name): curve
        for name, store in run.stages.items()
        for curve in read_curves(name, _list_curves(store), store)
    }


def _list_curves(store: RunStore) -> Mapping[str, tuple[str, Unit]]:
    """List the metrics that are drawn only for this kind of stage."""
    kind = STAGE_KINDS.get(str(read(store.config_file).get("kind")))
    return {} if kind is None else kind.curves


def _describe_result(arms: Sequence[Arm], scores: Sequence[ScoreRow]) -> tuple[str, str]:
    """Say how the best other arm compares with the first on the last pass@1, with the numbers."""
    rows = [row for row in scores if row.figure in ("pass@1", LAST_VALIDATION)]
    if not rows:
        return f"{len(arms)} arms, and no evaluation to compare them by.", ""
    row = rows[-1]
    named = [(arm.name, s) for arm, s in zip(arms, row.scores, strict=True) if s is not None]
    (first, base), *others = named
    score = percent_interval(base.estimate, 1)
    if not others:
        return f"{first} scores {score} on {row.name}.", ""
    name, best = max(others, key=lambda item: item[1].estimate.mean)
    detail = f"{percent_interval(best.estimate, 1)} against {score}"
    test = best.comparison
    if test is None and row.note == NO_SHARED_PROBLEM:
        return f"{name} and {first} are not compared on {row.name}.", f"{detail}."
    if test is None:
        return f"{name} and {first} on {row.name}: {detail}.", ""
    detail += f": {points(test.difference)}"
    num_shared = test.difference.count
    if row.note != NOT_PAIRED and num_shared < max(best.estimate.count, base.estimate.count):
        detail += f" on the {num_shared:,} problems that both have"
    detail += f", {p_equation(test.p_value)}"
    if test.is_clear:
        verb = "scores higher" if test.difference.mean > 0 else "scores lower"
        return f"{name} {verb} than {first} on {row.name}.", f"{detail}."
    chances = "So few problems would not show any difference in four of five cases."
    if test.finds_any:
        least = detectable(test.minimum_detectable)
        chances = f"A true difference of {least} would be found in four of five cases."
    return (
        f"No detectable difference between {name} and {first} on {row.name}.",
        f"{detail}. {chances}",
    )


def _list_not_compared(arms: Sequence[Arm], scores: Sequence[ScoreRow]) -> Iterator[str]:
    """Name the arms whose validations have other problems than the first arm's."""
    for row in scores:
        for arm, score in zip(arms[1:], row.scores[1:], strict=True):
            if row.note == NO_SHARED_PROBLEM and score is not None and score.comparison is None:
                yield (
                    f"{arm.name} and {arms[0].name} are not compared on {row.name}: their "
                    "validations have no problem in common."
                )


def _list_cautions(arms: Sequence[Arm]) -> Iterator[str]:
    """List what weakens the comparison: single seeds, different code or data, unfinished runs."""
    single = [arm.name for arm in arms if len(arm.runs) == 1]
    if single:
        yield (
            f"{' and '.join(single)} {'has' if len(single) == 1 else 'have'} one seed: the "
            "intervals do not know how much another seed would differ."
        )
    if len(arms) > 2:
        yield f"{len(arms) - 1} arms are compared with the first, and p-values are for one each."
    runs = [run for arm in arms for run in arm.runs]
    for run in runs:
        for name, store in run.stages.items():
            if not store.is_finished:
                yield f"{run.folder}: its stage {name} is not finished."
    for key, word in FACTS.items():
        values = {str(s.provenance().get(key)) for run in runs for s in run.stages.values()}
        if len(values) > 1:
            shown = ", ".join(sorted(value[:12] for value in values))
            yield f"The runs differ in the {word}: {shown}."
    yield from _list_data_changes(runs)


def _list_data_changes(runs: Sequence[RunFolder]) -> Iterator[str]:
    """Name files of the same stage and name whose content differs between runs."""
    hashes: dict[str, set[str]] = {}
    for run in runs:
        for name, store in run.stages.items():
            for file, digest in store.inputs().items():
                if file.startswith("problems "):  # responses to imitate differ by seed
                    hashes.setdefault(f"{name}: {file}", set()).add(digest)
    for file, versions in hashes.items():
        if len(versions) > 1:
            yield f"The runs read {len(versions)} versions of one input ({file})."
