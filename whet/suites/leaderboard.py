"""Results of several models side by side: differences from the first, and cautions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean

from pydantic import TypeAdapter

from whet.evals.comparison import PairedComparison, compare_f1, compare_paired
from whet.evals.stats import Estimate
from whet.evals.summary import MUCH_CUT_OFF
from whet.reports.formatting import detectable, p_equation, percent, points
from whet.suites.result import BenchmarkResult
from whet.types import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDifference:
    """A model compared with the first on a benchmark, over the problems that both answered."""

    benchmark: str
    before: str
    after: str
    comparison: PairedComparison

    def to_words(self) -> str:
        """Say what the data can tell."""
        change = points(self.comparison.difference)
        chance = p_equation(self.comparison.p_value)
        if self.comparison.is_clear:
            return f"{change}, {chance}"
        return f"{change}, {chance}: cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """The results of one call, with models and benchmarks in the order of the command line."""

    suite: str
    about: str
    form: str
    models: Sequence[str]
    benchmarks: Sequence[str]
    results: Sequence[BenchmarkResult]
    means: Mapping[str, Estimate]
    """By model, the mean over the benchmarks, each of which counts the same."""
    differences: Sequence[ModelDifference]
    warnings: Sequence[str]
    locations: Mapping[str, str]
    """By model, the folder, run or address that it was named by."""

    def to_json(self) -> dict[str, Json]:
        row: dict[str, Json] = TypeAdapter(Leaderboard).dump_python(self, mode="json")
        return row

    def result(self, model: str, benchmark: str) -> BenchmarkResult:
        """Look up one result."""
        return next(r for r in self.results if (r.model, r.benchmark) == (model, benchmark))

    @property
    def headline(self) -> str:
        """Say who leads, and whether the data can tell."""
        if len(self.models) == 1:
            return f"{self.models[0]}: {percent(self.means[self.models[0]].mean, 1)} on average."
        best = max(self.models, key=lambda model: self.means[model].mean)
        scores = f"{percent(self.means[best].mean, 1)} on average"
        clear = [d for d in self.differences if d.comparison.is_clear]
        if not clear:
            leaders = [m for m in self.models if self.means[m].mean == self.means[best].mean]
            names = (
                f"{', '.join(leaders[:-1])} and {leaders[-1]} have"
                if leaders[1:]
                else f"{best} has"
            )
            return f"{names} {scores}, and no benchmark here can tell the models apart."
        better = sum(d.comparison.difference.mean > 0 for d in clear)
        counts = {"better": better, "worse": len(clear) - better}
        words = " and ".join(f"clearly {word} on {n}" for word, n in counts.items() if n)
        is_pair = len(self.models) == 2
        others = f"{self.models[1]} is" if is_pair else "the other models are"
        unit = "benchmarks" if is_pair else "comparisons"
        return (
            f"{best} leads with {scores}. Compared with {self.models[0]}, {others} {words} of "
            f"{len(self.differences)} {unit}."
        )


def make_leaderboard(
    results: Sequence[BenchmarkResult],
    *,
    suite: str,
    about: str,
    form: str,
    locations: Mapping[str, str],
) -> Leaderboard:
    """Compare every model with the first on every benchmark, and list cautions."""
    models = list(dict.fromkeys(result.model for result in results))
    benchmarks = list(dict.fromkeys(result.benchmark for result in results))
    table = {(result.model, result.benchmark): result for result in results}
    differences = [
        ModelDifference(benchmark=benchmark, before=models[0], after=model, comparison=comparison)
        for benchmark in benchmarks
        for model in models[1:]
        if (comparison := _compare(table[models[0], benchmark], table[model, benchmark]))
    ]
    warnings = [
        words
        for benchmark in benchmarks
        for words in _cut_off([table[model, benchmark] for model in models])
    ]
    warnings += [words for result in results for words in _list_faults(result)]
    warnings += [words for difference in differences for words in _too_small(difference)]
    return Leaderboard(
        suite=suite,
        about=about,
        form=form,
        models=models,
        benchmarks=benchmarks,
        results=list(results),
        means={model: _mean([table[model, b].score for b in benchmarks]) for model in models},
        differences=differences,
        warnings=warnings,
        locations=locations,
    )


def _compare(before: BenchmarkResult, after: BenchmarkResult) -> PairedComparison | None:
    """Compare two results by their metric; None if they have no problems to compare it by."""
    if "f1" in (before.metric, after.metric):
        return compare_f1(before.values, after.values, before.f1_halves)
    if before.values.keys().isdisjoint(after.values):
        return None
    return compare_paired(before.values, after.values)


def _mean(scores: Sequence[Estimate]) -> Estimate:
    """Average over independent benchmarks; each side of the interval is averaged on its own."""
    mean = fmean(score.mean for score in scores)
    below = sqrt(sum((score.mean - score.low) ** 2 for score in scores)) / len(scores)
    above = sqrt(sum((score.high - score.mean) ** 2 for score in scores)) / len(scores)
    return Estimate(
        mean=mean,
        low=max(0.0, mean - below),
        high=min(1.0, mean + above),
        count=sum(score.count for score in scores),
    )


def _cut_off(results: Sequence[BenchmarkResult]) -> list[str]:
    many = [result for result in results if result.unfinished.mean > MUCH_CUT_OFF]
    if not many:
        return []
    fractions = ", ".join(f"{percent(result.unfinished.mean)} of {result.model}" for result in many)
    return [
        f"{many[0].benchmark}: responses were cut off at {many[0].max_tokens:,} tokens or at the "
        f"end of the context, {fractions}; a higher limit may score higher"
    ]


def _list_faults(result: BenchmarkResult) -> list[str]:
    where = f"{result.benchmark}, {result.model}"
    faults = []
    total = result.num_answers + result.num_failed
    if result.num_unscored:
        faults.append(
            f"{where}: {result.num_unscored:,} of {total:,} responses could not be graded"
        )
    if result.num_failed:
        faults.append(
            f"{where}: the server did not answer {result.num_failed:,} of {total:,} requests"
        )
    if result.num_too_long:
        faults.append(
            f"{where}: {result.num_too_long:,} problems are left out, whose prompt fills the "
            "model's context"
        )
    return faults


def _too_small(difference: ModelDifference) -> list[str]:
    comparison = difference.comparison
    size = abs(comparison.difference.mean)
    if comparison.is_clear or size == 0 or size >= comparison.minimum_detectable:
        return []
    chances = "show no difference reliably"
    if comparison.finds_any:
        least = detectable(comparison.minimum_detectable)
        chances = f"show a difference of {least} in four of five cases, and smaller ones less often"
    return [
        f"{difference.benchmark} is too small for {points(comparison.difference)} between "
        f"{difference.after} and {difference.before}: {comparison.difference.count:,} problems "
        f"{chances}"
    ]
