"""Grade answers inside a worker process: batches of JSON lines in, scores out, until the end.

Only plain data is exchanged. The fork server starts and ends the processes.
"""

import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from whet.grading.limits import GradingConfig, address_space, start_cpu_clock, stop_cpu_clock
from whet.tasks.base import NO_MEMORY, Task, grade_safely
from whet.types import Json, Problem

FLUSH_SECONDS = 0.005
"""Scores are sent once they have cost this much, so that a kill loses little finished work."""
KILL_OFFSET = 128
"""A byte below this asks the fork server for a worker in that slot; with this added, to kill it."""


class WorkerState(StrEnum):
    """The state of a worker after a message: continues its batch, waits for another, or exits."""

    MORE = "more"
    READY = "ready"
    EXITING = "leaving"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerClock:
    """Memory shared with the fork server: the answer a worker is grading, and since when (0: none).

    The server reads it without the help of the worker, so no grader code can block it.
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
    channel: socket.socket, tasks: Mapping[str, Task], limits: GradingConfig, clock: AnswerClock
) -> None:
    """Grade batches until the end; a worker whose memory has grown exits, which bounds leaks."""
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


def encode_batch(answers: list[tuple[int, Problem, str]]) -> bytes:
    """Encode a batch as a JSON line; a problem that several answers share is sent once."""
    indices: dict[int, int] = {}
    problems: list[Json] = []
    rows: list[Json] = []
    for number, problem, text in answers:
        if id(problem) not in indices:
            indices[id(problem)] = len(problems)
            problems.append(problem.to_json())
        rows.append([number, indices[id(problem)], text])
    return json.dumps({"problems": problems, "answers": rows}).encode() + b"\n"


def _decode_batch(line: bytes) -> list[tuple[int, Problem, str]]:
    batch = json.loads(line)
    problems = [Problem.from_json(row) for row in batch["problems"]]
    return [(number, problems[index], text) for number, index, text in batch["answers"]]


def _send(channel: socket.socket, rows: list[Json], seconds: float, state: WorkerState) -> None:
    message = {"scores": rows, "seconds": seconds, "state": state}
    channel.sendall(json.dumps(message).encode() + b"\n")
