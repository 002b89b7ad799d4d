"""Evaluate several models on the benchmarks of a suite, and write one leaderboard.

Every pair of model and benchmark has a run folder. A finished one is not asked again; a killed one
resumes after its last response.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from whet.errors import DataError, NoRoomError
from whet.reports.formatting import duration
from whet.store.files import write_atomic, write_json
from whet.store.run import RunStore
from whet.suites.benchmark_run import (
    BenchmarkRun,
    EvaluatedModel,
    OpenBenchmark,
    find_models,
    read_run_result,
    run_benchmark,
)
from whet.suites.benchmarks import LoadedBenchmark, load_benchmarks
from whet.suites.leaderboard import Leaderboard, make_leaderboard
from whet.suites.leaderboard_files import (
    to_csv,
    to_latex,
    to_leaderboard_table,
    write_leaderboard_page,
)
from whet.suites.result import BenchmarkResult
from whet.suites.suite import SuiteForm, load_suite
from whet.track.progress import printer, say

DATA = Path("data")


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRequest:
    """The options of the command line."""

    suite: str
    form: SuiteForm = "fast"
    models: Sequence[str]
    only: Sequence[str] = ()
    """Benchmarks by name; empty takes all of the form."""
    data: Path = DATA
    """Where prepared sources are."""
    limit: int | None = None
    """Most problems of each benchmark."""
    max_tokens: int | None = None
    """Longest response, in place of the suite's."""
    key_env: str | None = None
    seed: int = 0


@dataclass(slots=True)
class _SuiteProgress:
    """The progress of the whole command."""

    wanted: int
    done: int = 0
    made: int = 0
    left_out: dict[str, list[str]] = field(default_factory=dict)
    """By benchmark, for which models it was left out, and why."""
    started: float = field(default_factory=time.monotonic)

    def count(self, responses: int) -> None:
        self.made += responses

    def leave_out(self, model: EvaluatedModel, loaded: LoadedBenchmark, context: int) -> str:
        """Leave a benchmark out for one model; return the reason."""
        reason = (
            f"{loaded.name} is left out for {model.label}: every prompt fills the model's context "
            f"of {context:,} tokens"
        )
        self.left_out.setdefault(loaded.name, []).append(reason)
        self.wanted -= loaded.num_responses
        return reason

    def describe(self) -> str:
        left = self.wanted - self.done - self.made
        seconds = time.monotonic() - self.started
        words = f"{self.done + self.made:,} of {self.wanted:,} responses"
        if not left or not self.made:
            return words
        return f"{words}, about {duration(left * seconds / self.made)} left"


def run_suite(request: SuiteRequest, out: Path, *, resume: bool) -> Leaderboard:
    """Evaluate every model on every benchmark, and write all forms of the leaderboard."""
    suite, chosen = load_suite(request.suite, request.form, request.only)
    benchmarks = {}
    for name, benchmark in chosen.items():
        changes: dict[str, object] = {}
        if request.limit is not None:
            changes["limit"] = min(request.limit, benchmark.limit or request.limit)
        if request.max_tokens is not None:
            sampling = benchmark.sampling.model_copy(update={"max_tokens": request.max_tokens})
            changes["sampling"] = sampling
        benchmarks[name] = benchmark.model_copy(update=changes)
    loaded_benchmarks = load_benchmarks(benchmarks, request.data)
    models = find_models(request.models, request.key_env)
    progress = _SuiteProgress(
        wanted=len(models) * sum(loaded.num_responses for loaded in loaded_benchmarks)
    )
    say(
        f"{Path(request.suite).stem}, {request.form}: {_count(len(models), 'model')} on "
        f"{_count(len(loaded_benchmarks), 'benchmark')}, {_count(progress.wanted, 'response')}; "
        f"results in {out}"
    )
    for loaded in loaded_benchmarks:
        if loaded.num_repeats:
            is_one = loaded.num_repeats == 1
            words = "problem is a repeat of another" if is_one else "problems are repeats of others"
            say(f"{loaded.name}: {loaded.num_repeats:,} {words}, and left out")
    results = [
        result
        for model in models
        for result in _run_model(
            model, loaded_benchmarks, out, request.seed, progress, resume=resume
        )
    ]
    notes = [
        f"{'; '.join(reasons)}. So it is in no score here; responses of other models are in their "
        "run folders"
        for reasons in progress.left_out.values()
    ]
    results = [result for result in results if result.benchmark not in progress.left_out]
    if not results:
        raise DataError(f"no benchmark is left that all models can answer. {'. '.join(notes)}")
    name = Path(request.suite).stem
    board = make_leaderboard(
        results,
        suite=name,
        about=suite.about,
        form=request.form,
        locations={model.label: model.location for model in models},
    )
    board = replace(board, warnings=[*notes, *board.warnings])
    write_leaderboard(board, out)
    return board


def write_leaderboard(board: Leaderboard, out: Path) -> None:
    """Write the leaderboard beside its runs, and print it."""
    write_json(out / "leaderboard.json", board.to_json())
    write_atomic(out / "leaderboard.csv", to_csv(board))
    write_atomic(out / "leaderboard.tex", to_latex(board))
    write_leaderboard_page(board, out / "leaderboard.html")
    printer.print(to_leaderboard_table(board))
    for difference in board.differences:
        printer.print(
            f"{difference.benchmark}, {difference.after} against {difference.before}: "
            f"{difference.to_words()}",
            markup=False,
        )
    for warning in board.warnings:
        say(f"read with care: {warning}")
    say(f"leaderboard in {out / 'leaderboard.html'}, also as .json, .csv and .tex")


def _run_model(
    model: EvaluatedModel,
    loaded_benchmarks: Sequence[LoadedBenchmark],
    out: Path,
    seed: int,
    progress: _SuiteProgress,
    *,
    resume: bool,
) -> list[BenchmarkResult]:
    """Run the benchmarks of one model, which is loaded for the first unfinished one."""
    results = []
    opened: OpenBenchmark | None = None
    for loaded in loaded_benchmarks:
        cfg = BenchmarkRun(
            seed=seed,
            model=model.location,
            weights=model.weights,
            name=loaded.name,
            benchmark=loaded.benchmark,
            prompt=model.prompt(loaded.benchmark),
        )
        folder = out / model.slug / loaded.name
        with RunStore.open(folder, cfg, {}, resume=resume) as run:
            if run.is_finished:
                say(f"{model.location} on {loaded.name}: finished before")
                progress.done += loaded.num_responses
                results.append(replace(read_run_result(run), model=model.label))
                continue
            run.pin_inputs(loaded.files)
            if opened is None:
                opened = model.open()
            say(f"{model.location} on {loaded.name}; {progress.describe()}")
            try:
                ask, problems = opened(loaded.benchmark, cfg.prompt, run, loaded.problems)
            except NoRoomError as error:
                reason = progress.leave_out(model, loaded, error.context)
                run.log_event("left_out", reason=reason)
                say(reason)
                continue
            fitting = replace(loaded, problems=problems)
            made = progress.made
            result = run_benchmark(cfg, fitting, ask, run, progress.count)
            results.append(replace(result, model=model.label))
            progress.done += loaded.num_responses - (progress.made - made)
    return results


def _count(number: int, noun: str) -> str:
    """Write a number with its noun.

    >>> _count(1, "model"), _count(1200, "response")
    ('1 model', '1,200 responses')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
