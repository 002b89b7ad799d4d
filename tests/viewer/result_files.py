"""A leaderboard, a comparison and a study as the commands write them, with known numbers."""

from pathlib import Path

from whet.evals.comparison import compare_paired
from whet.evals.stats import Estimate
from whet.reports.report_pages import ArmFacts, ArmScore, ComparisonPage, ScoreRow, SettingRow
from whet.results.compare_runs import comparison_to_json
from whet.store.files import write_json
from whet.study.results import Contrast, RoundResult, StudyArm
from whet.suites.leaderboard import make_leaderboard
from whet.suites.result import BenchmarkResult

QUARTER = {str(number): float(number % 4 == 0) for number in range(200)}
HALF = {str(number): float(number % 2 == 0) for number in range(200)}
LOW = Estimate(mean=0.25, low=0.19, high=0.31, count=200)
HIGH = Estimate(mean=0.5, low=0.43, high=0.57, count=200)


def write_results(folder: Path) -> None:
    """Write one file of each kind; in each, half of the problems are solved against a quarter."""
    results = [_result("small", QUARTER, LOW), _result("large", HALF, HIGH)]
    board = make_leaderboard(
        results, suite="sums", about="Sums", form="all", locations={"small": "runs/small"}
    )
    write_json(folder / "leaderboard.json", board.to_json())
    difference = compare_paired(QUARTER, HALF)
    page = ComparisonPage(
        title="lr 1 against lr 2",
        headline="lr 2 is better than lr 1.",
        detail="By 25 points.",
        arms=[ArmFacts(name=f"lr {n}", seeds=["1"], folders=[f"runs/{n}"]) for n in (1, 2)],
        settings=[SettingRow(key="train.lr", meaning="Peak learning rate", values=["1", "2"])],
        scores=[
            ScoreRow(
                stage="after",
                figure="pass@1",
                scores=[
                    ArmScore(estimate=LOW, by_seed=[0.25]),
                    ArmScore(estimate=HIGH, by_seed=[0.5], comparison=difference),
                ],
            )
        ],
        curves={},
    )
    write_json(folder / "compare.json", comparison_to_json(page))
    few = StudyArm(levels={"steps": "few"}, runs=(), by_seed={1: QUARTER}, estimate=LOW)
    many = StudyArm(levels={"steps": "many"}, runs=(), by_seed={1: HALF}, estimate=HIGH)
    found = RoundResult(
        number=1,
        factors=("steps",),
        metric="pass@1",
        arms=(few, many),
        contrasts=(Contrast(arm=many, comparison=difference, p_value=difference.p_value),),
        winner={"steps": "many"},
        is_clear=True,
        sentence="steps: many won.",
        failed={},
    )
    run = {"name": "many+seed1", "state": "done", "seconds": 61.0}
    write_json(
        folder / "study.json",
        {
            "study": "steps.toml",
            "seeds": [1],
            "chosen": {"steps": "many"},
            "rounds": [found.to_json()],
            "runs": [dict(run)],
            "hours": 0.1,
            "stopped": None,
        },
    )


def _result(model: str, values: dict[str, float], score: Estimate) -> BenchmarkResult:
    zero = Estimate(mean=0.0, low=0.0, high=0.02, count=len(values))
    return BenchmarkResult(
        model=model,
        benchmark="sums",
        metric="avg@1",
        score=score,
        values=values,
        by_task={},
        by_source={},
        by_level={"1": HIGH, "2": LOW},
        feasible=None,
        hallucinated=None,
        f1={},
        tokens=zero,
        unfinished=zero,
        no_answer=zero,
        num_answers=len(values),
        num_unscored=0,
        num_failed=0,
        num_too_long=0,
        max_tokens=8,
    )
