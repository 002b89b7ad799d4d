"""Shared code of tasks that run programs: settings, and calls of a program in its sandbox."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from pydantic import Field

from whet.config import Config
from whet.tasks.base import FileTask, data_error
from whet.tasks.code import frames, plain, program
from whet.tasks.code.sandbox import (
    LostError,
    Mode,
    Process,
    ProgramLimits,
    choose_mode,
    describe_fault,
    open_process,
)
from whet.types import Problem, Score, Verdict

CallArguments = tuple[Sequence[object], Mapping[str, object]]
"""The arguments of a call, by position and by name."""


class CodeConfig(Config):
    """Settings of every task that runs programs."""

    sandbox: Mode = "namespaces"
    """How programs are contained: "namespaces" uses whet's own sandbox, or bubblewrap's if that is
    not allowed; "bubblewrap" uses only bubblewrap. "none" runs them unprotected, with the rights of
    the grader."""
    seconds: float = Field(default=8.0, gt=0)
    """Processor seconds for one response, all its tests together. The wall-clock limit is three
    times as much for loading, and the same again for all calls. A program that exceeds a limit is
    wrong; its tests have their own time."""
    memory_mb: int = Field(default=1024, ge=64)
    """Address space of a program."""

    @property
    def limits(self) -> ProgramLimits:
        return ProgramLimits(seconds=self.seconds, memory_mb=self.memory_mb)


class CodeTask(FileTask):
    """A task that runs programs; its problems come from files, and many programs are right."""

    has_worked_solutions = True
    has_one_answer = False
    config: CodeConfig

    @property
    def max_seconds(self) -> float:
        return 3 * self.config.limits.wall  # to load, to be called, and for the tests

    def preload(self) -> None:
        """Refuse, in one sentence, to run on a machine that does not allow the sandbox."""
        choose_mode(self.config.sandbox)

    def solve(self, problem: Problem, seed: int) -> str | None:
        """Write the reference program."""
        return None if problem.answer is None else program.fence(problem.answer)


class WrongError(Exception):
    """The response is wrong; the text says why."""


class Allowance:
    """Wall-clock time that a process may take, counted only while it is waited for."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds

    @contextlib.contextmanager
    def spend(self) -> Iterator[float]:
        """Count the time until the end of the block, and yield its deadline."""
        began = time.monotonic()
        try:
            yield began + self._left
        finally:
            self._left -= time.monotonic() - began


def score_run(run: Callable[[], str], answer: str) -> Score:
    """Score a check that returns a note, or raises if the response or the sandbox fails.

    Parts: `correct` 0 or 1. A lost sandbox is our failure and gives UNSCORED.
    """
    verdict = Verdict.CORRECT
    try:
        note = run()
    except WrongError as error:
        verdict = Verdict.WRONG
        note = str(error)
    except LostError as error:
        verdict = Verdict.UNSCORED
        note = str(error)
    parts = {"correct": float(verdict is Verdict.CORRECT)}
    return Score(verdict=verdict, parts=parts, answer=answer, note=note)


def unread(note: str) -> Score:
    """Make the score of a response that has nothing to run."""
    return Score(verdict=Verdict.NO_ANSWER, parts={"correct": 0.0}, note=note)


def text_of(problem: Problem, key: str, default: str = "") -> str:
    """Read a text of the payload; refuse a value that is not text."""
    value = problem.payload.get(key)
    if value is not None and not isinstance(value, str):
        raise data_error(problem, f"a text in payload.{key}", value)
    return default if value is None else value


def check_call(
    config: CodeConfig, job: dict[str, str], args: CallArguments, is_right: Callable[[object], bool]
) -> str:
    """Call the entry of a program and check what it returns; anything but plain data is wrong."""
    data = plain.encode_value(args)
    limits = config.limits
    with open_process(config.sandbox, "program", limits) as model:
        load_program(model, {"setup": "", **job}, limits)
        message = b"C" + json.dumps({"call": [""], "data": data}).encode()
        reply = ask_program(model, message, Allowance(limits.wall), limits)
    try:
        value = plain.decode_value(json.loads(reply)["value"])
    except (ValueError, TypeError, KeyError, RecursionError, plain.NotPlainError):
        raise WrongError("does not give the output") from None
    if not is_right(value):
        raise WrongError("does not give the output")
    return "gives the output"


def load_program(model: Process, job: dict[str, str], limits: ProgramLimits) -> None:
    """Send a program to its process; one that does not load is wrong. Loading has its own time
    limit."""
    message = json.dumps({"kind": "function", **job}).encode()
    reply = ask_program(model, message, Allowance(limits.wall), limits)
    if reply[:1] != b"R":
        fault = reply[1:].decode("utf-8", "replace")[:300]
        raise WrongError(fault or "the program does not load")


def ask_program(
    model: Process, message: bytes, allowance: Allowance, limits: ProgramLimits
) -> bytes:
    """Send a message to a program's process and wait for the reply; without one, the program is
    wrong."""
    try:
        with allowance.spend() as deadline:
            model.send(message, deadline)
            return model.receive(deadline)
    except frames.LateError:
        raise WrongError(describe_fault(model, None, limits)) from None
    except frames.ClosedError as error:
        status = model.status(time.monotonic() + 0.2)
        if status is None:
            raise WrongError(str(error)) from None
        fault = describe_fault(model, status, limits)
        raise WrongError(f"the program's process: {fault}") from None
