"""The result of a round: each level with its interval, its difference from the first, the level to
keep, and a sentence on whether the data can tell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import fmean

from whet.errors import DataError
from whet.evals.comparison import PairedComparison, Rates, compare_arms, estimate_over_seeds
from whet.evals.stats import CONFIDENCE, Estimate
from whet.evals.summary import pass_rates
from whet.recipes.evaluate import GREEDY, SAMPLED
from whet.reports.formatting import detectable, percent_interval, points
from whet.store.run import RunStore
from whet.study.runs import StudyRun
from whet.study.study_file import Levels, RoundConfig, StudyConfig
from whet.types import Json

LAST_PART = 0.2
"""The part of training at its end over which a logged metric is averaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyArm:
    """A combination of levels: its runs, and the measurements of those that finished."""

    levels: Levels
    """Those that the round compares."""
    runs: tuple[StudyRun, ...]
    by_seed: Mapping[int, Rates]
    estimate: Estimate | None
    """None if no run has ended."""

    @property
    def label(self) -> str:
        return ", ".join(self.levels.values())

    @property
    def seed_means(self) -> dict[int, float]:
        return {seed: fmean(rates.values()) for seed, rates in self.by_seed.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """The difference of an arm from the first; `p_value` is corrected for the number of
    contrasts."""

    arm: StudyArm
    comparison: PairedComparison
    p_value: float

    @property
    def difference(self) -> Estimate:
        return self.comparison.difference

    @property
    def is_clear(self) -> bool:
        return self.p_value < 1 - CONFIDENCE

    @property
    def words(self) -> str:
        return f"{points(self.difference)}, {write_p(self.p_value)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """The result of a round. `is_clear` says whether the data can tell which level is best."""

    number: int
    factors: tuple[str, ...]
    metric: str
    arms: tuple[StudyArm, ...]
    contrasts: tuple[Contrast, ...]
    winner: Levels
    is_clear: bool
    sentence: str
    failed: Mapping[str, str]
    """Runs of the round that failed, with their sentences."""

    @property
    def title(self) -> str:
        return " × ".join(self.factors)

    @property
    def verdict(self) -> str:
        """The sentence without the title before it."""
        words = self.sentence.removeprefix(f"{self.title}: ")
        return f"C{words[1:]}" if words.startswith("cannot tell") else words

    def to_json(self) -> dict[str, Json]:
        return {
            "factors": list(self.factors),
            "metric": self.metric,
            "levels": [
                {
                    "name": arm.label,
                    "estimate": arm.estimate.to_json() if arm.estimate else None,
                    "seeds": {str(seed): mean for seed, mean in arm.seed_means.items()},
                }
                for arm in self.arms
            ],
            "differences": [
                {
                    "name": contrast.arm.label,
                    "comparison": contrast.comparison.to_json(),
                    "p_value": contrast.p_value,
                }
                for contrast in self.contrasts
            ],
            "winner": dict(self.winner),
            "is_clear": self.is_clear,
            "sentence": self.sentence,
            "failed": dict(self.failed),
        }


def judge_round(
    config: StudyConfig,
    round_cfg: RoundConfig,
    number: int,
    runs: Sequence[StudyRun],
    failed: Mapping[str, str],
) -> RoundResult:
    """Compare the levels of a round over all finished runs."""
    arms = _gather_arms(round_cfg, runs)
    measured = [arm for arm in arms if arm.estimate is not None]
    contrasts = _compare_with_first(measured)
    winner, is_clear, sentence = _decide(config, measured, contrasts)
    faults = {run.name: failed[run.name] for run in runs if run.name in failed}
    missing = sum(not run.is_done for run in runs) - len(faults)
    return RoundResult(
        number=number,
        factors=tuple(round_cfg.factors),
        metric=runs[0].measured.metric,
        arms=tuple(arms),
        contrasts=tuple(contrasts),
        winner=winner.levels if winner else arms[0].levels,
        is_clear=is_clear,
        sentence=f"{' × '.join(round_cfg.factors)}: {sentence}{_describe_missing(faults, missing)}",
        failed=faults,
    )


def read_rates(run: StudyRun) -> dict[str, float]:
    """Read a run's result for each problem; a logged metric is one number, named `run`."""
    measured = run.measured
    folder = next(stage.folder for stage in run.stages if stage.name == measured.stage)
    store = RunStore.view(folder)
    if "/" in measured.metric:
        values = [row[measured.metric] for row in store.metrics() if measured.metric in row]
        if not values:
            raise DataError(f"the stage {measured.stage} of {run.name} logs no {measured.metric}")
        return {"run": fmean(values[-ceil(LAST_PART * len(values)) :])}
    name, _, k = measured.metric.partition("@")
    rollouts = store.rollouts("eval", GREEDY if name == "greedy" else SAMPLED)
    return pass_rates([tuple(rollouts)], int(k or 1))


def _gather_arms(round_cfg: RoundConfig, runs: Sequence[StudyRun]) -> list[StudyArm]:
    by_levels: dict[tuple[str, ...], list[StudyRun]] = {}
    for run in runs:
        levels = tuple(run.levels[factor] for factor in round_cfg.factors)
        by_levels.setdefault(levels, []).append(run)
    arms = []
    for levels, same_levels in by_levels.items():
        by_seed = {run.seed: read_rates(run) for run in same_levels if run.is_done}
        arms.append(
            StudyArm(
                levels=dict(zip(round_cfg.factors, levels, strict=True)),
                runs=tuple(same_levels),
                by_seed=by_seed,
                estimate=estimate_over_seeds(list(by_seed.values())) if by_seed else None,
            )
        )
    return arms


def _compare_with_first(arms: Sequence[StudyArm]) -> list[Contrast]:
    """Compare each arm with the first."""
    if not arms:
        return []
    first = list(arms[0].by_seed.values())
    comparisons = [_compare_pair(first, list(arm.by_seed.values())) for arm in arms[1:]]
    p_values = adjust_p_values([comparison.p_value for comparison in comparisons])
    return [
        Contrast(arm=arm, comparison=comparison, p_value=p_value)
        for arm, comparison, p_value in zip(arms[1:], comparisons, p_values, strict=True)
    ]


def _compare_pair(before: Sequence[Rates], after: Sequence[Rates]) -> PairedComparison:
    common = set(before[0]).intersection(*before[1:], *after)
    return compare_arms(before, after, paired=bool(common))


def adjust_p_values(p_values: Sequence[float]) -> list[float]:
    """Correct for several comparisons (Holm 1979): the chance of any false finding is 5 %.

    >>> adjust_p_values([0.04, 0.01, 0.5])
    [0.08, 0.03, 0.5]
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def _decide(
    config: StudyConfig, arms: Sequence[StudyArm], contrasts: Sequence[Contrast]
) -> tuple[StudyArm | None, bool, str]:
    """Choose the level to keep; say what won and by how much, or that the data cannot tell."""
    if not arms:
        return None, False, "no run has ended, so the first level is kept."
    first = arms[0]
    if not contrasts:
        return first, False, f"only {first.label} has results, so it is kept."
    best = max(contrasts, key=lambda contrast: contrast.difference.mean)
    clear = [contrast for contrast in contrasts if contrast.is_clear]
    better = [contrast for contrast in clear if contrast.difference.mean > 0]
    if better:
        won = max(better, key=lambda contrast: contrast.difference.mean)
        return won.arm, True, _describe_winner(first, won, contrasts)
    if len(clear) == len(contrasts):
        words = f"{first.label} won with {_format_estimate(first)}; {best.arm.label}"
        rest = " comes closest" if len(contrasts) > 1 else " has"
        return first, True, f"{words}{rest} {_format_estimate(best.arm)}, {best.words}."
    kept, rule = first, "the first listed"
    if config.if_unclear == "best" and best.difference.mean > 0:
        kept, rule = best.arm, "the best mean"
    worse = [contrast.arm.label for contrast in clear]
    rest = f" The data can tell that {' and '.join(worse)} did worse." if worse else ""
    least = "no difference at all"
    if best.comparison.finds_any:
        least = f"a difference of {detectable(best.comparison.minimum_detectable)}"
    return (
        kept,
        False,
        (
            f"cannot tell. {best.arm.label} against {first.label}: {best.words}; {least} "
            "would be found in four of five studies like this. {kept.label}, "
            f"{rule}, is kept.{rest}"
        ),
    )


def _describe_winner(first: StudyArm, won: Contrast, contrasts: Sequence[Contrast]) -> str:
    words = (
        f"{won.arm.label} won with {_format_estimate(won.arm)} against "
        f"{_format_estimate(first)} with {first.label}: {won.words}."
    )
    others = [contrast.arm for contrast in contrasts if contrast is not won]
    rates = list(won.arm.by_seed.values())
    unclear = [
        arm.label for arm in others if not _compare_pair(list(arm.by_seed.values()), rates).is_clear
    ]
    return f"{words} The data cannot tell it from {' and '.join(unclear)}." if unclear else words


def _describe_missing(failed: Mapping[str, str], missing: int) -> str:
    words = f" {len(failed)} of its runs failed and are left out." if failed else ""
    return f"{words} {missing} of its runs have not ended." if missing else words


def _format_estimate(arm: StudyArm) -> str:
    assert arm.estimate is not None, "an arm that is compared has an estimate"
    return percent_interval(arm.estimate, 1)


def write_p(p_value: float) -> str:
    """Write a p-value.

    >>> write_p(0.0004), write_p(0.0312), write_p(0.63)
    ('p < 0.001', 'p = 0.031', 'p = 0.63')
    """
    if p_value < 0.001:
        return "p < 0.001"
    return f"p = {p_value:.3f}" if p_value < 0.1 else f"p = {p_value:.2f}"
