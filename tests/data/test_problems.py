"""Problem files: written, read, and refused by file and line."""

from pathlib import Path

import pytest

from whet.data.problems import problem_file, problems_of, read_problems, write_problems
from whet.errors import DataError
from whet.testing.fakes import SumTask, sum_problem

PROBLEMS = [sum_problem(1, 2), sum_problem(3, 4)]


def test_problems_come_back_as_they_were(tmp_path: Path) -> None:
    write_problems(tmp_path, "rl", PROBLEMS)

    assert read_problems(problem_file(tmp_path, "rl")) == PROBLEMS
    assert problems_of(SumTask(), str(tmp_path), "rl") == PROBLEMS


def test_without_a_folder_the_task_gives_its_own() -> None:
    assert problems_of(SumTask(), None, "dev") == SumTask().problems("dev")


def test_a_folder_without_the_split_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no problems-test\.jsonl"):
        problems_of(SumTask(), str(tmp_path), "test")


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
