"""A user's own task: `task = "my_task.py:Name"` names a file and a class in it that keeps the
protocol of tasks."""

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Literal

from pydantic import AfterValidator

from whet.config import Config
from whet.errors import ConfigError
from whet.tasks.base import Task

_LOADED: dict[str, ModuleType] = {}
"""Modules of own tasks, by the absolute path of their file."""


def is_own(name: str) -> bool:
    """Tell a file and a class from the name of a task.

    >>> is_own("my_task.py:Name"), is_own("game24")
    (True, False)
    """
    file, colon, kind = name.rpartition(":")
    return bool(colon) and file.endswith(".py") and kind.isidentifier()


def _own(name: str) -> str:
    if not is_own(name):
        raise ValueError('should be a file and a class in it, such as "my_task.py:Name"')
    return name


class OwnConfig(Config):
    """A task of the user's own. It takes no settings here: what it needs stands in its file."""

    name: Literal["own"] = "own"
    path: Annotated[str, AfterValidator(_own)]
    """A Python file and a class in it, as "my_task.py:Name"; the path is taken from the working
    folder."""


def own_task(name: str) -> Task:
    """Make the task that a file and a class name, `my_task.py:Name`."""
    if not is_own(name):
        raise ConfigError(f'{name!r} should be a file and a class in it, such as "my_task.py:Name"')
    file, _, kind = name.rpartition(":")
    module = load_file(Path(file))
    classes = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and Task in value.__mro__
    }
    if kind not in classes:
        tasks = ", ".join(key for key in classes if key != "Task")
        raise ConfigError(
            f"{file} has no class {kind} that inherits from whet.tasks.base.Task; it has {tasks or 'none'}"
        )
    task = _made(classes[kind], name)
    if missing := [
        part for part in ("name", "problems", "score", "solve") if not _has(classes[kind], part)
    ]:
        raise ConfigError(
            f"the task {name} lacks {', '.join(missing)}; whet/tasks/base.py says what each is for"
        )
    return task


def load_file(file: Path) -> ModuleType:
    """Run a file as a module of its own, once a process."""
    path = str(file.resolve())
    if path in _LOADED:
        return _LOADED[path]
    if not file.is_file():
        raise ConfigError(f"there is no file {file} for the task")
    name = f"whet_own_{hashlib.blake2b(path.encode(), digest_size=6).hexdigest()}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look it up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ConfigError(f"{file} cannot be loaded: {type(error).__name__}: {error}") from error
    _LOADED[path] = module
    return module


def loaded_files() -> list[str]:
    """List the files that own tasks came from, for worker processes to load too."""
    return list(_LOADED)


def _made(kind: type[Task], name: str) -> Task:
    try:
        return kind()
    except TypeError as error:
        raise ConfigError(f"the task {name} should be made without arguments: {error}") from error


def _has(kind: type[Task], part: str) -> bool:
    """The protocol's own methods are only words."""
    return any(part in vars(each) for each in kind.__mro__[: kind.__mro__.index(Task)])
