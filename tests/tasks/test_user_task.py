"""A user's own task: a file and a class in it, with every mistake named in one sentence."""

from pathlib import Path

import pytest

from whet.config import load
from whet.errors import ConfigError
from whet.grading.check_task import check
from whet.grading.limits import Limits
from whet.tasks.user_task import OwnConfig, own_task
from whet.types import Verdict

DOUBLES = '''
from dataclasses import dataclass

from whet.tasks.base import Task
from whet.types import Message, Problem, Score, Verdict, content_id


@dataclass
class Fine:
    words: str


class Doubles(Task):
    """Twice a number."""

    name = "doubles"

    def problems(self, split):
        for number in range(1, 9):
            yield Problem(
                id=content_id("doubles", number),
                task="doubles",
                prompt=(Message(role="user", content=f"Twice {number}?"),),
                answer=str(2 * number),
                payload={},
                level=None,
                split=split,
                source="own",
            )

    def score(self, problem, text):
        right = text.strip() == problem.answer
        verdict = Verdict.CORRECT if right else Verdict.WRONG
        return Score(verdict=verdict, parts={"correct": float(right)}, answer=text.strip() or None)

    def solve(self, problem, seed):
        return problem.answer


class Half(Task):
    name = "half"


class Needy(Doubles):
    def __init__(self, config):
        self.config = config
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_task.py"
    path.write_text(DOUBLES)
    return path


def test_a_task_from_a_file_is_graded_here_and_in_workers(file: Path) -> None:
    task = own_task(f"{file}:Doubles")
    problems = list(task.problems("rl"))

    assert task.score(problems[2], " 6\n").verdict is Verdict.CORRECT
    assert check(task, problems, limits=Limits(workers=0)) == []
    assert check(task, problems, limits=Limits(workers=1)) == []


def test_a_file_is_run_once(file: Path) -> None:
    first, again = own_task(f"{file}:Doubles"), own_task(f"{file}:Doubles")

    assert type(first) is type(again)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "{file}:Triples",
            "has no class Triples that inherits from whet.tasks.base.Task; it has Doubles, Half, Needy",
        ),
        ("{file}:Fine", "has no class Fine that inherits"),
        ("{file}:Half", "lacks problems, score, solve"),
        ("{file}:Needy", "should be made without arguments"),
        ("{file}", "should be a file and a class in it"),
        ("nowhere.py:Name", "there is no file nowhere.py"),
    ],
)
def test_mistakes_are_named(file: Path, name: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        own_task(name.format(file=file))


def test_a_file_that_does_not_run_is_named_with_its_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def half(")

    with pytest.raises(ConfigError, match=r"broken\.py cannot be loaded: SyntaxError"):
        own_task(f"{broken}:Name")


def test_settings_take_a_file_and_a_class_only() -> None:
    assert load(OwnConfig, None, ["--path", "my_task.py:Name"]).config.path == "my_task.py:Name"
    with pytest.raises(
        ConfigError, match=r'should be a file and a class in it, such as "my_task\.py:Name"'
    ):
        load(OwnConfig, None, ["--path", "game24"])
