"""What the sandbox for model code costs: milliseconds to run nothing, bare and contained, and to
grade a function.

python bench/sandbox.py [--count 200]
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median, quantiles

from whet.tasks.code.code_tests import CodeFunction
from whet.tasks.code.program import fence
from whet.tasks.code.sandbox import ProgramLimits, run_script
from whet.types import Problem, Verdict

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


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--count", type=int, default=200)
    count = options.parse_args().count
    print(f"{'milliseconds, ' + str(count) + ' runs each':<44} {'median':>8} {'90 %':>8}")
    show("a new Python that does nothing, no sandbox", count, bare)
    show("a script that does nothing, in the sandbox", count, script)
    show("a function and seven tests, two sandboxes", count, function)


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


if __name__ == "__main__":
    main()
