from dataclasses import replace
from pathlib import Path

import pytest

from whet.data.difficulty import (
    PassCount,
    RateRule,
    filter_problems,
    histogram,
    read_map,
    sum_by_problem,
    update_map,
)
from whet.data.problem_sampler import PassRateCurriculum, ProblemSampler
from whet.errors import ConfigError, DataError
from whet.store.rollouts import write_rollouts
from whet.testing.fakes import sum_problem
from whet.types import Problem, Rollout, Score, Verdict

EASY, MIDDLE, HARD, UNSEEN = (sum_problem(number, 1) for number in range(4))


def rollouts(problem: Problem, verdicts: str, model: str = "weak") -> tuple[Rollout, ...]:
    """Make answers: r is right, w wrong, u unscored."""
    names = {"r": Verdict.CORRECT, "w": Verdict.WRONG, "u": Verdict.UNSCORED}
    return tuple(
        Rollout.from_text(
            problem,
            "text",
            model=model,
            number=number,
            score=Score(verdict=names[sign], parts={}, note=""),
        )
        for number, sign in enumerate(verdicts)
    )


def write_map(folder: Path) -> Path:
    file = folder / "run" / "rollouts" / "eval-000000.parquet"
    groups = [rollouts(EASY, "rrrr"), rollouts(MIDDLE, "rwwru"), rollouts(HARD, "wwww")]
    groups += [rollouts(HARD, "rw", "strong"), rollouts(MIDDLE, "ww", "strong")]
    write_rollouts(file, groups)
    update_map(folder / "map.jsonl", [file])
    return folder / "map.jsonl"


def test_graded_responses_are_counted_by_problem_and_model(tmp_path: Path) -> None:
    records = read_map(write_map(tmp_path))
    weak = sum_by_problem(records, "weak")
    assert {id: (c.num_correct, c.num_answers) for id, c in weak.items()} == {
        EASY.id: (4, 4),
        MIDDLE.id: (2, 4),
        HARD.id: (0, 4),
    }
    assert sum_by_problem(records)[HARD.id].rate == 1 / 6


def test_a_file_that_is_added_twice_counts_once(tmp_path: Path) -> None:
    path = write_map(tmp_path)
    before = read_map(path)
    update_map(path, [tmp_path / "run" / "rollouts" / "eval-000000.parquet"])
    assert read_map(path) == before


def test_another_file_adds_to_the_counts(tmp_path: Path) -> None:
    path = write_map(tmp_path)
    file = tmp_path / "second" / "rollouts" / "train-000001.parquet"
    write_rollouts(file, [rollouts(HARD, "rr", "whoever")])
    update_map(path, [file], model="weak")
    assert sum_by_problem(read_map(path), "weak")[HARD.id].num_correct == 2


def test_rules_leave_out_what_is_too_easy_for_one_and_too_hard_for_another(tmp_path: Path) -> None:
    records = read_map(write_map(tmp_path))
    rules = [RateRule.parse("weak<0.9"), RateRule.parse("strong>0")]
    dropped: dict[str, int] = {}
    kept = filter_problems([EASY, MIDDLE, HARD, UNSEEN], records, rules, dropped=dropped)
    assert list(kept) == [HARD, UNSEEN]
    assert dropped == {"weak<0.9": 1, "strong>0": 1}


def test_the_level_is_the_rate_of_wrong_answers(tmp_path: Path) -> None:
    records = read_map(write_map(tmp_path))
    kept = filter_problems([MIDDLE, replace(UNSEEN, level=0.3)], records, [], level="weak")
    assert [problem.level for problem in kept] == [0.5, 0.3]


def test_the_histogram_has_a_place_for_every_problem() -> None:
    def count(correct: int) -> PassCount:
        return PassCount(num_answers=4, num_correct=correct, num_tokens=0, last_seen="")

    assert histogram({str(n): count(n) for n in range(5)}, num_bins=4) == [1, 1, 1, 2]


@pytest.mark.parametrize("text", ["weak", "weak<1.5", "<", "weak=0.5", "weak<0.1.2", "<."])
def test_a_rule_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"such as weak<0\.9"):
        RateRule.parse(text)


def test_an_unknown_model_is_named_with_those_of_the_map(tmp_path: Path) -> None:
    records = read_map(write_map(tmp_path))
    with pytest.raises(ConfigError, match="no model 'week'; its models: strong, weak"):
        list(filter_problems([EASY], records, [RateRule.parse("week<0.9")]))


def test_a_broken_map_is_named_by_its_row(tmp_path: Path) -> None:
    path = write_map(tmp_path)
    path.write_text(path.read_text() + '{"problem": "x"}\n')
    with pytest.raises(DataError, match=r"row 6 of .* is not a record of a difficulty map"):
        read_map(path)


def test_a_band_starts_from_the_rates_of_the_map(tmp_path: Path) -> None:
    path = str(write_map(tmp_path))
    band = PassRateCurriculum(kind="band", difficulty=path, difficulty_model="weak", rest=10)
    sampler = ProblemSampler([EASY, MIDDLE, HARD, UNSEEN], band, seed=0)
    assert {problem.id for problem in sampler.take(6)} == {MIDDLE.id, UNSEEN.id}


def test_measured_problems_outside_the_band_come_back_spread_over_the_rest(tmp_path: Path) -> None:
    solved = [replace(EASY, id=f"easy{number}") for number in range(100)]
    path = tmp_path / "solved.jsonl"
    write_rollouts(path.with_suffix(".parquet"), [rollouts(problem, "rr") for problem in solved])
    update_map(path, [path.with_suffix(".parquet")])
    band = PassRateCurriculum(kind="band", difficulty=str(path), rest=4)
    sampler = ProblemSampler([*solved, UNSEEN], band, seed=0)
    epochs = "".join("." if problem == UNSEEN else "s" for problem in sampler.take(65)).split(".")
    assert all(5 < len(epoch) < 40 for epoch in epochs[1:-1])


def test_what_the_run_sees_replaces_the_rate_of_the_map(tmp_path: Path) -> None:
    band = PassRateCurriculum(kind="band", difficulty=str(write_map(tmp_path)), rest=10)
    sampler = ProblemSampler([EASY], band, seed=0)
    assert sampler.take(1) == [EASY]  # after a rest
    sampler.observe([rollouts(EASY, "rw")])
    passed_over = sampler.metrics(0)["curriculum/passed_over"]
    sampler.take(3)
    assert sampler.metrics(0)["curriculum/passed_over"] == passed_over > 0
