"""Run programs a model wrote, contained: no network, no files but a scratch folder, no other processes, hard limits.

    grader  -> launcher (a bare Python, one for each grader process; see `launcher`)
                 -> watcher -> program     namespaces, system call filter, limits; sees nothing of the grader

Only plain bytes come back. A program that is late, too large, or gone is killed with all it started. Where Linux
namespaces are not allowed this refuses to run, unless the settings say `sandbox = "none"`.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from whet.errors import ConfigError
from whet.tasks.code import frames
from whet.tasks.code.launching import Limits, Mode, Part, Process, launcher_for, readable, refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a script ended: its output, and why it failed, or "" where it ended well."""

    output: bytes
    fault: str


class Sandbox:
    """Scripts and services, run through the launcher of this process."""

    def __init__(self, mode: Mode = "namespaces") -> None:
        self._launcher = launcher_for(mode)

    @contextlib.contextmanager
    def process(self, part: Part, limits: Limits) -> Iterator[Process]:
        """Start a process that is spoken to in messages, and end it on the way out."""
        process = self._launcher.spawn(part, limits)
        try:
            yield process
        finally:
            process.close()

    def script(self, program: str, given: IO[bytes], limits: Limits, deadline: float | None = None) -> Ran:
        """Run a program as a script on the bytes of an open file; a deadline may come before the limit on its time."""
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
    deadline = time.monotonic() + 10
    with Sandbox(mode).process("program", Limits()) as process:
        with contextlib.suppress(frames.ClosedError):  # the status says why
            process.send(json.dumps({"kind": "script", "program": ""}).encode(), deadline)
        if process.status(deadline) != 0:
            raise ConfigError(refusal("an empty program fails in it"))
    launcher_for(mode).stop()


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
