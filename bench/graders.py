"""Our math grader against math-verify: agreement on the shared test cases, and rate on real
answers, one process each.

    python bench/graders.py [--data ../shared/data] [--count 10000]

Agreement is over the rows of `equivalence.jsonl` of category math and convention null. For
math-verify references are boxed, `answer` predictions are boxed, everything else is its default.
The rate is over pairs of a real response and a reference, each pair once: a response with its own
reference first, then with those of other rows.
"""

import argparse
import json
import logging
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from math_verify import parse, verify

from whet.tasks.math import Math
from whet.types import Problem, Verdict

ROOT = Path(__file__).parents[1]
Grader = Callable[[str, str], bool]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--data", type=Path, default=ROOT / ".." / "shared" / "data")
    options.add_argument("--count", type=int, default=10_000)
    given = options.parse_args()
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    agreement(given.data)
    rates(given.data, given.count)


def agreement(data: Path) -> None:
    """Print how often each grader says what the test cases expect."""
    cases = [
        row
        for row in rows(data, "equivalence")
        if row["category"] == "math" and row["convention"] is None
    ]
    print(f"{'agreement with expected_equal':<44} {'rows':>5} {'whet':>8} {'math-verify':>12}")
    for level in ("answer", "response"):
        chosen = [row for row in cases if row["level"] == level]
        foreign = [row for row in chosen if not row["source"].startswith("huggingface/Math-Verify")]
        for name, group in (
            (level, chosen),
            (f"{level}, not from math-verify's own tests", foreign),
        ):
            shares = [agreed(grader, group) for grader in (by_whet, by_math_verify)]
            print(f"{name:<44} {len(group):>5} {shares[0]:>8.1%} {shares[1]:>12.1%}")


def agreed(grader: Grader, cases: list[dict]) -> float:
    told = (
        grader(
            row["gold"], boxed(row["prediction"]) if row["level"] == "answer" else row["prediction"]
        )
        for row in cases
    )
    return sum(said == row["expected_equal"] for said, row in zip(told, cases, strict=True)) / len(
        cases
    )


def rates(data: Path, count: int) -> None:
    """Print answers a second on real responses."""
    pairs = list(islice(mixed(data), count))
    print(f"\nrate over {len(pairs)} real answers, one process")
    graders = {
        "whet": by_whet,
        "math-verify": by_math_verify,
        "math-verify, no timeouts": by_math_verify_unbounded,
    }
    base = 0.0
    for name, grader in graders.items():
        grader("1", r"\boxed{2}")
        start, slowest, num_right = time.perf_counter(), 0.0, 0
        for gold, response in pairs:
            before = time.perf_counter()
            num_right += grader(gold, response)
            slowest = max(slowest, time.perf_counter() - before)
        rate = len(pairs) / (time.perf_counter() - start)
        base = base or rate
        print(
            f"{name:<26} {rate:>9.0f} a second, slowest {slowest:.3f} s, {num_right} right; whet is {base / rate:.1f} x"
        )


def mixed(data: Path) -> Iterator[tuple[str, str]]:
    """Pair every response with its own reference, then with the reference one row on, two rows on,
    and so forth."""
    answers = [
        (row["gt"], sample["response"])
        for row in rows(data, "qwen_math_outputs")
        for sample in row["samples"]
    ]
    answers += [
        (row["ground_truth"].rpartition("A:")[2].strip(), row["solution"])
        for row in rows(data, "gsm8k_model_solutions")
    ]
    answers += [(row["answer"], row["solution"]) for row in rows(data, "math500")]
    for shift in range(len(answers)):
        for place, (_, response) in enumerate(answers):
            yield answers[(place + shift) % len(answers)][0], response


def by_whet(gold: str, response: str) -> bool:
    problem = Problem(
        id="math/bench",
        task="math",
        prompt=(),
        answer=gold,
        payload={},
        level=None,
        split="test",
        source="bench",
    )
    return TASK.score(problem, response).verdict is Verdict.CORRECT


def by_math_verify(gold: str, response: str) -> bool:
    try:
        return bool(verify(parse(boxed(gold)), parse(response)))
    except Exception:
        return False


def by_math_verify_unbounded(gold: str, response: str) -> bool:
    try:
        left, right = (
            parse(boxed(gold), parsing_timeout=None),
            parse(response, parsing_timeout=None),
        )
        return bool(verify(left, right, timeout_seconds=None))
    except Exception:
        return False


def boxed(text: str) -> str:
    return text if "\\boxed" in text else rf"\boxed{{{text}}}"


def rows(data: Path, name: str) -> list[dict]:
    return [json.loads(line) for line in (data / f"{name}.jsonl").read_text().splitlines()]


TASK = Math()

if __name__ == "__main__":
    main()
