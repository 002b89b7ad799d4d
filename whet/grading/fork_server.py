"""The fork server: loads the tasks, forks grading workers, and enforces their time limits.

It is a new interpreter without torch, so that forking takes about a millisecond. It runs in its own
session, so that Ctrl-C reaches only its parent, and exits with its parent.
"""

import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from mmap import mmap
from operator import attrgetter
from pathlib import Path

from whet.environment import die_with_parent
from whet.errors import WhetError
from whet.grading.limits import (
    GradingConfig,
    describe_exit,
    describe_timeout,
    is_cost_of_response,
    limit_memory,
)
from whet.grading.worker_pool import KILL_OFFSET, ResponseClock, run_worker
from whet.tasks.base import Task, settings_class
from whet.types import Json
from whet.user_code import load_user_file

TICK_SECONDS = 0.02
"""Interval for reading the workers' clocks."""
PR_SET_CHILD_SUBREAPER = 36


class ForkServer:
    """Forks a worker for every socket received, and reports its end on the control socket."""

    def __init__(
        self, control: socket.socket, tasks: Mapping[str, Task], limits: GradingConfig
    ) -> None:
        self.control = control
        self.tasks = tasks
        self.limits = limits
        self.parent = os.getppid()
        self.cells = memoryview(mmap(-1, 4096)).cast("q")
        self.clocks: dict[int, ResponseClock] = {}  # by process id
        self.wake, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self.wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve until the parent exits, then kill all workers."""
        self._report({"ready": True})
        try:
            while os.getppid() == self.parent and self._serve():
                pass
        finally:
            for pid in list(self.clocks):
                _kill(pid)
            _kill_strays(keep=())

    def _serve(self) -> bool:
        descriptors = [self.control.fileno(), self.wake]
        ready, _, _ = select.select(descriptors, [], [], TICK_SECONDS if self.clocks else 1.0)
        if self.wake in ready:
            with suppress(BlockingIOError):
                os.read(self.wake, 4096)
        self._kill_overdue()
        self._reap()
        if self.control.fileno() in ready:
            message, sockets, _, _ = socket.recv_fds(self.control, 1, 1)
            if not message:
                return False
            if sockets:
                self._fork(message[0], socket.socket(fileno=sockets[0]))
            else:
                self._kill_slot(message[0] - KILL_OFFSET)
        return True

    def _fork(self, slot: int, channel: socket.socket) -> None:
        clock = ResponseClock(cells=self.cells, slot=slot)
        clock.stop()
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self._become_worker(server, channel, clock)
                code = 0
            finally:
                os._exit(code)
        channel.close()
        self.clocks[pid] = clock

    def _become_worker(self, server: int, channel: socket.socket, clock: ResponseClock) -> None:
        """Release the server's resources, die with it, and adopt orphans of the grader."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        die_with_parent(signal.SIGKILL)
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        if os.getppid() != server:
            return
        self.control.close()
        limit_memory(self.limits)
        with suppress(BrokenPipeError, ConnectionResetError):
            run_worker(channel, self.tasks, self.limits, clock)

    def _kill_overdue(self) -> None:
        for pid, clock in list(self.clocks.items()):
            if clock.seconds > self.limits.wall:
                _kill(pid)
                os.waitpid(pid, 0)
                self._report_exit(pid, describe_timeout(self.limits))

    def _kill_slot(self, slot: int) -> None:
        """Kill a worker that has been silent for too long; it is reaped later."""
        for pid, clock in self.clocks.items():
            if clock.slot == slot:
                _kill(pid)

    def _reap(self) -> None:
        # Look before waiting, since a process id cannot be reused until it is waited for.
        while (pid := _exited_child()) is not None:
            if pid in self.clocks:
                _kill(pid)
            _, status = os.waitpid(pid, 0)
            if pid in self.clocks:
                why = describe_exit(status, self.limits)
                self._report_exit(pid, why, by_response=is_cost_of_response(status))

    def _report_exit(self, pid: int, why: str, *, by_response: bool = False) -> None:
        """Kill the processes that a dead worker left, then report its end."""
        clock = self.clocks.pop(pid)
        _kill_strays(keep=self.clocks)
        report: dict[str, Json] = {"slot": clock.slot, "job": clock.number, "why": why}
        self._report({**report, "by_response": by_response})

    def _report(self, message: dict[str, Json]) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self.control.sendall(json.dumps(message).encode() + b"\n")


def main() -> None:
    """Read the tasks to load from stdin, and serve on the socket in the first argument."""
    control = socket.socket(fileno=int(sys.argv[1]))
    setup = json.loads(sys.stdin.buffer.read())
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        for file in setup["user_files"]:
            load_user_file(Path(file))
        tasks = [_build_task(**description) for description in setup["tasks"]]
        for task in tasks:
            task.preload()  # before forking, so that workers share it
    except Exception as error:
        reason = str(error) if isinstance(error, WhetError) else f"{type(error).__name__}: {error}"
        control.sendall(json.dumps({"failed": reason}).encode() + b"\n")
        return
    gc.freeze()
    ForkServer(control, {task.name: task for task in tasks}, GradingConfig(**setup["limits"])).run()


def _build_task(module: str, name: str, settings: dict[str, Json] | None) -> Task:
    task_class = attrgetter(name)(import_module(module))
    config = None if settings is None else settings_class(task_class)
    task: Task = task_class() if config is None else task_class(config.model_validate(settings))
    return task


def _exited_child() -> int | None:
    try:
        info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return info.si_pid if info else None


def _kill(pid: int) -> None:
    """Kill a worker and its process group."""
    for kill in (os.kill, os.killpg):
        with suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


def _kill_strays(keep: Mapping[int, ResponseClock] | tuple[()]) -> None:
    """Kill children that are not workers: orphans of a dead worker, which are reparented to us."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while strays := [pid for pid in map(int, children.read_text().split()) if pid not in keep]:
        for pid in strays:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
