"""A crew of grading workers seen from their parent: give a worker a batch, hear what came of it."""

import json
import os
import pickle
import selectors
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from whet.config import Config
from whet.errors import ConfigError, TrainError
from whet.grading.limits import Limits
from whet.grading.worker import KILL, State, score_of
from whet.tasks.base import Task
from whet.tasks.user_task import loaded_files
from whet.types import Score

PATIENCE_SECONDS = 60.0
"""How long the fork server may take to load or to end."""
SILENCE_SECONDS = 8.0
"""How long a worker may be silent beyond the time that an answer may take; then it is stuck, and is
ended."""
START = "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); from whet.grading.fork_server import main; main()"
# One thread each: the workers are the parallel part. A fixed hash seed keeps the order of sets the
# same every time.
SETTLED = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Some answers of a worker's batch are graded, by number; `seconds` is what they took
    together."""

    slot: int
    scores: tuple[tuple[int, Score], ...]
    seconds: float
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class Died:
    """A worker ended, and another stands in its place; `answer` is the number it was at."""

    slot: int
    answer: int | None
    why: str


@dataclass(slots=True, kw_only=True, eq=False)
class _Line:
    """A socket and what has come over it of an unfinished line; `slot` is None for the fork
    server's."""

    place: socket.socket
    slot: int | None
    rest: bytearray = field(default_factory=bytearray)

    def read(self) -> list[bytes] | None:
        """Take the lines that are there; None once the other side has closed."""
        data = self.place.recv(1 << 18)
        if not data:
            return None
        self.rest += data
        if b"\n" not in data:
            return []
        *lines, rest = bytes(self.rest).split(b"\n")
        self.rest = bytearray(rest)
        return lines


class Crew:
    """Workers in slots 0, 1, …, forked by a server that has the tasks loaded."""

    def __init__(self, tasks: Sequence[Task], limits: Limits, num_workers: int) -> None:
        hello = {"own": loaded_files(), "limits": limits.model_dump(), "tasks": _packed(tasks)}
        ours, theirs = socket.socketpair()
        with theirs:
            self._server = subprocess.Popen(  # noqa: S603 - our own interpreter and our own words
                [sys.executable, "-c", START, str(theirs.fileno()), json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={**os.environ, **SETTLED},
            )
        self._control = _Line(place=ours, slot=None)
        self._selector = selectors.DefaultSelector()
        self._selector.register(ours, selectors.EVENT_READ, self._control)
        self._workers: dict[int, _Line] = {}
        self._is_ready = False
        self._silence = limits.wall + SILENCE_SECONDS
        self._heard_at: dict[int, float] = {}  # of workers that have a batch
        assert self._server.stdin is not None, "the server's input is a pipe"
        with suppress(BrokenPipeError), self._server.stdin as pipe:
            pipe.write(json.dumps(hello).encode())
        for slot in range(num_workers):
            self._start(slot)

    @property
    def slots(self) -> range:
        return range(len(self._workers))

    def give(self, slot: int, batch: bytes) -> None:
        """Hand a batch to a worker that waits for one. A worker that is gone by now is told of by
        `listen`."""
        self._heard_at[slot] = time.monotonic()
        try:
            self._workers[slot].place.sendall(batch)
        except TimeoutError:
            self._end(slot)
        except OSError:
            return

    def listen(self, *, wait: bool) -> list[Scored | Died]:
        """Hear what has happened; with `wait`, until something has."""
        while True:
            events: list[Scored | Died] = []
            ready = self._selector.select(self._longest_wait() if wait else 0)
            if wait and not ready:
                self._end_silent()
            for key, _ in ready:
                line: _Line = key.data
                # A worker may have been replaced earlier in this round.
                if line.slot is None or self._workers[line.slot] is line:
                    events += self._heard(line)
            for event in events:
                self._note(event)
            if events or not wait:
                return events

    def close(self) -> None:
        """End all workers and the server; none is left when this returns."""
        self._selector.close()
        self._control.place.close()
        for line in self._workers.values():
            line.place.close()
        try:
            self._server.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def _longest_wait(self) -> float:
        """While tasks load, workers are not there yet, and nothing is expected of them."""
        if not self._is_ready:
            return PATIENCE_SECONDS
        oldest = min(self._heard_at.values(), default=time.monotonic())
        return max(0.01, oldest + self._silence - time.monotonic())

    def _note(self, event: Scored | Died) -> None:
        if isinstance(event, Scored) and event.state is State.MORE:
            self._heard_at[event.slot] = time.monotonic()
        else:
            self._heard_at.pop(event.slot, None)

    def _end_silent(self) -> None:
        """Have workers ended that are stuck at no answer, where the clock of answers does not reach
        them."""
        if not self._is_ready:
            raise TrainError(
                f"the tasks took more than {PATIENCE_SECONDS:g} s to load in the grading process"
            )
        for slot, heard_at in self._heard_at.items():
            if time.monotonic() - heard_at > self._silence:
                self._end(slot)

    def _end(self, slot: int) -> None:
        self._heard_at[slot] = time.monotonic()
        with suppress(BrokenPipeError):
            self._control.place.sendall(bytes([KILL + slot]))

    def _start(self, slot: int) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(SILENCE_SECONDS)
        with theirs, suppress(BrokenPipeError):
            socket.send_fds(self._control.place, [bytes([slot])], [theirs.fileno()])
        self._workers[slot] = _Line(place=ours, slot=slot)
        self._selector.register(ours, selectors.EVENT_READ, self._workers[slot])

    def _heard(self, line: _Line) -> list[Scored | Died]:
        try:
            lines = line.read()
        except (BlockingIOError, ConnectionResetError):
            lines = None
        if line.slot is not None:
            if lines is None:  # the server will say why
                self._selector.unregister(line.place)
            return [_scored(line.slot, text) for text in lines or ()]
        if lines is None:
            raise TrainError(
                "the process that grades was ended from outside; is the machine out of memory?"
            )
        return [event for text in lines for event in self._told(json.loads(text))]

    def _told(self, message: dict[str, object]) -> list[Scored | Died]:
        if "failed" in message:
            raise ConfigError(f"the grading process cannot load its tasks: {message['failed']}")
        if "ready" in message:
            self._is_ready = True
            self._heard_at = dict.fromkeys(self._heard_at, time.monotonic())
            return []
        slot = message["slot"]
        answer = message["answer"]
        why = message["why"]
        assert isinstance(slot, int) and isinstance(answer, int | None) and isinstance(why, str), (
            "our own message"
        )
        return [*self._replace(slot), Died(slot=slot, answer=answer, why=why)]

    def _replace(self, slot: int) -> list[Scored | Died]:
        """Take what a dead worker had still sent, and have another forked."""
        line = self._workers.pop(slot)
        last: list[Scored | Died] = []
        line.place.setblocking(False)
        with suppress(BlockingIOError, ConnectionResetError):
            while (lines := line.read()) is not None:
                last += [_scored(slot, text) for text in lines]
        with suppress(KeyError):
            self._selector.unregister(line.place)
        line.place.close()
        self._start(slot)
        return last


def _scored(slot: int, text: bytes) -> Scored:
    message = json.loads(text)
    scores = tuple((number, score_of(*rest)) for number, *rest in message["scores"])
    return Scored(
        slot=slot, scores=scores, seconds=message["seconds"], state=State(message["state"])
    )


def _packed(tasks: Sequence[Task]) -> str:
    for task in tasks:
        if type(task).__module__ == "__main__":
            raise ConfigError(
                f"the task {task.name} stands in the program itself; put it in a file of its own"
            )
    try:
        return b64encode(pickle.dumps([_recipe(task) for task in tasks])).decode()
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(f"the tasks cannot be sent to grading processes: {error}") from error


def _recipe(task: Task) -> Task | tuple[type[Task], Config]:
    """A task with settings is made anew from them, so that what it holds besides, such as locks,
    need not travel."""
    settings = vars(task).get("config")
    return (type(task), settings) if isinstance(settings, Config) else task
