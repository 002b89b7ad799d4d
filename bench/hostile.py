"""Grade 1,000 answers of which 10 % are hostile on two workers: the time it takes, and that the
others are unchanged.

    python bench/hostile.py --answers 1000 --workers 2

The friendly answers are real ones: `qwen_math_outputs`, `gsm8k_model_solutions` and `math500` of
../shared/data. The hostile ones are power towers, huge factorials, million-character strings and
deep nesting, put as answers to the same problems, and once more as the references themselves. It
fails where a worker is lost, a friendly score differs from that of a run without hostile answers, a
hostile answer is correct, or 60 s are not enough.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path

from whet.grading.grader import Grader
from whet.grading.limits import GradingConfig
from whet.rng import make_rng
from whet.store.files import read_rows
from whet.tasks.math.task import Math
from whet.types import Message, Problem, Score, Verdict, content_id

DATA = Path(__file__).parents[1] / ".." / "shared" / "data"
Answer = tuple[Problem, str]


def hostile_texts() -> Iterator[str]:
    """Write every kind of hostile answer, endlessly, each time a little larger."""
    for size in cycle(range(1, 12)):
        yield rf"\boxed{{{'^'.join(['9'] * (size + 2))}}}"
        yield rf"\boxed{{9^{{{'9^{' * size}9{'}' * size}}}}}"
        yield rf"\boxed{{{10**size}!}}"
        yield rf"\boxed{{{'9' * size}{'!' * size}}}"
        yield rf"\boxed{{{'9' * 1_000_000}}}"
        yield "x" * 1_000_000 + r"\boxed{1}"
        yield rf"\boxed{{{'(' * 10_000}1{')' * 10_000}}}"
        yield r"\boxed{" + r"\frac{1}{" * 5_000 + "2" + "}" * 5_001
        yield r"\boxed{" * 100_000
        yield rf"\boxed{{{'+'.join(['x^{999999}'] * 2_000)}}}"
        yield rf"\boxed{{\sum_{{n=1}}^{{{10**size}}} \frac{{1}}{{n^n}}}}"
        yield rf"\boxed{{(x+y+z)^{{{10**size}}}}}"
        yield r"\boxed{" + r"\sqrt{" * 300 + "2" + "}" * 301
        yield rf"\boxed{{2^{{{10**size}}} \bmod {10**size + 7}}}"
        yield r"\boxed{__import__('os').system('sleep 60')}"


def friendly_answers() -> Iterator[Answer]:
    """Read real answers to real problems."""
    for row in read_rows(DATA / "qwen_math_outputs.jsonl"):
        for sample in row["samples"]:
            yield problem(str(row["question"]), str(row["gt"])), str(sample["response"])
    for row in read_rows(DATA / "gsm8k_model_solutions.jsonl"):
        reference = str(row["ground_truth"]).rpartition("A: ")[2]
        yield problem(str(row["question"]), reference), str(row["solution"])
    for row in read_rows(DATA / "math500.jsonl"):
        yield problem(str(row["problem"]), str(row["answer"])), str(row["solution"])


def problem(question: str, answer: str) -> Problem:
    return Problem(
        id=content_id("math", question),
        task="math",
        prompt=(Message(role="user", content=question),),
        answer=answer,
        payload={},
        level=None,
        split="test",
        source="bench",
    )


def mixed(num: int, share: float) -> tuple[list[Answer], list[bool]]:
    """Put hostile answers at random places among friendly ones; every fourth is also made the
    reference."""
    rng = make_rng(0, "hostile", num)
    friendly = list(friendly_answers())
    rng.shuffle(friendly)
    is_hostile = [place < share * num for place in range(num)]
    rng.shuffle(is_hostile)
    texts, real = hostile_texts(), cycle(friendly)
    answers = []
    for place, bad in enumerate(is_hostile):
        asked, text = next(real)
        if bad:
            text = next(texts)
            asked = replace(asked, answer=text[:10_000]) if place % 4 == 0 else asked
        answers.append((asked, text))
    return answers, is_hostile


def timed(answers: list[Answer], limits: GradingConfig) -> tuple[list[Score], float, int]:
    """Grade with workers that are up; the scores, the seconds, and how many workers were lost."""
    with Grader(Math(), limits) as grader:
        list(grader.grade([(0, *answers[0])]))
        began = time.perf_counter()
        scores = dict(grader.grade((place, *answer) for place, answer in enumerate(answers)))
        return (
            [scores[place] for place in range(len(answers))],
            time.perf_counter() - began,
            grader.num_lost,
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--answers", type=int, default=1000)
    parser.add_argument("--share", type=float, default=0.1, help="of hostile answers")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--wall", type=float, default=10.0)
    args = parser.parse_args()
    limits = GradingConfig(workers=args.workers, wall=args.wall, unscored_fraction=1.0)
    answers, is_hostile = mixed(args.answers, args.share)
    friendly = [answer for answer, bad in zip(answers, is_hostile, strict=True) if not bad]
    alone, alone_seconds, _ = timed(friendly, limits)
    scores, seconds, num_lost = timed(answers, limits)
    kept = [score for score, bad in zip(scores, is_hostile, strict=True) if not bad]
    bad_scores = [
        (answer, score)
        for answer, score, bad in zip(answers, scores, is_hostile, strict=True)
        if bad
    ]
    fooled = [
        text
        for (asked, text), score in bad_scores
        if score.verdict is Verdict.CORRECT and asked.answer != text
    ]
    changed = sum(a != b for a, b in zip(alone, kept, strict=True))
    for (_, text), score in bad_scores:
        if score.verdict is Verdict.UNSCORED:
            print(
                f"unscored: {text[:60]!r} ({len(text):,} characters): {score.note}", file=sys.stderr
            )
    for text in fooled:
        print(f"taken for correct: {text[:60]!r} ({len(text):,} characters)", file=sys.stderr)
    found = {
        "answers": len(answers),
        "hostile": len(bad_scores),
        "seconds": round(seconds, 2),
        "seconds_without_hostile": round(alone_seconds, 2),
        "friendly_changed": changed,
        "workers_lost": num_lost,
        "hostile_verdicts": dict(Counter(score.verdict.value for _, score in bad_scores)),
        "friendly_verdicts": dict(Counter(score.verdict.value for score in kept)),
        "hostile_taken_for_correct": len(fooled),
    }
    print(json.dumps(found))
    return 0 if seconds < 60 and not changed and not num_lost and not fooled else 1


if __name__ == "__main__":
    sys.exit(main())
