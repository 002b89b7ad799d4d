"""Run programs a model wrote, contained: no network, no files but a scratch folder, no other
processes, hard limits.

    grader  -> launcher (a bare Python, one for each grader process; see `launcher`)
                 -> watcher -> program     namespaces, system call filter, limits; sees nothing of the grader

Only plain bytes come back. A program that is late, too large, or gone is killed with all it
started. Where Linux namespaces are not allowed to us, bubblewrap is tried; where it is not there or
fails too, this refuses to run, unless the settings say `sandbox = "none"`.
"""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from whet.tasks.code import frames
from whet.tasks.code.launching import (
    Launcher,
    Limits,
    Mode,
    Part,
    Process,
    RefusedError,
    launcher_for,
    readable,
)

_CHOSEN: dict[Mode, Mode] = {}
"""What was found to work, by what was asked for; a fork keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a script ended: its output, and why it failed, or "" where it ended well."""

    output: bytes
    fault: str


class Sandbox:
    """Scripts and services, run through the launcher of this process."""

    def __init__(self, mode: Mode = "namespaces") -> None:
        self._mode = mode

    @property
    def _launcher(self) -> Launcher:
        return launcher_for(chosen(self._mode))

    @contextlib.contextmanager
    def process(self, part: Part, limits: Limits) -> Iterator[Process]:
        """Start a process that is spoken to in messages, and end it on the way out."""
        process = self._launcher.spawn(part, limits)
        try:
            yield process
        finally:
            process.close()

    def script(
        self, program: str, given: IO[bytes], limits: Limits, deadline: float | None = None
    ) -> Ran:
        """Run a program as a script on the bytes of an open file; a deadline may come before the
        limit on its time."""
        output, writing = os.pipe()
        try:
            process = self._launcher.spawn("program", limits, (given.fileno(), writing))
        finally:
            os.close(writing)
        deadline = time.monotonic() + limits.seconds if deadline is None else deadline
        try:
            return _collected(process, program, output, deadline, limits)
        finally:
            os.close(output)
            process.close()


def require(mode: Mode = "namespaces") -> None:
    """Raise a ConfigError, in one sentence, where this machine does not allow the sandbox."""
    chosen(mode)


def chosen(mode: Mode) -> Mode:
    """Say what contains programs: the mode itself, or bubblewrap where our own namespaces are
    refused. Tried once."""
    if mode not in _CHOSEN:
        first = trouble(mode)
        second = trouble("bubblewrap") if first and mode == "namespaces" else first
        if second:
            raise RefusedError(first if first == second else f"{first}; {second}")
        _CHOSEN[mode] = "bubblewrap" if first else mode
    return _CHOSEN[mode]


def described(mode: Mode = "namespaces") -> str:
    """Say in one sentence what contains programs on this machine, or what is missing."""
    try:
        kind = chosen(mode)
    except RefusedError as error:
        return str(error)
    words = {
        "namespaces": "in Linux namespaces of their own",
        "bubblewrap": "in bubblewrap",
        "none": "unprotected",
    }
    return f"programs of models run {words[kind]}"


def trouble(mode: Mode) -> str:
    """Run an empty program and say why it fails, or ""."""
    if mode == "none":
        return ""
    if mode == "bubblewrap" and shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    launcher = launcher_for(mode)
    deadline = time.monotonic() + 10
    process = launcher.spawn("program", Limits())
    try:
        with contextlib.suppress(frames.ClosedError):  # the status says why
            process.send(json.dumps({"kind": "script", "program": ""}).encode(), deadline)
        return "" if process.status(deadline) == 0 else "an empty program fails in it"
    except RefusedError as error:
        return error.reason
    finally:
        process.close()
        launcher.stop()


def _collected(process: Process, program: str, output: int, deadline: float, limits: Limits) -> Ran:
    try:
        process.send(json.dumps({"kind": "script", "program": program}).encode(), deadline)
    except (frames.ClosedError, frames.LateError):
        process.status(time.monotonic() + 0.2)
        return Ran(output=b"", fault="the program could not be started")
    said = bytearray()
    while readable(output, deadline):
        part = os.read(output, 1 << 16)
        if not part:
            break
        said += part
        if len(said) > limits.output_bytes:
            return Ran(output=b"", fault=f"more than {limits.output_bytes} bytes of output")
    status = process.status(deadline)
    return Ran(output=bytes(said), fault="" if status == 0 else _fault(process, status, limits))


def _fault(process: Process, status: int | None, limits: Limits) -> str:
    if status is None:
        return f"not done after {limits.seconds:g} s"
    if status < 0:
        return f"ended by signal {-status}"
    try:
        return process.receive(time.monotonic()).decode("utf-8", "replace")[:300]
    except (frames.ClosedError, frames.LateError):
        return f"exit status {status}"
