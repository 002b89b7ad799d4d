"""What tasks that run programs share: settings, and two sandboxes with a relay of plain data
between them, one for the program and one for the tests."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from pydantic import Field

from whet.config import Config
from whet.errors import DataError
from whet.tasks.base import Task
from whet.tasks.code import frames, program
from whet.tasks.code.sandbox import LostError, Mode, Process, ProgramLimits, Sandbox, choose_mode
from whet.types import Problem, Score, Split, Verdict


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


class CodeTask(Task):
    """A task that runs programs: its problems come from files, and many programs are right."""

    has_one_answer = False
    config: CodeConfig

    @property
    def seconds(self) -> float:
        return self.config.seconds

    def problems(self, split: Split) -> Iterator[Problem]:
        return iter(())

    def warm(self) -> None:
        """Refuse, in one sentence, to run on a machine that does not allow the sandbox."""
        choose_mode(self.config.sandbox)

    def solve(self, problem: Problem, seed: int) -> str | None:
        """Give the reference program."""
        return None if problem.answer is None else program.fenced(problem.answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """The tests of a problem as source.

    `entry` is what `candidate` stands for, `module` what they may import.
    """

    kind: Literal["function", "pytest"]
    tests: str
    setup: str = ""
    entry: str = ""
    module: str = "solution"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Whether the tests passed, and why not; `is_ours` marks a failure of the grader."""

    passed: bool
    note: str
    is_ours: bool = False


def guard(run: Callable[[], Outcome]) -> Outcome:
    """Run a check; where the sandbox itself is lost, the failure is ours."""
    try:
        return run()
    except LostError as error:
        return Outcome(passed=False, note=str(error), is_ours=True)


def run_tests(sandbox: Sandbox, tests: Tests, source: str, limits: ProgramLimits) -> Outcome:
    """Run tests against a program; all but an answer in time, as plain data, is a failure."""

    def run() -> Outcome:
        deadline = time.monotonic() + limits.seconds
        with (
            sandbox.process("program", limits) as model,
            sandbox.process("referee", limits) as referee,
        ):
            job = {"setup": tests.setup, "program": source, "entry": tests.entry}
            fault = _load(model, job, deadline, limits)
            if fault:
                return Outcome(passed=False, note=fault)
            return _relay(model, referee, tests, deadline, limits)

    return guard(run)


def call(
    sandbox: Sandbox, source: str, entry: str, data: list[object], limits: ProgramLimits
) -> bytes | str:
    """Call a function of a program with encoded arguments: its answer as bytes, or why not."""
    deadline = time.monotonic() + limits.seconds
    with sandbox.process("program", limits) as model:
        fault = _load(model, {"setup": "", "program": source, "entry": entry}, deadline, limits)
        if fault:
            return fault
        try:
            model.send(b"C" + json.dumps({"call": [""], "data": data}).encode(), deadline)
            return model.receive(deadline)
        except (frames.ClosedError, frames.LateError) as error:
            return _describe_loss(model, error, limits)


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
        raise DataError(
            f"problem {problem.id} needs a text in payload.{key}, not {json.dumps(value)[:60]}"
        )
    return default if value is None else value


def _load(model: Process, job: dict[str, str], deadline: float, limits: ProgramLimits) -> str:
    """Give the program to its process; return why it does not load, or ""."""
    try:
        model.send(json.dumps({"kind": "function", **job}).encode(), deadline)
        reply = model.receive(deadline)
    except (frames.ClosedError, frames.LateError) as error:
        return _describe_loss(model, error, limits)
    if reply[:1] == b"R":
        return ""
    return reply[1:].decode("utf-8", "replace")[:300] or "the program does not load"


def _describe_loss(model: Process, error: Exception, limits: ProgramLimits) -> str:
    if isinstance(error, frames.LateError):
        return f"not done after {limits.seconds:g} s"
    status = model.status(time.monotonic() + 0.2)
    return str(error) if status is None else f"the program's process ended with status {status}"


def _relay(
    model: Process, referee: Process, tests: Tests, deadline: float, limits: ProgramLimits
) -> Outcome:
    """Pass the calls of the tests to the program and its answers back, until there is a verdict."""
    num_calls = 0
    try:
        referee.send(json.dumps(asdict(tests)).encode(), deadline)
        while (message := referee.receive(deadline))[:1] == b"C":
            num_calls += 1
            try:
                model.send(message, deadline)
                answer = model.receive(deadline)
            except (frames.ClosedError, frames.LateError) as error:
                return Outcome(passed=False, note=_describe_loss(model, error, limits))
            referee.send(answer, deadline)
    except frames.LateError:
        note = f"the tests are not done after {limits.seconds:g} s"
        return Outcome(passed=False, note=note, is_ours=num_calls == 0)
    except frames.ClosedError:
        referee.status(time.monotonic() + 1)
        return Outcome(passed=False, note="the tests' process is gone", is_ours=num_calls == 0)
    report = json.loads(message[1:])
    if report["passed"] and num_calls == 0:
        return Outcome(passed=False, note="the tests never called the program", is_ours=True)
    note = report["note"] or f"all tests pass, {num_calls} calls"
    return Outcome(passed=report["passed"], note=note)
