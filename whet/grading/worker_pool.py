"""Grading workers: the pool, which sends batches and polls for scores and deaths, and the loop of a
worker in its own process.

Both exchange JSON lines. The fork server starts and ends the processes.
"""

import inspect
import json
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

from whet.config import Config, to_table
from whet.errors import ConfigError, TrainError
from whet.grading.limits import GradingConfig, address_space, start_cpu_clock, stop_cpu_clock
from whet.tasks.base import NO_MEMORY, Task, grade_safely, settings_class
from whet.types import Json, Problem, Score, Verdict
from whet.user_code import loaded_files

SERVER_SECONDS = 60.0
"""Time limit for the fork server to start or to exit."""
SERVER_CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    "from whet.grading.fork_server import main; main()"
)
# One thread each, since the workers run in parallel. A fixed hash seed fixes the order of sets.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
ENVIRONMENT |= {"PYTHONHASHSEED": "0"}
FLUSH_SECONDS = 0.005
"""Work after which scores are sent, so that a kill loses little."""
KILL_OFFSET = 128
"""The byte `slot` asks the fork server to fork a worker; `KILL_OFFSET + slot` asks to kill it."""


class WorkerState(StrEnum):
    """A worker's state after a message: it continues its batch, waits for another, or exits."""

    MORE = "more"
    READY = "ready"
    EXITING = "exiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchGraded:
    """A worker graded some responses of its batch in `seconds`."""

    slot: int
    scores: tuple[tuple[int, Score], ...]
    seconds: float
    state: WorkerState


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDied:
    """A worker died and was replaced; `job` is the number of the response that it was grading."""

    slot: int
    job: int | None
    why: str
    by_response: bool
    """Whether the response took too much processor time or crashed the worker."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Channel:
    """A socket and its unfinished line; `slot` is None for the fork server."""

    socket: socket.socket
    slot: int | None
    unread: bytearray = field(default_factory=bytearray)

    def read(self) -> list[bytes] | None:
        """Return the lines that have arrived; None if the other side has closed."""
        data = self.socket.recv(1 << 18)
        if not data:
            return None
        self.unread += data
        if b"\n" not in data:
            return []
        *lines, partial = bytes(self.unread).split(b"\n")
        self.unread = bytearray(partial)
        return lines


class WorkerPool:
    """Workers in slots 0, 1, …, forked by a server with the tasks loaded."""

    def __init__(self, setup: dict[str, Json], limits: GradingConfig, num_workers: int) -> None:
        """Start the server with what `describe_setup` gave for these limits."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._server = subprocess.Popen(  # noqa: S603 - our own interpreter and our own words
                [sys.executable, "-c", SERVER_CODE, str(theirs.fileno()), json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={**os.environ, **ENVIRONMENT},
            )
        self._control = _Channel(socket=ours, slot=None)
        self._selector = selectors.DefaultSelector()
        self._selector.register(ours, selectors.EVENT_READ, self._control)
        self._workers: dict[int, _Channel] = {}
        self._is_ready = False
        self._send_seconds = limits.silence
        self._max_silence = limits.wall + limits.silence
        self._busy: set[int] = set()
        assert self._server.stdin is not None, "the server's input is a pipe"
        with suppress(BrokenPipeError), self._server.stdin as pipe:
            pipe.write(json.dumps(setup).encode())
        for slot in range(num_workers):
            self._start(slot)

    def send_batch(self, slot: int, batch: bytes) -> None:
        """Send a batch to an idle worker; `poll` reports a dead worker."""
        self._busy.add(slot)
        try:
            self._workers[slot].socket.sendall(batch)
        except TimeoutError:
            self._kill(slot)
        except OSError:
            return

    def poll(self, *, wait: bool) -> list[BatchGraded | WorkerDied]:
        """Return new events; with `wait`, block until there is one."""
        while True:
            events: list[BatchGraded | WorkerDied] = []
            timeout = self._max_silence if self._is_ready else SERVER_SECONDS
            ready = self._selector.select(timeout if wait else 0)
            if wait and not ready:
                self._kill_busy()
            for key, _ in ready:
                channel: _Channel = key.data
                # A worker may have been replaced earlier in this round.
                if channel.slot is None or self._workers[channel.slot] is channel:
                    events += self._read(channel)
            for event in events:
                if isinstance(event, WorkerDied) or event.state is not WorkerState.MORE:
                    self._busy.discard(event.slot)
            if events or not wait:
                return events

    def close(self) -> None:
        """End all workers and the server, and wait for them."""
        self._selector.close()
        self._control.socket.close()
        for channel in self._workers.values():
            channel.socket.close()
        try:
            self._server.wait(SERVER_SECONDS)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def _kill_busy(self) -> None:
        """Kill workers that are stuck between responses, where their clocks do not run."""
        if not self._is_ready:
            raise TrainError(f"the tasks took more than {SERVER_SECONDS:g} s to load for grading")
        for slot in self._busy:
            self._kill(slot)

    def _kill(self, slot: int) -> None:
        with suppress(BrokenPipeError):
            self._control.socket.sendall(bytes([KILL_OFFSET + slot]))

    def _start(self, slot: int) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(self._send_seconds)
        with theirs, suppress(BrokenPipeError):
            socket.send_fds(self._control.socket, [bytes([slot])], [theirs.fileno()])
        self._workers[slot] = _Channel(socket=ours, slot=slot)
        self._selector.register(ours, selectors.EVENT_READ, self._workers[slot])

    def _read(self, channel: _Channel) -> list[BatchGraded | WorkerDied]:
        try:
            lines = channel.read()
        except (BlockingIOError, ConnectionResetError):
            lines = None
        if channel.slot is not None:
            if lines is None:  # the server will report why
                self._selector.unregister(channel.socket)
            return [_read_scores(channel.slot, text) for text in lines or ()]
        if lines is None:
            raise TrainError(
                "the process that grades was ended from outside; is the machine out of memory?"
            )
        return [event for text in lines for event in self._handle_report(json.loads(text))]

    def _handle_report(self, message: dict[str, object]) -> list[BatchGraded | WorkerDied]:
        if "failed" in message:
            raise ConfigError(f"the grading process cannot load its tasks: {message['failed']}")
        if "ready" in message:
            self._is_ready = True
            return []
        slot = message["slot"]
        job = message["job"]
        why = message["why"]
        assert isinstance(slot, int) and isinstance(job, int | None), "our own message"
        assert isinstance(why, str), "our own message"
        by_response = message["by_response"] is True
        died = WorkerDied(slot=slot, job=job, why=why, by_response=by_response)
        return [*self._replace(slot), died]

    def _replace(self, slot: int) -> list[BatchGraded | WorkerDied]:
        """Read the last messages of a dead worker, and start another."""
        channel = self._workers.pop(slot)
        last: list[BatchGraded | WorkerDied] = []
        channel.socket.setblocking(False)
        with suppress(BlockingIOError, ConnectionResetError):
            while (lines := channel.read()) is not None:
                last += [_read_scores(slot, text) for text in lines]
        with suppress(KeyError):
            self._selector.unregister(channel.socket)
        channel.socket.close()
        self._start(slot)
        return last


def _read_scores(slot: int, text: bytes) -> BatchGraded:
    message = json.loads(text)
    scores = tuple(
        (number, Score(verdict=Verdict(verdict), parts=parts, answer=answer, note=note))
        for number, verdict, parts, answer, note in message["scores"]
    )
    return BatchGraded(
        slot=slot, scores=scores, seconds=message["seconds"], state=WorkerState(message["state"])
    )


def describe_setup(tasks: Sequence[Task], limits: GradingConfig) -> dict[str, Json]:
    """Describe what a server loads; an error says why a task cannot be sent to it."""
    return {
        "user_files": [*loaded_files(map(type, tasks))],
        "limits": limits.model_dump(mode="json"),
        "tasks": [_describe_task(task) for task in tasks],
    }


def _describe_task(task: Task) -> dict[str, Json]:
    """Describe a task for the server to build: its class, and its settings as a table."""
    task_class = type(task)
    complaint = f"the task {task.name} cannot be sent to grading processes: its"
    if task_class.__module__ == "__main__" or "<locals>" in task_class.__qualname__:
        name = task_class.__qualname__
        raise ConfigError(f"{complaint} class {name} should be at the top level of its own file")
    settings = vars(task).get("config")
    if isinstance(settings, Config) and settings_class(task_class) is type(settings):
        table: Json = to_table(settings)
    elif not inspect.signature(task_class).parameters:
        table = None
    else:
        raise ConfigError(
            f"{complaint} constructor should take nothing, or `config`, annotated with a class of "
            "settings and kept as self.config"
        )
    return {"module": task_class.__module__, "name": task_class.__qualname__, "settings": table}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseClock:
    """The number and start time (0 if none) of a worker's response, in shared memory.

    The fork server reads it without the worker, so grader code cannot block it.
    """

    cells: memoryview
    slot: int

    def start(self, number: int) -> None:
        self.cells[2 * self.slot] = number
        self.cells[2 * self.slot + 1] = time.monotonic_ns()

    def stop(self) -> None:
        self.cells[2 * self.slot + 1] = 0

    @property
    def number(self) -> int | None:
        return self.cells[2 * self.slot] if self.cells[2 * self.slot + 1] else None

    @property
    def seconds(self) -> float:
        since = self.cells[2 * self.slot + 1]
        return (time.monotonic_ns() - since) / 1e9 if since else 0.0


def run_worker(
    channel: socket.socket, tasks: Mapping[str, Task], limits: GradingConfig, clock: ResponseClock
) -> None:
    """Grade batches until the channel closes; exit if memory has grown, which bounds leaks."""
    pid = os.getpid()
    allowed = address_space() + limits.memory // 2
    with channel.makefile("rb", buffering=1 << 16) as lines:
        for line in lines:
            rows: list[Json] = []
            has_room = True
            began = time.perf_counter()
            for number, problem, text in _decode_batch(line):
                if time.perf_counter() - began > FLUSH_SECONDS and rows:
                    _send(channel, rows, time.perf_counter() - began, WorkerState.MORE)
                    rows = []
                    began = time.perf_counter()
                clock.start(number)
                start_cpu_clock(limits)
                score = grade_safely(tasks[problem.task], problem, text)
                clock.stop()
                if os.getpid() != pid:  # a grader forked, and this is the copy
                    os._exit(0)
                parts: dict[str, Json] = {**score.parts}
                rows.append([number, score.verdict.value, parts, score.answer, score.note])
                has_room = not score.note.endswith(NO_MEMORY)
                if not has_room:
                    break
            stop_cpu_clock()
            is_healthy = has_room and address_space() <= allowed
            state = WorkerState.READY if is_healthy else WorkerState.EXITING
            _send(channel, rows, time.perf_counter() - began, state)
            if not is_healthy:
                return


def encode_batch(responses: list[tuple[int, Problem, str]]) -> bytes:
    """Encode a batch as a JSON line; a problem that several responses share is sent once."""
    indices: dict[int, int] = {}
    problems: list[Json] = []
    rows: list[Json] = []
    for number, problem, text in responses:
        if id(problem) not in indices:
            indices[id(problem)] = len(problems)
            problems.append(problem.to_json())
        rows.append([number, indices[id(problem)], text])
    return json.dumps({"problems": problems, "responses": rows}).encode() + b"\n"


def _decode_batch(line: bytes) -> list[tuple[int, Problem, str]]:
    batch = json.loads(line)
    problems = [Problem.from_json(row) for row in batch["problems"]]
    return [(number, problems[index], text) for number, index, text in batch["responses"]]


def _send(channel: socket.socket, rows: list[Json], seconds: float, state: WorkerState) -> None:
    message = {"scores": rows, "seconds": seconds, "state": state}
    channel.sendall(json.dumps(message).encode() + b"\n")
