"""Problem files: written, read, and refused by file and line."""

from dataclasses import replace
from pathlib import Path

import pytest

from whet.data.problems import (
    load_problems,
    load_split,
    problem_file,
    read_problems,
    write_problems,
)
from whet.errors import DataError
from whet.testing.fakes import SumTask, sum_problem

PROBLEMS = [sum_problem(1, 2), sum_problem(3, 4)]


def test_problems_come_back_as_they_were(tmp_path: Path) -> None:
    write_problems(tmp_path, "rl", PROBLEMS)

    assert read_problems(problem_file(tmp_path, "rl")) == PROBLEMS
    assert load_split(SumTask(), str(tmp_path), "rl") == PROBLEMS


def test_without_a_folder_the_task_gives_its_own() -> None:
    assert load_split(SumTask(), None, "dev") == SumTask().problems("dev")


def test_a_folder_without_the_split_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no problems-test\.jsonl"):
        load_split(SumTask(), str(tmp_path), "test")


def test_a_stage_that_needs_problems_gets_some_or_a_sentence(tmp_path: Path) -> None:
    hopeless = replace(PROBLEMS[0], payload={"solvable": False})
    write_problems(tmp_path, "rl", [hopeless, PROBLEMS[1]])
    write_problems(tmp_path, "dev", [hopeless])
    write_problems(tmp_path, "test", [])

    assert load_problems(SumTask(), str(tmp_path), "rl") == [PROBLEMS[1]]
    assert load_problems(SumTask(), str(tmp_path), "dev", include_unsolvable=True) == [hopeless]
    with pytest.raises(
        DataError, match=r"problems-dev\.jsonl holds no problem that has a solution: give another$"
    ):
        load_problems(SumTask(), str(tmp_path), "dev")
    with pytest.raises(DataError, match=r"problems-test\.jsonl holds no problem: give another$"):
        load_problems(SumTask(), str(tmp_path), "test", include_unsolvable=True)


def test_a_row_that_is_no_problem_is_named_by_its_line_empty_ones_counted(tmp_path: Path) -> None:
    write_problems(tmp_path, "rl", PROBLEMS)
    file = problem_file(tmp_path, "rl")
    file.write_text(file.read_text().replace("\n", "\n\n") + '{"id": "x"}\n')

    with pytest.raises(DataError, match=r"problems-rl\.jsonl line 5: not a problem row"):
        read_problems(file)


def test_broken_json_is_named_by_its_line(tmp_path: Path) -> None:
    write_problems(tmp_path, "rl", PROBLEMS)
    file = problem_file(tmp_path, "rl")
    file.write_text(file.read_text() + '{"id": \n')

    with pytest.raises(DataError, match=r"problems-rl\.jsonl line 3"):
        read_problems(file)
