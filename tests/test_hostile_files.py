"""Files and flags written to do harm: one sentence, exit code 2, no traceback, nothing written or
replaced."""

import json
import os
import socket
import stat
from pathlib import Path

import pytest
from small import Said, whet
from test_bad_input import is_one_sentence

from whet.errors import visible
from whet.types import Json

ROW = {"id": 1, "task": "math", "answer": "3", "response": "\\boxed{3}"}
PROBLEM: dict[str, Json] = {
    "id": "math/1",
    "task": "math",
    "prompt": [{"role": "user", "content": "What is one plus two?"}],
    "answer": "3",
    "payload": {},
    "level": None,
    "split": "test",
    "source": "own",
}


def lines(path: Path, *rows: object) -> Path:
    path.write_text(
        "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    )
    return path


def is_refused(said: Said, folder: Path, *names: str) -> bool:
    """Whether one sentence was said, and the folder holds what it held."""
    return is_one_sentence(said) and sorted(path.name for path in folder.iterdir()) == sorted(names)


@pytest.mark.parametrize("depth", [200_000, 900, 450])
@pytest.mark.parametrize("way", ["grade", "grade --problems", "check", "show"])
def test_brackets_beyond_measure_are_refused_or_taken(way: str, depth: int, tmp_path: Path) -> None:
    deep = "[" * depth + "]" * depth
    problems = lines(
        tmp_path / "p.jsonl",
        json.dumps(PROBLEM).replace('"payload": {}', f'"payload": {{"a": {deep}}}'),
    )
    source = lines(tmp_path / "in.jsonl", json.dumps(ROW)[:-1] + f', "payload": {{"a": {deep}}}}}')
    given = lines(tmp_path / "by_id.jsonl", {"id": 1, "problem": "math/1", "response": "3"})
    out = tmp_path / "out.jsonl"
    said = {
        "grade": lambda: whet("grade", source, "--out", out),
        "grade --problems": lambda: whet("grade", given, "--problems", problems, "--out", out),
        "check": lambda: whet("tasks", "check", "--problems", problems),
        "show": lambda: whet("data", "show", problems),
    }[way]()
    if depth > 100_000 or said.code:
        assert is_refused(said, tmp_path, "p.jsonl", "in.jsonl", "by_id.jsonl")
        assert "p.jsonl line 1" in said.last or "in.jsonl line 1" in said.last


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_does_not_have_are_refused_by_file_and_line(
    number: str, tmp_path: Path
) -> None:
    row = json.dumps(ROW)[:-1] + f', "payload": {{"a": {number}}}}}'
    said = whet("grade", lines(tmp_path / "in.jsonl", ROW, row), "--out", tmp_path / "out.jsonl")
    assert is_refused(said, tmp_path, "in.jsonl")
    assert "in.jsonl line 2" in said.last and number.lstrip("-") in said.last


@pytest.mark.parametrize("level", ["1e308", "-0.1", "1.5", "true", '"0.5"', "1" + "0" * 400])
def test_a_level_that_is_no_share_is_refused(level: str, tmp_path: Path) -> None:
    problems = lines(
        tmp_path / "p.jsonl", json.dumps(PROBLEM).replace('"level": null', f'"level": {level}')
    )
    for said in (whet("data", "show", problems), whet("tasks", "check", "--problems", problems)):
        assert is_refused(said, tmp_path, "p.jsonl")
        assert "p.jsonl line 1" in said.last and "level must be a number from 0 to 1" in said.last


def test_a_name_too_long_for_a_file_is_refused(tmp_path: Path) -> None:
    source, long = lines(tmp_path / "in.jsonl", ROW), tmp_path / ("x" * 300)
    problems = lines(tmp_path / "p.jsonl", PROBLEM)
    for said in (
        whet("grade", source, "--out", long),
        whet("grade", source, "--out", tmp_path / ("x" * 253)),
        whet("grade", long, "--out", tmp_path / "out.jsonl"),
        whet("grade", source, "--problems", long, "--out", tmp_path / "out.jsonl"),
        whet("data", "show", f"{long}.jsonl"),
        whet("data", "import", problems, "--format", "gsm8k_test", "--out", f"{long}.jsonl"),
        whet("data", "make", "game24", "-n", "1", "--out", f"{long}.jsonl"),
    ):
        assert is_refused(said, tmp_path, "in.jsonl", "p.jsonl")


@pytest.mark.parametrize("workers", ["-1", "129", "100000"])
def test_a_number_of_workers_out_of_reach_is_refused(workers: str, tmp_path: Path) -> None:
    said = whet(
        "grade",
        lines(tmp_path / "in.jsonl", ROW),
        "--out",
        tmp_path / "out.jsonl",
        "--workers",
        workers,
    )
    assert is_refused(said, tmp_path, "in.jsonl")
    assert said.last == f"whet: --workers {workers} should be from 0 to 128"


@pytest.mark.parametrize("n", ["0", "-1"])
def test_fewer_than_one_problem_cannot_be_shown(n: str, tmp_path: Path) -> None:
    said = whet("data", "show", lines(tmp_path / "p.jsonl", PROBLEM), "-n", n)
    assert is_one_sentence(said)
    assert said.last == f"whet: -n {n} should be at least 1"


def test_signs_that_steer_a_terminal_are_shown_and_not_sent(tmp_path: Path) -> None:
    row = {
        **PROBLEM,
        "prompt": [{"role": "user", "content": "a\x1b[2Jb\ud800\u202ec\r\nd\te"}],
        "answer": "\x9b3",
    }
    row |= {"id": "math/\x1b]0;x\x07", "payload": {"\x1b[31m": "\x07"}}

    said = whet("data", "show", lines(tmp_path / "p.jsonl", row))

    assert said.code == 0
    assert (
        "a\\x1b[2Jb\\ud800\\u202ec\n" in said.out
        and "\\x9b3" in said.out
        and "math/\\x1b]0;x\\x07" in said.out
    )
    assert not set(said.out) & {"\x1b", "\x07", "\x9b", "\u202e", "\r"}


def test_errors_do_not_steer_the_terminal_either(tmp_path: Path) -> None:
    said = whet("grade", tmp_path / "\x1b[2J.jsonl", "--out", tmp_path / "out.jsonl")
    assert is_one_sentence(said)
    assert "\x1b" not in said.err and "\\x1b[2J.jsonl" in said.err


def test_what_is_visible_stays_as_it_is() -> None:
    assert visible("é 漢字 😀 \\x1b\n\t{}") == "é 漢字 😀 \\x1b\n\t{}"


@pytest.mark.parametrize("kind", ["fifo", "socket", "link"])
def test_what_is_no_plain_file_is_never_replaced(kind: str, tmp_path: Path) -> None:
    source, out = lines(tmp_path / "in.jsonl", ROW), tmp_path / "out.jsonl"
    gsm = lines(tmp_path / "g.jsonl", {"question": "q", "answer": "#### 1"})
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as place:
            place.bind(os.fspath(out))
    else:
        os.mkfifo(tmp_path / "pipe" if kind == "link" else out)
    if kind == "link":
        out.symlink_to(tmp_path / "pipe")
    before = out.stat().st_mode
    names = [path.name for path in tmp_path.iterdir()]
    for said in (
        whet("grade", source, "--out", out),
        whet("data", "import", gsm, "--format", "gsm8k_test", "--out", out),
        whet("data", "make", "game24", "-n", "1", "--out", out),
    ):
        assert is_refused(said, tmp_path, *names)
        assert (
            said.last == f"whet: cannot write {out}: it is not a regular file; choose another --out"
        )
    assert out.stat().st_mode == before and not stat.S_ISREG(before)


def test_a_file_is_not_graded_onto_itself(tmp_path: Path) -> None:
    source, problems = lines(tmp_path / "in.jsonl", ROW), lines(tmp_path / "p.jsonl", PROBLEM)
    (tmp_path / "link.jsonl").symlink_to(source)
    for out in (source, tmp_path / "link.jsonl", problems):
        said = whet("grade", source, "--problems", problems, "--out", out)
        assert is_one_sentence(said)
        assert said.last == f"whet: --out {out} is a file that is read: choose another name"
    assert source.read_text() == f"{json.dumps(ROW)}\n"


def test_an_empty_file_is_refused_by_every_command(tmp_path: Path) -> None:
    empty = lines(tmp_path / "empty.jsonl", "", "  ")
    for said in (
        whet("grade", empty, "--out", tmp_path / "out.jsonl"),
        whet("tasks", "check", "--problems", empty),
        whet("data", "show", empty),
        whet("data", "import", empty, "--format", "gsm8k_test", "--out", tmp_path / "out.jsonl"),
    ):
        assert is_refused(said, tmp_path, "empty.jsonl")
        assert "empty.jsonl has no " in said.last


def test_a_task_that_contradicts_the_problem_is_refused(tmp_path: Path) -> None:
    problems = lines(tmp_path / "p.jsonl", PROBLEM)
    rows = [
        {"id": n, "problem": "math/1", "task": task, "response": "3"}
        for n, task in enumerate(("math", "yes_no"))
    ]
    said = whet(
        "grade",
        lines(tmp_path / "in.jsonl", *rows),
        "--problems",
        problems,
        "--out",
        tmp_path / "out.jsonl",
    )
    assert is_refused(said, tmp_path, "in.jsonl", "p.jsonl")
    assert said.last.endswith(
        """line 2: "task" is "yes_no", but the problem 'math/1' is of the task 'math'"""
    )


@pytest.mark.parametrize(
    ("task", "payload"),
    [("code_function", {"entry": "f", "tests": 5}), ("code_stdin", {"cases": "x"})],
)
def test_tests_of_another_shape_are_refused_at_load(
    task: str, payload: dict[str, Json], tmp_path: Path
) -> None:
    row = {"id": 1, "task": task, "answer": None, "payload": payload, "response": "nothing"}
    said = whet("grade", lines(tmp_path / "in.jsonl", row), "--out", tmp_path / "out.jsonl")
    assert is_refused(said, tmp_path, "in.jsonl")
    assert "in.jsonl line 1: problem" in said.last


def test_an_own_task_that_is_not_there_is_refused_at_import(tmp_path: Path) -> None:
    source = tmp_path / "good.csv"
    source.write_text("q,a\n1 + 2,3\n")
    out = tmp_path / "p.jsonl"
    said = whet(
        "data",
        "import",
        source,
        "--map",
        "prompt=q",
        "--map",
        "answer=a",
        "--task",
        "gone.py:A",
        "--out",
        out,
    )
    assert is_refused(said, tmp_path, "good.csv")
    assert said.last.startswith("whet: task = 'gone.py:A': there is no file gone.py in ")
