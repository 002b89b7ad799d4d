"""Write a run as large as those people look at, without training one, and time its index.

    python bench/view.py --out runs/large --rollouts 100000 --tokens 300

The rollouts are made of sentences at random, with real tokens, log-probabilities, groups, rewards
and reasons; the share of right answers grows over the steps. tests/viewer/test_browser.py opens such
a run in Chromium and times its pages.
"""

import argparse
import json
import math
import random
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from whet.store.files import append_row, write_json
from whet.store.rollouts import write_rollouts
from whet.text.tokenizer import Tokenizer, train_tokenizer
from whet.types import (
    Author,
    Completion,
    FinishReason,
    Group,
    Message,
    Problem,
    Rollout,
    Score,
    Verdict,
    content_id,
)
from whet.viewer.index import RolloutIndex
from whet.viewer.query import Filters, list_rollouts
from whet.viewer.run_folders import Root

GROUP_SIZE = 10
NUM_PROBLEMS = 400
NUM_SENTENCES = 3_000
CONFIG = """kind = "rl"
seed = 7
steps = {steps}
group_size = 10
problems_per_step = {problems}

[task]
name = "math"

[model]
path = "Qwen/Qwen2.5-0.5B"

[train]
lr = 1e-06

[reward.weights]
correct = 1.0

[[reward.terms]]
weight = 0.5
when = "always"
kind = "overlong"
max_tokens = 320
buffer = 60

[algo]
name = "grpo"

# Where each value came from:
# kind           = "rl"                 # large.toml
# train.lr       = 1e-06                # large.toml
"""
WORDS = re.findall(
    r"\w+",
    "so then we let the sum of both sides be equal to the product which gives a root of this "
    "equation and by symmetry every other factor divides it hence the remainder is zero now check "
    "again wait that cannot be right because the angle is acute therefore subtract twice area",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentences:
    texts: list[str]
    tokens: list[np.ndarray]


def make_sentences(source: random.Random) -> tuple[Tokenizer, Sentences]:
    texts = []
    for _ in range(NUM_SENTENCES):
        words = source.choices(WORDS, k=source.randint(8, 20))
        if source.random() < 0.3:
            words.append(f"$x^{{{source.randint(2, 9)}}} + {source.randint(1, 99)} = y$")
        texts.append(" ".join(words).capitalize() + ".\n")
    # A word is a token, as in the models people train: 300 tokens are some 1,300 characters.
    pieces = [form for word in WORDS for form in (f" {word}", word.capitalize())]
    tokenizer = train_tokenizer([*pieces, ".\n", " $x^{", " = y$"])
    return tokenizer, Sentences(texts=texts, tokens=[tokenizer.encode(text) for text in texts])


def make_problems() -> list[Problem]:
    problems = []
    for number in range(NUM_PROBLEMS):
        a, b = 3 + number % 40, 2 + number // 7
        text = f"Find the largest root of $x^2 - {a + b}x + {a * b} = 0$."
        problems.append(
            Problem(
                id=content_id("math", text),
                task="math" if number % 3 else "countdown",
                prompt=(Message(role="user", content=text),),
                answer=str(max(a, b)),
                payload={},
                level=number / NUM_PROBLEMS,
                split="rl",
                source="synthetic",
            )
        )
    return problems


def make_group(
    problem: Problem,
    step: int,
    skill: float,
    num_tokens: int,
    sentences: Sentences,
    source: random.Random,
) -> Group:
    level = problem.level or 0.0
    chance = 1 / (1 + math.exp(4 * (level - skill)))
    rollouts = []
    for number in range(GROUP_SIZE):
        picks: list[int] = []
        length, wanted = 0, source.gauss(num_tokens, num_tokens / 10)
        while length < wanted:
            picks.append(source.randrange(NUM_SENTENCES))
            length += len(sentences.tokens[picks[-1]])
        tokens = np.concatenate([sentences.tokens[i] for i in picks])
        is_right = source.random() < chance
        verdict = Verdict.CORRECT if is_right else Verdict.WRONG
        if not is_right and source.random() < 0.1:
            verdict = Verdict.NO_ANSWER
        answer = problem.answer if is_right else str(source.randint(1, 40))
        stated = "" if verdict is Verdict.NO_ANSWER else f"\nThe answer is $\\boxed{{{answer}}}$."
        over = min(max((260 - len(tokens)) / 60, -1.0), 0.0)
        rollouts.append(
            Rollout(
                id=f"{problem.id}@{step}:{number}",
                group_id=f"{problem.id}@{step}",
                problem=problem,
                author=Author.SOLVER,
                model="policy",
                prompt_tokens=sentences.tokens[0],
                completion=Completion(
                    tokens=tokens,
                    logprobs=-np.abs(
                        np.random.default_rng(step).normal(0.5, 0.5, len(tokens))
                    ).astype(np.float32),
                    finish_reason=FinishReason.STOP if stated else FinishReason.LENGTH,
                    policy_version=step - 1,
                ),
                text="".join(sentences.texts[i] for i in picks) + stated,
                score=Score(
                    verdict=verdict,
                    parts={"correct": float(is_right), "asked": float(source.random() < 0.3)},
                    answer=answer if stated else None,
                    note="equal to the reference" if is_right else f"{answer} is not the root",
                ),
                reward=float(is_right) + 0.5 * over,
            )
        )
    return tuple(rollouts)


def write_run(folder: Path, *, num_rollouts: int, num_tokens: int, per_step: int = 1_000) -> None:
    """Write the folder of a run of reinforcement learning with so many rollouts."""
    source = random.Random(0)
    tokenizer, sentences = make_sentences(source)
    problems = make_problems()
    steps = max(num_rollouts // per_step, 1)
    num_groups = min(per_step, num_rollouts) // GROUP_SIZE
    tokenizer.save(folder / "checkpoints" / f"{steps:06d}")
    (folder / "config.toml").write_text(CONFIG.format(steps=steps, problems=num_groups))
    write_json(folder / "provenance.json", {"started": "2026-11-18T00:00:00+00:00", "seed": 7})
    append_row(folder / "ledger.jsonl", {"time": "2026-11-18T00:00:00+00:00", "event": "start"})
    for step in range(1, steps + 1):
        skill = step / steps
        groups = [
            make_group(problem, step, skill, num_tokens, sentences, source)
            for problem in source.choices(problems, k=num_groups)
        ]
        write_rollouts(folder / "rollouts" / f"train-{step:06d}.parquet", groups)
        rewards = [rollout.reward or 0.0 for group in groups for rollout in group]
        row = {"step": step, "reward/mean": sum(rewards) / len(rewards)}
        row |= {
            "time/step": 10.0,
            "time/sample": 6.0 + skill,
            "time/update": 3.0,
            "time/grade": 0.2,
        }
        append_row(folder / "metrics.jsonl", row)
    write_json(folder / "summary.json", {"step": steps})


def time_index(folder: Path) -> dict[str, float]:
    """Time how long a first index takes, opening it again, and some questions."""
    root = Root(folder)
    times = {}
    with tempfile.TemporaryDirectory() as cache:
        start = time.monotonic()
        RolloutIndex(root, root.run("."), Path(cache)).refresh(wait=600)
        times["index"] = time.monotonic() - start
        start = time.monotonic()
        index = RolloutIndex(root, root.run("."), Path(cache))
        index.refresh(wait=600)
        times["open"] = time.monotonic() - start
        questions = {
            "all": {},
            "verdict": {"verdict": "correct", "reward": "0.5..", "step": "10..90"},
            "rare text": {"q": "wait that cannot be right because"},
            "frequent text": {"q": "the"},
        }
        for name, params in questions.items():
            start = time.monotonic()
            list_rollouts(
                index.columns, Filters.from_params(params), sort="-step", offset=0, limit=50
            )
            times[name] = time.monotonic() - start
        times["megabytes"] = sum(f.stat().st_size for f in Path(cache).rglob("*.arrow")) / 1e6
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rollouts", type=int, default=100_000)
    parser.add_argument("--tokens", type=int, default=300)
    given = parser.parse_args()
    if not given.out.exists():
        write_run(given.out, num_rollouts=given.rollouts, num_tokens=given.tokens)
    print(json.dumps({name: round(value, 3) for name, value in time_index(given.out).items()}))


if __name__ == "__main__":
    main()
