"""Run programs that a model wrote in a sandbox: a scratch folder, no network, no other processes,
limits.

    grader -> launcher, a bare Python for each grader process (see `launcher`)
                -> watcher -> program: namespaces, system call filter, limits

The program sees nothing of the grader, and only plain bytes come back. A program that is late, too
large, or gone is killed with everything it started. If Linux namespaces are not allowed, bubblewrap
is tried. If it is missing or fails too, this refuses to run, unless the settings say `sandbox =
"none"`.
"""

import atexit
import contextlib
import importlib.util
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import IO, Literal

from whet.errors import ConfigError
from whet.tasks.code import frames

Mode = Literal["namespaces", "bubblewrap", "none"]
_Side = Literal["program", "referee"]

_PACKAGES = ("sortedcontainers", "numpy")
"""Packages that programs may import besides the standard library, if the grader has them, as on
LeetCode's judges."""
_ROOT = str(Path(__file__).parents[3])
_INTERPRETER = os.path.realpath(sys.executable)
"""Not the link in a virtual environment, whose path programs could see."""
_START = (
    "import sys; sys.path.insert(0, sys.stdin.readline()[:-1]); "
    "from whet.tasks.code import launcher; launcher.main()"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramLimits:
    """What a program may use; more output or a larger file than `output_bytes` kills it."""

    seconds: float = 10.0
    """Processor time in seconds, rounded up to whole ones."""
    memory_mb: int = 1024
    output_bytes: int = 1 << 24

    @property
    def wall(self) -> float:
        """Wall-clock seconds: more than processor time, so that a busy machine fails nobody."""
        return 3 * self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptResult:
    """How a script ended: its output, and why it failed, or "" if it succeeded."""

    output: bytes
    fault: str
    cpu_seconds: float = field(default=0.0, compare=False)


class RefusedError(ConfigError):
    """This machine does not allow the sandbox; trying again would not help."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"this machine does not allow the sandbox for model code ({reason}); run where Linux "
            'namespaces are allowed, install bubblewrap, or set sandbox = "none" to run programs '
            "without any protection"
        )
        self.reason = reason


class LostError(Exception):
    """A sandbox ended without a report from its watcher: our fault or the machine's."""


def open_process(
    mode: Mode, side: _Side, limits: ProgramLimits
) -> contextlib.AbstractContextManager["Process"]:
    """Start a process that takes messages, and kill it on exit."""
    return contextlib.closing(launcher_for(choose_mode(mode)).spawn(side, limits))


def run_script(
    program: str,
    stdin: IO[bytes],
    limits: ProgramLimits,
    deadline: float | None = None,
    mode: Mode = "namespaces",
) -> ScriptResult:
    """Run a program as a script on an open file; a deadline may shorten its time."""
    launcher = launcher_for(choose_mode(mode))
    output, output_end = os.pipe()
    try:
        process = launcher.spawn("program", limits, (stdin.fileno(), output_end))
    finally:
        os.close(output_end)
    deadline = time.monotonic() + limits.wall if deadline is None else deadline
    try:
        return _collect(process, program, output, deadline, limits)
    finally:
        os.close(output)
        process.close()


_CHOSEN: dict[Mode, Mode] = {}
"""The mode that works on this machine for each requested one; forked processes inherit it."""


def choose_mode(mode: Mode = "namespaces") -> Mode:
    """Return the mode that contains programs: the requested one, or bubblewrap if namespaces are
    refused.

    Tried once per process; raises a RefusedError if nothing works.
    """
    if mode not in _CHOSEN:
        first = find_trouble(mode)
        second = find_trouble("bubblewrap") if first and mode == "namespaces" else first
        if second:
            raise RefusedError(first if first == second else f"{first}; {second}")
        _CHOSEN[mode] = "bubblewrap" if first else mode
    return _CHOSEN[mode]


def describe_isolation(mode: Mode = "namespaces") -> str:
    """Describe in one sentence what contains programs on this machine, or what is missing."""
    try:
        kind = choose_mode(mode)
    except RefusedError as error:
        return str(error)
    words = {"namespaces": "in their own Linux namespaces", "bubblewrap": "in bubblewrap"}
    return f"programs of models run {words.get(kind, 'unprotected')}"


def find_trouble(mode: Mode) -> str:
    """Run an empty program; return why it fails, or ""."""
    if mode == "none":
        return ""
    if mode == "bubblewrap" and shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    launcher = launcher_for(mode)
    deadline = time.monotonic() + 10
    try:
        with contextlib.closing(launcher.spawn("program", ProgramLimits())) as process:
            with contextlib.suppress(frames.ClosedError):  # the status says why
                process.send(json.dumps({"kind": "script", "program": ""}).encode(), deadline)
            return "" if process.status(deadline) == 0 else "an empty program fails in it"
    except RefusedError as error:
        return error.reason
    finally:
        launcher.stop()


class Process:
    """One sandboxed process: a channel for messages and a socket to its watcher. Closing kills
    it."""

    def __init__(self, channel: frames.Channel, watch: socket.socket) -> None:
        self._channel = channel
        self._watch = watch
        self.cpu_seconds = 0.0
        """Processor time used, known once there is a status."""

    def send(self, message: bytes, deadline: float) -> None:
        self._channel.send(message, deadline)

    def receive(self, deadline: float) -> bytes:
        return self._channel.receive(deadline)

    def status(self, deadline: float) -> int | None:
        """Wait for the exit status, negative for a signal; None if it does not come in time."""
        if not _is_readable(self._watch.fileno(), deadline):
            return None
        line = self._watch.recv(4096).partition(b"\n")[0]
        if not line:
            raise LostError("the sandbox ended without a word")
        row = json.loads(line)
        if "failed" in row:
            raise RefusedError(row["failed"]) if row["refused"] else LostError(row["failed"])
        self.cpu_seconds = float(row["cpu"])
        return int(row["status"])

    def close(self) -> None:
        self._channel.close()
        self._watch.close()


class Launcher:
    """A launcher process, started at first use, and again after a fork or if it has ended."""

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.stop)

    def spawn(
        self, side: _Side, limits: ProgramLimits, streams: tuple[int, int] | None = None
    ) -> Process:
        """Start a process; `streams` are its standard input and output, which are otherwise
        empty."""
        mine, theirs = frames.open_channel()
        watch, watcher = socket.socketpair()
        bounds = {"CPU": ceil(limits.seconds), "AS": limits.memory_mb << 20}
        request = {"role": side, "limits": {**bounds, "FSIZE": limits.output_bytes}}
        process = Process(mine, watch)
        try:
            with watcher, self._lock:
                files = [watcher.fileno(), *theirs, *(streams or ())]
                self._send(json.dumps(request).encode(), files)
        except LostError:
            process.close()
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        return process

    def stop(self) -> None:
        """End the launcher; the processes it started end when their own sockets close."""
        with self._lock:
            if self._control is not None:
                self._control.close()
            if self._process is not None:
                self._process.wait(5)
            self._control = self._process = None

    def _send(self, message: bytes, fds: list[int]) -> None:
        for _ in range(3):
            control = self._control or self._start()
            try:
                socket.send_fds(control, [message], fds)
                return
            except OSError:
                control.close()
                self._control = None
        raise LostError("the launcher of sandboxes does not stay up")

    def _start(self) -> socket.socket:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        bwrap = shutil.which("bwrap") or ""
        setting = {"mode": self._mode, "packages": _find_packages(), "bwrap": bwrap}
        with other:
            self._process = subprocess.Popen(  # noqa: S603  # our own launcher
                [_INTERPRETER, "-S", "-P", "-B", "-c", _START, str(other.fileno())],
                env={"PYTHONHASHSEED": "0"},
                pass_fds=[other.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        assert self._process.stdin is not None, "its input is a pipe"
        with contextlib.suppress(BrokenPipeError), self._process.stdin as pipe:
            pipe.write(f"{_ROOT}\n{json.dumps(setting)}\n".encode())
        return self._control

    def _forget(self) -> None:
        """Forget the launcher, which belongs to the process this one was forked from."""
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.returncode = 0  # not ours to wait for
        self._lock = threading.Lock()
        self._control = self._process = None


_LAUNCHERS: dict[Mode, Launcher] = {}


def launcher_for(mode: Mode) -> Launcher:
    """Return the only launcher of this process and mode."""
    if mode not in _LAUNCHERS:
        _LAUNCHERS[mode] = Launcher(mode)
    return _LAUNCHERS[mode]


def _find_packages() -> list[str]:
    paths: list[str] = []
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        for folder in (spec and spec.submodule_search_locations) or ():
            paths += [path for path in (folder, f"{folder}.libs") if Path(path).is_dir()]
    return paths


def _collect(
    process: Process, program: str, output: int, deadline: float, limits: ProgramLimits
) -> ScriptResult:
    try:
        process.send(json.dumps({"kind": "script", "program": program}).encode(), deadline)
    except (frames.ClosedError, frames.LateError):
        process.status(time.monotonic() + 0.2)
        return ScriptResult(output=b"", fault="the program could not be started")
    text = bytearray()
    while _is_readable(output, deadline):
        part = os.read(output, 1 << 16)
        if not part:
            break
        text += part
        if len(text) > limits.output_bytes:
            fault = f"more than {limits.output_bytes} bytes of output"
            return ScriptResult(output=b"", fault=fault)
    status = process.status(deadline)
    fault = "" if status == 0 else describe_fault(process, status, limits)
    return ScriptResult(output=bytes(text), fault=fault, cpu_seconds=process.cpu_seconds)


def describe_fault(process: Process, status: int | None, limits: ProgramLimits) -> str:
    """Explain in one line why a process ended, or that it did not."""
    if status is None:
        return f"not done after {limits.wall:g} s"
    is_killed = status in (-signal.SIGKILL, 128 + signal.SIGKILL)  # as bubblewrap reports it
    # The limit counts whole ticks, and on a busy machine reaches its end long before the sum of
    # what the process really ran does.
    if is_killed and process.cpu_seconds >= ceil(limits.seconds) / 2:
        return f"not done after {ceil(limits.seconds)} s of processor time"
    if status < 0:
        return f"ended by signal {-status}"
    try:
        return process.receive(time.monotonic()).decode("utf-8", "replace")[:300]
    except (frames.ClosedError, frames.LateError):
        return f"exit status {status}"


def _is_readable(fd: int, deadline: float) -> bool:
    """Wait until there is something to read, or the end; False if the deadline comes first."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
