"""A user's own task: `task = "my_task.py:Name"` names a file and a class in it that inherits from
`Task`.

Its settings stand in the same table, `task = { name = "my_task.py:Name", count = 50 }`, and are
those of the Config class that the parameter of its constructor is annotated with.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Self, TypeGuard

from pydantic import ConfigDict, model_validator

from whet.config import Config
from whet.errors import ConfigError, WhetError
from whet.tasks.base import Task, settings_class
from whet.types import Json
from whet.user_code import (
    CodePath,
    explain_exception,
    load_from_file,
    loaded_files,
    read_settings,
)


class UserTaskConfig(Config):
    """A task of the user's own; all keys but these two are the task's settings."""

    model_config = ConfigDict(extra="allow")

    name: Literal["own"] = "own"
    path: CodePath
    """A Python file and a class in it, as "my_task.py:Name", relative to the working folder."""

    @property
    def settings(self) -> dict[str, Json]:
        return dict(self.__pydantic_extra__ or {})

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        # A missing file is for `load_user_task` to report: settings of old runs can still be read.
        if self.settings and Path(self.path.rpartition(":")[0]).is_file():
            _read_settings(_load_class(self.path), self.path, self.settings)
        return self


def load_user_task(path: str, settings: Mapping[str, Json] | None = None) -> Task:
    """Make the task that a file and a class name, `my_task.py:Name`, with its settings."""
    kind = _load_class(path)
    config = _read_settings(kind, path, settings or {})
    make: Callable[..., Task] = kind
    try:
        task = make() if config is None else make(config)
    except TypeError as error:
        raise ConfigError(
            f"the task {path} should be made without arguments, or of `config` alone, annotated "
            f"with a class of settings: {error}"
        ) from error
    except WhetError:
        raise
    except Exception as error:  # a user's task may raise anything
        label = f"the task {path}"
        raise explain_exception(label, error, loaded_files([kind])) from error
    if missing := [part for part in ("name", "problems", "score", "solve") if not _has(kind, part)]:
        raise ConfigError(
            f"the task {path} lacks {', '.join(missing)}; whet/tasks/base.py describes each"
        )
    if not isinstance(task.name, str) or not task.name:
        raise ConfigError(f"the task {path} should have a text as its name, not {task.name!r}")
    return task


def _load_class(path: str) -> type[Task]:
    kind = load_from_file(path, "task")
    if not _is_task_class(kind):
        raise ConfigError(f"{path} is not a class that inherits from whet.tasks.base.Task")
    return kind


def _is_task_class(value: object) -> TypeGuard[type[Task]]:
    return isinstance(value, type) and Task in value.__mro__[1:]


def _read_settings(kind: type[Task], path: str, given: Mapping[str, Json]) -> Config | None:
    config = settings_class(kind)
    if config is None and given:
        raise ConfigError(f"the task {path} takes no settings, and is given {', '.join(given)}")
    try:
        return None if config is None else read_settings(config, given)
    except ConfigError as error:
        raise ConfigError(f"the task {path}: {error}") from error


def _has(kind: type[Task], part: str) -> bool:
    """Tell whether a class defines what the protocol only declares."""
    return any(part in vars(base) for base in kind.__mro__[: kind.__mro__.index(Task)])
