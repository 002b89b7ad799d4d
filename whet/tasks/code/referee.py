"""The tests' side: runs a problem's tests in a sandbox where no model text is ever executed.

The names under test are proxies. Calling one sends plain data to the program's process and gets
plain data back, or an exception of a built-in kind. An object that cannot cross, such as an
instance of the model's class, is a proxy too. Its methods are called, and its attributes read and
set, in the program's process. Comparing it is an error, unless it is a subclass of dict, list, set
or deque.

Nothing but the standard library is installed there, so this module implements the part of pytest
that published tests use: raises, approx, fail, param, parametrize and plain fixtures, test
functions and classes, unittest cases. `tests_text.unsupported_reason` refuses rows that need more
of it.
"""

import ast
import builtins
import inspect
import json
import math
import random
import re
import sys
import traceback
import unittest
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib import import_module
from types import ModuleType, SimpleNamespace, TracebackType
from typing import TypeVar

from whet.tasks.code import frames, plain, tests_text
from whet.tasks.code.harness import describe_exception, own_classes

_NOT_RAISED = {"StopIteration", "StopAsyncIteration", "GeneratorExit"}
_NOT_RAISED |= {"SystemExit", "KeyboardInterrupt"}
"""Exceptions that could end a loop of the tests early without a failure."""
_Number = int | float | complex


class ModelError(Exception):
    """The program raised something other than a built-in exception."""


def run_tests(channel: frames.Channel) -> None:
    """Read the tests, run them, and report: V, then a verdict as JSON."""
    job = json.loads(channel.receive())
    random.seed(0)
    try:
        note = _run(Relay(channel), job)
    except BaseException as error:
        note = _quote_line(error, job["tests"]) + describe_exception(error)
    report = {"passed": note == "", "note": note}
    channel.send(b"V" + json.dumps(report).encode())


class Relay:
    """Passes calls to the program through the grader."""

    def __init__(self, channel: frames.Channel) -> None:
        self._channel = channel
        self.records: dict[str, type] = {}
        self.watched: list[range] = []
        """Lines of the tests where calls may change their arguments; elsewhere these are copies."""

    def call(
        self, path: list[str | int], args: tuple[object, ...], named: dict[str, object]
    ) -> object:
        data = plain.encode_value((args, named), self.records)
        is_watched = any(_calling_line() in lines for lines in self.watched)
        parts = plain.mutable_parts((args, named), self.records) if is_watched else ()
        return self._ask(path, data, parts)

    def read(self, path: list[str | int]) -> object:
        """Read the value of a name, without calling it."""
        return self._ask(path, plain.encode_value(None))

    def _ask(
        self, path: list[str | int], data: list[plain.Entry], parts: Sequence[object] = ()
    ) -> object:
        """Send a call; the changed contents of the given mutable parts replace theirs here."""
        call = {"call": path, "data": data, "shares": bool(parts)}
        self._channel.send(b"C" + json.dumps(call).encode())
        decode = partial(
            plain.decode_value, records=self.records, remote=partial(StandIn, self), parts=parts
        )
        try:
            reply = json.loads(self._channel.receive())
            changed = [(int(n), decode(held)) for n, held in reply.get("changed", ())]
            for number, held in changed:
                plain.replace_contents(parts[number], held)
            if "value" in reply:
                return decode(reply["value"])
            kinds = [str(kind) for kind in reply["error"]]
            message = str(reply["message"])
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise ModelError("the answer is not plain data") from error
        raise _rebuild(kinds, message)


def _calling_line() -> int:
    """Find the line of the tests that is being run."""
    frame = inspect.currentframe()
    while frame and frame.f_code.co_filename != "tests.py":
        frame = frame.f_back
    return frame.f_lineno if frame else 0


def _rebuild(kinds: Sequence[str], message: str) -> Exception:
    """Make the first built-in exception among the program's kinds; it keeps all their names."""
    raised: Exception = ModelError(f"{''.join(kinds[:1])}: {message}"[:300])
    for kind in () if _NOT_RAISED.intersection(kinds) else kinds:
        known = getattr(builtins, kind, None)
        if isinstance(known, type) and issubclass(known, Exception) and known is not Exception:
            with suppress(TypeError):
                raised = known(message)
            break
    vars(raised)["kinds"] = tuple(kinds)
    return raised


class RemoteName:
    """A name of the program, or of an object in it; calls and attribute reads go there."""

    def __init__(self, relay: Relay, *path: str | int) -> None:
        self._relay = relay
        self._path = path

    def __call__(self, *args: object, **named: object) -> object:
        return self._relay.call(list(self._path), args, named)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._relay.read([*self._path, name])

    def _refuse(self, *_: object) -> bool:
        raise TypeError(f"{self._describe()} of the program is not plain data")

    def _describe(self) -> str:
        return ".".join(map(str, self._path))

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return self._refuse()


_OWN_NAMES = ("remote_number", "remote_kind", "remote_truth", "_relay", "_path")
T = TypeVar("T")


class StandIn(plain.Remote, RemoteName):
    """An object that stays in the program's process."""

    def __init__(self, relay: Relay, number: int, kind: str, is_true: bool) -> None:
        plain.Remote.__init__(self, number, kind, is_true)
        RemoteName.__init__(self, relay, number)

    def __bool__(self) -> bool:
        return self._take("bool", bool)

    def __setattr__(self, name: str, value: object) -> None:
        if name in _OWN_NAMES:
            object.__setattr__(self, name, value)
        else:
            self._relay.call(["setattr"], (self, name, value), {})

    def __eq__(self, other: object) -> bool:  # type: ignore[override]
        value = self._relay.read(list(self._path))
        return self._refuse() if isinstance(value, StandIn) else value == other

    def __ne__(self, other: object) -> bool:  # type: ignore[override]
        return not self == other

    def _take(self, name: str, kind: type[T]) -> T:
        """Call a built-in function on the object in the program's process."""
        value = self._relay.call([name], (self,), {})
        if type(value) is not kind:
            raise TypeError(f"{name} of {self._describe()} is no {kind.__name__}")
        return value

    def __len__(self) -> int:
        return self._take("len", int)

    def __iter__(self) -> Iterator[object]:
        return iter(self._take("list", list))

    def __str__(self) -> str:
        return self._take("str", str)

    def __repr__(self) -> str:
        return self._take("repr", str)

    def __setitem__(self, key: object, value: object) -> None:
        RemoteName(self._relay, *self._path, "__setitem__")(key, value)

    def __getitem__(self, key: object) -> object:
        return RemoteName(self._relay, *self._path, "__getitem__")(key)

    def __contains__(self, item: object) -> bool:
        return RemoteName(self._relay, *self._path, "__contains__")(item) is True

    def _describe(self) -> str:
        return f"a {self.remote_kind}"


class SolutionModule(ModuleType):
    """The module under test; every name in it refers to the program."""

    def __init__(self, name: str, relay: Relay) -> None:
        super().__init__(name)
        self.__dict__["_relay"] = relay

    def __getattr__(self, name: str) -> RemoteName:
        if name.startswith("__"):
            raise AttributeError(name)
        return RemoteName(self.__dict__["_relay"], name)


def _quote_line(error: BaseException, tests: str) -> str:
    """Quote the line of the tests that raised an exception."""
    steps = traceback.extract_tb(error.__traceback__)
    lines = [step.lineno for step in steps if step.filename == "tests.py"]
    source = tests.split("\n")
    if not lines or not lines[-1] or lines[-1] > len(source):
        return ""
    return f"{source[lines[-1] - 1].strip()[:200]}: "


def _run(relay: Relay, job: dict[str, str]) -> str:
    module = ModuleType("tests")
    sys.modules["tests"] = module
    names = vars(module)
    exec(compile(job["setup"], "setup.py", "exec"), names)  # noqa: S102  # in the sandbox
    root = tests_text.entry_root(job["entry"])
    relay.records = {name: kind for name, kind in own_classes(module).items() if name != root}
    sys.modules["pytest"] = pytest_module()
    sys.modules[job["module"]] = SolutionModule(job["module"], relay)
    tree = tests_text.without_star_import(ast.parse(job["tests"]), job["module"])
    relay.watched = tests_text.scopes_that_look_at_arguments(tree, job["module"])
    for name in tests_text.free_names(tree) - names.keys() | ({root} if root else set()):
        is_library = name in sys.stdlib_module_names
        names[name] = import_module(name) if is_library else RemoteName(relay, name)
    if root:
        names["candidate"] = RemoteName(relay, "")
    exec(compile(tree, "tests.py", "exec"), names)  # noqa: S102
    if job["kind"] == "pytest":
        return run_pytest(names)
    check = names.get("check")
    if callable(check) and not isinstance(check, RemoteName):
        check(names["candidate"])
    return ""


def pytest_module() -> ModuleType:
    """Make the module that `import pytest` gives the tests."""
    module = ModuleType("pytest")
    mark = SimpleNamespace(parametrize=parametrize)
    vars(module).update(raises=Raises, approx=Approx, fail=fail, param=param, mark=mark)
    vars(module).update(fixture=fixture)
    return module


def run_pytest(names: Mapping[str, object]) -> str:
    """Run every test in the order written; return the first failure in one line, or ""."""
    tests = list(_collect(names))
    if not tests:
        return "there are no tests"
    for name, test in tests:
        try:
            test()
        except BaseException as error:
            return f"{name}: {describe_exception(error)}"
    return ""


def fail(reason: str = "") -> None:
    raise AssertionError(reason)


def fixture(make: Callable[..., object] | None = None) -> object:
    """Mark a function whose value tests receive by name; it is called for each test."""
    if make is None:
        return fixture
    vars(make)["is_fixture"] = True
    return make


class Param(tuple[object, ...]):
    """The values of one case."""


def param(*values: object, **_: object) -> Param:
    return Param(values)


def parametrize(
    names: str | Sequence[str], cases: Sequence[object]
) -> Callable[[Callable[..., object]], object]:
    """Add cases to a test function; several decorators multiply them."""
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

    def mark(test: Callable[..., object]) -> Callable[..., object]:
        rows: list[dict[str, object]] = []
        for case in cases:
            is_row = isinstance(case, list | tuple) and (len(keys) > 1 or isinstance(case, Param))
            values = list(case) if is_row and isinstance(case, list | tuple) else [case]
            rows.append(dict(zip(keys, values, strict=True)))
        before = vars(test).get("cases", [{}])
        vars(test)["cases"] = [{**old, **new} for new in rows for old in before]
        return test

    return mark


class Raises:
    """Expects an exception of a kind, with a message that matches."""

    def __init__(
        self, kind: type[BaseException] | tuple[type[BaseException], ...], match: str | None = None
    ) -> None:
        self._kind = kind
        self._match = match
        self.value: BaseException | None = None

    def __enter__(self) -> "Raises":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        if error is None:
            raise AssertionError(f"did not raise {self._kind}")
        kinds = self._kind if isinstance(self._kind, tuple) else (self._kind,)
        if not any(_is_kind(error, kind) for kind in kinds):
            return False
        self.value = error
        if self._match is not None and not re.search(self._match, str(error)):
            raise AssertionError(f"{str(error)[:80]!r} does not match {self._match!r}")
        return True


class Approx:
    """Equal within a tolerance, as in pytest: the larger of `abs` and `rel` × expected."""

    def __init__(
        self, expected: object, rel: float | None = None, abs: float | None = None
    ) -> None:
        self._expected = expected
        self._rel = rel
        self._abs = abs

    def __eq__(self, actual: object) -> bool:
        return self._near(actual, self._expected)

    __hash__ = None  # type: ignore[assignment]

    def _near(self, actual: object, expected: object) -> bool:
        if isinstance(expected, dict):
            if not isinstance(actual, dict) or actual.keys() != expected.keys():
                return False
            return all(self._near(actual[key], expected[key]) for key in expected)
        if isinstance(expected, list | tuple):
            if not isinstance(actual, list | tuple) or len(actual) != len(expected):
                return False
            return all(map(self._near, actual, expected))
        if isinstance(expected, _Number) and isinstance(actual, _Number):
            return actual == expected or self._is_close(actual, expected)
        return actual == expected

    def _is_close(self, actual: complex, expected: complex) -> bool:
        least = 1e-12 if self._abs is None else self._abs
        relative = (1e-6 if self._abs is None else 0.0) if self._rel is None else self._rel
        distance = abs(actual - expected)
        return math.isfinite(distance) and distance <= max(relative * abs(expected), least)


def _is_kind(error: BaseException, kind: object) -> bool:
    """Whether an exception is of a kind; one of the program's own kinds is identified by its
    name."""
    if isinstance(kind, RemoteName):
        return str(kind._path[-1]) in vars(error).get("kinds", ())
    return isinstance(kind, type) and isinstance(error, kind)


def _collect(names: Mapping[str, object]) -> Iterator[tuple[str, Callable[[], object]]]:
    for name, thing in list(names.items()):
        if inspect.isfunction(thing) and name.startswith("test"):
            yield from _cases(name, thing, names)
        elif inspect.isclass(thing) and issubclass(thing, unittest.TestCase):
            for key in unittest.defaultTestLoader.getTestCaseNames(thing):
                yield f"{name}.{key}", thing(key).debug
        elif inspect.isclass(thing) and name.startswith("Test"):
            for key in [key for key in vars(thing) if key.startswith("test")]:
                yield from _cases(f"{name}.{key}", getattr(thing(), key), names)


def _cases(
    name: str, test: Callable[..., object], names: Mapping[str, object]
) -> Iterator[tuple[str, Callable[[], object]]]:
    for row in getattr(test, "cases", [{}]):
        yield name, partial(_run_case, test, dict(row), names)


def _run_case(
    test: Callable[..., object], values: dict[str, object], names: Mapping[str, object]
) -> None:
    """Call a test with its values and the fixtures it names, which may use other fixtures."""

    def take(function: Callable[..., object]) -> dict[str, object]:
        for key in inspect.signature(function).parameters:
            make = names.get(key)
            if key not in values and inspect.isfunction(make) and hasattr(make, "is_fixture"):
                if inspect.isgeneratorfunction(make):
                    values[key] = stack.enter_context(contextmanager(make)(**take(make)))
                else:
                    values[key] = make(**take(make))
        return {key: values[key] for key in inspect.signature(function).parameters if key in values}

    with ExitStack() as stack:
        test(**take(test))
