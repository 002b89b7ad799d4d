"""Whether a slow grader slows sampling: tokens per second with one that sleeps against an instant
one.

    python bench/grading_overlap.py --seconds 1 --answers 256 --new-tokens 200

Both graders run in two worker processes, in turn over the same requests to a small model on the
CPU. Sampling is timed until the engine has finished its last answer. The last line is the ratio of
the medians; the command fails below 0.95.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from pydantic import Field

from whet.config import Config
from whet.engine.base import Request, SamplingParams
from whet.engine.native import NativeConfig, NativeEngine
from whet.grading.grader import Grader
from whet.grading.limits import GradingConfig
from whet.tasks.base import Task
from whet.tasks.user_task import load_user_task
from whet.testing.fakes import sum_problem
from whet.testing.tiny import tiny_model
from whet.types import Problem, Score, Split, Verdict

LEAST_RATIO = 0.95


class SleepyConfig(Config):
    seconds: float = Field(default=0.0, ge=0)
    """How long grading one answer takes."""


class Sleepy(Task):
    """Takes its time over every answer, which is always wrong."""

    name = "sums"

    def __init__(self, config: SleepyConfig | None = None) -> None:
        self.config = config or SleepyConfig()

    def problems(self, split: Split) -> list[Problem]:
        return [sum_problem(1, 2, split)]

    def score(self, problem: Problem, text: str) -> Score:
        time.sleep(self.config.seconds)
        return Score(verdict=Verdict.WRONG, parts={"correct": 0.0})

    def solve(self, problem: Problem, seed: int) -> str | None:
        return problem.answer


def measure_rate(engine: NativeEngine, requests: list[Request], seconds: float) -> float:
    """Sample all requests under a grader that takes so long; return the engine's tokens per
    second."""
    task = load_user_task(f"{Path(__file__)}:Sleepy", {"seconds": seconds})
    [problem] = task.problems("rl")
    num_tokens = 0
    ended: float | None = None

    def sample() -> Iterator[tuple[str, Problem, str]]:
        nonlocal num_tokens, ended
        for id, completion in engine.generate(requests):
            num_tokens += len(completion.tokens)
            yield id, problem, ""
        ended = time.perf_counter()

    with Grader(task, GradingConfig(workers=2, wall=10 + seconds)) as grader:
        list(grader.grade([("warm-up", problem, "")]))
        began = time.perf_counter()
        for _ in grader.grade(sample()):
            if ended is not None:
                break
    assert ended is not None, "the engine finishes every request"
    return num_tokens / (ended - began)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="the slow grader takes")
    parser.add_argument("--answers", type=int, default=256)
    parser.add_argument("--new-tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    model = tiny_model(positions=args.new_tokens + 16)
    engine = NativeEngine(model, NativeConfig(max_num_seqs=16), stop_tokens=frozenset())
    requests = [
        Request(
            id=str(number),
            prompt=np.array([1, 2, 3], dtype=np.int32),
            # Different lengths, so that answers end one by one.
            sampling=SamplingParams(max_tokens=1 + args.new_tokens * (number % 7 + 1) // 7),
            seed=number,
        )
        for number in range(args.answers)
    ]
    measure_rate(engine, requests, 0.0)
    rates: dict[float, list[float]] = {0.0: [], args.seconds: []}
    for _ in range(args.rounds):
        for seconds, measured in rates.items():
            measured.append(measure_rate(engine, requests, seconds))
    medians = {seconds: statistics.median(measured) for seconds, measured in rates.items()}
    for seconds, measured in rates.items():
        print(
            f"grader of {seconds:g} s: {medians[seconds]:,.0f} tokens/s "
            f"({min(measured):,.0f} to {max(measured):,.0f}, {args.rounds} rounds)"
        )
    ratio = medians[args.seconds] / medians[0.0]
    print(f"ratio {ratio:.3f}, at least {LEAST_RATIO:g} wanted")
    return 0 if ratio >= LEAST_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
