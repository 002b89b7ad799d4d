"""What grading model code costs: milliseconds to run nothing, bare and contained, to grade a
function, and to start `whet grade` for a single row.

python bench/sandbox.py [--count 200]
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles

from whet.tasks.code.code_tests import CodeFunction
from whet.tasks.code.program import fence
from whet.tasks.code.sandbox import ProgramLimits, run_script
from whet.types import Json, Problem, Verdict

PROBLEM = Problem(
    id="code_function/bench",
    task="code_function",
    prompt=(),
    answer=None,
    payload={"entry": "f", "tests": [f"assert f({number}) == {number + 1}" for number in range(7)]},
    level=None,
    split="test",
    source="bench",
)


ROWS: dict[str, dict[str, Json]] = {
    "math": {"answer": "12", "response": "So \\boxed{12}."},
    "code_function": {
        "payload": dict(PROBLEM.payload),
        "response": fence("def f(x):\n    return x + 1"),
    },
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--count", type=int, default=200)
    count = options.parse_args().count
    print(f"{'milliseconds, ' + str(count) + ' runs each':<44} {'median':>8} {'90 %':>8}")
    show("a new Python that does nothing, no sandbox", count, bare)
    show("a script that does nothing, in the sandbox", count, script)
    show("a function and seven tests, two sandboxes", count, function)
    for task, row in ROWS.items():
        show(f"whet grade, one row of {task}", max(5, count // 20), lambda row=row: grade(row))


def show(what: str, count: int, run: Callable[[], None]) -> None:
    run()
    times = []
    for _ in range(count):
        start = time.perf_counter()
        run()
        times.append(1000 * (time.perf_counter() - start))
    print(f"{what:<44} {median(times):>8.1f} {quantiles(times, n=10)[-1]:>8.1f}")


def bare() -> None:
    subprocess.run([sys.executable, "-S", "-c", "pass"], check=True)


def script() -> None:
    with tempfile.TemporaryFile() as nothing:
        assert run_script("pass", nothing, ProgramLimits()).fault == ""


def function() -> None:
    score = CodeFunction().score(PROBLEM, fence("def f(x):\n    return x + 1"))
    assert score.verdict is Verdict.CORRECT, score.note


def grade(row: dict[str, Json]) -> None:
    task = "code_function" if "payload" in row else "math"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "rows.jsonl")
        source.write_text(json.dumps({"id": 1, "task": task, **row}))
        command = [sys.executable, "-m", "whet", "grade", str(source), "--out", f"{folder}/out"]
        subprocess.run(command, check=True, capture_output=True)
        assert '"correct"' in Path(folder, "out").read_text()


if __name__ == "__main__":
    main()
