"""A grader of the user's own that hangs, ends its process or raises is found before the run, in one
sentence that names its file and class."""

from pathlib import Path

import pytest
from small import Pipeline, Said, whet, write

GRADERS = """import os
import time

from whet.tasks.game24.task import Game24


class Sleeps(Game24):
    name = "odd"

    def score(self, problem, text):
        time.sleep(3600)


class Loops(Game24):
    name = "odd"

    def score(self, problem, text):
        while True:
            pass


class Leaves(Game24):
    name = "odd"

    def score(self, problem, text):
        os._exit(3)


class Recurs(Game24):
    name = "odd"

    def score(self, problem, text):
        return self.score(problem, text)


class Allocates(Game24):
    name = "odd"

    def score(self, problem, text):
        return bytearray(1 << 40)
"""
RL = """kind = "rl"
task = "{task}"
steps = 2
model = {{ path = "{model}" }}
sampling = {{ max_tokens = 32 }}
grading = {{ wall = 0.5 }}
"""


@pytest.fixture
def graders(tmp_path: Path) -> Path:
    return write(tmp_path / "odd.py", GRADERS)


def start(tiny: Pipeline, graders: Path, name: str) -> Said:
    text = RL.format(task=f"{graders}:{name}", model=tiny.folder / "03-sft")
    file = write(graders.parent / "rl.toml", text)
    return whet("rl", file, "--out", graders.parent / "run")


@pytest.mark.parametrize("name", ["Sleeps", "Loops"])
def test_a_grader_that_hangs_stops_the_start_after_its_first_timeout(
    tiny: Pipeline, graders: Path, name: str
) -> None:
    said = start(tiny, graders, name)

    assert said.code == 2 and not (graders.parent / "run").exists()
    assert said.err.splitlines() == [
        f"trying the grader of odd ({graders}:{name}) on the first 4 problems",
        f"whet: the grader of odd ({graders}:{name}) hangs on 'qwx vrrk tpl' (grading took more "
        "than 0.5 s): let its score end soon on any text, or raise grading.wall",
    ]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Leaves", "the grading process ended with code 3"),
        ("Recurs", "the grader raised RecursionError: maximum recursion depth exceeded"),
        ("Allocates", "grading ran out of the memory it may take"),
    ],
)
def test_a_grader_that_ends_its_process_or_raises_is_named_with_file_and_class(
    tiny: Pipeline, graders: Path, name: str, reason: str
) -> None:
    said = start(tiny, graders, name)

    assert said.code == 2 and not (graders.parent / "run").exists()
    grader = f"the grader of odd ({graders}:{name})"
    assert f"{grader} cannot grade a response to " in said.last and reason in said.last
    assert said.last.endswith(f": `whet tasks check {graders}:{name}` tries it on its own problems")


def test_a_grader_that_fails_says_nothing_of_the_reward(tiny: Pipeline, graders: Path) -> None:
    assert "reward" not in start(tiny, graders, "Recurs").err
