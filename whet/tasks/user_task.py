"""A user's own task: `task = "my_task.py:Name"` names a file and a class in it that inherits from
`Task`.

Its settings are in the same table, `task = { name = "my_task.py:Name", count = 50 }`. Their class
is the annotation of the constructor's parameter.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Self, TypeGuard

from pydantic import ConfigDict, model_validator

from whet.config import Config
from whet.errors import ConfigError, WhetError
from whet.tasks.base import Task, settings_class
from whet.text.steps import VERIFICATION
from whet.types import Json
from whet.user_code import (
    CodePath,
    check_complete,
    explain_exception,
    load_from_file,
    loaded_files,
    validate_settings,
)


class UserTaskConfig(Config):
    """The user's own task; all other keys are the task's settings."""

    model_config = ConfigDict(extra="allow")

    name: Literal["own"] = "own"
    path: CodePath
    """A Python file and a class in it, as "my_task.py:Name", relative to the working folder."""

    @property
    def settings(self) -> dict[str, Json]:
        return dict(self.__pydantic_extra__ or {})

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        # `load_user_task` reports a missing file, so that settings of old runs can be read.
        if self.settings and Path(self.path.rpartition(":")[0]).is_file():
            _read_settings(_load_class(self.path), self.path, self.settings)
        return self


def load_user_task(path: str, settings: Mapping[str, Json] | None = None) -> Task:
    """Make the task of a code path such as `my_task.py:Name`, with its settings."""
    task_class = _load_class(path)
    config = _read_settings(task_class, path, settings or {})
    make: Callable[..., Task] = task_class
    try:
        task = make() if config is None else make(config)
    except TypeError as error:
        raise ConfigError(
            f"the task {path} should need no arguments, or only `config`, annotated with a class "
            f"of settings: {error}"
        ) from error
    except WhetError:
        raise
    except Exception as error:  # a user's task may raise anything
        label = f"the task {path}"
        raise explain_exception(label, error, loaded_files([task_class])) from error
    name = getattr(task, "name", None)
    if not isinstance(name, str) or not name:
        raise ConfigError(f"the task {path} should have a text as its name, not {name!r}")
    if name == VERIFICATION:
        raise ConfigError(
            f"the task {path} is named {name!r}, which is the task of a verifier's problems and "
            "takes no prompt: choose another name"
        )
    return task


def _load_class(path: str) -> type[Task]:
    task_class = load_from_file(path, "task")
    if not _is_task_class(task_class):
        raise ConfigError(f"{path} is not a class that inherits from whet.tasks.base.Task")
    check_complete(task_class, f"the task {path}", Task)
    return task_class


def _is_task_class(value: object) -> TypeGuard[type[Task]]:
    return isinstance(value, type) and Task in value.__mro__[1:]


def _read_settings(task_class: type[Task], path: str, given: Mapping[str, Json]) -> Config | None:
    config = settings_class(task_class)
    if config is None and given:
        raise ConfigError(f"the task {path} takes no settings, but is given {', '.join(given)}")
    try:
        return None if config is None else validate_settings(config, given)
    except ConfigError as error:
        raise ConfigError(f"the task {path}: {error}") from error
