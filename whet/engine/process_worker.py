"""Native engines in their own processes on this machine: workers without Ray.

Run as a module, this file is such a process: its argument is the file descriptor of the pipe that
brings its orders, and it ends when the pipe closes.
"""

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryFile
from typing import IO

from whet.engine.base import Request
from whet.engine.weight_files import Weights
from whet.engine.worker import (
    Cancel,
    EngineSpec,
    Load,
    Loaded,
    Report,
    Sleep,
    Submit,
    WorkerError,
    WorkerHost,
    WorkerOrder,
    WorkerReport,
)

ROOT = Path(__file__).parents[2]
LOG_BYTES = 4096
"""Bytes to read from the end of a process's log; the last line explains why it died."""


class ProcessWorker:
    """A process with a native engine; a thread reads its results."""

    def __init__(self, name: str, spec: EngineSpec, *, wait: float) -> None:
        self.name = name
        self.num_slots = spec.engine.max_num_seqs
        self._spec = pickle.dumps(spec)
        self._wait = wait
        self._loaded: SimpleQueue[Loaded | WorkerError] = SimpleQueue()
        self._pipe: Connection | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self, report: Report) -> None:
        self.close()
        ours, theirs = Pipe()
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        self._log = TemporaryFile()  # noqa: SIM115 - open as long as the process runs
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stderr=self._log,
        )
        theirs.close()
        self._pipe = ours
        self._loaded = SimpleQueue()
        threading.Thread(
            target=self._read, args=(ours, self._process, self._loaded, report), daemon=True
        ).start()
        self._send_bytes(self._spec)
        self._await_loaded("has not started")

    def load(self, weights: Weights) -> None:
        self._send(Load(version=weights.version, weights=weights.file))
        self._await_loaded("has not taken its weights")

    def submit(self, call: int, requests: Sequence[Request]) -> None:
        self._send(Submit(call=call, requests=requests))

    def cancel(self) -> None:
        self._send(Cancel())

    def sleep(self) -> None:
        self._send(Sleep())

    def close(self) -> None:
        self._pipe = None  # a thread may still be using it; the last user closes it
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def _send(self, order: WorkerOrder) -> None:
        self._send_bytes(pickle.dumps(order))

    def _send_bytes(self, message: bytes) -> None:
        if self._pipe is None:
            raise WorkerError("is not running")
        try:
            self._pipe.send_bytes(message)
        except OSError as error:
            raise WorkerError(f"has died: {self._last_words() or error}") from error

    def _await_loaded(self, words: str) -> None:
        try:
            result = self._loaded.get(timeout=self._wait)
        except Empty:
            raise WorkerError(f"{words} within {self._wait:g} s") from None
        if isinstance(result, WorkerError):
            raise result

    def _read(
        self,
        pipe: Connection,
        process: subprocess.Popen[bytes],
        loaded: SimpleQueue[Loaded | WorkerError],
        report: Report,
    ) -> None:
        """Pass on results until the pipe ends; an unexpected end is a fault."""
        with suppress(EOFError, OSError):
            while True:
                result: WorkerReport = pickle.loads(pipe.recv_bytes())  # noqa: S301 - our process
                if isinstance(result, Loaded | WorkerError):
                    loaded.put(result)
                else:
                    report(result)
        if self._pipe is pipe:
            code = process.wait()
            reason = f"by signal {-code}" if code < 0 else f"with code {code}"
            error = WorkerError(f"has died {reason}{self._last_words()}")
            loaded.put(error)
            report(error)

    def _last_words(self) -> str:
        if self._log is None:
            return ""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - LOG_BYTES))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f" ({lines[-1][:200]})" if lines else ""


class _PipeInbox:
    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe

    def get(self, *, wait: bool) -> WorkerOrder | None:
        if not wait and not self.pipe.poll():
            return None
        try:
            order: WorkerOrder = pickle.loads(self.pipe.recv_bytes())  # noqa: S301 - our process
        except EOFError:
            return None
        return order


def main() -> None:
    """Serve an engine over a pipe."""
    pipe = Connection(int(sys.argv[1]))
    spec: EngineSpec = pickle.loads(pipe.recv_bytes())  # noqa: S301 - our process
    engine = spec.build()

    def send(result: WorkerReport) -> None:
        pipe.send_bytes(pickle.dumps(result))

    send(Loaded(version=-1))
    try:
        WorkerHost(engine, _PipeInbox(pipe), send, num_slots=spec.engine.max_num_seqs).run()
    except BrokenPipeError:
        sys.exit(0)


if __name__ == "__main__":
    main()
