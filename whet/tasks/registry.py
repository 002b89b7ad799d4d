"""Tasks by name: one line registers a task, and its constructor tells its settings.

A user's own task is a file and a class in it: `task = "my_task.py:Name"` in any settings file.
Several tasks at once are a mix:
`task = { name = "mix", tasks = ["math", { name = "zebra", count = 50 }] }`.
"""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, Union

from pydantic import BeforeValidator, Field, TypeAdapter, field_validator

from whet.config import Config
from whet.errors import ConfigError, DataError
from whet.tasks.base import StepNote, Task, list_problems, settings_class
from whet.tasks.user_task import UserTaskConfig, load_user_task
from whet.types import Problem, Score, Split
from whet.user_code import is_reference

GRAPH_TASKS = (
    *("tsp", "ged", "mcp", "mis", "mvc", "mcs"),
    *("neighbor", "distance", "connected", "diameter"),
)
TASKS = {
    "math": "whet.tasks.math.task:Math",
    "game24": "whet.tasks.game24.task:Game24",
    "countdown": "whet.tasks.warmup.countdown:Countdown",
    "arithmetic": "whet.tasks.warmup.arithmetic:Arithmetic",
    "last_letter": "whet.tasks.warmup.words:LastLetter",
    "reverse": "whet.tasks.warmup.words:Reverse",
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
    "table": "whet.tasks.qa.table:Table",
    "choice": "whet.tasks.qa.choice:Choice",
    "yes_no": "whet.tasks.qa.choice:YesNo",
    "judge": "whet.tasks.qa.judge:Judge",
}
"""The tasks of the package: name -> module and class."""


def _load(entry: str) -> type[Task]:
    module, _, name = entry.partition(":")
    kind: type[Task] = getattr(import_module(module), name)
    return kind


_CLASSES = {settings_class(kind): kind for kind in map(_load, TASKS.values())}

if TYPE_CHECKING:
    PartConfig: TypeAlias = Config
else:
    PartConfig = Union[*_CLASSES, UserTaskConfig]


def _expand_name(given: object) -> object:
    """Let a bare name stand for a task with its defaults, and a file and class for a user's own."""
    table = {"name": given} if isinstance(given, str) else given
    if isinstance(table, dict) and is_reference(str(table.get("name"))):
        return {**table, "name": "own", "path": table["name"]}
    return table


class MixConfig(Config):
    name: Literal["mix"]
    tasks: list[
        Annotated[PartConfig, Field(discriminator="name"), BeforeValidator(_expand_name)]
    ] = Field(min_length=1)
    """The tasks of the mix, each a name or a table, none of them twice."""

    @field_validator("tasks")
    @classmethod
    def _differ(cls, tasks: list[PartConfig]) -> list[PartConfig]:
        names = [
            task.path if isinstance(task, UserTaskConfig) else str(dict(task)["name"])
            for task in tasks
        ]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"{twice} is in the mix twice")
        return tasks


if TYPE_CHECKING:
    TaskConfig: TypeAlias = Config
else:
    TaskConfig = Annotated[
        PartConfig | MixConfig, Field(discriminator="name"), BeforeValidator(_expand_name)
    ]


def build_task(cfg: TaskConfig) -> Task:
    """Make the task that the settings name."""
    if isinstance(cfg, MixConfig):
        return Mix([build_task(part) for part in cfg.tasks])
    if isinstance(cfg, UserTaskConfig):
        return load_user_task(cfg.path, cfg.settings)
    make: Callable[..., Task] = _CLASSES[type(cfg)]
    return make(cfg)


def make_task(name: str) -> Task:
    """Make a task with its default settings by its name, or by a user's file and class."""
    if name not in TASKS and not is_reference(name):
        raise ConfigError(f"there is no task {name!r}; known are {', '.join(TASKS)}")
    return build_task(read_task_config(name))


def read_task_config(given: object) -> TaskConfig:
    """Read a task's settings from a table, or from its bare name."""
    cfg: TaskConfig = TypeAdapter(TaskConfig).validate_python(given)
    return cfg


class Mix(Task):
    """Hands every problem to the part that it names as its task."""

    name = "mix"
    has_one_answer = False

    def __init__(self, parts: Sequence[Task]) -> None:
        self._parts = {part.name: part for part in parts}
        assert len(self._parts) == len(parts) > 0, "the parts of a mix have different names"

    @property
    def parts(self) -> tuple[Task, ...]:
        return tuple(self._parts.values())

    def problems(self, split: Split) -> Iterator[Problem]:
        """List one problem of each part, then the next of each; a part with fewer ends earlier."""
        for row in zip_longest(*(list_problems(part, split) for part in self.parts)):
            yield from (problem for problem in row if problem is not None)

    def score(self, problem: Problem, text: str) -> Score:
        return self._of(problem).score(problem, text)

    def solve(self, problem: Problem, seed: int) -> str | None:
        return self._of(problem).solve(problem, seed)

    def parse_question(self, question: str) -> Problem | None:
        """Ask the first part that takes the question."""
        problems = (part.parse_question(question) for part in self.parts)
        return next((problem for problem in problems if problem is not None), None)

    def vary(self, problem: Problem, seed: int) -> Problem:
        return self._of(problem).vary(problem, seed)

    def notes(self, problem: Problem, text: str) -> Sequence[StepNote]:
        return self._of(problem).notes(problem, text)

    def _of(self, problem: Problem) -> Task:
        if problem.task not in self._parts:
            raise DataError(
                f"problem {problem.id} is of the task {problem.task!r}, "
                f"and the mix has {', '.join(self._parts)}"
            )
        return self._parts[problem.task]
