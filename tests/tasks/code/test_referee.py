"""The two sides of a sandbox, spoken to over pipes in this process, with harmless programs
only."""

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from whet.tasks.code import frames, harness, referee
from whet.tasks.code.referee import Approx, Raises


@pytest.fixture(autouse=True)
def own_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = dict(sys.modules)
    yield
    for name in sys.modules.keys() - before.keys():
        del sys.modules[name]
    sys.modules.update(before)


def channels() -> tuple[frames.Channel, frames.Channel]:
    ours, theirs = frames.open_channel()
    return ours, frames.Channel(*theirs)


def judged(
    tests: str, program: str, *, kind: str = "function", entry: str = "f", setup: str = ""
) -> tuple[bool, str]:
    """Play the grader: relay calls from the referee to the program until the verdict."""
    ours, inside = channels()
    theirs, tested = channels()
    model = threading.Thread(target=harness.run_job, args=(tested,), daemon=True)
    model.start()
    job = {"kind": "function", "setup": setup, "program": program, "entry": entry}
    theirs.send(json.dumps(job).encode())
    assert theirs.receive() == b"R"
    row = {
        "kind": kind,
        "tests": tests,
        "setup": setup,
        "entry": entry,
        "module": "solution_under_test",
    }
    ours.send(json.dumps(row).encode())
    runner = threading.Thread(target=referee.run_tests, args=(inside,), daemon=True)
    runner.start()
    while (said := ours.receive())[:1] == b"C":
        theirs.send(said)
        ours.send(theirs.receive())
    for line in (theirs, ours):
        line.close()
    model.join(5)
    runner.join(5)
    for line in (inside, tested):
        line.close()
    report = json.loads(said[1:])
    return report["passed"], report["note"]


SUCCESSOR = (
    "class S:\n    def g(self, x):\n        return x + 1\n    def me(self):\n        return self"
)
SILENT = "class E(Exception):\n    def __str__(self):\n        raise self\ndef f(x):\n    raise E"
UNMADE = "def f(x):\n    raise UnicodeDecodeError('a', b'', 0, 1, 'no')"


@pytest.mark.parametrize(
    ("tests", "program", "entry"),
    [
        ("def check(candidate):\n    assert candidate(1) == 2", "def f(x):\n    return x + 1", "f"),
        ("assert f(1) == 2", "f = lambda x: x + 1", "f"),
        ("def check(candidate):\n    assert candidate(x=1) == 2", SUCCESSOR, "S().g"),
        ("s = S()\nassert s.g(1) == 2\nassert s.me().g(1) == 2", SUCCESSOR, "S"),
        ("assert sys.maxsize == f()", "import sys\ndef f():\n    return sys.maxsize", "f"),
        ("assert colorsys.rgb_to_hls(0, 0, 0) == f()", "def f():\n    return (0.0, 0.0, 0.0)", "f"),
        (
            "try:\n    f()\nexcept KeyError as e:\n    assert e.args == (\"'a'\",)",
            "def f():\n    return {}['a']",
            "f",
        ),
    ],
)
def test_right_programs_pass(tests: str, program: str, entry: str) -> None:
    assert judged(tests, program, entry=entry) == (True, "")


@pytest.mark.parametrize(
    ("tests", "program", "note"),
    [
        ("assert f(1) == 2", "def f(x):\n    return x", "assert f(1) == 2: AssertionError: "),
        (
            "f(1)",
            "class Odd(Exception):\n    pass\ndef f(x):\n    raise Odd('no')",
            "f(1): ModelError: Odd: no",
        ),
        ("f(1)", UNMADE, "f(1): ModelError: UnicodeDecodeError"),
        (
            "list(map(f, [1]))",
            "def f(x):\n    raise StopIteration",
            "list(map(f, [1])): ModelError: StopIteration: ",
        ),
        ("f(1)", SILENT, "f(1): ModelError: E: "),
        (
            "assert f(1) == 1",
            "def f(x):\n    return f",
            "assert f(1) == 1: TypeError: a function of the program",
        ),
        (
            "assert f",
            "def f(x):\n    pass",
            "assert f: TypeError: f of the program is not plain data",
        ),
        (
            "assert f.__wrapped__",
            "def f(x):\n    pass",
            "assert f.__wrapped__: AttributeError: __wrapped__",
        ),
        ("assert g(1)", "def f(x):\n    pass", "assert g(1): KeyError: "),
        (
            "f(object())",
            "def f(x):\n    pass",
            "f(object()): NotPlainError: a object is not plain data",
        ),
    ],
)
def test_wrong_programs_fail_with_the_line_and_the_reason(
    tests: str, program: str, note: str
) -> None:
    passed, said = judged(tests, program)

    assert not passed
    assert said.startswith(note)


def test_an_entry_that_is_no_name_fails() -> None:
    passed, note = judged("def check(candidate):\n    candidate()", "def f(): pass", entry="f[0]")

    assert (passed, note) == (False, "candidate(): NameError: f[0] is not a name")


def test_instances_of_classes_in_the_setup_cross_by_their_fields() -> None:
    setup = "class Node:\n    def __init__(self, value):\n        self.value = value"
    tests = "assert f(Node(3)).value == 4"

    assert judged(tests, "def f(n):\n    return Node(n.value + 1)", setup=setup) == (True, "")


def test_test_modules_are_run() -> None:
    tests = (
        "import pytest, solution_under_test as s\nfrom solution_under_test import f\n"
        "def test_a():\n    assert s.f(1) == f(1)"
    )

    assert judged(tests, "def f(x):\n    return x", kind="pytest", entry="") == (True, "")
    assert judged("def test_a():\n    f(1)", "f = 5", kind="pytest", entry="")[0] is False


def test_a_broken_answer_fails_the_test() -> None:
    ours, inside = channels()
    row = {
        "kind": "function",
        "tests": "f(1)",
        "setup": "",
        "entry": "f",
        "module": "solution_under_test",
    }
    ours.send(json.dumps(row).encode())
    runner = threading.Thread(target=referee.run_tests, args=(inside,), daemon=True)
    runner.start()
    assert ours.receive()[:1] == b"C"
    ours.send(b"not json")

    assert (
        json.loads(ours.receive()[1:])["note"] == "f(1): ModelError: the answer is not plain data"
    )
    for line in (ours, inside):
        line.close()


def test_a_program_that_does_not_load_says_why() -> None:
    ours, inside = channels()
    job = {"kind": "function", "setup": "", "program": "1 / 0", "entry": "f"}
    ours.send(json.dumps(job).encode())
    harness.run_job(inside)

    assert ours.receive() == b"FZeroDivisionError: division by zero"
    for line in (ours, inside):
        line.close()


def test_a_script_says_why_it_failed(capsys: pytest.CaptureFixture[str]) -> None:
    for program, said in (
        ("print(1)\n1 / 0", b"ZeroDivisionError: division by zero"),
        ("raise SystemExit(2)", b""),
    ):
        ours, inside = channels()
        ours.send(json.dumps({"kind": "script", "program": program}).encode())
        with pytest.raises(SystemExit):
            harness.run_job(inside)
        inside.close()
        with nullcontext() if said else pytest.raises(frames.ClosedError):
            assert ours.receive() == said
        ours.close()
    assert capsys.readouterr().out == "1\n"


def test_messages_have_a_limit_and_a_deadline() -> None:
    ours, (reader, writer) = frames.open_channel()
    with pytest.raises(frames.ClosedError, match="more than"):
        ours.send(bytes(frames.MAX_BYTES + 1))
    with pytest.raises(frames.LateError):
        ours.receive(0.0)
    os.write(writer, b"\xff\xff\xff\xff")
    with pytest.raises(frames.ClosedError, match="more than"):
        ours.receive()
    os.close(reader)
    os.close(writer)
    with pytest.raises(frames.ClosedError, match="gone"):
        ours.receive()
    with pytest.raises(frames.ClosedError, match="gone"):
        ours.send(b"x")
    ours.close()


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        (1.0000001, Approx(1), True),
        (1.1, Approx(1), False),
        (1.1, Approx(1, abs=0.2), True),
        (1.1, Approx(1, rel=0.2), True),
        (1e-13, Approx(0), True),
        (float("nan"), Approx(1), False),
        (float("inf"), Approx(1), False),
        (float("inf"), Approx(float("inf")), True),
        ([1, 2.0000001], Approx([1, 2]), True),
        ([1], Approx([1, 2]), False),
        (1, Approx([1]), False),
        ({"a": 1.0000001}, Approx({"a": 1}), True),
        ({"b": 1}, Approx({"a": 1}), False),
        ("x", Approx("x"), True),
        ("x", Approx(1), False),
    ],
)
def test_approx_agrees_with_pytest(actual: object, expected: Approx, same: bool) -> None:
    real = pytest.approx(expected._expected, rel=expected._rel, abs=expected._abs)

    assert (actual == expected) is same
    assert (actual == real) is same


def test_raises_wants_the_kind_and_the_message() -> None:
    with Raises(ValueError, match="b+") as caught:
        raise ValueError("abc")
    assert str(caught.value) == "abc"
    with pytest.raises(AssertionError, match="did not raise"), Raises(ValueError):
        pass
    with pytest.raises(AssertionError, match="does not match"), Raises(ValueError, match="x"):
        raise ValueError("abc")
    with pytest.raises(KeyError), Raises(ValueError):
        raise KeyError


def test_cases_multiply_and_the_first_failure_is_told() -> None:
    seen: list[tuple[int, int]] = []

    @referee.parametrize("a", [1, 2])
    @referee.parametrize(["b"], [3, referee.param(4)])
    def test_both(a: int, b: int) -> None:
        seen.append((a, b))
        if a == 2:
            referee.fail("two")

    assert referee.run_pytest({"test_both": test_both}) == "test_both: AssertionError: two"
    assert seen == [(1, 3), (1, 4), (2, 3)]
    assert referee.run_pytest({}) == "there are no tests"
