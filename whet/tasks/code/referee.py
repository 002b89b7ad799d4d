"""The tests' side: runs a problem's own tests in a sandbox of its own, where no model text is ever
executed.

The names under test are stand-ins. Calling one sends plain data over the line and gets plain data
back, or an exception of a built-in kind. A thing that cannot cross, such as an instance of the
model's class, is a stand-in too: its methods can be called, and comparing it is an error.
"""

import ast
import builtins
import json
import random
import socket
import sys
import traceback
from types import ModuleType

from whet.tasks.code import frames, mini_pytest, plain, tests_text
from whet.tasks.code.harness import defined, told

_NOT_RAISED = (
    "StopIteration",
    "StopAsyncIteration",
    "GeneratorExit",
    "SystemExit",
    "KeyboardInterrupt",
)
"""Kinds that could end a loop of the tests early, without a failure."""


class ModelError(Exception):
    """The program raised something that is no built-in exception."""


def run(channel: socket.socket) -> None:
    """Read the tests, run them, and report: V, then a verdict as JSON."""
    job = json.loads(frames.receive(channel))
    random.seed(0)
    line = Line(channel)
    try:
        note = _run(line, job)
    except BaseException as error:
        note = _where(error, job["tests"]) + told(error)
    report = {"passed": note == "", "note": note, "calls": line.num_calls}
    frames.send(channel, b"V" + json.dumps(report).encode())


class Line:
    """Calls to the program over the grader's relay."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.records: dict[str, type] = {}
        self.num_calls = 0

    def call(
        self, path: list[str | int], args: tuple[object, ...], named: dict[str, object]
    ) -> object:
        self.num_calls += 1
        data = plain.encode((args, named), self.records)
        frames.send(self._channel, b"C" + json.dumps({"call": path, "data": data}).encode())
        try:
            reply = json.loads(frames.receive(self._channel))
            if "value" in reply:
                return plain.decode(
                    reply["value"], self.records, lambda *about: StandIn(self, *about)
                )
            kind = str(reply["error"])
            message = str(reply["message"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ModelError("the answer is not plain data") from error
        known = getattr(builtins, kind, None)
        if isinstance(known, type) and issubclass(known, Exception) and kind not in _NOT_RAISED:
            try:
                raised = known(message)
            except TypeError:
                raised = ModelError(f"{kind}: {message}")
            raise raised
        raise ModelError(f"{kind}: {message}"[:300])


class Called:
    """A name of the program, or of a thing in it: it can be called, or asked for a name in turn."""

    def __init__(self, line: Line, *path: str | int) -> None:
        self._line = line
        self._path = path

    def __call__(self, *args: object, **named: object) -> object:
        return self._line.call(list(self._path), args, named)

    def __getattr__(self, name: str) -> "Called":
        if name.startswith("__"):
            raise AttributeError(name)
        return Called(self._line, *self._path, name)

    def _refuse(self, *_: object) -> bool:
        raise TypeError(f"{self._told()} of the program is not plain data")

    def _told(self) -> str:
        return ".".join(map(str, self._path))

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return self._refuse()


class StandIn(plain.Remote, Called):
    """A thing that stays in the program's process; whether it is true was said when it was made."""

    def __init__(self, line: Line, number: int, kind: str, is_true: bool) -> None:
        plain.Remote.__init__(self, number, kind, is_true)
        Called.__init__(self, line, number)

    def __bool__(self) -> bool:
        return self.is_true

    def _told(self) -> str:
        return f"a {self.kind}"


class Solution(ModuleType):
    """The module under test: every name in it is the program's."""

    def __init__(self, name: str, line: Line) -> None:
        super().__init__(name)
        self.__dict__["_line"] = line

    def __getattr__(self, name: str) -> Called:
        if name.startswith("__"):
            raise AttributeError(name)
        return Called(self.__dict__["_line"], name)


def _where(error: BaseException, tests: str) -> str:
    """Quote the line of the tests that an exception came from."""
    lines = [
        step.lineno
        for step in traceback.extract_tb(error.__traceback__)
        if step.filename == "tests.py"
    ]
    source = tests.split("\n")
    return (
        f"{source[lines[-1] - 1].strip()[:200]}: "
        if lines and lines[-1] and lines[-1] <= len(source)
        else ""
    )


def _run(line: Line, job: dict[str, str]) -> str:
    module = ModuleType("tests")
    sys.modules["tests"] = module
    names = vars(module)
    exec(compile(job["setup"], "setup.py", "exec"), names)  # noqa: S102  # in the sandbox
    root = job["entry"].partition(".")[0].removesuffix("()")
    line.records = {name: kind for name, kind in defined(module).items() if name != root}
    sys.modules["pytest"] = mini_pytest.module()
    sys.modules[job["module"]] = Solution(job["module"], line)
    tree = tests_text.without_star_import(ast.parse(job["tests"]), job["module"])
    for name in tests_text.free_names(tree) - names.keys() | ({root} if root else set()):
        names[name] = (
            sys.modules.get(name) if name in sys.stdlib_module_names else Called(line, name)
        )
        if names[name] is None:
            names[name] = __import__(name)
    if root:
        names["candidate"] = Called(line, "")
    exec(compile(tree, "tests.py", "exec"), names)  # noqa: S102
    if job["kind"] == "pytest":
        return mini_pytest.run(names)
    check = names.get("check")
    if callable(check) and not isinstance(check, Called):
        check(names["candidate"])
    return ""
