"""Put a program and the tests of a problem together: two sandboxes, and a relay of plain data
between them."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from whet.config import Config
from whet.errors import DataError
from whet.tasks.base import Task
from whet.tasks.code import frames
from whet.tasks.code.launching import Limits, LostError, Mode, Process
from whet.tasks.code.sandbox import Sandbox, require
from whet.types import Problem, Score, Split, Verdict


class CodeConfig(Config):
    """Settings that every task which runs programs has."""

    sandbox: Mode = "namespaces"
    """How programs are contained: "namespaces", our own or bubblewrap's where ours are not allowed,
    or "bubblewrap" alone. "none" runs them without any protection, with the rights of the
    grader."""
    seconds: float = Field(default=8.0, gt=0)
    """Wall time for one response, all its tests together. A program that is not done by then is
    wrong."""
    memory_mb: int = Field(default=1024, ge=64)
    """Address space of a program."""

    @property
    def limits(self) -> Limits:
        return Limits(seconds=self.seconds, memory_mb=self.memory_mb)


class CodeTask(Task):
    """What the tasks that run programs share: problems come from files, and many programs are
    right."""

    has_one_answer = False
    config: CodeConfig

    @property
    def seconds(self) -> float:
        return self.config.seconds

    def problems(self, split: Split) -> Iterator[Problem]:
        """Give nothing: problems come from files."""
        return iter(())

    def warm(self) -> None:
        """Refuse, in one sentence, to run on a machine that does not allow the sandbox."""
        require(self.config.sandbox)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """The tests of a problem as source; `entry` is what `candidate` stands for, `module` what they
    may import."""

    kind: Literal["function", "pytest"]
    tests: str
    setup: str = ""
    entry: str = ""
    module: str = "solution"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Whether the tests passed, and why not. `is_ours` marks a failure of the grader, not of the
    program."""

    passed: bool
    note: str
    is_ours: bool = False


def contained(run: Callable[[], Judged]) -> Judged:
    """Judge, and say so where the sandbox itself was lost."""
    try:
        return run()
    except LostError as error:
        return Judged(passed=False, note=str(error), is_ours=True)


def judge(sandbox: Sandbox, tests: Tests, program: str, limits: Limits) -> Judged:
    """Run the tests against a program. Anything its process does but answer in time with plain data
    is a failure."""
    return contained(lambda: _judged(sandbox, tests, program, limits))


def _judged(sandbox: Sandbox, tests: Tests, program: str, limits: Limits) -> Judged:
    deadline = time.monotonic() + limits.seconds
    with sandbox.process("program", limits) as model, sandbox.process("referee", limits) as referee:
        job = {"kind": "function", "setup": tests.setup, "program": program, "entry": tests.entry}
        fault = _loaded(model, json.dumps(job).encode(), deadline, limits)
        return (
            Judged(passed=False, note=fault)
            if fault
            else _relayed(model, referee, tests, deadline, limits)
        )


def call(
    sandbox: Sandbox, program: str, entry: str, data: list[object], limits: Limits
) -> bytes | str:
    """Call one function of a program with encoded arguments: its answer as bytes, or why there is
    none as text."""
    deadline = time.monotonic() + limits.seconds
    with sandbox.process("program", limits) as model:
        job = {"kind": "function", "setup": "", "program": program, "entry": entry}
        fault = _loaded(model, json.dumps(job).encode(), deadline, limits)
        if fault:
            return fault
        try:
            model.send(b"C" + json.dumps({"call": [""], "data": data}).encode(), deadline)
            return model.receive(deadline)
        except (frames.ClosedError, frames.LateError) as error:
            return _gone(model, error, limits)


def scored(judged: Judged, answer: str) -> Score:
    """State what judging found."""
    verdict = (
        Verdict.CORRECT if judged.passed else Verdict.UNSCORED if judged.is_ours else Verdict.WRONG
    )
    return Score(
        verdict=verdict, parts={"correct": float(judged.passed)}, answer=answer, note=judged.note
    )


def unread(note: str) -> Score:
    return Score(verdict=Verdict.NO_ANSWER, parts={"correct": 0.0}, note=note)


def text_of(problem: Problem, key: str, default: str = "") -> str:
    """Read a text of the payload; what is there and no text is refused."""
    value = problem.payload.get(key)
    if value is not None and not isinstance(value, str):
        raise DataError(
            f"problem {problem.id} needs a text in payload.{key}, not {json.dumps(value)[:60]}"
        )
    return default if value is None else value


def _loaded(model: Process, job: bytes, deadline: float, limits: Limits) -> str:
    """Give the program to its process; return why it does not load, or ""."""
    try:
        model.send(job, deadline)
        said = model.receive(deadline)
    except (frames.ClosedError, frames.LateError) as error:
        return _gone(model, error, limits)
    return (
        ""
        if said[:1] == b"R"
        else said[1:].decode("utf-8", "replace")[:300] or "the program does not load"
    )


def _gone(model: Process, error: Exception, limits: Limits) -> str:
    if isinstance(error, frames.LateError):
        return f"not done after {limits.seconds:g} s"
    status = model.status(time.monotonic() + 0.2)
    return str(error) if status is None else f"the program's process ended with status {status}"


def _relayed(
    model: Process, referee: Process, tests: Tests, deadline: float, limits: Limits
) -> Judged:
    row = {key: getattr(tests, key) for key in ("kind", "tests", "setup", "entry", "module")}
    num_calls = 0
    try:
        referee.send(json.dumps(row).encode(), deadline)
        while (said := referee.receive(deadline))[:1] == b"C":
            num_calls += 1
            try:
                model.send(said, deadline)
                answer = model.receive(deadline)
            except (frames.ClosedError, frames.LateError) as error:
                return Judged(passed=False, note=_gone(model, error, limits))
            referee.send(answer, deadline)
    except frames.LateError:
        return Judged(
            passed=False,
            note=f"the tests are not done after {limits.seconds:g} s",
            is_ours=num_calls == 0,
        )
    except frames.ClosedError:
        referee.status(time.monotonic() + 1)
        return Judged(passed=False, note="the tests' process is gone", is_ours=num_calls == 0)
    report = json.loads(said[1:])
    if report["passed"] and num_calls == 0:
        return Judged(passed=False, note="the tests never called the program", is_ours=True)
    return Judged(
        passed=report["passed"], note=report["note"] or f"all tests pass, {num_calls} calls"
    )
