"""Tasks by name: one line registers a task, whose annotations give the class of its settings."""

import ast
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import zip_longest
from pathlib import Path

from whet.errors import ConfigError, DataError
from whet.tasks.base import LineNote, Task, list_problems, settings_class
from whet.tasks.user_task import load_user_task
from whet.types import Problem, Score, Split
from whet.user_code import is_code_path

GRAPH_TASKS = (
    *("tsp", "ged", "mcp", "mis", "mvc", "mcs"),
    *("neighbor", "distance", "connected", "diameter"),
)
TASKS = {
    "math": "whet.tasks.math.task:Math",
    "game24": "whet.tasks.game24.task:Game24",
    "countdown": "whet.tasks.warmup.countdown:Countdown",
    "arithmetic": "whet.tasks.warmup.arithmetic:Arithmetic",
    "last_letter": "whet.tasks.warmup.letters:LastLetter",
    "reverse": "whet.tasks.warmup.letters:Reverse",
    **dict.fromkeys(GRAPH_TASKS, "whet.tasks.graphs.task:GraphTask"),
    "graphwiz": "whet.tasks.graphs.numbered:NumberedTask",
    "nlgraph": "whet.tasks.graphs.numbered:NumberedTask",
    "zebra": "whet.tasks.logic.zebra:Zebra",
    "ordering": "whet.tasks.logic.ordering:Ordering",
    "knights": "whet.tasks.logic.knights:Knights",
    "graph_logic": "whet.tasks.logic.graph_logic:GraphLogic",
    "zebralogic": "whet.tasks.logic.zebra:ZebraLogic",
    "arc": "whet.tasks.logic.arc:Arc",
    "clrs": "whet.tasks.algorithms.clrs:Clrs",
    "codeio": "whet.tasks.code.prediction:CodeIO",
    "cruxeval": "whet.tasks.code.prediction:CruxEval",
    "code_function": "whet.tasks.code.code_tests:CodeFunction",
    "code_stdin": "whet.tasks.code.code_stdin:CodeStdin",
    "code_pytest": "whet.tasks.code.code_tests:CodePytest",
    "table": "whet.tasks.qa.table:TableTask",
    "choice": "whet.tasks.qa.choice:Choice",
    "yes_no": "whet.tasks.qa.yes_no:YesNo",
    "process_bench": "whet.tasks.qa.process_bench:ProcessBench",
    "ifeval": "whet.tasks.qa.ifeval:IFEval",
    "livebench": "whet.tasks.qa.livebench:LiveBench",
    "judge": "whet.tasks.qa.judge:Judge",
}
"""whet's own tasks: name -> module and class."""


def load_task_class(entry: str) -> type[Task]:
    """Load a class from an entry of `TASKS`."""
    module, _, name = entry.partition(":")
    task_class: type[Task] = getattr(import_module(module), name)
    return task_class


def build_default_task(name: str) -> Task:
    """Make a task with default settings, by name or by a user's file and class.

    Of whet's task modules, only the task's own is loaded.
    """
    if is_code_path(name):
        return load_user_task(name)
    if name not in TASKS:
        if name.endswith(".py") and Path(name).is_file():
            raise ConfigError(_ask_for_class(name))
        raise ConfigError(f"there is no task {name!r}; known tasks: {', '.join(TASKS)}")
    kind = load_task_class(TASKS[name])
    settings = settings_class(kind)
    assert settings is not None, "every shipped task has settings"
    make: Callable[..., Task] = kind
    return make(settings.model_validate({"name": name}))


def _ask_for_class(file: str) -> str:
    """Ask for one of a file's classes, which are found without running the file."""
    try:
        body = ast.parse(Path(file).read_bytes()).body
    except (SyntaxError, ValueError) as error:
        return f"{file} is not Python: {error}"
    names = [f"{file}:{node.name}" for node in body if isinstance(node, ast.ClassDef)]
    if not names:
        return f"{file} has no class; a task is a class that inherits from whet.tasks.base.Task"
    *others, last = names
    return f"name the class: {', '.join(others)}{' or ' if others else ''}{last}"


class Mix(Task):
    """Several tasks as one; each problem names its subtask as its task."""

    name = "mix"
    has_one_answer = False

    def __init__(self, subtasks: Sequence[Task]) -> None:
        self._subtasks = {subtask.name: subtask for subtask in subtasks}
        assert len(self._subtasks) == len(subtasks) > 0, (
            "the subtasks of a mix have different names"
        )

    @property
    def subtasks(self) -> tuple[Task, ...]:
        return tuple(self._subtasks.values())

    def problems(self, split: Split) -> Iterator[Problem]:
        """Yield one problem of each subtask in turn, skipping those that have ended."""
        for row in zip_longest(*(list_problems(subtask, split) for subtask in self.subtasks)):
            yield from (problem for problem in row if problem is not None)

    def score(self, problem: Problem, text: str) -> Score:
        return self._of(problem).score(problem, text)

    def solve(self, problem: Problem, seed: int) -> str | None:
        return self._of(problem).solve(problem, seed)

    def parse_question(self, question: str) -> Problem | None:
        """Return the problem of the first subtask that can parse the question."""
        problems = (subtask.parse_question(question) for subtask in self.subtasks)
        return next((problem for problem in problems if problem is not None), None)

    def vary(self, problem: Problem, seed: int) -> Problem:
        return self._of(problem).vary(problem, seed)

    def comment(self, problem: Problem, text: str) -> Sequence[LineNote]:
        return self._of(problem).comment(problem, text)

    def _of(self, problem: Problem) -> Task:
        if problem.task not in self._subtasks:
            raise DataError(
                f"problem {problem.id} is of the task {problem.task!r}, "
                f"and the mix has {', '.join(self._subtasks)}"
            )
        return self._subtasks[problem.task]
