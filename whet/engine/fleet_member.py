"""A worker as its fleet knows it: whether it serves, what it runs, and how it is made ready; and
the messages that a fleet handles."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeAlias

from whet.engine.base import EngineStats, Request
from whet.engine.weight_files import Weights
from whet.engine.worker import CANARY, FinishedRequest, Refusal, Worker, WorkerError
from whet.track.progress import say
from whet.types import Completion


class MemberState(Enum):
    """Whether a worker takes requests, is being made ready, or has been left out."""

    READY = "ready"
    PREPARING = "preparing"
    OUT = "out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A worker has started where it had to, and has weights that the canary has checked."""

    version: int
    canary_gap: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Submission:
    """Requests that join a stream."""

    requests: Sequence[Request]


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """Sent when nobody reads the stream any more."""


@dataclass(slots=True, kw_only=True, eq=False)
class Push:
    """Weights on their way to all workers, and those that are waited for."""

    weights: Weights
    before: Weights | None
    waited: list["Member"] = field(default_factory=list)
    is_done: threading.Event = field(default_factory=threading.Event)


FleetEvent: TypeAlias = (
    tuple["Member", int, FinishedRequest | Refusal | WorkerError | Prepared]
    | Submission
    | StreamEnd
    | Push
)
"""A report of a member, with the number of its start; or a message to a stream."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Running:
    """A request at a worker, and the version of the weights that it was given with."""

    request: Request
    version: int


@dataclass(slots=True, eq=False)
class Member:
    """A worker of a fleet, and what the fleet knows of it."""

    worker: Worker
    state: MemberState = MemberState.OUT
    reason: str = "has not been started"
    is_lost: bool = False
    running: dict[str, Running] = field(default_factory=dict)
    heard: float = 0.0
    num_starts: int = 0
    """Starts since its last response."""
    life: int = 0
    """Number of the current start; reports of earlier starts are ignored."""
    stats: EngineStats = field(default_factory=EngineStats)
    canaries: SimpleQueue[Completion | WorkerError] = field(default_factory=SimpleQueue)

    @property
    def num_free(self) -> int:
        """Slots that are free, and a few requests that wait at the worker for the next ones."""
        slots = self.worker.num_slots
        free = slots + max(1, slots // 8) - len(self.running)
        return free if self.state is MemberState.READY else 0

    def prepare(
        self, weights: Weights, events: SimpleQueue[FleetEvent], wait: float, life: int, start: bool
    ) -> None:
        """Start the worker where needed, push weights and check them; report how it went."""
        if start:
            # A thread that still waits for the previous start must not get this one's canary.
            self.canaries = SimpleQueue()
        canaries = self.canaries
        put = partial(self._put, events, canaries, life)
        try:
            if start:
                time.sleep(min(wait / 10, max(0, self.num_starts - 1)))
                self.worker.start(put)
            self.worker.load(weights)
            gap = self._ask_canary(weights, canaries, wait)
            if gap > weights.canary.tolerance:
                say(f"{self.worker.name} {_describe(gap, weights)}; they are pushed again")
                self.worker.load(weights)
                gap = self._ask_canary(weights, canaries, wait)
            if gap > weights.canary.tolerance:
                raise WorkerError(f"{_describe(gap, weights)}, also after a second push")
            put(Prepared(version=weights.version, canary_gap=gap))
        except WorkerError as error:
            put(error)

    def _ask_canary(
        self, weights: Weights, canaries: SimpleQueue[Completion | WorkerError], wait: float
    ) -> float:
        while not canaries.empty():
            canaries.get()
        self.worker.submit(CANARY, [weights.canary.request])
        try:
            completion = canaries.get(timeout=wait)
        except Empty:
            raise WorkerError(f"has not answered for {wait:g} s") from None
        if isinstance(completion, WorkerError):
            raise completion
        if completion.policy_version != weights.version:
            raise WorkerError(
                f"answered with weights of version {completion.policy_version}, not "
                f"{weights.version}"
            )
        return weights.canary.gap(completion)

    def _put(
        self,
        events: SimpleQueue[FleetEvent],
        canaries: SimpleQueue[Completion | WorkerError],
        life: int,
        report: FinishedRequest | Refusal | WorkerError | Prepared,
    ) -> None:
        """Pass a report on; a canary's goes to the thread that waits for it, and a death to
        both."""
        if isinstance(report, FinishedRequest) and report.call == CANARY:
            canaries.put(report.completion)
            return
        if isinstance(report, Refusal) and report.call == CANARY:
            report = WorkerError(report.reason)
        if isinstance(report, WorkerError):
            canaries.put(report)
        events.put((self, life, report))


def _describe(gap: float, weights: Weights) -> str:
    return (
        f"has other weights than version {weights.version}: on a fixed prompt its "
        f"log-probabilities are {gap:.1e} off, more than {weights.canary.tolerance:g}"
    )
