"""Tasks by name: their settings as one union, told apart by `name`, and how to build each.

A user's own task is a file and a class in it: `task = "my_task.py:Name"` in any settings file.
Several tasks at once are a mix: `task = { name = "mix", tasks = ["math", { name = "zebra", count =
50 }] }`.
"""

from collections.abc import Callable
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, TypeAdapter, field_validator

from whet.config import Config
from whet.errors import ConfigError
from whet.tasks.algorithms.clrs import Clrs, ClrsConfig
from whet.tasks.base import Task
from whet.tasks.code.code_function import CodeFunction, CodeFunctionConfig
from whet.tasks.code.code_pytest import CodePytest, CodePytestConfig
from whet.tasks.code.code_stdin import CodeStdin, CodeStdinConfig
from whet.tasks.code.codeio import CodeIO, CodeIOConfig
from whet.tasks.code.cruxeval import CruxEval, CruxEvalConfig
from whet.tasks.game24.task import Game24, Game24Config
from whet.tasks.graphs.numbered import NumberedConfig, NumberedTask
from whet.tasks.graphs.task import GraphConfig, GraphTask
from whet.tasks.logic.arc import Arc, ArcConfig
from whet.tasks.logic.graph_logic import GraphLogic, GraphLogicConfig
from whet.tasks.logic.knights import Knights, KnightsConfig
from whet.tasks.logic.ordering import Ordering, OrderingConfig
from whet.tasks.logic.zebra import Zebra, ZebraConfig
from whet.tasks.logic.zebralogic import ZebraLogic, ZebraLogicConfig
from whet.tasks.math.task import Math, MathConfig
from whet.tasks.mix import Mix
from whet.tasks.qa.choice import Choice, ChoiceConfig
from whet.tasks.qa.judge import Judge, JudgeConfig
from whet.tasks.qa.table import Table, TableConfig
from whet.tasks.qa.yes_no import YesNo, YesNoConfig
from whet.tasks.user_task import OwnConfig, is_own, own_task
from whet.tasks.warmup.arithmetic import Arithmetic, ArithmeticConfig
from whet.tasks.warmup.countdown import Countdown, CountdownConfig
from whet.tasks.warmup.last_letter import LastLetter, LastLetterConfig
from whet.tasks.warmup.reverse import Reverse, ReverseConfig

PartConfig = (
    MathConfig
    | Game24Config
    | CountdownConfig
    | ArithmeticConfig
    | LastLetterConfig
    | ReverseConfig
    | GraphConfig
    | NumberedConfig
    | ZebraConfig
    | OrderingConfig
    | KnightsConfig
    | GraphLogicConfig
    | ZebraLogicConfig
    | ArcConfig
    | ClrsConfig
    | CodeIOConfig
    | CruxEvalConfig
    | CodeFunctionConfig
    | CodeStdinConfig
    | CodePytestConfig
    | TableConfig
    | ChoiceConfig
    | YesNoConfig
    | JudgeConfig
    | OwnConfig
)


def _named(given: object) -> object:
    """Let a bare name stand for a task with its defaults, and a file and class for a task of the
    user's own."""
    if isinstance(given, str):
        return {"name": "own", "path": given} if is_own(given) else {"name": given}
    return given


class MixConfig(Config):
    name: Literal["mix"]
    tasks: list[Annotated[PartConfig, Field(discriminator="name"), BeforeValidator(_named)]] = (
        Field(min_length=1)
    )
    """The tasks of the mix, each a name or a table, none of them twice."""

    @field_validator("tasks")
    @classmethod
    def _differ(cls, tasks: list[PartConfig]) -> list[PartConfig]:
        names = [task.path if isinstance(task, OwnConfig) else task.name for task in tasks]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"{twice} is in the mix twice")
        return tasks


AnyConfig = PartConfig | MixConfig
TaskConfig = Annotated[AnyConfig, Field(discriminator="name"), BeforeValidator(_named)]

CLASSES: dict[type[Config], Callable[..., Task]] = {
    MathConfig: Math,
    Game24Config: Game24,
    CountdownConfig: Countdown,
    ArithmeticConfig: Arithmetic,
    LastLetterConfig: LastLetter,
    ReverseConfig: Reverse,
    GraphConfig: GraphTask,
    NumberedConfig: NumberedTask,
    ZebraConfig: Zebra,
    OrderingConfig: Ordering,
    KnightsConfig: Knights,
    GraphLogicConfig: GraphLogic,
    ZebraLogicConfig: ZebraLogic,
    ArcConfig: Arc,
    ClrsConfig: Clrs,
    CodeIOConfig: CodeIO,
    CruxEvalConfig: CruxEval,
    CodeFunctionConfig: CodeFunction,
    CodeStdinConfig: CodeStdin,
    CodePytestConfig: CodePytest,
    TableConfig: Table,
    ChoiceConfig: Choice,
    YesNoConfig: YesNo,
    JudgeConfig: Judge,
}


def build(cfg: TaskConfig) -> Task:
    """Make the task that the settings name."""
    if isinstance(cfg, MixConfig):
        return Mix([build(part) for part in cfg.tasks])
    return own_task(cfg.path) if isinstance(cfg, OwnConfig) else CLASSES[type(cfg)](cfg)


def names() -> list[str]:
    """List the tasks of the package, in the order of this file."""
    return [name for kind in CLASSES for name in get_args(kind.model_fields["name"].annotation)]


def named(name: str) -> Task:
    """Make a task with its default settings by its name, or by the file and class of a user's
    own."""
    if name not in names() and not is_own(name):
        raise ConfigError(f"there is no task {name!r}; known are {', '.join(names())}")
    return build(settings(name))


def settings(given: object) -> AnyConfig:
    """Read a task's settings from a table, or from its bare name."""
    found: AnyConfig = TypeAdapter(TaskConfig).validate_python(given)
    return found


assert {*CLASSES, OwnConfig} == set(get_args(PartConfig)), (
    "every task has its settings and its class here"
)
