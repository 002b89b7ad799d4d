"""A math problem in one line, and the shared data where it is there."""

import json
from pathlib import Path

import pytest

from whet.tasks.math import Math, MathConfig
from whet.types import Json, Problem, Verdict

DATA = Path(__file__).parents[3] / ".." / "shared" / "data"


def problem(answer: str | None, **payload: Json) -> Problem:
    return Problem(
        id="math/test",
        task="math",
        prompt=(),
        answer=answer,
        payload=payload,
        level=None,
        split="test",
        source="test",
    )


def verdict(
    gold: str | None, text: str, config: MathConfig | None = None, **payload: Json
) -> Verdict:
    return Math(config).score(problem(gold, **payload), text).verdict


def is_right(gold: str, answer: str, config: MathConfig | None = None, **payload: Json) -> bool:
    """Whether a boxed answer is graded as the reference."""
    return verdict(gold, rf"\boxed{{{answer}}}", config, **payload) is Verdict.CORRECT


def rows(name: str) -> list[dict]:  # type: ignore[type-arg]
    file = DATA / f"{name}.jsonl"
    if not file.exists():
        pytest.skip(f"{name}.jsonl is not beside the repository")
    return [json.loads(line) for line in file.read_text().splitlines()]
