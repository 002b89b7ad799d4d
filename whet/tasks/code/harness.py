"""The model's side of a sandbox: runs the program, and answers calls with plain data.

Nothing it reports is trusted. A program owns this process: it can patch this file's functions,
write to its pipes, or exit. That way it can only affect its own answers, which the referee compares
in another process that never runs model code.
"""

import builtins
import json
import random
import re
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from operator import is_
from types import ModuleType

from whet.tasks.code import frames, plain

_PART = re.compile(r"(\w+)(\(\))?")
_STATEFUL = (dict, list, set, deque)
_BUILT_IN = {"bool", "len", "list", "str", "repr", "setattr"}
"""Built-in functions that the referee calls on objects that stay here."""


def run_job(channel: frames.Channel) -> None:
    """Read the job and run it: a script on files, or functions to be called."""
    job = json.loads(channel.receive())
    random.seed(0)
    if job["kind"] == "script":
        _run_script(channel, job["program"])
    else:
        _serve_functions(channel, job)


def _run_script(channel: frames.Channel, program: str) -> None:
    module = _module("__main__")
    try:
        exec(compile(program, "solution.py", "exec"), vars(module))  # noqa: S102  # in the sandbox
    except SystemExit:
        raise
    except BaseException as error:
        channel.send(describe_exception(error).encode())
        raise SystemExit(1) from None


def _serve_functions(channel: frames.Channel, job: dict[str, str]) -> None:
    module = _module("solution")
    try:
        exec(compile(job["setup"], "setup.py", "exec"), vars(module))  # noqa: S102
        names = list(own_classes(module))
        exec(compile(job["program"], "solution.py", "exec"), vars(module))  # noqa: S102
    except BaseException as error:
        channel.send(b"F" + describe_exception(error).encode())
        return
    channel.send(b"R")
    server = CallServer(module, names, job["entry"])
    while True:
        try:
            message = channel.receive()
        except frames.ClosedError:
            return
        channel.send(json.dumps(server.answer(json.loads(message[1:]))).encode())


def _module(name: str) -> ModuleType:
    module = ModuleType(name)
    sys.modules[name] = module
    return module


def own_classes(module: ModuleType) -> dict[str, type]:
    """List the classes that a module defines itself."""
    kinds = {name: kind for name, kind in vars(module).items() if isinstance(kind, type)}
    return {name: kind for name, kind in kinds.items() if kind.__module__ == module.__name__}


def describe_exception(error: BaseException) -> str:
    """Describe an exception in one short line."""
    try:
        return f"{type(error).__name__}: {error}".encode("utf-8", "replace").decode()[:300]
    except BaseException:
        return type(error).__name__


def _describe_error(error: BaseException) -> dict[str, object]:
    kinds = [kind.__name__ for kind in type(error).__mro__]
    return {"error": kinds, "message": describe_exception(error).partition(": ")[2]}


def _is_same(before: Sequence[object], after: Sequence[object]) -> bool:
    return len(before) == len(after) and all(map(is_, before, after))


def _is_stateful(value: object) -> bool:
    """Whether a value is a container class of the program, which cannot be copied as plain data."""
    return isinstance(value, _STATEFUL) and type(value).__module__ == "solution"


class CallServer:
    """Answers calls to the names of a module; objects that cannot cross stay here under a
    number."""

    def __init__(self, module: ModuleType, records: list[str], entry: str) -> None:
        self._names = vars(module)
        self._records = records
        self._entry = entry
        self._objects: dict[int, object] = {}
        self._candidate: object = None

    def answer(self, call: dict[str, object]) -> dict[str, object]:
        """Answer one call of the referee with plain data or an error."""
        try:
            known = {name: self._names.get(name) for name in self._records}
            records = {name: kind for name, kind in known.items() if isinstance(kind, type)}
            data = plain.decode_value(
                call["data"], records, lambda number, *_: self._objects[number]
            )
            encode = partial(plain.encode_value, records=records, keep=self._keep)
            if data is None:  # a name to read, not to call
                return {"value": encode(self._target(call["call"]))}
            assert isinstance(data, tuple), "the referee sends a pair"
            parts = plain.mutable_parts(data, records) if call.get("shares") else []
            encode = partial(encode, parts={id(part): number for number, part in enumerate(parts)})
            before = [plain.contents_of(part) for part in parts]
            reply = self._call(call["call"], data, encode)
            after = [plain.contents_of(part) for part in parts]
            pairs = enumerate(zip(before, after, strict=True))
            changed = {n: encode(new) for n, (old, new) in pairs if not _is_same(old, new)}
            return {**reply, "changed": [*changed.items()]} if changed else reply
        except BaseException as error:
            return _describe_error(error)

    def _call(
        self,
        path: object,
        data: tuple[tuple[object, ...], dict[str, object]],
        encode: Callable[[object], list[plain.Entry]],
    ) -> dict[str, object]:
        try:
            target = self._target(path)
            assert callable(target), "the referee names something to call"
            value = target(*data[0], **data[1])
            if isinstance(target, type) and _is_stateful(value):
                return {"value": [["h", self._keep(value), target.__name__, int(bool(value))]]}
            return {"value": encode(value)}
        except BaseException as error:
            return _describe_error(error)

    def _keep(self, value: object) -> int:
        self._objects[len(self._objects)] = value
        return len(self._objects) - 1

    def _target(self, path: object) -> object:
        assert isinstance(path, list), "a path is a list of names, the first perhaps a number"
        if path[0] == "":
            target = self._candidate = self._candidate or self._find(self._entry)
        else:
            target = self._objects[path[0]] if isinstance(path[0], int) else self._named(path[0])
        for attribute in path[1:]:
            target = getattr(target, attribute)
        return target

    def _named(self, name: str) -> object:
        return getattr(builtins, name) if name in _BUILT_IN else self._names[name]

    def _find(self, entry: str) -> object:
        """Resolve an entry such as `f` or `Solution().f`, where brackets create an instance."""
        target: object = None
        for position, part in enumerate(entry.split(".")):
            match = _PART.fullmatch(part)
            if not match:
                raise NameError(f"{entry} is not a name")
            target = self._names[match[1]] if position == 0 else getattr(target, match[1])
            target = target() if match[2] and callable(target) else target
        return target
