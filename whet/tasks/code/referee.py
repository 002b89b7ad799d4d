"""The tests' side: runs a problem's tests in a sandbox where no model text is ever executed.

The names under test are stand-ins. Calling one sends plain data to the program's process and gets
plain data back, or an exception of a built-in kind. An object that cannot cross, such as an
instance of the model's class, is a stand-in too: its methods can be called, and comparing it is an
error.
"""

import ast
import builtins
import json
import random
import socket
import sys
import traceback
from functools import partial
from importlib import import_module
from types import ModuleType

from whet.tasks.code import frames, mini_pytest, plain, tests_text
from whet.tasks.code.harness import describe, own_classes

_NOT_RAISED = {
    "StopIteration",
    "StopAsyncIteration",
    "GeneratorExit",
    "SystemExit",
    "KeyboardInterrupt",
}
"""Kinds that could end a loop of the tests early, without a failure."""


class ModelError(Exception):
    """The program raised something that is no built-in exception."""


def run(channel: socket.socket) -> None:
    """Read the tests, run them, and report: V, then a verdict as JSON."""
    job = json.loads(frames.receive(channel))
    random.seed(0)
    relay = Relay(channel)
    try:
        note = _run(relay, job)
    except BaseException as error:
        note = _quote_line(error, job["tests"]) + describe(error)
    report = {"passed": note == "", "note": note, "calls": relay.num_calls}
    frames.send(channel, b"V" + json.dumps(report).encode())


class Relay:
    """Calls to the program through the grader's relay."""

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
                stand_in = partial(StandIn, self)
                return plain.decode(reply["value"], self.records, stand_in)
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


class RemoteName:
    """A name of the program, or of an object in it: it can be called, or has names in turn."""

    def __init__(self, relay: Relay, *path: str | int) -> None:
        self._relay = relay
        self._path = path

    def __call__(self, *args: object, **named: object) -> object:
        return self._relay.call(list(self._path), args, named)

    def __getattr__(self, name: str) -> "RemoteName":
        if name.startswith("__"):
            raise AttributeError(name)
        return RemoteName(self._relay, *self._path, name)

    def _refuse(self, *_: object) -> bool:
        raise TypeError(f"{self._describe()} of the program is not plain data")

    def _describe(self) -> str:
        return ".".join(map(str, self._path))

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return self._refuse()


class StandIn(plain.Remote, RemoteName):
    """An object that stays in the program's process; its truth value is fixed when it is sent."""

    def __init__(self, relay: Relay, number: int, kind: str, is_true: bool) -> None:
        plain.Remote.__init__(self, number, kind, is_true)
        RemoteName.__init__(self, relay, number)

    def __bool__(self) -> bool:
        return self.is_true

    def _describe(self) -> str:
        return f"a {self.kind}"


class SolutionModule(ModuleType):
    """The module under test: every name in it is the program's."""

    def __init__(self, name: str, relay: Relay) -> None:
        super().__init__(name)
        self.__dict__["_relay"] = relay

    def __getattr__(self, name: str) -> RemoteName:
        if name.startswith("__"):
            raise AttributeError(name)
        return RemoteName(self.__dict__["_relay"], name)


def _quote_line(error: BaseException, tests: str) -> str:
    """Quote the line of the tests that an exception came from."""
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
    sys.modules["pytest"] = mini_pytest.make_module()
    sys.modules[job["module"]] = SolutionModule(job["module"], relay)
    tree = tests_text.without_star_import(ast.parse(job["tests"]), job["module"])
    for name in tests_text.free_names(tree) - names.keys() | ({root} if root else set()):
        is_library = name in sys.stdlib_module_names
        names[name] = import_module(name) if is_library else RemoteName(relay, name)
    if root:
        names["candidate"] = RemoteName(relay, "")
    exec(compile(tree, "tests.py", "exec"), names)  # noqa: S102
    if job["kind"] == "pytest":
        return mini_pytest.run(names)
    check = names.get("check")
    if callable(check) and not isinstance(check, RemoteName):
        check(names["candidate"])
    return ""
