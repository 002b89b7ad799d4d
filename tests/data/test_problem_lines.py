"""Rows of problem files by number: where they stand, and what another process did to them."""

from dataclasses import replace
from pathlib import Path

import pytest

from whet.data.problem_lines import CHUNK_BYTES, ProblemLines, to_question
from whet.data.problems import normalised_question, write_problems
from whet.errors import DataError
from whet.store.files import write_rows
from whet.testing.fakes import sum_problem
from whet.types import Message


def scan(*files: Path) -> ProblemLines:
    lines = ProblemLines(files)
    for _ in lines.scan(lambda count: None):
        pass
    return lines


def test_rows_of_several_files_are_read_again_in_any_order(tmp_path: Path) -> None:
    problems = [sum_problem(n, 1) for n in range(5)]
    first, second, empty = (tmp_path / name for name in ("a.jsonl", "b.jsonl", "c.jsonl"))
    write_rows(first, (problem.to_json() for problem in problems[:3]))
    empty.touch()
    write_rows(second, (problem.to_json() for problem in problems[3:]))
    lines = scan(first, empty, second)
    order = [4, 0, 3, 2]
    read = [lines.parse(row, line) for row, line in zip(order, lines.read(order), strict=True)]
    assert read == [problems[row] for row in order]
    assert [lines.locate(row) for row in (2, 3)] == [f"{first} line 3", f"{second} line 1"]


def test_chunks_are_of_bounded_size_and_hold_every_row(tmp_path: Path) -> None:
    text = b'{"x": "' + b"y" * (CHUNK_BYTES // 3) + b'"}\n'
    (tmp_path / "a.jsonl").write_bytes(7 * text)
    counted = []
    lines = ProblemLines([tmp_path / "a.jsonl"])
    assert [len(chunk) for chunk in lines.scan(counted.append)] == [3, 3, 1]
    assert sum(counted) == lines.num_bytes and len(lines) == 7


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "problems-rl.jsonl"
    write_problems(tmp_path, "rl", [sum_problem(1, 2)])
    lines = scan(file)
    lines.check_unchanged()
    file.write_bytes(file.read_bytes() + b"\n")
    with pytest.raises(DataError, match="changed while it was being read: run the command again"):
        lines.check_unchanged()


def test_what_is_asked_is_compared_without_case_spaces_and_wide_letters() -> None:
    problem = sum_problem(1, 2)
    assert to_question(problem) == normalised_question(problem) == "1 + 2"
    prompt = (
        Message(role="system", content="Be brief."),
        Message(role="user", content="\uff11  + 2"),
    )
    assert normalised_question(replace(problem, prompt=prompt)) == "1 + 2"
