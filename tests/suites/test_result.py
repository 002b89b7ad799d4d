"""The metric of a problem, worked by hand."""

from dataclasses import replace

import pytest

from whet.evals.stats import Estimate
from whet.evals.summary import F1, summarise
from whet.suites.benchmarks import LoadedBenchmark
from whet.suites.leaderboard import Leaderboard, make_leaderboard
from whet.suites.result import BenchmarkResult, _mean_f1, make_result, metric_of
from whet.suites.suite import Benchmark
from whet.tasks.base import Task
from whet.tasks.registry import Mix
from whet.tasks.warmup.countdown import Countdown
from whet.testing.fakes import SumTask, sum_problem
from whet.types import Author, Group, Rollout, Score, Verdict


def answers(*given: tuple[str | None, bool], left: int = 1, feasible: float | None = None) -> Group:
    problem = sum_problem(left, 2)
    rows = []
    for number, (answer, right) in enumerate(given):
        verdict = Verdict.CORRECT if right else Verdict.WRONG
        verdict = Verdict.NO_ANSWER if answer is None else verdict
        parts = {} if feasible is None else {"feasible": feasible if answer is not None else 0.0}
        score = Score(verdict=verdict, parts=parts, answer=answer)
        rows.append(
            Rollout.from_text(
                problem, "", model="m", number=number, author=Author.SOLVER, score=score
            )
        )
    return tuple(rows)


def benchmark(metric: str, samples: int = 3) -> Benchmark:
    return Benchmark.model_validate({"task": "arithmetic", "metric": metric, "samples": samples})


def load(metric: Benchmark, task: Task) -> LoadedBenchmark:
    return LoadedBenchmark(name="b", benchmark=metric, task=task, problems=(), files={})


GROUP = answers(("3", True), ("4", False), ("4", False))


@pytest.mark.parametrize(
    ("metric", "value"), [("avg", 1 / 3), ("pass@2", 2 / 3), ("maj@3", 0.0), ("maj@2", 1 / 3)]
)
def test_a_metric_of_one_right_and_two_equal_wrong_answers(metric: str, value: float) -> None:
    # maj@2: of the three pairs, two are ties with the wrong answer, 1 / 2 each.
    assert metric_of(GROUP, benchmark(metric)) == pytest.approx(value)


SPELLINGS = answers(("1/2", True), (r"x=\frac12", True), ("0.5", True), ("3", False), ("3", False))


def test_right_answers_of_a_task_with_one_answer_vote_together() -> None:
    assert metric_of(SPELLINGS, benchmark("maj@5", 5)) == 1.0


def test_right_answers_that_are_different_answers_vote_apart() -> None:
    # Two votes for 3, one for each of the others.
    assert metric_of(SPELLINGS, benchmark("maj@5", 5), has_one_answer=False) == 0.0


def test_each_problem_of_a_mix_has_the_answers_of_its_own_task() -> None:
    loaded = load(benchmark("maj@5", 5), Mix([SumTask(), Countdown()]))
    groups = [
        SPELLINGS,
        tuple(replace(r, problem=replace(r.problem, id="c", task="countdown")) for r in SPELLINGS),
    ]

    result = make_result(
        summarise(groups), groups, model="m", loaded=loaded, num_failed=0, num_too_long=0
    )

    assert list(result.values.values()) == [1.0, 0.0]


@pytest.mark.parametrize("other", ["7**", "$7$", "(7)", "7.", "x = 7", "**x = `7`**", " 7"])
def test_an_answer_with_markup_or_a_name_votes_with_the_bare_one(other: str) -> None:
    group = answers(("3", True), ("7", False), (other, False))

    assert metric_of(group, benchmark("maj@3")) == 0.0


@pytest.mark.parametrize(
    "pair", [("(1, 2)", "[1, 2]"), ("[7]", "7"), ("x = 7", "y = 7"), ("R", "r"), ("'7'", "7")]
)
def test_answers_that_may_differ_vote_apart(pair: tuple[str, str]) -> None:
    group = answers(("3", True), (pair[0], False), (pair[1], False))

    assert metric_of(group, benchmark("maj@3")) == pytest.approx(1 / 3)


def test_a_problem_with_too_few_graded_responses_has_no_metric() -> None:
    assert metric_of(GROUP[:1], benchmark("pass@2")) is None


def test_an_answer_that_breaks_the_rules_is_hallucinated_and_none_is_missing() -> None:
    groups = [
        answers(("[1]", False), (None, False), feasible=0.0),
        answers(("[2]", True), left=2, feasible=1.0),
    ]
    result = make_result(
        summarise(groups),
        groups,
        model="m",
        loaded=load(benchmark("avg"), SumTask()),
        num_failed=0,
        num_too_long=0,
    )
    assert result.feasible is not None
    assert result.hallucinated is not None
    assert result.feasible.mean == pytest.approx(0.5)  # 0 of 2, 1 of 1
    assert result.hallucinated.mean == pytest.approx(0.25)  # 1 of 2, 0 of 1


def test_the_mean_f1_is_the_harmonic_mean_of_the_halves() -> None:
    half = Estimate(mean=0.5, low=0.4, high=0.6, count=100)
    full = Estimate(mean=1.0, low=0.95, high=1.0, count=100)
    found = _mean_f1({"a": F1(value=2 / 3, halves={"x": half, "y": full})}, "b")
    assert found.mean == pytest.approx(2 / 3)
    assert found.count == 200
    # The slope to x is 2 (1 / 1.5)^2 = .889, times .1; to y 2 (.5 / 1.5)^2 = .222, times .025.
    assert found.high - found.low == pytest.approx(2 * 0.0891, abs=0.003)


def make(model: str, values: dict[str, float]) -> BenchmarkResult:
    mean = sum(values.values()) / len(values)
    estimate = Estimate(mean=mean, low=mean - 0.1, high=mean + 0.1, count=len(values))
    zero = Estimate(mean=0.0, low=0.0, high=0.1, count=len(values))
    return BenchmarkResult(
        model=model, benchmark="b", metric="avg@1", score=estimate, values=values, by_task={}, by_source={},
        by_level={}, feasible=None, hallucinated=None, f1={}, tokens=zero, unfinished=zero, no_answer=zero,
        num_answers=len(values), num_unscored=0, num_failed=0, num_too_long=0, max_tokens=8,
    )  # fmt: skip


def lead(results: list[BenchmarkResult]) -> Leaderboard:
    return make_leaderboard(results, suite="s", about="", form="all", locations={})


def test_a_benchmark_too_small_for_the_difference_is_named() -> None:
    ids = [str(index) for index in range(30)]
    one = {key: float(int(key) % 2) for key in ids}
    two = one | {"0": 1.0, "2": 1.0, "1": 0.0}
    board = lead([make("one", one), make("two", two)])
    (difference,) = board.differences
    assert difference.to_words().endswith("cannot tell")
    assert board.warnings[0].startswith("b is too small for +3.3 points")
    assert "no benchmark here can tell the models apart" in board.headline


def test_models_that_are_equal_lead_together() -> None:
    values = {str(index): float(index % 2) for index in range(30)}
    board = lead([make("one", values), make("two", values)])
    assert board.headline.startswith("one and two have 50.0")


def test_an_f1_benchmark_is_compared_by_f1() -> None:
    halves = {str(index): ("s", "error" if index % 3 else "correct") for index in range(300)}
    always = {id: float(half == "error") for id, (_, half) in halves.items()}
    even = {id: float(int(id) % 2) for id in halves}
    boards = [
        replace(make(*row), metric="f1", f1_halves=halves) for row in [("a", always), ("b", even)]
    ]
    (difference,) = lead(boards).differences
    assert difference.comparison.difference.mean == pytest.approx(0.5)


def test_a_result_stored_without_its_halves_has_no_difference_in_f1() -> None:
    values = {str(index): float(index % 2) for index in range(30)}
    old = [replace(make(name, values), metric="f1") for name in ("a", "b")]
    assert lead(old).differences == []


def test_a_benchmark_that_can_tell_nothing_names_no_difference() -> None:
    board = lead([make("one", {"a": 0.0, "b": 1.0}), make("two", {"a": 0.5, "b": 1.0})])
    assert board.warnings[0].endswith("2 problems show no difference reliably")


def test_a_clear_difference_is_not_warned_of() -> None:
    ids = [str(index) for index in range(200)]
    one = {key: float(int(key) % 4 == 0) for key in ids}
    two = {key: float(int(key) % 2 == 0) for key in ids}
    board = lead([make("one", one), make("two", two)])
    assert board.warnings == []
    assert (
        board.headline == "two leads with 50.0\N{NO-BREAK SPACE}% on average. "
        "Compared with one, two is clearly better on 1 of 1 benchmarks."
    )
    assert board.means["two"].mean == 0.5
