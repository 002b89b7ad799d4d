"""The part of pytest that published tests use: raises, approx, fail, parametrize, functions.

It runs in the referee's sandbox, where nothing but the standard library is installed. What is
missing here is refused by `tests_text.unsupported_reason` before a row is taken.
"""

import inspect
import math
import re
import unittest
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType, SimpleNamespace, TracebackType

from whet.tasks.code.harness import describe


def make_module() -> ModuleType:
    """Make what `import pytest` gives the tests."""
    module = ModuleType("pytest")
    mark = SimpleNamespace(parametrize=parametrize)
    vars(module).update(raises=Raises, approx=Approx, fail=fail, param=param, mark=mark)
    return module


def run(names: Mapping[str, object]) -> str:
    """Run every test in the order written; return the first failure in one line, or ""."""
    tests = list(_collect(names))
    if not tests:
        return "there are no tests"
    for name, test in tests:
        try:
            test()
        except BaseException as error:
            return f"{name}: {describe(error)}"
    return ""


def fail(reason: str = "") -> None:
    raise AssertionError(reason)


_Number = int | float | complex


class Param(tuple[object, ...]):
    """The values of one case."""


def param(*values: object, **_: object) -> Param:
    return Param(values)


def parametrize(
    names: str | Sequence[str], cases: Sequence[object]
) -> Callable[[Callable[..., object]], object]:
    """Give a test function its cases; several of them multiply."""
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
    """Expect an exception, of a kind and with a message that matches."""

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
        if not isinstance(error, self._kind):
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
        share = (1e-6 if self._abs is None else 0.0) if self._rel is None else self._rel
        distance = abs(actual - expected)
        return math.isfinite(distance) and distance <= max(share * abs(expected), least)


def _collect(names: Mapping[str, object]) -> Iterator[tuple[str, Callable[[], object]]]:
    for name, thing in list(names.items()):
        if inspect.isfunction(thing) and name.startswith("test"):
            yield from _cases(name, thing)
        elif inspect.isclass(thing) and issubclass(thing, unittest.TestCase):
            yield from _unittests(thing)
        elif inspect.isclass(thing) and name.startswith("Test"):
            for key in [key for key in vars(thing) if key.startswith("test")]:
                yield from _cases(f"{name}.{key}", getattr(thing(), key))


def _cases(name: str, test: Callable[..., object]) -> Iterator[tuple[str, Callable[[], object]]]:
    for row in getattr(test, "cases", [{}]):
        yield name, lambda row=row: test(**row)  # type: ignore[misc]


def _unittests(kind: type[unittest.TestCase]) -> Iterator[tuple[str, Callable[[], object]]]:
    for name in unittest.defaultTestLoader.getTestCaseNames(kind):
        yield f"{kind.__name__}.{name}", kind(name).debug
