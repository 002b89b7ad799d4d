"""The list of tasks, and the proof of graders, as a person sees them."""

from pathlib import Path

import pytest

from whet.commands.grade_file import EXAMPLES, check_graders
from whet.commands.problem_files import list_tasks
from whet.data.problems import read_problems
from whet.errors import DataError
from whet.tasks.registry import TASKS, build_default_task
from whet.types import SPLITS


def test_every_task_is_listed_under_its_whole_name_and_what_contains_programs_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    list_tasks()

    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(TASKS)
    assert any("any number  0.0 to 1.0" in line for line in lines)
    assert said.err.startswith(
        ("programs of models run in ", "this machine does not allow the sandbox")
    )


def test_a_task_is_proved_on_its_own_problems(capsys: pytest.CaptureFixture[str]) -> None:
    check_graders("reverse", None)

    said = capsys.readouterr()
    assert "20 problems (0 with no gold), " in said.out + said.err
    with pytest.raises(DataError, match="cannot read"):
        check_graders(None, Path("none.jsonl"))


@pytest.mark.parametrize("name", ["math", "table", "choice", "yes_no", "codeio", "code_stdin"])
def test_a_task_that_makes_no_problems_is_proved_on_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_graders(name, None)

    said = capsys.readouterr()
    assert "0 failures" in said.out + said.err
    assert "\n0 problems" not in said.out + said.err


def test_there_are_examples_for_every_task_that_makes_no_problems_but_the_judge() -> None:
    tasks = [build_default_task(name) for name in TASKS]
    without = {
        task.name for task in tasks if not any(next(iter(task.problems(s)), None) for s in SPLITS)
    }

    assert {problem.task for problem in read_problems(EXAMPLES)} == without - {"judge"}
