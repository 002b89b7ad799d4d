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

from whet.errors import DataError
from whet.grading.limits import Limits, address_space, start_cpu_clock, stop_cpu_clock
from whet.tasks.base import Task
from whet.types import RAISED, Json, Problem, Score, Verdict

FLUSH_SECONDS = 0.005
"""Scores are sent once they have cost this much, so that a kill loses little finished work."""
KILL_OFFSET = 128
"""A byte below this asks the fork server for a worker in that slot; with this added, to kill it."""
UNGRADABLE = "the problem cannot be graded: "
"""Start of the note if the problem itself cannot be graded."""
NO_MEMORY = "grading ran out of the memory it may take"
MAX_PART = 1e9
"""Sums and deviations of larger score parts would not stay finite."""
MAX_NOTE_CHARS = 10_000


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


def unscored_with(note: str) -> Score:
    return Score(verdict=Verdict.UNSCORED, parts={}, note=note)


def score_safely(task: Task, problem: Problem, text: str) -> Score:
    """Score an answer, whatever the grader does; the note has the reason for a failure."""
    try:
        return _check_score(task.score(problem, text))
    except DataError as error:
        return unscored_with(f"{UNGRADABLE}{error}")
    except MemoryError:
        reason = NO_MEMORY
    except (Exception, SystemExit) as error:
        reason = f"the grader raised {type(error).__name__}: {_first_line(error)}"
    return blame_response(task, problem, reason)


def blame_response(task: Task, problem: Problem, reason: str) -> Score:
    """Score a response that a grader failed on: WRONG where the grader is whet's own and can grade
    the problem, or else a policy could learn to have no verdict. A user's task that fails is
    UNSCORED."""
    if type(task).__module__.partition(".")[0] != "whet":
        return unscored_with(reason)
    try:
        usual = _check_score(task.score(problem, task.solve(problem, 0) or ""))
    except (Exception, SystemExit):
        return unscored_with(reason)
    if usual.verdict is Verdict.UNSCORED:
        return usual
    parts = dict.fromkeys(usual.parts, 0.0)
    return Score(verdict=Verdict.WRONG, parts=parts, note=f"{RAISED}{reason}")


def run_worker(
    channel: socket.socket, tasks: Mapping[str, Task], limits: Limits, clock: AnswerClock
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
                score = score_safely(tasks[problem.task], problem, text)
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


def _check_score(score: Score) -> Score:
    """Convert a score to plain values, and refuse anything that is not a valid score.

    Half a surrogate pair, which no file can hold, becomes a question mark.
    """
    if not isinstance(score, Score):
        raise TypeError(f"score gave {type(score).__name__}, not a Score")
    if not isinstance(score.answer, str | None) or not isinstance(score.note, str):
        raise TypeError("a score's answer must be text or None, and its note text")
    parts = {_clean(str(name)): float(part) for name, part in score.parts.items()}
    for name, part in parts.items():
        if not abs(part) <= MAX_PART:
            raise ValueError(f"the part {name!r} of a score is {part}, beyond ±{MAX_PART:g}")
    answer = None if score.answer is None else _clean(score.answer)
    note = _clean(score.note)[:MAX_NOTE_CHARS]
    return Score(verdict=Verdict(score.verdict), parts=parts, answer=answer, note=note)


def _clean(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _first_line(error: BaseException) -> str:
    try:
        return _clean(str(error).partition("\n")[0][:200])
    except Exception:  # an exception written to hurt may raise again when it is read
        return "(no message)"
