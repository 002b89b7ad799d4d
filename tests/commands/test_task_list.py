"""The list of tasks, and the proof of graders, as a person sees them."""

from pathlib import Path

import pytest

from whet.commands.task_list import check_tasks, list_tasks
from whet.errors import DataError
from whet.tasks.registry import TASKS


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
    check_tasks("reverse", None)

    said = capsys.readouterr()
    assert "20 problems (0 with no gold), " in said.out + said.err
    with pytest.raises(DataError, match="cannot read"):
        check_tasks(None, Path("none.jsonl"))
