"""Results of a pipeline or a stage: summary.json, report.html, and the last lines printed."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import get_args

from rich.markup import escape

from whet.config import LoadedSettings, show_settings
from whet.data.problems import load_validation
from whet.evals.comparison import compare_paired
from whet.evals.stats import Estimate
from whet.evals.summary import MUCH_CUT_OFF, EvalSummary, pass_rates
from whet.pipeline.about import describe_run
from whet.pipeline.curves import is_varied, read_curves
from whet.recipes.evaluate import GREEDY, SAMPLED
from whet.reports.formatting import (
    choose_digits,
    describe_change,
    percent,
    percent_interval,
    points,
)
from whet.reports.report_data import (
    NUM_SAMPLES,
    NamedEval,
    ReportData,
    ReportSample,
    ResponseLine,
    StageTime,
    pick_samples,
)
from whet.reports.report_pages import TIME_PHASES, write_report
from whet.rollout.collect import group_rollouts
from whet.stages.stage import StageConfig, TrainingConfig
from whet.stages.training import EXACTNESS_EVENT
from whet.store.files import read_json, write_json
from whet.store.run import RunStore
from whet.tasks.base import explain_user_errors, is_solvable, keep_solvable
from whet.tasks.task_config import build_task
from whet.track.metrics import OUTSIDE_EVENT, TIME_METRICS, OutsidePhase
from whet.types import Group, Json, Problem, Rollout, read_number

ACRONYMS = ("rl", "sft", "dpo")
"""Names of stages that sentences write in capitals."""


def write_pipeline_results(
    seed: int,
    stages: Mapping[str, StageConfig],
    folders: Mapping[str, Path],
    folder: Path,
    *,
    settings: str = "",
) -> None:
    """Gather the results of all stages into summary.json and report.html."""
    runs = {name: RunStore.view(path) for name, path in folders.items()}
    evals = _list_evals(stages)
    seconds = {name: measure_seconds(run) for name, run in runs.items()}
    rows = [summarise_evals(title, folders[name]) for name, title in _eval_names(evals).items()]
    summary: dict[str, Json] = {"seed": seed, "stages": list(rows), "seconds": dict(seconds)}
    pipeline = RunStore(folder, lock=None)
    write_json(pipeline.summary_file, summary)
    write_report(_report(stages, runs, seconds, folder, settings), pipeline.report_file)


def write_stage_report(loaded: LoadedSettings[StageConfig], run: RunStore) -> None:
    """Write the report of a single stage."""
    stages = {loaded.config.kind: loaded.config}
    runs = {loaded.config.kind: run}
    seconds = {loaded.config.kind: measure_seconds(run)}
    data = _report(stages, runs, seconds, run.folder, show_settings(loaded))
    write_report(data, run.report_file)


def describe_results(
    stages: Mapping[str, StageConfig], folders: Mapping[str, Path], folder: Path
) -> str:
    """Print the result and its files, and how to view, ask and export the trained model."""
    trained = [stage for stage in stages.values() if isinstance(stage, TrainingConfig)]
    evals = _list_evals(stages)
    lines = ["", f"[bold]{'What was learned' if trained or evals else 'Done'}[/]"]
    runs = {name: RunStore.view(path) for name, path in folders.items()}
    if not evals:
        lines.append(f"  {escape(_describe_training(stages, runs))}")
    for name, title in _eval_names(evals).items():
        sampled, greedy = (summary.pass_at[1] for summary in _summaries(folders[name]))
        when = "after " if evals[name].inputs.get("model.path", "").startswith("@") else ""
        lines.append(
            f"  {when + title:<12} {percent_interval(sampled, 1)} of "
            f"{sampled.count} unseen problems solved, {100 * greedy.mean:.1f} % greedy"
        )
    minutes = sum(measure_seconds(run) for run in runs.values()) / 60
    path = escape(shlex.quote(str(folder)))
    lines += [f"  in {minutes:.1f} minutes", "", f"See it   whet view {path}"]
    lines.append(f"Report   {escape(str(folder))}/report.html")
    if trained:
        question = escape(_choose_question(trained[-1], folders))
        lines += [f'Ask it   whet try {path} "{question}"', f"Take it  whet export {path} OUT"]
    return "\n".join(lines)


def _choose_question(stage: TrainingConfig, folders: Mapping[str, Path]) -> str:
    """Choose a validation question that needs no escaping in a shell."""
    folder = stage.problems
    if folder is not None and folder.startswith("@"):
        folder = str(folders[folder[1:]])
    held_out, _ = load_validation(
        build_task(stage.task), folder, stage.validation.split, is_needed=stage.validation.every > 0
    )
    problems = keep_solvable(held_out)
    text = problems[0].prompt[-1].content if problems else ""
    return (
        text if re.fullmatch(r"[^\"$`\\!]{1,60}", text) and text.isprintable() else "YOUR QUESTION"
    )


def _summaries(folder: Path) -> tuple[EvalSummary, EvalSummary]:
    """Read the results of an evaluation, sampled and greedy."""
    evals = RunStore.view(folder).evals()
    return EvalSummary.from_json(evals[SAMPLED]), EvalSummary.from_json(evals[GREEDY])


def summarise_evals(name: str, folder: Path) -> dict[str, Json]:
    """Write the figures of an evaluation for the summary of its pipeline."""
    sampled, greedy = _summaries(folder)
    apart = sampled.unsolvable
    return {
        "name": name,
        **{f"pass@{k}": estimate.to_json() for k, estimate in sampled.pass_at.items()},
        "greedy": greedy.pass_at[1].to_json(),
        "unsolvable": None if apart is None else apart.to_json(),
        "problems": sampled.num_problems,
        "samples": sampled.num_rollouts // sampled.num_problems,
    }


def _list_evals(stages: Mapping[str, StageConfig]) -> dict[str, StageConfig]:
    return {name: stage for name, stage in stages.items() if stage.measures_model}


def _report(
    stages: Mapping[str, StageConfig],
    runs: Mapping[str, RunStore],
    seconds: Mapping[str, float],
    folder: Path,
    settings: str,
) -> ReportData:
    measured = _list_evals(stages)
    evals = []
    responses = {}
    for name, title in _short_names(measured).items():
        sampled, greedy = _summaries(runs[name].folder)
        evals.append(NamedEval(name=title, summary=sampled, is_greedy=False))
        evals.append(NamedEval(name=title, summary=greedy, is_greedy=True))
        responses[name] = group_rollouts(runs[name].rollouts("eval", SAMPLED))
    by_name = dict(zip(responses, evals[::2], strict=True))
    rates = {name: pass_rates(groups) for name, groups in responses.items()}
    benchmarks = _benchmarks(rates)
    gains = [
        compare_paired(rates[names[0]], rates[names[-1]]).difference if len(names) > 1 else None
        for names in benchmarks
    ]
    count = max(1, NUM_SAMPLES // max(1, len(benchmarks)))
    return ReportData(
        title=folder.name,
        headline=" ".join(
            _headline([by_name[name] for name in names], gain, stages)
            for names, gain in zip(benchmarks, gains, strict=True)
        )
        or _describe_training(stages, runs),
        difference=gains[0] if len(gains) == 1 else None,
        warnings=(*_list_losses(runs), *list_warnings(benchmarks, by_name, responses)),
        about=describe_run(stages, {name: run.folder for name, run in runs.items()}),
        evals=tuple(evals),
        curves=tuple(
            curve
            for name, run in runs.items()
            for curve in read_curves(name, stages[name].curves, run)
            if is_varied([curve]) or curve.name in _own_titles(stages[name])
        ),
        samples=tuple(
            sample
            for names in benchmarks
            for sample in _samples(
                measured[names[-1]],
                responses[names[0]] if len(names) > 1 else [],
                responses[names[-1]],
                count,
            )
        ),
        titles=("before", "after") if len(benchmarks) > 1 else None,
        stages=tuple(_stage_time(name, value, runs[name]) for name, value in seconds.items()),
        settings=settings,
        facts=_facts(runs),
    )


def _benchmarks(rates: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    """Group evaluations that share problems, because only those can be compared."""
    benchmarks: list[list[str]] = []
    for name, own_rates in rates.items():
        for names in benchmarks:
            if own_rates.keys() & rates[names[0]].keys():
                names.append(name)
                break
        else:
            benchmarks.append([name])
    return benchmarks


def _headline(
    evals: list[NamedEval], gain: Estimate | None, stages: Mapping[str, StageConfig]
) -> str:
    first = evals[0].summary.pass_at[1]
    last = evals[-1].summary.pass_at[1]
    cause = _spell(evals[-1].name)
    if len(evals) > 1:
        return describe_change(cause, "unseen problems", first, last, gain)
    share = percent_interval(last, choose_digits(last))
    if evals[-1].name in stages:
        return f"After {cause}, {share} of unseen problems are solved."
    return f"{cause} solves {share} of unseen problems."


def _spell(stage: str) -> str:
    """Write a stage's name for use in a sentence: `rl` as RL."""
    return stage.upper() if stage in ACRONYMS else stage


def _describe_training(stages: Mapping[str, StageConfig], runs: Mapping[str, RunStore]) -> str:
    """Say how the last training stage ended, by its own validations."""
    trained = [name for name, stage in stages.items() if stage.training_steps]
    if not trained:
        return f"{' and '.join(stages)} finished."
    name = trained[-1]
    steps = len({row["step"] for row in runs[name].metrics() if row["step"] > 0})
    pass_at_1 = [EvalSummary.from_json(row).pass_at.get(1) for row in runs[name].evals().values()]
    ended = f"{_spell(name)} took {steps:,} {'step' if steps == 1 else 'steps'}"
    if not pass_at_1 or pass_at_1[-1] is None:
        return f"{ended}. Nothing was measured: add a stage of kind eval."
    ends = [end for end in (pass_at_1[0], pass_at_1[-1]) if end is not None]
    digits = choose_digits(*ends)
    last = f"{percent_interval(pass_at_1[-1], digits)} of the validation problems"
    if len(pass_at_1) == 1 or pass_at_1[0] is None:
        return f"{ended} and ends at {last} solved."
    return f"{ended} and went from {percent_interval(pass_at_1[0], digits)} to {last} solved."


def _list_losses(runs: Mapping[str, RunStore]) -> list[str]:
    """Describe the stages whose model ends worse than it began."""
    worse = _events(runs, "worse", "{name}", "{said}")
    return [f"{name}: {said}" for name, said in worse.items()]


def list_warnings(
    benchmarks: list[list[str]],
    by_name: Mapping[str, NamedEval],
    responses: Mapping[str, list[Group]],
) -> Iterator[str]:
    """Warn if pass@k falls while pass@1 rises, or if many responses are cut off."""
    for first, last in ((names[0], names[-1]) for names in benchmarks):
        before, after = (by_name[name].summary.pass_at for name in (first, last))
        if after[1].mean > before[1].mean:
            k = max(before.keys() & after.keys())
            if after[k].mean < before[k].mean:
                gain = compare_paired(
                    pass_rates(responses[first], k), pass_rates(responses[last], k)
                )
                yield _describe_fall(by_name[last].name, k, gain.difference)
        cut = by_name[last].summary.unfinished.mean
        if cut >= MUCH_CUT_OFF:
            yield (
                f"{percent(cut)} of the responses of {by_name[last].name} were cut off at the "
                "length limit, and count as they stand: raise sampling.max_tokens."
            )


def _describe_fall(name: str, k: int, fall: Estimate) -> str:
    is_clear = fall.high < 0
    return (
        f"{name} solves more problems with one response, but fewer with {k}: pass@{k} changed by "
        f"{points(fall)}{'' if is_clear else ', which may be chance'}. Its responses "
        f"{'have' if is_clear else 'may have'} become more alike."
    )


def _samples(
    stage: StageConfig, before: list[Group], after: list[Group], count: int
) -> tuple[ReportSample, ...]:
    task = build_task(stage.task)

    def comment(rollout: Rollout) -> list[ResponseLine]:
        with explain_user_errors(task):
            return [
                ResponseLine(text=note.line, is_right=note.is_right, note=note.note)
                for note in task.comment(rollout.problem, rollout.text)
            ]

    def reference(problem: Problem) -> str:
        subtask = next((other for other in task.subtasks if other.name == problem.task), task)
        if not subtask.has_worked_solutions or not is_solvable(problem):
            return problem.answer or ""
        with explain_user_errors(subtask):
            return subtask.solve(problem, 0) or problem.answer or ""

    return pick_samples(before, after, comment, reference=reference, count=count)


def _stage_time(name: str, seconds: float, run: RunStore) -> StageTime:
    """Sum the seconds of each phase of a stage, in the order of the page."""
    rows = run.metrics()
    totals: dict[str, float] = {
        phase: sum(row.get(key, 0.0) for row in rows) for phase, key in TIME_METRICS.items()
    }
    attempts = [row for row in run.events() if row["event"] == OUTSIDE_EVENT]
    for phase in get_args(OutsidePhase):
        totals[phase] = sum(read_number(row[phase]) for row in attempts)
    phases = {phase: totals[phase] for phase in TIME_PHASES if totals.get(phase, 0.0) > 0}
    return StageTime(name=name, seconds=seconds, phases=phases)


def _own_titles(stage: StageConfig) -> set[str]:
    """Name the curves that a kind of stage adds: they are drawn even if they are flat."""
    return {title for title, _ in stage.curves.values()}


def _facts(runs: Mapping[str, RunStore]) -> dict[str, str]:
    """List where the numbers come from, whether engine and learner agreed bit for bit, where a
    guard went back to its best weights, and what was said of a stage that cannot learn."""
    facts = next(iter(runs.values())).provenance()
    shown = {key: str(value) for key, value in facts.items() if value is not None}
    if "command" in shown:
        program, *flags = shlex.split(shown["command"])
        is_whet = Path(program).name in ("whet", "__main__.py")
        shown["command"] = shlex.join(["whet" if is_whet else program, *flags])
    if (changed := shown.pop("changed", None)) is not None:
        shown["uncommitted changes"] = "yes" if changed == "True" else "none"
    exactness = _events(runs, EXACTNESS_EVENT, "{name}, log-probabilities", "{model}: {said}")
    template = "after step {step} to the weights of step {best}, at train.lr {lr:.3g}"
    restores = _events(runs, "restore", "{name} went back", template)
    return {**shown, **exactness, **restores, **_events(runs, "note", "{name}", "{said}")}


def _events(runs: Mapping[str, RunStore], event: str, title: str, template: str) -> dict[str, str]:
    """Describe the events of one kind for each run that has any, without repeats."""
    facts = {}
    for name, run in runs.items():
        lines = [template.format_map(row) for row in run.events() if row["event"] == event]
        if lines:
            facts[title.format(name=name)] = "; ".join(dict.fromkeys(lines))
    return facts


def _eval_names(stages: Mapping[str, StageConfig]) -> dict[str, str]:
    """Name evaluations after their models, and several of one model also after their stages."""
    models = {
        name: stage.inputs.get("model.path", name).removeprefix("@")
        for name, stage in stages.items()
    }
    counts = Counter(models.values())
    return {name: f"{m} on {name}" if counts[m] > 1 else m for name, m in models.items()}


def _short_names(stages: Mapping[str, StageConfig]) -> dict[str, str]:
    """Shorten names to the last part of the model's path, if this keeps them distinct."""
    titles = _eval_names(stages)
    short = {name: Path(title).name for name, title in titles.items()}
    return short if len(set(short.values())) == len(titles) else titles


def measure_seconds(run: RunStore) -> float:
    """Return how long a run took: a stage's own count, else from its last start to its end.

    Steps before a resume count by their own clocks.
    """
    facts = read_json(run.stage_file) if run.stage_file.is_file() else None
    seconds = facts.get("seconds") if isinstance(facts, dict) else None
    if isinstance(seconds, float):
        return seconds
    events = run.events()
    starts = [row["time"] for row in events if row["event"] in ("start", "resume", "extend")]
    ends = [row["time"] for row in events if row["event"] == "finish"]
    stepped = sum(row.get("time/step", 0.0) for row in run.metrics())
    if not starts or not ends:
        return stepped
    last = datetime.fromisoformat(str(ends[-1])) - datetime.fromisoformat(str(starts[-1]))
    return max(stepped, last.total_seconds())
