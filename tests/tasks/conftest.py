"""Tests that take a `spoken_case` get the cases of the table beside them: for `test_x.py`, those of
`x.txt`.

A table holds `@` and a problem as JSON with `task`, `answer`, `payload` and perhaps the `question`,
then lines of `yes` or `no` and a whole response that answers it or not. The sign `⏎` stands for a line break.
"""

import json
from pathlib import Path

import pytest

from whet.types import Message, Problem

Said = tuple[Problem, str, bool]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "spoken_case" in metafunc.fixturenames:
        file = Path(metafunc.module.__file__)
        found = cases(file.with_name(file.stem.removeprefix("test_") + ".txt"))
        metafunc.parametrize(
            "spoken_case",
            found,
            ids=[f"{case[0].task}-{place}" for place, case in enumerate(found)],
        )


def cases(file: Path) -> list[Said]:
    found: list[Said] = []
    problem: Problem | None = None
    for line in file.read_text().splitlines():
        if line.startswith("@ "):
            fields = json.loads(line[2:])
            question = fields.pop("question", "What is asked?")
            prompt = (Message(role="user", content=question),)
            problem = Problem(
                id="said/0", prompt=prompt, level=None, split="test", source="written", **fields
            )
        elif line:
            assert problem is not None, "a table starts with a problem"
            expected, _, response = line.partition(" ")
            found.append(
                (
                    problem,
                    response.strip(" ").replace("⏎", "\n"),
                    {"yes": True, "no": False}[expected],
                )
            )
    return found
