"""The model's side of a sandbox: runs the program, and answers calls with plain data. Nothing it
says is believed.

A program owns this process: it can patch this file's functions, write to the line, or exit. All it
can reach that way is its own answers, which the referee compares in another process that never runs
model code.
"""

import json
import random
import re
import socket
import sys
from types import ModuleType

from whet.tasks.code import frames, plain

_PART = re.compile(r"(\w+)(\(\))?")


def run(channel: socket.socket) -> None:
    """Read the job and do it: a script (its input and output are files), or functions to be
    called."""
    job = json.loads(frames.receive(channel))
    random.seed(0)
    if job["kind"] == "script":
        _script(channel, job["program"])
    else:
        _functions(channel, job)


def _script(channel: socket.socket, program: str) -> None:
    module = _module("__main__")
    try:
        exec(compile(program, "solution.py", "exec"), vars(module))  # noqa: S102  # in the sandbox
    except SystemExit:
        raise
    except BaseException as error:
        frames.send(channel, told(error).encode())
        raise SystemExit(1) from None


def _functions(channel: socket.socket, job: dict[str, str]) -> None:
    module = _module("solution")
    try:
        exec(compile(job["setup"], "setup.py", "exec"), vars(module))  # noqa: S102
        names = list(defined(module))
        exec(compile(job["program"], "solution.py", "exec"), vars(module))  # noqa: S102
    except BaseException as error:
        frames.send(channel, b"F" + told(error).encode())
        return
    frames.send(channel, b"R")
    server = Server(module, names, job["entry"])
    while True:
        try:
            message = frames.receive(channel)
        except frames.ClosedError:
            return
        frames.send(channel, json.dumps(server.answer(json.loads(message[1:]))).encode())


def _module(name: str) -> ModuleType:
    module = ModuleType(name)
    sys.modules[name] = module
    return module


def defined(module: ModuleType) -> dict[str, type]:
    """List the classes that a module defines itself."""
    kinds = {name: kind for name, kind in vars(module).items() if isinstance(kind, type)}
    return {name: kind for name, kind in kinds.items() if kind.__module__ == module.__name__}


def told(error: BaseException) -> str:
    """Say an exception in one short line."""
    try:
        return f"{type(error).__name__}: {error}".encode("utf-8", "replace").decode()[:300]
    except BaseException:
        return type(error).__name__


class Server:
    """Answer calls to the names of a module; what cannot cross stays here under a number."""

    def __init__(self, module: ModuleType, records: list[str], entry: str) -> None:
        self._names = vars(module)
        self._records = records
        self._entry = entry
        self._kept: dict[int, object] = {}
        self._candidate: object = None

    def answer(self, call: dict[str, object]) -> dict[str, object]:
        try:
            records = {
                name: kind
                for name in self._records
                if isinstance(kind := self._names.get(name), type)
            }
            sent = plain.decode(call["data"], records, lambda number, *_: self._kept[number])
            target = self._target(call["call"])
            assert isinstance(sent, tuple) and callable(target), (
                "the referee sends a pair, to something to call"
            )
            value = target(*sent[0], **sent[1])
            return {"value": plain.encode(value, records, self._keep)}
        except BaseException as error:
            return {"error": type(error).__name__, "message": told(error).partition(": ")[2]}

    def _keep(self, value: object) -> int:
        self._kept[len(self._kept)] = value
        return len(self._kept) - 1

    def _target(self, path: object) -> object:
        assert isinstance(path, list), "a path is a list of names, the first perhaps a number"
        if path[0] == "":
            target = self._candidate = self._candidate or self._find(self._entry)
        else:
            target = self._kept[path[0]] if isinstance(path[0], int) else self._names[path[0]]
        for attribute in path[1:]:
            target = getattr(target, attribute)
        return target

    def _find(self, entry: str) -> object:
        """Follow an entry such as `f` or `Solution().f`, where brackets make an instance."""
        target: object = None
        for place, part in enumerate(entry.split(".")):
            found = _PART.fullmatch(part)
            if not found:
                raise NameError(f"{entry} is not a name")
            target = self._names[found[1]] if place == 0 else getattr(target, found[1])
            target = target() if found[2] and callable(target) else target
        return target
