"""Run a study: its rounds in order, each from the winner of the last, then the table, the page and
a sentence for each round. Or print what it would run, and how long that takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from rich.table import Table

from whet.errors import WhetError
from whet.plan.predict import predict_seconds
from whet.store.follow import one_writer
from whet.study.execution import BudgetSpentError, Executor, Machine, format_seconds
from whet.study.output import print_results, write_study_results
from whet.study.results import RoundResult, judge_round
from whet.study.runs import RunPlanner, StudyRun
from whet.study.study_file import load_study
from whet.track.progress import printer, say

_CARD = "h200"


def run_study(
    file: Path,
    overrides: Sequence[str],
    out: Path | None,
    *,
    is_plan: bool,
    is_smoke: bool,
    jobs: int | None,
    gpus_per_run: int,
) -> None:
    """Run what is not finished yet, or print the plan; results are written after every round."""
    study = load_study(file, overrides)
    folder = out or Path("runs") / (f"{file.stem}-smoke" if is_smoke else file.stem)
    planner = RunPlanner(study=study, folder=folder, is_smoke=is_smoke)
    machine = Machine.find(jobs, gpus_per_run)
    if is_plan:
        print_overview(planner, machine)
        return
    work = count_work(planner)
    executor = Executor(machine, study.config.budget, planned=work.num_runs)
    say(f"{work.describe()}, {machine.describe()}; results go to {folder}")
    with one_writer(folder):
        chosen = study.first_levels
        results: list[RoundResult] = []
        for number, round_cfg in enumerate(study.config.rounds, start=1):
            runs = planner.list_runs(round_cfg, chosen)
            planner.write_stand_ins(runs)
            stopped = ""
            try:
                executor.execute(runs)
            except BudgetSpentError as error:
                stopped = str(error)
            results.append(judge_round(study.config, round_cfg, number, runs, executor.failed))
            write_study_results(planner, results, executor, stopped)
            say(results[-1].sentence)
            if stopped:
                raise BudgetSpentError(stopped)
            chosen = {**chosen, **results[-1].winner}
        print_results(results, folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The runs and stages of a study, if the first level wins every round."""

    runs: Mapping[str, StudyRun]
    rounds: tuple[tuple[str, int, int], ...]
    """Each round's factors, its runs, and how many of them no earlier round has."""

    @property
    def num_runs(self) -> int:
        return len(self.runs)

    @property
    def owners(self) -> dict[str, tuple[StudyRun, str]]:
        """The first run to contain each computed stage, and the stage's name there, by key."""
        owners: dict[str, tuple[StudyRun, str]] = {}
        for run in self.runs.values():
            for stage in run.stages:
                owners.setdefault(stage.key, (run, stage.name))
        return owners

    def describe(self) -> str:
        """Count runs and stages in a sentence.

        Winners of earlier rounds change which runs a later one needs, but rarely how many.
        """
        wanted = sum(len(run.stages) for run in self.runs.values())
        return (
            f"{self.num_runs} runs of {wanted} stages, of which {wanted - len(self.owners)} are "
            "shared and computed once"
        )


def count_work(planner: RunPlanner) -> Work:
    """List what a study runs if the first level wins every round."""
    runs: dict[str, StudyRun] = {}
    rounds = []
    for round_cfg in planner.study.config.rounds:
        round_runs = planner.list_runs(round_cfg, planner.study.first_levels)
        of_round = {run.name: run for run in round_runs}
        num_new = len(of_round.keys() - runs.keys())
        rounds.append((" × ".join(round_cfg.factors), len(of_round), num_new))
        runs |= of_round
    return Work(runs=runs, rounds=tuple(rounds))


def print_overview(planner: RunPlanner, machine: Machine) -> None:
    """Print the rounds with their runs, and how long unfinished stages will take."""
    work = count_work(planner)
    table = Table("round", "compares", "levels", "runs", "new", box=None)
    config = planner.study.config
    counted_rounds = zip(config.rounds, work.rounds, strict=True)
    for number, (round_cfg, counts) in enumerate(counted_rounds, start=1):
        levels = "; ".join(", ".join(config.factors[factor]) for factor in round_cfg.factors)
        table.add_row(str(number), counts[0], levels, str(counts[1]), str(counts[2]))
    printer.print(table)
    printer.print(f"{work.describe()}, {machine.describe()}", style="bold")
    printer.print("later rounds are counted as if the first level won; another one adds few runs")
    for line in _describe_time(work, machine):
        printer.print(line, markup=False)


def _describe_time(work: Work, machine: Machine) -> list[str]:
    """Predict how long stages take: like finished ones of the same name, else by the plan."""
    measured: dict[str, list[float]] = {}
    waiting: list[tuple[StudyRun, str]] = []
    for key, (run, name) in work.owners.items():
        seconds = next(stage for stage in run.stages if stage.key == key).seconds
        if seconds is None:
            waiting.append((run, name))
        else:
            measured.setdefault(name, []).append(seconds)
    known = [fmean(measured[name]) for _, name in waiting if name in measured]
    unknown = [(run, name) for run, name in waiting if name not in measured]
    predicted = [_predict(run, name) for run, name in unknown]
    lines = [f"{len(work.owners) - len(waiting)} stages are done, {len(waiting)} are left"]
    if known:
        seconds = sum(known) / machine.jobs
        lines.append(f"{len(known)} of them take about {format_seconds(seconds)}, as others did")
    if hours := sum(seconds for seconds in predicted if seconds is not None):
        count = sum(seconds is not None for seconds in predicted)
        card = f"on one {_CARD.upper()}, as `whet plan` counts"
        lines.append(f"{count} of them take about {format_seconds(hours)} {card}")
    if None in predicted:
        names = ", ".join(
            dict.fromkeys(
                name
                for (_, name), seconds in zip(unknown, predicted, strict=True)
                if seconds is None
            )
        )
        lines.append(f"how long {names} takes is known after the first run")
    return lines


def _predict(run: StudyRun, name: str) -> float | None:
    """Predict the seconds of a stage; the plan does not cover models as small as those made
    here."""
    stages = run.pipeline.stages
    models = [stage.models.get("model") for stage in stages.values()]
    is_new = any(model is not None and model.new is not None for model in models)
    if is_new or "model" not in stages[name].models:
        return None
    try:
        return predict_seconds(stages, name, _CARD)
    except WhetError:
        return None
