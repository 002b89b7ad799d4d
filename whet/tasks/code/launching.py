"""The grader's end of a launcher: asks it for sandboxed processes, and holds the lines to them."""

import atexit
import importlib.util
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from whet.errors import ConfigError
from whet.tasks.code import frames

Mode = Literal["namespaces", "bubblewrap", "none"]
Part = Literal["program", "referee"]

_PACKAGES = ("sortedcontainers", "numpy")
"""What programs may import beside the standard library, where the grader has it, as the judges of
LeetCode do."""
_START = "import sys; sys.path.insert(0, {root!r}); from whet.tasks.code import launcher; launcher.main()"
_ROOT = str(Path(__file__).parents[3])


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a program may use. Output above `output_bytes` ends it, and so does a file that
    large."""

    seconds: float = 10.0
    memory_mb: int = 1024
    output_bytes: int = 1 << 24


class RefusedError(ConfigError):
    """This machine does not allow the sandbox, and will not the next time."""

    def __init__(self, reason: str) -> None:
        super().__init__(refusal(reason))
        self.reason = reason


class LostError(Exception):
    """A sandbox ended without a word from its watcher: a failure of ours, or of the machine."""


class Process:
    """One sandboxed process: a line of messages, and a second line to its watcher. Closing ends
    it."""

    def __init__(self, channel: socket.socket, watch: socket.socket) -> None:
        self._channel = channel
        self._watch = watch
        channel.setblocking(False)

    def send(self, message: bytes, deadline: float) -> None:
        frames.send(self._channel, message, deadline)

    def receive(self, deadline: float) -> bytes:
        return frames.receive(self._channel, deadline)

    def status(self, deadline: float) -> int | None:
        """Wait for the end: the exit status, negative for a signal; None where it does not come in
        time."""
        if not readable(self._watch.fileno(), deadline):
            return None
        line = self._watch.recv(4096).partition(b"\n")[0]
        if not line:
            raise LostError("the sandbox ended without a word")
        row = json.loads(line)
        if "failed" in row:
            raise RefusedError(row["failed"]) if row["refused"] else LostError(row["failed"])
        return int(row["status"])

    def close(self) -> None:
        self._channel.close()
        self._watch.close()


class Launcher:
    """A launcher process, which starts at the first use, and again after a fork of this process or
    its own end."""

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.stop)

    def spawn(self, part: Part, limits: Limits, streams: tuple[int, int] | None = None) -> Process:
        """Start a process; `streams` are its standard input and output, nothing where they are not
        given."""
        mine, channel = socket.socketpair()
        watch, watcher = socket.socketpair()
        request = {
            "role": part,
            "seconds": int(limits.seconds) + 2,
            "memory": limits.memory_mb << 20,
            "file_size": limits.output_bytes,
        }
        process = Process(mine, watch)
        try:
            with channel, watcher, self._lock:
                self._send(
                    json.dumps(request).encode(),
                    [watcher.fileno(), channel.fileno(), *(streams or ())],
                )
        except LostError:
            process.close()
            raise
        return process

    def stop(self) -> None:
        """End the launcher; what it started ends with its own lines."""
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
        arguments = [
            str(other.fileno()),
            self._mode,
            json.dumps(_packages()),
            shutil.which("bwrap") or "",
        ]
        with other:
            self._process = subprocess.Popen(  # noqa: S603  # our own launcher
                [sys.executable, "-S", "-P", "-B", "-c", _START.format(root=_ROOT), *arguments],
                env={"PYTHONHASHSEED": "0"},
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        return self._control

    def _forget(self) -> None:
        """Leave the launcher to the process this one was forked from."""
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.returncode = 0  # not ours to wait for
        self._lock = threading.Lock()
        self._control = self._process = None


_LAUNCHERS: dict[Mode, Launcher] = {}


def launcher_for(mode: Mode) -> Launcher:
    """Give the one launcher of this process."""
    if mode not in _LAUNCHERS:
        _LAUNCHERS[mode] = Launcher(mode)
    return _LAUNCHERS[mode]


def readable(fd: int, deadline: float) -> bool:
    """Wait until there is something to read, or the end; False where the deadline comes first."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))


def refusal(reason: str) -> str:
    return (
        f"this machine does not allow the sandbox for model code ({reason}); run where Linux namespaces "
        'are allowed, install bubblewrap, or set sandbox = "none" to run programs without any protection'
    )


def _packages() -> list[str]:
    found: list[str] = []
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        for folder in (spec and spec.submodule_search_locations) or ():
            found += [path for path in (folder, f"{folder}.libs") if Path(path).is_dir()]
    return found
