"""An answer in a thought that is never closed is no answer, in any task."""

import json
from itertools import islice

import pytest

from whet.tasks.base import Task
from whet.tasks.registry import TASKS
from whet.tasks.task_config import build_task, read_task_config
from whet.types import Json, Message, Problem, Verdict

TAGS = ("think", "thinking", "thought", "reasoning")
NUM_PROBLEMS = 12
"""Enough for every kind of question in the tasks that mix several."""

PROGRAM = "def f(s):\n    return s * 2"
CODEIO: dict[str, Json] = {
    "program": "def main_solution(n):\n    return {'total': n * (n + 1) // 2}",
    "input": {"n": 4},
    "output": {"total": 10},
}
CRUX: dict[str, Json] = {"program": PROGRAM, "input": "'ab'", "output": "'abab'"}
FROM_FILES: dict[str, list[tuple[str, dict[str, Json]]]] = {
    "math": [("\\frac{3}{4}", {}), ("12", {})],
    "table": [("1,284.5", {}), ("Hamburg, Bremen", {})],
    "choice": [("B", {"options": {"A": "11", "B": "12", "C": "15"}}), ("C", {})],
    "yes_no": [("yes", {}), ("no", {})],
    "process_bench": [("2", {}), ("-1", {})],
    "ifeval": [("Tea is ready.", {"instructions": [{"id": "punctuation:no_comma"}]})],
    "livebench": [("yes, no", {"kind": "words"}), ('{"a": "b"}', {"kind": "mapping"})],
    "judge": [("photosynthesis", {})],
    "codeio": [
        (json.dumps(CODEIO["output"]), CODEIO | {"direction": "output"}),
        (json.dumps(CODEIO["input"]), CODEIO | {"direction": "input"}),
    ],
    "cruxeval": [
        ("'abab'", CRUX | {"direction": "output"}),
        ("'ab'", CRUX | {"direction": "input"}),
    ],
    "code_function": [(PROGRAM, {"entry": "f", "tests": ["assert f('ab') == 'abab'"]})],
    "code_stdin": [("print(int(input()) ** 2)", {"cases": [{"input": "4\n", "output": "16\n"}]})],
    "code_pytest": [
        (PROGRAM, {"tests": "from solution import f\ndef test_f():\n    assert f('ab') == 'abab'"})
    ],
}
"""Answers and payloads for the tasks that make no problems of their own."""
RUNS_CODE = ("codeio", "cruxeval", "code_function", "code_stdin", "code_pytest")


def task_of(name: str) -> Task:
    few = {"count": NUM_PROBLEMS} if "count" in type(read_task_config(name)).model_fields else {}
    return build_task(read_task_config({"name": name, **few}))


def golds(task: Task) -> list[tuple[Problem, str]]:
    if task.name in FROM_FILES:
        problems = [
            from_file(task.name, answer, payload) for answer, payload in FROM_FILES[task.name]
        ]
    else:
        problems = list(islice(task.problems("test"), NUM_PROBLEMS))
    solved = [(problem, task.solve(problem, seed=0)) for problem in problems]
    return [(problem, gold) for problem, gold in solved if gold is not None]


def from_file(name: str, answer: str, payload: dict[str, Json]) -> Problem:
    return Problem(
        id=f"{name}/{answer}",
        task=name,
        prompt=(Message(role="user", content="What is asked?"),),
        answer=answer,
        payload=payload,
        level=None,
        split="test",
        source="made",
    )


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("name", TASKS)
def test_an_answer_in_a_thought_that_is_never_closed_is_no_answer(name: str, tag: str) -> None:
    task = task_of(name)

    for problem, gold in golds(task):
        bare = gold if problem.answer is None else problem.answer
        for text in (
            f"<{tag}>\n{gold}",
            f"<{tag}>\n{bare}",
            f"</{tag}>\nOnce more. <{tag}>{gold}\n",
        ):
            assert task.score(problem, text).verdict is Verdict.NO_ANSWER, text


@pytest.mark.parametrize("name", [name for name in TASKS if name not in RUNS_CODE])
def test_an_answer_after_a_thought_that_is_closed_is_right(name: str) -> None:
    task = task_of(name)
    solved = golds(task)

    assert solved
    for problem, gold in solved:
        for tag in TAGS:
            assert task.score(problem, f"<{tag}>\nHm.\n</{tag}>\n{gold}").verdict is Verdict.CORRECT
