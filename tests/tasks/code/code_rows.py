"""The code rows of ../shared/data as problems, for tests."""

import json
import re
from pathlib import Path

import pytest

from whet.types import Json, Problem

DATA = Path(__file__).parents[4] / "shared" / "data"


def make(task: str, payload: dict[str, Json], answer: str | None = None, id: str = "x") -> Problem:
    return Problem(
        id=f"{task}/{id}",
        task=task,
        prompt=(),
        answer=answer,
        payload=payload,
        level=None,
        split="test",
        source="test",
    )


def read(name: str) -> list[dict[str, Json]]:
    file = DATA / f"{name}.jsonl"
    if not file.exists():
        pytest.skip(f"{file.name} is not beside this repository")
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def humaneval() -> list[Problem]:
    return [
        make(
            "code_function",
            {"entry": row["entry_point"], "tests": [row["test"]], "setup": row["prompt"]},
            f"{row['prompt']}{row['canonical_solution']}",
            str(row["task_id"]),
        )
        for row in read("humaneval")
    ]


def mbpp() -> list[Problem]:
    problems = []
    for row in read("mbpp_sanitized"):
        tests = [str(text) for text in [*row["test_imports"], *row["test_list"]]]
        defined = re.findall(r"^def (\w+)", str(row["code"]), re.MULTILINE)
        entry = next(name for name in defined if any(f"{name}(" in text for text in tests))
        problems.append(
            make(
                "code_function",
                {"entry": entry, "tests": tests},
                str(row["code"]),
                str(row["task_id"]),
            )
        )
    return problems


def leetcode() -> list[Problem]:
    return [
        make(
            "code_function",
            {"entry": row["entry_point"], "tests": [row["test"]], "setup": row["prompt"]},
            str(row["completion"]),
            str(row["task_id"]),
        )
        for row in read("leetcode")
    ]
