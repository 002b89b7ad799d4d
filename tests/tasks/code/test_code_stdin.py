import os
import tempfile
import time
from pathlib import Path

import pytest
from code_rows import make, read

from whet.errors import DataError
from whet.tasks.base import grade_safely
from whet.tasks.code.code_stdin import (
    CodeStdin,
    CodeStdinConfig,
    _open_input,
    policies,
    same_output,
    unsupported_reason,
)
from whet.tasks.code.program import fence
from whet.types import Json, Verdict

SUM = make(
    "code_stdin",
    {"cases": [{"input": "1 2\n", "output": "3\n"}, {"input": "10 -4\n", "output": "6\n"}]},
    "print(sum(map(int, input().split())))",
)


def verdict(program: str, payload: dict[str, Json] | None = None) -> Verdict:
    problem = SUM if payload is None else make("code_stdin", payload)
    return CodeStdin().score(problem, fence(program)).verdict


def test_the_reference_passes_and_a_program_that_knows_one_case_does_not() -> None:
    task = CodeStdin()

    assert task.score(SUM, task.solve(SUM, 0) or "").verdict == Verdict.CORRECT
    assert verdict("print(3)") == Verdict.WRONG


def test_programs_may_use_main_threads_exit_and_atexit() -> None:
    assert (
        verdict(
            "def main():\n    print(sum(map(int, input().split())))\nif __name__ == '__main__':\n    main()"
        )
        == "correct"
    )
    assert (
        verdict(
            "import threading\nthreading.Thread(target=lambda: print(eval(input().replace(' ', '+')))).start()"
        )
        == "correct"
    )
    assert (
        verdict("import sys\nprint(sum(map(int, sys.stdin.readline().split())))\nsys.exit(0)")
        == "correct"
    )
    assert (
        verdict("import atexit\natexit.register(lambda: print(sum(map(int, input().split()))))")
        == "correct"
    )
    assert (
        verdict(
            "import os\nos.write(1, b'%d' % sum(map(int, os.read(0, 99).split())))\nos._exit(0)"
        )
        == "correct"
    )


def test_the_first_wrong_case_ends_the_run() -> None:
    """Reasoning360 waited for the other cases; a sleeper in the second one cost its six seconds."""
    sleeper = "import time\nif input() != '1 2':\n    time.sleep(6)\nprint('no')"

    start = time.monotonic()

    assert verdict(sleeper) == Verdict.WRONG
    assert time.monotonic() - start < 3


def test_a_program_reads_large_input_and_writes_large_output() -> None:
    text = "\n".join(map(str, range(200_000)))

    assert (
        verdict(
            "import sys\nsys.stdout.write(sys.stdin.read())",
            {"cases": [{"input": text, "output": text}]},
        )
        == "correct"
    )


@pytest.mark.parametrize(
    ("said", "wanted", "whitespace", "same"),
    [
        ("1 2\n", "1 2", "lines", True),
        ("1 2  \r\n\n\n", "1 2", "lines", True),
        ("1  2", "1 2", "lines", False),
        ("1\n2", "1 2", "lines", False),
        ("1\n2", "1 2", "tokens", True),
        (" 1 2", "1 2", "lines", False),
        ("1 2\n", "1 2", "exact", False),
        ("1 2", "1 2", "exact", True),
        ("yes", "YES", "tokens", False),
        ("3.0", "3", "tokens", False),
    ],
)
def test_outputs_are_compared_under_the_declared_whitespace(
    said: str, wanted: str, whitespace: str, same: bool
) -> None:
    assert same_output(said, wanted, whitespace=whitespace, tolerance=0.0, any_case=False) is same


@pytest.mark.parametrize(
    ("said", "wanted", "same"),
    [
        ("3.0000005", "3", True),
        ("3.00001", "3", False),
        ("1000000.5", "1000000", True),
        ("1000002", "1000000", False),
        ("inf", "3", False),
        ("nan", "3", False),
        ("1e400", "3", False),
        ("x 3", "x 3.0", True),
        ("y 3", "x 3", False),
        ("3 3", "3", False),
    ],
)
def test_numbers_may_differ_only_by_the_tolerance_a_row_declares(
    said: str, wanted: str, same: bool
) -> None:
    assert same_output(said, wanted, whitespace="lines", tolerance=1e-6, any_case=False) is same


def test_words_may_differ_in_case_only_where_a_row_says_so() -> None:
    row: dict[str, Json] = {"cases": [{"input": "", "output": "YES"}]}

    assert verdict("print('yes')", row) == Verdict.WRONG
    assert verdict("print('yes')", row | {"any_case": True}) == Verdict.CORRECT


def test_a_tolerance_in_the_row_is_used() -> None:
    row: dict[str, Json] = {"cases": [{"input": "", "output": "3"}]}

    assert verdict("print(3.0000001)", row) == Verdict.WRONG
    assert verdict("print(3.0000001)", row | {"tolerance": 1e-6}) == Verdict.CORRECT


def test_statements_say_what_may_differ() -> None:
    assert policies("You can output the answer in any case (upper or lower).") == {"any_case": True}
    assert policies("if the absolute or relative error does not exceed $10^{-9}$") == {
        "tolerance": 1e-9
    }
    assert policies("the absolute value of x is at most $10^5$") == {}


def test_every_codeforces_row_is_taken_or_refused_with_the_reason() -> None:
    rows = read("codeforces_stdin")
    reasons = [
        unsupported_reason(
            str(row["problem"]), make("code_stdin", {"cases": row["tests"]}, id=str(row["id"]))
        )
        for row in rows
    ]

    assert len(rows) == 200
    assert sum(reason is not None for reason in reasons) == 21
    assert all(reason is None or "several outputs" in reason for reason in reasons)


def test_a_program_that_prints_the_recorded_outputs_is_right_on_codeforces_rows() -> None:
    for row in read("codeforces_stdin")[::20]:
        problem = make("code_stdin", {"cases": row["tests"]})
        known = {case["input"]: case["output"] for case in row["tests"]}
        program = f"import sys\nprint({known!r}[sys.stdin.read()])"

        assert CodeStdin().score(problem, fence(program)).verdict == Verdict.CORRECT


def test_a_row_without_cases_is_refused_and_left_unscored() -> None:
    empty = make("code_stdin", {"cases": []})

    assert unsupported_reason("", empty) == "there are no cases of input and output"
    assert grade_safely(CodeStdin(), empty, fence("print(1)")).verdict == Verdict.UNSCORED


@pytest.mark.parametrize(
    "payload", [{}, {"cases": "x"}, {"cases": 5}, {"cases": [{"input": "1"}]}, {"cases": ["1"]}]
)
def test_cases_of_another_shape_are_the_problems_fault_whatever_the_response(
    payload: dict[str, Json],
) -> None:
    for text in ("", fence("print(1)")):
        with pytest.raises(DataError, match=r"problem code_stdin/x .* in payload\.cases"):
            CodeStdin().score(make("code_stdin", payload), text)


def test_a_response_without_a_program_has_no_answer() -> None:
    assert CodeStdin().score(SUM, "The sum is 3.").verdict == Verdict.NO_ANSWER
    assert (
        CodeStdin(CodeStdinConfig(whitespace="tokens")).score(SUM, "").verdict == Verdict.NO_ANSWER
    )


def test_an_input_has_no_name_that_a_killed_grader_could_leave_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    with _open_input("5 é\n") as file:
        assert list(tmp_path.iterdir()) == []
        assert file.read() == "5 é\n".encode()
        with pytest.raises(OSError):
            os.write(file.fileno(), b"8")
