"""Parts of a fleet: the state of a worker and how it is made ready, the messages that a fleet
handles, and the queue of requests, longest first after those of lost workers."""

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from typing import TypeAlias

from whet.engine.base import LOOK_AHEAD, EngineStats, ExpectedLengths, Request, longest_first
from whet.engine.weight_files import Weights
from whet.engine.worker import CANARY, FinishedRequest, Refusal, Worker, WorkerError
from whet.errors import EngineError
from whet.track.progress import say

MAX_LOSSES = 5
"""Workers that may be lost while running a request before it is blamed."""


_canary_numbers = count()
"""Numbers for unique ids: a thread of an earlier start may send its canary to the new one."""


class MemberState(Enum):
    """Whether a worker takes requests, is being made ready, or has been left out."""

    READY = "ready"
    PREPARING = "preparing"
    OUT = "out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A report that a worker runs, with weights that passed the canary."""

    version: int
    canary_gap: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Submission:
    """Requests that join a stream."""

    requests: Sequence[Request]


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The message that ends a stream."""


@dataclass(slots=True, kw_only=True, eq=False)
class Push:
    """Weights on their way to all workers, and the workers to wait for."""

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
    """A request at a worker, and the version of the weights when it was submitted."""

    request: Request
    version: int


@dataclass(slots=True, eq=False)
class Member:
    """A worker of a fleet and its state."""

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
    canaries: SimpleQueue[FinishedRequest | WorkerError] = field(default_factory=SimpleQueue)

    @property
    def num_free(self) -> int:
        """Free slots, plus a few requests that wait at the worker for the next slots."""
        slots = self.worker.num_slots
        free = slots + max(1, slots // 8) - len(self.running)
        return free if self.state is MemberState.READY else 0

    def prepare(
        self, weights: Weights, events: SimpleQueue[FleetEvent], wait: float, life: int, start: bool
    ) -> None:
        """Start the worker if needed, push weights and check them; report the result."""
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
        self, weights: Weights, canaries: SimpleQueue[FinishedRequest | WorkerError], wait: float
    ) -> float:
        while not canaries.empty():
            canaries.get()
        request = replace(weights.canary.request, id=f"canary {next(_canary_numbers)}")
        self.worker.submit(CANARY, [request])
        report: FinishedRequest | WorkerError | None = None
        while not (isinstance(report, FinishedRequest) and report.id == request.id):
            try:
                report = canaries.get(timeout=wait)
            except Empty:
                raise WorkerError(f"has not answered for {wait:g} s") from None
            if isinstance(report, WorkerError):
                raise report
        completion = report.completion
        if completion.policy_version != weights.version:
            raise WorkerError(
                f"answered with weights of version {completion.policy_version}, not "
                f"{weights.version}"
            )
        return weights.canary.gap(completion)

    def _put(
        self,
        events: SimpleQueue[FleetEvent],
        canaries: SimpleQueue[FinishedRequest | WorkerError],
        life: int,
        report: FinishedRequest | Refusal | WorkerError | Prepared,
    ) -> None:
        """Pass on a report: a canary's to the thread that waits for it, an error to both."""
        if isinstance(report, FinishedRequest) and report.call == CANARY:
            canaries.put(report)
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


class RequestQueue:
    """The requests of a call that no worker has yet."""

    def __init__(self) -> None:
        self._requests: Iterator[Request] = iter(())
        self._submitted: deque[Request] = deque()
        self._again: deque[Request] = deque()
        self._num_losses: dict[str, int] = {}
        self._lengths = ExpectedLengths()

    def start(self, requests: Iterable[Request] = (), *, slots: int = 1) -> None:
        """Reset the queue to the requests of a new call."""
        ahead = LOOK_AHEAD * slots
        self._requests = longest_first(requests, ahead=ahead, length=self._lengths.expect)
        self._submitted.clear()
        self._again.clear()
        self._num_losses.clear()

    def add(self, requests: Sequence[Request]) -> None:
        """Add requests to the call."""
        ahead = len(requests) + 1
        self._submitted.extend(longest_first(requests, ahead=ahead, length=self._lengths.expect))

    def take(self) -> Request | None:
        """Take the next request, those of lost workers first; None if there is none."""
        if self._again:
            return self._again.popleft()
        if self._submitted:
            return self._submitted.popleft()
        return next(self._requests, None)

    @property
    def has_lost(self) -> bool:
        """Whether requests of lost workers are waiting."""
        return bool(self._again)

    def give_back(self, requests: Sequence[Request], fault: str) -> None:
        """Requeue a lost worker's requests; one that too many lost workers had ends the call."""
        for request in reversed(requests):
            num = self._num_losses[request.id] = self._num_losses.get(request.id, 0) + 1
            if num > MAX_LOSSES:
                raise EngineError(
                    f"request {request.id} was with {num} workers when they were lost, and may be "
                    f"the cause; the last: {fault}"
                )
            self._again.appendleft(request)

    def end(self, request: Request, length: int) -> None:
        """Record the length of a response, to order later requests."""
        self._num_losses.pop(request.id, None)
        self._lengths.add(request, length)
