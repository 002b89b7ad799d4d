"""The settings of any task, for settings files. This module loads every task; `registry` does not.

A user's own task is a file and a class in it: `task = "my_task.py:Name"` in any settings file.
Several tasks at once are a mix:
`task = { name = "mix", tasks = ["math", { name = "zebra", count = 50 }] }`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, Union

from pydantic import BeforeValidator, Field, TypeAdapter, field_validator

from whet.config import Config
from whet.tasks.base import Task, settings_class
from whet.tasks.registry import TASKS, Mix, load_task_class
from whet.tasks.user_task import UserTaskConfig, load_user_task
from whet.user_code import is_code_path

_CLASSES = {settings_class(cls): cls for cls in map(load_task_class, TASKS.values())}

if TYPE_CHECKING:
    PartConfig: TypeAlias = Config
else:
    PartConfig = Union[*_CLASSES, UserTaskConfig]


def _expand_name(given: object) -> object:
    """Expand a bare name to a table, and a file and class to a user's own task."""
    table = {"name": given} if isinstance(given, str) else given
    if isinstance(table, dict) and is_code_path(str(table.get("name"))):
        return {**table, "name": "own", "path": table["name"]}
    return table


class MixConfig(Config):
    name: Literal["mix"]
    tasks: list[
        Annotated[PartConfig, Field(discriminator="name"), BeforeValidator(_expand_name)]
    ] = Field(min_length=1)
    """Tasks of the mix, each a name or a table; none may appear twice."""

    @field_validator("tasks")
    @classmethod
    def _refuse_twice(cls, tasks: list[PartConfig]) -> list[PartConfig]:
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
    """Make the task of the settings."""
    if isinstance(cfg, MixConfig):
        return Mix([build_task(part) for part in cfg.tasks])
    if isinstance(cfg, UserTaskConfig):
        return load_user_task(cfg.path, cfg.settings)
    make: Callable[..., Task] = _CLASSES[type(cfg)]
    return make(cfg)


def read_task_config(given: object) -> TaskConfig:
    """Read a task's settings from a table or a bare name."""
    cfg: TaskConfig = TypeAdapter(TaskConfig).validate_python(given)
    return cfg
