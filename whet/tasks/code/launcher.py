"""The launcher: a bare Python that forks sandboxes on request, so that programs start in
milliseconds.

It never sees a program, a test or the grader's memory: it receives open files and limits, and its
fork becomes the sandbox. Each request creates two processes. The watcher leaves the namespaces and
waits; its child moves into the new root, drops its privileges, closes every other file and becomes
the program. The watcher kills it when the grader closes its socket or dies.

    python -S -P -B -c "... launcher.main()" SOCKET

Its standard input has two lines: the folder of whet and a JSON object. They are not on the command
line, since a program can read that of the process it was forked from.

If bubblewrap makes the sandbox, the watcher's child becomes `bwrap`, which starts
`run_in_bubblewrap` in a new Python.
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

from whet.tasks.code import frames, harness, isolation, referee

CHANNEL = (3, 4)
"""The program's pipes from and to the grader; 0 and 1 are its input and output, 2 goes nowhere."""

_PRELOADED = (
    "abc array bisect cmath collections copy dataclasses datetime decimal enum fractions functools "
    "heapq io itertools math numbers operator queue random re statistics string threading time "
    "traceback typing unittest"
)
_FIRST_UID = 100_000
_NUM_UIDS = 50_000
_FIXED_LIMITS = {"NOFILE": 64, "NPROC": 64, "CORE": 0, "STACK": 64 << 20}
_TRANSIENT = (errno.EAGAIN, errno.ENOMEM, errno.ENOSPC)
_REFUSED = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EINVAL)
"""Errors that would recur on this machine; others, such as a lack of memory, may be temporary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """The role to take on, its limits, the socket to the grader, and the program's files."""

    role: str
    limits: dict[str, int]
    watch: int
    files: tuple[int, ...]


def main() -> None:
    """Serve requests until the grader hangs up; also returns in a sandbox, after its program."""
    control = socket.socket(fileno=int(sys.argv[1]))
    setting = json.loads(sys.stdin.readline())
    mode = setting["mode"]
    packages = setting["packages"]
    os.environ.clear()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy would start a thread per core
    for name in _PRELOADED.split():
        importlib.import_module(name)
    paths = isolation.sources() | {f"/packages/{Path(source).name}": source for source in packages}
    folders = {str(Path(source).parent) for source in packages} if mode == "none" else {"/packages"}
    sys.path[:] = [*sys.path[1:], *folders]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    while (received := socket.recv_fds(control, 4096, 8))[0]:
        message, (watch, *files), *_ = received
        request = LaunchRequest(watch=watch, files=tuple(files), **json.loads(message))
        if os.fork() == 0:
            _start(request, mode, paths, setting["bwrap"])
            return _run_role(request.role)
        for fd in (request.watch, *request.files):
            os.close(fd)
    return None


def run_in_bubblewrap() -> None:
    """Continue inside bubblewrap: apply the limits, report READY, become the program."""
    row = json.loads(sys.argv[1])
    os.environ.clear()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    sys.path[:] = [*sys.path[1:], "/packages"]
    isolation.try_mount_scratch()
    isolation.drop_privileges(row["uid"])
    _limit(row["limits"])
    isolation.install_filter()
    os.write(2, isolation.READY.encode())
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 2)
    os.closerange(CHANNEL[-1] + 1, 256)
    _open_streams()
    _run_role(row["role"])


def _start(request: LaunchRequest, mode: str, paths: dict[str, str], tool: str) -> None:
    """Become the watcher, and return only in its child, inside the sandbox."""
    uid = _FIRST_UID + os.getpid() % _NUM_UIDS if os.getuid() == 0 else None
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if mode == "namespaces":
            isolation.unshare(uid)
        woken, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker)
        errors, errors_end = os.pipe()
        child = os.fork()
        if child:
            os.close(errors_end)
            _watch(child, request, woken, errors if mode == "bubblewrap" else None)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()  # detach from the watcher, or kill(0) would reach it
        if mode == "bubblewrap":
            _arrange_files(request, errors_end)
            job = {"role": request.role, "limits": request.limits}
            isolation.exec_bubblewrap(tool, paths, uid, job)
        if mode == "namespaces":
            isolation.pivot_root(paths)
            isolation.drop_privileges(uid)
        _arrange_files(request)
        _open_streams()
        _limit(request.limits)
        if mode == "namespaces":
            isolation.install_filter()
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) else None
        _report(request.watch, {"failed": str(error), "refused": int(number in _REFUSED)})
        os._exit(1)


def _watch(child: int, request: LaunchRequest, woken: int, errors: int | None) -> None:
    """Wait for the child or for the grader to hang up, then kill the child and all it started.

    What bubblewrap wrote to `errors` tells whether the sandbox was created.
    """
    for fd in request.files:
        os.close(fd)
    poll = select.poll()
    poll.register(request.watch, select.POLLIN)
    poll.register(woken, select.POLLIN)
    pid = 0
    has_left = False
    while not pid and not has_left:
        has_left = request.watch in dict(poll.poll())
        pid, status, usage = os.wait4(child, os.WNOHANG)
        if not pid and not has_left:
            # A program that stops itself (SIGSTOP) wakes us too, but has not ended.
            os.read(woken, 4096)
    for kill in (os.kill, os.killpg):
        try:
            kill(child, signal.SIGKILL)
        except OSError:
            continue
    if not pid:
        os.waitpid(child, 0)  # otherwise it stays a zombie of whoever adopts it
    words = isolation.READY
    if errors is not None and pid:
        words = os.read(errors, 4096).decode("utf-8", "replace").strip().rpartition("\n")[2]
    if words != isolation.READY:
        may_pass = any(os.strerror(number) in words for number in _TRANSIENT)
        reason = words[:300] or "bwrap says nothing"
        _report(request.watch, {"failed": reason, "refused": int(not may_pass)})
    elif pid:
        cpu = usage.ru_utime + usage.ru_stime
        _report(request.watch, {"status": os.waitstatus_to_exitcode(status), "cpu": cpu})
    os._exit(0)


def _report(watch: int, row: dict[str, float | str]) -> None:
    try:
        os.write(watch, json.dumps(row).encode() + b"\n")
    except OSError:
        return  # the grader has closed the connection


def _arrange_files(request: LaunchRequest, errors: int | None = None) -> None:
    """Move the files to where the program expects them, and close all others."""
    null = os.open(os.devnull, os.O_RDWR)
    channel = request.files[:2]
    streams = request.files[2:] or (null, null)
    stderr = null if errors is None else errors
    files = [os.dup(fd) for fd in (*streams, stderr, *channel)]
    high = [os.dup2(fd, 64 + number) for number, fd in enumerate(files)]
    for number, fd in enumerate(high):
        os.dup2(fd, number, inheritable=errors is not None)
    os.closerange(CHANNEL[-1] + 1, max(256, *high) + 1)


def _open_streams() -> None:
    for fd, (name, mode) in enumerate({"stdin": "r", "stdout": "w", "stderr": "w"}.items()):
        stream = open(  # noqa: SIM115
            fd, mode, encoding="utf-8", errors="surrogateescape", closefd=False
        )
        vars(sys).update({name: stream, f"__{name}__": stream})


def _limit(limits: dict[str, int]) -> None:
    for name, most in {**limits, **_FIXED_LIMITS}.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def _run_role(role: str) -> None:
    channel = frames.Channel(*CHANNEL)
    if role == "referee":
        referee.run_tests(channel)
    else:
        harness.run_job(channel)
