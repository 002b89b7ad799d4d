"""The process that makes sandboxes: a bare Python that forks on request, so that a program starts
in milliseconds.

It never sees a program, a test or the grader's memory: it gets open files and limits, and a fork of
it becomes the sandbox. Each request makes two processes. The watcher leaves the namespaces and
waits; its child moves into the new root, gives up its rights, closes every other file and becomes
the program. The watcher kills it when the grader closes the line, or dies.

    python -S -P -B -c "... launcher.main()" SOCKET MODE PACKAGES BWRAP

Where bubblewrap makes the sandbox, the watcher's child becomes `bwrap`, which starts `inside` in a
Python of its own.
"""

import errno
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from whet.tasks.code import bubble, harness, namespaces, referee, seccomp

CHANNEL = 3
"""The program's end of the line to the grader; 0 and 1 are its input and output, 2 goes nowhere."""

_PRELOADED = (
    "abc array bisect cmath collections copy dataclasses datetime decimal enum fractions functools heapq io itertools "
    "math numbers operator queue random re statistics string threading time traceback typing unittest"
)
_FIRST_UID, _NUM_UIDS = 100_000, 50_000
_STACK = 64 << 20
_LIMITS = ("role", "seconds", "memory", "file_size")
_PASSING = (errno.EAGAIN, errno.ENOMEM, errno.ENOSPC)
_REFUSED = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EINVAL)
"""A machine that says so will say so again; anything else, such as no memory, may pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    role: str
    seconds: int
    memory: int
    file_size: int
    watch: int
    files: tuple[int, ...]


def main() -> None:
    """Serve requests until the grader hangs up. Returns in the sandbox too, when its program is
    over."""
    control = socket.socket(fileno=int(sys.argv[1]))
    mode = sys.argv[2]
    packages = json.loads(sys.argv[3])
    tool = sys.argv[4]
    os.environ.clear()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy in a program would start a thread a core
    for name in _PRELOADED.split():
        importlib.import_module(name)
    paths = namespaces.sources() | {f"/packages/{Path(source).name}": source for source in packages}
    sys.path[:] = [
        *sys.path[1:],
        *({str(Path(p).parent) for p in packages} if mode == "none" else ["/packages"]),
    ]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    while request := _next(control):
        if os.fork() == 0:
            _start(request, mode, paths, tool)
            return _play(request.role)
        for fd in (request.watch, *request.files):
            os.close(fd)
    return None


def _next(control: socket.socket) -> Request | None:
    message, fds, _, _ = socket.recv_fds(control, 4096, 8)
    if not message:
        return None
    row = json.loads(message)
    return Request(
        role=row["role"],
        seconds=row["seconds"],
        memory=row["memory"],
        file_size=row["file_size"],
        watch=fds[0],
        files=tuple(fds[1:]),
    )


def inside() -> None:
    """Go on where bubblewrap has put us: take on the limits, say that all is well, and become the
    program."""
    row = json.loads(sys.argv[1])
    os.environ.clear()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    sys.path[:] = [*sys.path[1:], "/packages"]
    request = Request(watch=-1, files=(), **{name: row[name] for name in _LIMITS})
    bubble.furnish()
    namespaces.surrender(row["uid"])
    _limit(request)
    seccomp.install()
    os.write(2, bubble.SETTLED.encode())
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 2)
    os.closerange(CHANNEL + 1, 256)
    _open_streams()
    _play(request.role)


def _start(request: Request, mode: str, paths: dict[str, str], tool: str) -> None:
    """Become the watcher, and return only in its child, inside the sandbox."""
    uid = _FIRST_UID + os.getpid() % _NUM_UIDS if os.getuid() == 0 else None
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if mode == "namespaces":
            namespaces.leave(uid)
        woken, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker)
        said, saying = os.pipe()
        child = os.fork()
        if child:
            os.close(saying)
            _watch(child, request, woken, said if mode == "bubblewrap" else None)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()  # away from the watcher, or kill(0) would reach it
        if mode == "bubblewrap":
            _place(request, saying)
            bubble.become(tool, paths, uid, {name: getattr(request, name) for name in _LIMITS})
        if mode == "namespaces":
            namespaces.move(paths)
            namespaces.surrender(uid)
        _place(request)
        _open_streams()
        _limit(request)
        if mode == "namespaces":
            seccomp.install()
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) else None
        _tell(request.watch, {"failed": str(error), "refused": int(number in _REFUSED)})
        os._exit(1)


def _watch(child: int, request: Request, woken: int, said: int | None) -> None:
    """Wait for the child or for the grader to hang up, then end the child and all it left behind.

    What bubblewrap has `said` tells whether the sandbox stood.
    """
    for fd in request.files:
        os.close(fd)
    poll = select.poll()
    poll.register(request.watch, select.POLLIN)
    poll.register(woken, select.POLLIN)
    poll.poll()
    pid, status = os.waitpid(child, os.WNOHANG)
    for end in (os.kill, os.killpg):
        try:
            end(child, signal.SIGKILL)
        except OSError:
            continue
    words = (
        bubble.SETTLED
        if said is None or not pid
        else os.read(said, 4096).decode("utf-8", "replace").strip().rpartition("\n")[2]
    )
    if words != bubble.SETTLED:
        may_pass = any(os.strerror(number) in words for number in _PASSING)
        _tell(
            request.watch,
            {"failed": words[:300] or "bwrap says nothing", "refused": int(not may_pass)},
        )
    elif pid:
        _tell(request.watch, {"status": os.waitstatus_to_exitcode(status)})
    os._exit(0)


def _tell(watch: int, row: dict[str, int | str]) -> None:
    try:
        os.write(watch, json.dumps(row).encode() + b"\n")
    except OSError:
        return  # the grader has hung up and does not want to know


def _place(request: Request, errors: int | None = None) -> None:
    """Put the files where the program expects them and close all others; `errors` is for
    bubblewrap's words."""
    null = os.open(os.devnull, os.O_RDWR)
    channel, *streams = request.files
    files = [
        os.dup(fd)
        for fd in (*(streams or (null, null)), null if errors is None else errors, channel)
    ]
    high = [os.dup2(fd, 64 + place) for place, fd in enumerate(files)]
    for place, fd in enumerate(high):
        os.dup2(fd, place, inheritable=errors is not None)
    os.closerange(CHANNEL + 1, max(256, *high) + 1)


def _open_streams() -> None:
    for fd, (name, mode) in enumerate({"stdin": "r", "stdout": "w", "stderr": "w"}.items()):
        stream = open(fd, mode, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
        vars(sys).update({name: stream, f"__{name}__": stream})


def _limit(request: Request) -> None:
    limits = {
        resource.RLIMIT_CPU: request.seconds,
        resource.RLIMIT_AS: request.memory,
        resource.RLIMIT_FSIZE: request.file_size,
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_NPROC: 64,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_STACK: _STACK,
    }
    for kind, most in limits.items():
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def _play(role: str) -> None:
    channel = socket.socket(fileno=CHANNEL)
    if role == "referee":
        referee.run(channel)
    else:
        harness.run(channel)
