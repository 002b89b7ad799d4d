"""What a person meets who writes a first task: names that are nearly right, a grader that raises, a
question of one's own task."""

import re
from pathlib import Path

import pytest
from small import Pipeline, Said, whet, write

from whet.data.problems import read_problems

TASK = """
from whet.tasks.answers import to_score
from whet.tasks.base import Task
from whet.tasks.generated import question


class Echo(Task):
    name = "echo"

    def problems(self, split):
        for number in range(3, 9):
            asked = f"{number} {split}"
            answer = str(number)
            yield question(self.name, asked, answer=answer, payload={}, level=None, split=split)

    def score(self, problem, text):
        return to_score(text == problem.answer, {}, answer=text, note="as it is")

    def solve(self, problem, seed):
        return problem.answer


class Loud(Echo):
    def score(self, problem, text):
        raise ValueError(f"no: {text[:3]!r}")


class Vague(Echo):
    def score(self, problem, text):
        return text == problem.answer


class Half(Task):
    name = "half"
"""


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path / "echo.py", TASK)


def check(name: str) -> Said:
    return whet("tasks", "check", name)


def test_a_file_without_its_class_is_answered_with_the_classes_in_it(task: Path) -> None:
    write(task, f"raise SystemExit('not to be run')\n{TASK}")
    said = check("echo.py")
    assert said.code == 2
    assert "name the class: echo.py:Echo, echo.py:Loud, echo.py:Vague or echo.py:Half" in said.last


def test_the_summary_of_a_check_is_printed_once(task: Path) -> None:
    said = check("echo.py:Echo")
    assert said.code == 0 and (said.out + said.err).count("responses graded") == 1


def test_a_grader_that_raises_is_one_line_for_each_kind_of_error(task: Path) -> None:
    said = check("echo.py:Loud")
    lines = [line for line in said.err.splitlines() if "raised ValueError" in line]
    assert said.code == 2 and len(lines) == 1
    assert re.search(r"and \d+ more like this", lines[0])
    assert re.search(r"the grader raised for \d+ responses", said.last)


def test_a_score_of_another_type_says_what_to_return(task: Path) -> None:
    assert "return to_score(is_right, …) of whet.tasks.answers" in check("echo.py:Vague").err


def test_a_missing_method_is_named_with_its_parameters(task: Path) -> None:
    assert "score(self, problem, text), solve(self, problem, seed)" in check("echo.py:Half").last


def test_a_run_that_is_not_there_is_told_from_a_model_on_the_hub(
    tiny: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    tiny.copy(tmp_path / "runs" / "roman")
    said = whet("try", "runs/romn", "4 6 8 1")
    assert said.code == 2
    assert said.last == "whet: there is no folder runs/romn; runs has roman"


def test_problems_of_one_split_can_be_made_and_those_of_all_are_counted(task: Path) -> None:
    said = whet("data", "make", "echo.py:Echo", "-n", 24, "--out", "all.jsonl")
    assert said.code == 0
    assert "6 sft, 6 rl, 6 dev, 6 test: --split takes those of one" in said.err

    said = whet("data", "make", "echo.py:Echo", "-n", 6, "--split", "rl", "--out", "rl.jsonl")
    assert said.code == 0 and "--split" not in said.err
    assert {problem.split for problem in read_problems(Path("rl.jsonl"))} == {"rl"}


@pytest.fixture
def run(tiny: Pipeline, task: Path) -> Path:
    text = f"""kind = "rl"
task = "echo.py:Echo"
model = {{ path = "{tiny.folder}/03-sft" }}
steps = 1
problems_per_step = 2
group_size = 2
sampling = {{ max_tokens = 4 }}
validation = {{ samples = 1 }}
"""
    said = whet("rl", write(task.parent / "echo.toml", text), "--out", "run")
    assert said.code == 0, said.err
    return task.parent / "run"


def test_try_grades_a_question_of_the_users_own_task_also_in_another_folder(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run.parent / "else").mkdir()
    monkeypatch.chdir(run.parent / "else")
    said = whet("try", "../run", "5 test", "--samples", 2)
    assert said.code == 0, said.err
    assert said.err.count(": as it is") == 2
    labels = [line for line in said.err.splitlines() if line in ("greedy:", "sampled:")]
    assert labels == ["greedy:", "sampled:"]
    assert ": as it is" not in whet("try", "../run", "55 test").err
