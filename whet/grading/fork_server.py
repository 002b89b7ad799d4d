"""The fork server: a process that has the tasks loaded and forks grading workers, watches their
clocks, ends them.

It is a fresh interpreter without torch, its workers are its copies, and a new one is there in about
a millisecond. It sits in a session of its own, so that Ctrl-C is its parent's to answer, and ends
with its parent, however that ends.
"""

import ctypes
import gc
import json
import os
import pickle
import select
import signal
import socket
import sys
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from mmap import mmap
from pathlib import Path

from whet.errors import WhetError
from whet.grading.limits import Limits, confine, epitaph, too_long
from whet.grading.worker import KILL, Board, work
from whet.tasks.base import Task
from whet.tasks.user_task import load_file
from whet.types import Json

TICK_SECONDS = 0.02
"""How often the clocks of the workers are read."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class ForkServer:
    """Forks a worker for every socket it is sent, and tells over the control socket how each
    ended."""

    def __init__(self, control: socket.socket, tasks: Mapping[str, Task], limits: Limits) -> None:
        self.control = control
        self.tasks = tasks
        self.limits = limits
        self.parent = os.getppid()
        self.cells = memoryview(mmap(-1, 4096)).cast("q")
        self.boards: dict[int, Board] = {}  # by process id
        self.wake, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self.wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve until the parent goes away, then leave nothing running."""
        self._tell({"ready": True})
        try:
            while os.getppid() == self.parent and self._serve():
                pass
        finally:
            for pid in list(self.boards):
                _kill(pid)
            _sweep(keep=())

    def _serve(self) -> bool:
        doors = [self.control.fileno(), self.wake]
        ready, _, _ = select.select(doors, [], [], TICK_SECONDS if self.boards else 1.0)
        if self.wake in ready:
            with suppress(BlockingIOError):
                os.read(self.wake, 4096)
        self._watch()
        self._reap()
        if self.control.fileno() in ready:
            asked, descriptors, _, _ = socket.recv_fds(self.control, 1, 1)
            if not asked:
                return False
            if descriptors:
                self._fork(asked[0], socket.socket(fileno=descriptors[0]))
            else:
                self._end(asked[0] - KILL)
        return True

    def _fork(self, slot: int, place: socket.socket) -> None:
        board = Board(cells=self.cells, slot=slot)
        board.rest()
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self._become_worker(server, place, board)
                code = 0
            finally:
                os._exit(code)
        place.close()
        self.boards[pid] = board

    def _become_worker(self, server: int, place: socket.socket, board: Board) -> None:
        """Shed what is the server's, and go down with it; own what the grader starts, so that it
        can be found."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        if os.getppid() != server:
            return
        self.control.close()
        confine(self.limits)
        with suppress(BrokenPipeError, ConnectionResetError):
            work(place, self.tasks, self.limits, board)

    def _watch(self) -> None:
        for pid, board in list(self.boards.items()):
            if board.seconds > self.limits.wall:
                _kill(pid)
                os.waitpid(pid, 0)
                self._bury(pid, too_long(self.limits))

    def _end(self, slot: int) -> None:
        """End a worker that its parent has not heard of for too long; a worker that went by itself
        is reaped."""
        for pid, board in self.boards.items():
            if board.slot == slot:
                _kill(pid)

    def _reap(self) -> None:
        # Looked at before it is taken away: until then its number, and so its group's, cannot be
        # another's.
        while (ended := _ended()) is not None:
            if ended in self.boards:
                _kill(ended)
            _, status = os.waitpid(ended, 0)
            if ended in self.boards:
                self._bury(ended, epitaph(status, self.limits))

    def _bury(self, pid: int, why: str) -> None:
        """End whatever a worker started and left, then tell of its end; its socket is closed by
        then on every side."""
        board = self.boards.pop(pid)
        _sweep(keep=self.boards)
        self._tell({"slot": board.slot, "answer": board.number, "why": why})

    def _tell(self, message: dict[str, Json]) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self.control.sendall(json.dumps(message).encode() + b"\n")


def main() -> None:
    """Read what to load from standard input and serve on the socket whose number is the first
    argument."""
    control = socket.socket(fileno=int(sys.argv[1]))
    hello = json.loads(sys.stdin.buffer.read())
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        for file in hello["own"]:
            load_file(Path(file))
        tasks = _made(b64decode(hello["tasks"]))
    except Exception as error:
        said = str(error) if isinstance(error, WhetError) else f"{type(error).__name__}: {error}"
        control.sendall(json.dumps({"failed": said}).encode() + b"\n")
        return
    gc.freeze()
    ForkServer(control, {task.name: task for task in tasks}, Limits(**hello["limits"])).run()


def _made(packed: bytes) -> list[Task]:
    """Make the tasks, and have each load what it needs, so that forked workers find it loaded."""
    recipes = pickle.loads(packed)  # noqa: S301 - written by our own parent
    tasks: list[Task] = [
        recipe[0](recipe[1]) if isinstance(recipe, tuple) else recipe for recipe in recipes
    ]
    for task in tasks:
        task.warm()
    return tasks


def _ended() -> int | None:
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found else None


def _kill(pid: int) -> None:
    """End a worker and its process group."""
    for end in (os.kill, os.killpg):
        with suppress(ProcessLookupError):
            end(pid, signal.SIGKILL)


def _sweep(keep: Mapping[int, Board] | tuple[()]) -> None:
    """End children that are no workers: what a dead worker had started comes to its nearest living
    ancestor, us."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while strays := [pid for pid in map(int, children.read_text().split()) if pid not in keep]:
        for pid in strays:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
