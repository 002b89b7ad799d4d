"""Load the user's own code by code path: `my_task.py:Name` is a Python file and a name in it.

Tasks, engines, stages, rewards, shaping terms, advantages, losses and data formats are loaded this
way; each caller checks its object.
"""

import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from whet import config_errors
from whet.config import Config
from whet.errors import ConfigError
from whet.types import Json

C = TypeVar("C", bound=Config)

_LOADED: dict[str, ModuleType] = {}
"""User modules by the absolute path of their file."""


def is_code_path(name: str) -> bool:
    """Whether a text has the form `file.py:name`.

    >>> is_code_path("my_task.py:Name"), is_code_path("game24")
    (True, False)
    """
    file, colon, attribute = name.rpartition(":")
    return bool(colon) and file.endswith(".py") and attribute.isidentifier()


def _check_code_path(name: str) -> str:
    if not is_code_path(name):
        raise ValueError('should be a file and a name in it, such as "my_file.py:name"')
    return name


CodePath = Annotated[str, AfterValidator(_check_code_path)]
"""A setting of the form `file.py:name`; the path is relative to the working folder."""


def find_code_paths(value: object) -> set[str]:
    """Find all code paths in settings, at any depth."""
    if isinstance(value, str):
        return {value} if is_code_path(value) else set()
    if isinstance(value, Mapping):
        value = list(value.values())
    return set().union(*map(find_code_paths, value)) if isinstance(value, list | tuple) else set()


def hash_code(code_path: str) -> str:
    """Hash the file of a code path; "" for a missing file, which is refused when it is loaded."""
    file = Path(code_path.rpartition(":")[0])
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16] if file.is_file() else ""


def load_from_file(code_path: str, key: str) -> object:
    """Load the object of a code path; errors name the setting `key`."""
    label = f"{key} = {code_path!r}"
    if not is_code_path(code_path):
        raise ConfigError(f'{label} should be a file and a name in it, such as "my_file.py:name"')
    file, _, name = code_path.rpartition(":")
    try:
        values = vars(load_user_file(Path(file)))
    except ConfigError as error:
        raise ConfigError(f"{label}: {error}") from error
    if name not in values:
        public = [key for key, value in values.items() if _is_own(key, value, values["__name__"])]
        close = get_close_matches(name, public, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        names = ", ".join(public) or "nothing"
        raise ConfigError(f"{label}: {file} has no {name}; it has {names}{hint}")
    return values[name]


def load_user_class(code_path: str, key: str, base: type[C]) -> type[C]:
    """Load a settings class that inherits from `base` and defines its abstract methods."""
    label = f"{key} = {code_path!r}"
    value = load_from_file(code_path, key)
    where = f"{base.__module__.replace('.', '/')}.py"
    if not isinstance(value, type) or base not in value.__mro__[1:]:
        raise ConfigError(
            f"{label} should name a class that inherits from {base.__name__} ({where})"
        )
    check_complete(value, label, base)
    return value


def check_complete(value: type, label: str, base: type) -> None:
    """Refuse a class that does not define every abstract method of its base."""
    if missing := sorted(getattr(value, "__abstractmethods__", ())):
        where = f"{base.__module__.replace('.', '/')}.py"
        described = ", ".join(_describe_method(value, name) for name in missing)
        raise ConfigError(f"{label} lacks {described}; {where} describes each")


def _describe_method(owner: type, name: str) -> str:
    method = getattr(owner, name)
    return (
        f"{name}({', '.join(inspect.signature(method).parameters)})" if callable(method) else name
    )


def or_user_class(base: type[C], key: str) -> WrapValidator:
    """Let a table's `kind` also be the code path of a subclass of `base`, which reads the table."""

    def read(given: object, validate: ValidatorFunctionWrapHandler) -> object:
        if isinstance(given, base):
            return given
        kind = given.get("kind") if isinstance(given, dict) else None
        if not isinstance(given, dict) or not isinstance(kind, str) or not is_code_path(kind):
            return validate(given)
        try:
            return validate_settings(load_user_class(kind, key, base), given)
        except ConfigError as error:
            setting = "" if key in str(error) else f"{key} = {kind!r}: "
            raise ConfigError(f"{setting}{error}") from error

    return WrapValidator(read)


def load_function(
    code_path: str,
    key: str,
    parameters: tuple[str, ...],
    *,
    passes: tuple[type[Exception], ...] = (),
) -> Callable[..., Any]:
    """Load a function with these parameters; exceptions other than `passes` become one sentence."""
    label = f"{key} = {code_path!r}"
    function = load_from_file(code_path, key)
    if not callable(function):
        raise ConfigError(f"{label} should name a function, not {function!r:.60}")
    check_parameters(function, label, parameters)
    files = [str(Path(code_path.rpartition(":")[0]).resolve())]

    def call(*args: object) -> Any:
        try:
            return function(*args)
        except passes:
            raise
        except Exception as error:  # a user's function may raise anything
            raise explain_exception(label, error, files) from error

    return call


def check_parameters(
    function: Callable[..., object], label: str, parameters: tuple[str, ...]
) -> None:
    """Refuse a function that cannot be called with these parameters."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # a C function may have no signature
        return
    try:
        signature.bind(*parameters)
    except TypeError as error:
        wanted = ", ".join(parameters)
        raise ConfigError(f"{label} should take ({wanted}), not {signature}") from error


def load_user_file(file: Path) -> ModuleType:
    """Load a file as a module, only once per process."""
    path = str(file.resolve())
    if path in _LOADED:
        return _LOADED[path]
    if not file.is_file():
        where = "" if file.is_absolute() else f" in {Path.cwd()}"
        raise ConfigError(f"there is no file {file}{where}")
    name = f"whet_own_{hashlib.blake2b(path.encode(), digest_size=6).hexdigest()}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pydantic look it up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ConfigError(f"{file} cannot be loaded: {type(error).__name__}: {error}") from error
    _LOADED[path] = module
    return module


def loaded_files(classes: Iterable[type]) -> list[str]:
    """List the loaded files that define these classes or their bases, for workers to load."""
    modules = {base.__module__ for cls in classes for base in cls.__mro__}
    return [path for path, module in _LOADED.items() if module.__name__ in modules]


def explain_exception(label: str, error: Exception, files: Collection[str]) -> ConfigError:
    """Describe an exception in the user's code in one sentence, with its line in `files`."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename in files]
    where = f" in line {lines[-1]}" if lines else ""
    return ConfigError(f"{label} raised {type(error).__name__}{where}: {error}")


def validate_settings(cls: type[C], given: Mapping[str, Json]) -> C:
    """Validate the settings of the user's code; a ConfigError names the wrong key."""
    try:
        return cls.model_validate(dict(given))
    except ValidationError as error:
        errors = error.errors(include_url=False)
        raise ConfigError(
            config_errors.describe_errors(cls, errors, dict(given), lambda _: "default")
        ) from error


def _is_own(key: str, value: object, module: str) -> bool:
    """Whether a module defines a public object, rather than importing it."""
    return not key.startswith("_") and getattr(value, "__module__", None) == module
