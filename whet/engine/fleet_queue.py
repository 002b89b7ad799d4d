"""The requests of a fleet that wait for a worker: long ones first, and before them those whose
worker was lost."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from whet.engine.base import LOOK_AHEAD, ExpectedLengths, Request, longest_first
from whet.errors import EngineError

MAX_LOSSES = 5
"""How many workers may be lost while running a request before the request is blamed."""


class RequestQueue:
    """The requests of a call that no worker has yet."""

    def __init__(self) -> None:
        self._requests: Iterator[Request] = iter(())
        self._submitted: deque[Request] = deque()
        self._again: deque[Request] = deque()
        self._num_losses: dict[str, int] = {}
        self._lengths = ExpectedLengths()

    def start(self, requests: Iterable[Request] = (), *, slots: int = 1) -> None:
        """Forget the last call, and begin one with these requests."""
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
        """Whether requests wait that were with a worker already."""
        return bool(self._again)

    def give_back(self, requests: Sequence[Request], fault: str) -> None:
        """Take back the requests of a lost worker; a request that was with too many lost workers
        ends the call."""
        for request in reversed(requests):
            num = self._num_losses[request.id] = self._num_losses.get(request.id, 0) + 1
            if num > MAX_LOSSES:
                raise EngineError(
                    f"request {request.id} was with {num} workers when they were lost, and may be "
                    f"the cause; the last: {fault}"
                )
            self._again.appendleft(request)

    def end(self, request: Request, length: int) -> None:
        """Note how long a response was, for the order of later ones."""
        self._num_losses.pop(request.id, None)
        self._lengths.add(request, length)
