"""Limits of grading: time and memory per response, and messages about workers that exceed them."""

import os
import resource
import signal
from pathlib import Path

from pydantic import Field

from whet.config import CONSTANT, Config

MAX_WORKERS = 128
LATE = "grading took more than "
"""Start of the note on a response that took too long."""
GRACE_SECONDS = 3.0
"""Time beyond a task's own limit, for starting and ending its processes."""


class GradingConfig(Config):
    """Limits of grading: processes, cost per response, fraction of failures."""

    workers: int | None = Field(default=None, ge=0, le=MAX_WORKERS)
    """Number of grading processes; 0 grades in this process, without limits; none takes two, or 0
    if the tasks are whet's own and bound themselves."""
    wall: float = Field(default=30.0, gt=0)
    """Seconds per response, from the moment a worker starts on it. A task with a time limit of its
    own, such as one that runs programs, always gets a little more than that limit."""
    cpu: float = Field(default=10.0, gt=0, json_schema_extra=CONSTANT)
    """Seconds of processor time per response: less than `wall`, to tell a costly response from a
    busy machine."""
    memory: int = Field(default=1 << 30, ge=1 << 24, json_schema_extra=CONSTANT)
    """Bytes that a worker may use beyond those at its start."""
    silence: float = Field(default=8.0, gt=0, json_schema_extra=CONSTANT)
    """Seconds beyond `wall` after which a silent worker is killed as stuck."""
    unscored_fraction: float = Field(default=0.2, ge=0, le=1)
    """Stop if more than this fraction of responses could not be scored; 1 never stops."""
    unscored_count: int = Field(default=32, ge=1, json_schema_extra=CONSTANT)
    """Fewest unscored responses at which to stop."""

    def without_effect(self) -> dict[str, str]:
        reason = "workers = 0 grades in this process, without limits"
        return {"wall": reason} if self.workers == 0 else {}


def extend_wall_limit(limits: GradingConfig, seconds: float) -> GradingConfig:
    """Raise the limit above the task's own, so that the task can report its timeout.

    >>> [extend_wall_limit(GradingConfig(wall=10.0), seconds).wall for seconds in (60.0, 0.0)]
    [63.0, 10.0]
    """
    task_wall = seconds + GRACE_SECONDS if seconds else 0.0
    return limits.model_copy(update={"wall": max(limits.wall, task_wall)})


def limit_memory(limits: GradingConfig) -> None:
    """Limit the memory of this process from now on, and disable core dumps."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = address_space() + limits.memory
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def start_cpu_clock(limits: GradingConfig) -> None:
    """Limit the processor time of one response, by a signal that kills without grader code."""
    signal.setitimer(signal.ITIMER_PROF, limits.cpu)


def stop_cpu_clock() -> None:
    """Cancel the limit on processor time."""
    signal.setitimer(signal.ITIMER_PROF, 0)


def address_space() -> int:
    """Return the bytes of address space of this process."""
    pages = Path("/proc/self/statm").read_bytes().split()[0]
    return int(pages) * resource.getpagesize()


def describe_timeout(limits: GradingConfig) -> str:
    return f"{LATE}{limits.wall:g} s"


def is_cost_of_response(status: int) -> bool:
    """Whether a response, and nothing outside, exhausted or crashed the worker."""
    crashes = (signal.SIGPROF, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE)
    return -os.waitstatus_to_exitcode(status) in crashes


def describe_exit(status: int, limits: GradingConfig) -> str:
    """Explain how a worker ended, from its wait status."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"the grading process ended with code {code}"
    if code == -signal.SIGPROF:
        return f"{LATE}{limits.cpu:g} s of processor time"
    names = {int(number): number.name for number in signal.Signals}
    return f"the grading process was ended by {names.get(-code, f'signal {-code}')}"
