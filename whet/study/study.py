"""Run a study: its rounds in order, each from what won before, then the table, the page and one
sentence for each round."""

from collections.abc import Sequence
from pathlib import Path

from whet.store.follow import one_writer
from whet.study.execution import BudgetSpentError, Executor, Machine
from whet.study.output import print_results, write_results
from whet.study.overview import count_work, print_overview
from whet.study.results import RoundResult, judge_round
from whet.study.runs import RunPlanner
from whet.study.study_file import open_study
from whet.track.progress import say


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
    """Run what is not done yet, or print the plan; results are written after every round."""
    study = open_study(file, overrides)
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
        for number, row in enumerate(study.config.rounds, start=1):
            runs = planner.list_runs(row, chosen)
            planner.write_stand_ins(runs)
            stopped = ""
            try:
                executor.execute(runs)
            except BudgetSpentError as error:
                stopped = str(error)
            results.append(judge_round(study.config, row, number, runs, executor.failed))
            write_results(planner, results, executor, stopped)
            say(results[-1].sentence)
            if stopped:
                raise BudgetSpentError(stopped)
            chosen = {**chosen, **results[-1].winner}
        print_results(results, folder)
