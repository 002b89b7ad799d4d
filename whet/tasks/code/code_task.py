"""What tasks that run programs share: settings, and calls of a program in its sandbox."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from whet.config import Config
from whet.tasks.base import FileTask, data_error
from whet.tasks.code import frames, plain, program
from whet.tasks.code.sandbox import LostError, Mode, Process, ProgramLimits, Sandbox, choose_mode
from whet.types import Problem, Score, Verdict

Arguments = tuple[Sequence[object], Mapping[str, object]]
"""The arguments of a call, by position and by name."""


class CodeConfig(Config):
    """Settings of every task that runs programs."""

    sandbox: Mode = "namespaces"
    """How programs are contained: "namespaces", our own or bubblewrap's where ours are not allowed,
    or "bubblewrap" alone. "none" runs them unprotected, with the rights of the grader."""
    seconds: float = Field(default=8.0, gt=0)
    """Wall time for one response, all its tests together; a program not done by then is wrong."""
    memory_mb: int = Field(default=1024, ge=64)
    """Address space of a program."""

    @property
    def limits(self) -> ProgramLimits:
        return ProgramLimits(seconds=self.seconds, memory_mb=self.memory_mb)


class CodeTask(FileTask):
    """A task that runs programs: its problems come from files, and many programs are right."""

    has_one_answer = False
    config: CodeConfig

    @property
    def seconds(self) -> float:
        return self.config.seconds

    def warm(self) -> None:
        """Refuse, in one sentence, to run on a machine that does not allow the sandbox."""
        choose_mode(self.config.sandbox)

    def solve(self, problem: Problem, seed: int) -> str | None:
        """Give the reference program."""
        return None if problem.answer is None else program.fence(problem.answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Whether the tests passed, and why not; `is_ours` marks a failure of the grader."""

    passed: bool
    note: str
    is_ours: bool = False


def score_run(run: Callable[[], Outcome], answer: str) -> Score:
    """Run a check and score it; where the sandbox itself is lost, the failure is ours."""
    try:
        outcome = run()
    except LostError as error:
        outcome = Outcome(passed=False, note=str(error), is_ours=True)
    return to_score(outcome, answer)


def to_score(outcome: Outcome, answer: str) -> Score:
    """State the outcome as a score. Parts: `correct` 0 or 1."""
    verdict = Verdict.CORRECT if outcome.passed else Verdict.WRONG
    if outcome.is_ours:
        verdict = Verdict.UNSCORED
    parts = {"correct": float(outcome.passed)}
    return Score(verdict=verdict, parts=parts, answer=answer, note=outcome.note)


def unread(note: str) -> Score:
    """State that a response holds nothing to run."""
    return Score(verdict=Verdict.NO_ANSWER, parts={"correct": 0.0}, note=note)


def text_of(problem: Problem, key: str, default: str = "") -> str:
    """Read a text of the payload; a value that is no text is refused."""
    value = problem.payload.get(key)
    if value is not None and not isinstance(value, str):
        raise data_error(problem, f"a text in payload.{key}", value)
    return default if value is None else value


def check_call(
    config: CodeConfig, job: dict[str, str], args: Arguments, is_right: Callable[[object], bool]
) -> Outcome:
    """Call the entry of a program and judge what it returns; what is not plain data is wrong."""
    data = plain.encode(args)
    limits = config.limits
    deadline = time.monotonic() + limits.seconds
    with Sandbox(config.sandbox).process("program", limits) as model:
        fault = load_program(model, {"setup": "", **job}, deadline, limits)
        if fault:
            return Outcome(passed=False, note=fault)
        try:
            model.send(b"C" + json.dumps({"call": [""], "data": data}).encode(), deadline)
            reply = model.receive(deadline)
        except (frames.ClosedError, frames.LateError) as error:
            return Outcome(passed=False, note=describe_loss(model, error, limits))
    wrong = Outcome(passed=False, note="does not give the output")
    try:
        value = plain.decode(json.loads(reply)["value"])
    except (ValueError, TypeError, KeyError, RecursionError, plain.NotPlainError):
        return wrong
    return Outcome(passed=True, note="gives the output") if is_right(value) else wrong


def load_program(
    model: Process, job: dict[str, str], deadline: float, limits: ProgramLimits
) -> str:
    """Give a program to its process; return why it does not load, or ""."""
    try:
        model.send(json.dumps({"kind": "function", **job}).encode(), deadline)
        reply = model.receive(deadline)
    except (frames.ClosedError, frames.LateError) as error:
        return describe_loss(model, error, limits)
    if reply[:1] == b"R":
        return ""
    return reply[1:].decode("utf-8", "replace")[:300] or "the program does not load"


def describe_loss(model: Process, error: Exception, limits: ProgramLimits) -> str:
    if isinstance(error, frames.LateError):
        return f"not done after {limits.seconds:g} s"
    status = model.status(time.monotonic() + 0.2)
    return str(error) if status is None else f"the program's process ended with status {status}"
