"""The order in which requests begin: those that may run longest first, so that few run alone at the
end."""

import heapq
from collections.abc import Iterable, Iterator
from itertools import groupby, islice

from whet.engine.base import Request


def longest_first(requests: Iterable[Request], *, ahead: int) -> Iterator[Request]:
    """Pass requests on by their length limit, looking at `ahead` of them at a time; equal limits
    keep their order.

    Requests of one prompt that come one after the other stay together, since they share it.
    """
    blocks = _blocks(requests, most=ahead)
    heap: list[tuple[int, int, list[Request]]] = []
    waiting = number = 0
    is_over = False
    while heap or not is_over:
        while waiting < ahead and not is_over:
            block = next(blocks, None)
            if block is None:
                is_over = True
            else:
                heapq.heappush(
                    heap, (-max(request.sampling.max_tokens for request in block), number, block)
                )
                waiting = waiting + len(block)
                number = number + 1
        if heap:
            block = heapq.heappop(heap)[2]
            waiting -= len(block)
            yield from block


def _blocks(requests: Iterable[Request], *, most: int) -> Iterator[list[Request]]:
    """Gather requests of one prompt that come one after the other, so many at most: a stream of
    them may never end."""
    for _, same in groupby(requests, key=lambda request: request.prompt.tobytes()):
        while block := list(islice(same, most)):
            yield block
