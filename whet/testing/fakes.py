"""Small fakes for tests: training sequences, rollouts with given rewards, a task of sums."""

from collections.abc import Sequence

import numpy as np

from whet.batching.examples import Example
from whet.tasks.base import Task
from whet.types import (
    SPLITS,
    Author,
    Completion,
    FinishReason,
    Group,
    Message,
    Problem,
    Rollout,
    Score,
    Split,
    Verdict,
    content_id,
)


def example(
    *,
    length: int,
    start: int = 1,
    loss_weight: float = 1.0,
    advantage: float = 0.0,
    seed: int = 0,
    temperature: float = 1.0,
) -> Example:
    """Make a training sequence of random tokens below 50."""
    tokens = np.random.default_rng(seed).integers(0, 50, size=length).astype(np.int32)
    return Example(
        tokens=tokens,
        response_start=start,
        group_id="g",
        rollout_id=f"r{seed}",
        loss_weight=loss_weight,
        advantage=advantage,
        temperature=temperature,
        sampling_logprob_M=np.zeros(length - start, dtype=np.float32),
    )


def sum_problem(left: int, right: int, split: Split = "rl") -> Problem:
    return Problem(
        id=content_id("sums", [left, right]),
        task="sums",
        prompt=(Message(role="user", content=f"{left} + {right}"),),
        answer=str(left + right),
        payload={"numbers": [left, right]},
        level=0.0,
        split=split,
        source="made",
    )


def rollout(
    *,
    reward: float | None = None,
    score: Score | None = None,
    number: int = 0,
    tokens: Sequence[int] = (5, 6, 7),
    prompt: Sequence[int] = (1, 2),
    finish: FinishReason = FinishReason.STOP,
    problem: Problem | None = None,
    text: str = "3",
) -> Rollout:
    """Make a rollout of chosen tokens; the n-th token's log-probability is -0.1 n."""
    problem = problem or sum_problem(1, 2)
    logprobs = -0.1 * np.arange(1, len(tokens) + 1, dtype=np.float32)
    return Rollout(
        id=f"{problem.id}:0/{number}",
        group_id=f"{problem.id}:0",
        problem=problem,
        author=Author.SOLVER,
        model="tiny",
        prompt_tokens=np.array(prompt, dtype=np.int32),
        completion=Completion(
            tokens=np.array(tokens, dtype=np.int32),
            logprobs=logprobs.astype(np.float32),
            finish_reason=finish,
            policy_version=0,
        ),
        text=text,
        score=score,
        reward=reward,
    )


def group(rewards: Sequence[float | None]) -> Group:
    """Make a group with given rewards; None is for a response that could not be scored."""
    return tuple(rollout(reward=reward, number=number) for number, reward in enumerate(rewards))


class SumTask(Task):
    """Sums of two numbers below ten; the response must be exactly the sum."""

    name = "sums"
    is_bounded = True

    def problems(self, split: Split) -> list[Problem]:
        quarter = SPLITS.index(split)
        return [
            sum_problem(left, right, split)
            for left in range(10)
            for right in range(10)
            if (left + right) % 4 == quarter
        ]

    def parse_question(self, question: str) -> Problem | None:
        numbers = question.split(" + ")
        is_sum = len(numbers) == 2 and all(
            number.isdecimal() and len(number) < 3 for number in numbers
        )
        return sum_problem(int(numbers[0]), int(numbers[1])) if is_sum else None

    def score(self, problem: Problem, text: str) -> Score:
        is_right = text == problem.answer
        verdict = Verdict.CORRECT if is_right else Verdict.WRONG if text else Verdict.NO_ANSWER
        return Score(verdict=verdict, parts={"correct": float(is_right)}, answer=text or None)

    def solve(self, problem: Problem, seed: int) -> str | None:
        return problem.answer
