"""The order in which requests begin: long ones first, so that no engine ends with one of them."""

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice
from zlib import crc32

from whet.engine.base import Request

MAX_PROMPTS = 100_000
"""Prompts whose lengths are remembered; the one longest not asked is forgotten."""


def length_limit(request: Request) -> float:
    return request.sampling.max_tokens


def longest_first(
    requests: Iterable[Request],
    *,
    ahead: int,
    length: Callable[[Request], float] = length_limit,
) -> Iterator[Request]:
    """Order requests by length, `ahead` of them at a time; equal lengths keep their order.

    Requests of one prompt that come one after the other stay together, since they share it.
    """
    heap: list[tuple[float, int, list[Request]]] = []
    waiting = 0
    for number, group in enumerate(_groups(requests, most=ahead)):
        longest = max(length(request) for request in group)
        heapq.heappush(heap, (-longest, number, group))
        waiting += len(group)
        while waiting >= ahead:
            first = heapq.heappop(heap)[2]
            waiting -= len(first)
            yield from first
    while heap:
        yield from heapq.heappop(heap)[2]


def _groups(requests: Iterable[Request], *, most: int) -> Iterator[list[Request]]:
    """Group consecutive requests of one prompt, at most `most`: the stream may be endless."""
    for _, same in groupby(requests, key=lambda request: request.prompt.tobytes()):
        while group := list(islice(same, most)):
            yield group


class ExpectedLengths:
    """How long answers to a prompt were so far; one that was never asked may reach its limit."""

    def __init__(self) -> None:
        self._means: dict[int, float] = {}

    def expect(self, request: Request) -> float:
        limit = float(request.sampling.max_tokens)
        return min(limit, self._means.get(crc32(request.prompt.tobytes()), limit))

    def add(self, request: Request, length: int) -> None:
        key = crc32(request.prompt.tobytes())
        mean = self._means.pop(key, float(length))
        self._means[key] = mean + 0.5 * (length - mean)
        if len(self._means) > MAX_PROMPTS:
            del self._means[next(iter(self._means))]
