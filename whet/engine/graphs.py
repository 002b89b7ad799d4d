"""Decode steps recorded on a GPU: replaying one costs the host a single call instead of hundreds of launches.

A recording holds addresses and sizes, so there is one for each size of batch and context, rounded up to a few. Rows
beyond those in use are ended ones: they compute and record nothing.
"""

from collections.abc import Callable

import torch

Key = tuple[int, int, bool]
COLUMNS = 64
"""Context lengths are rounded up to a multiple of this."""


class DecodeGraphs:
    """Recordings by size. The first step of a size runs as it is, the second is recorded, all later ones replayed."""

    def __init__(self) -> None:
        self._graphs: dict[Key, torch.cuda.CUDAGraph] = {}
        self._seen: set[Key] = set()

    def run(self, key: Key, step: Callable[[], None]) -> None:
        if key not in self._seen:
            self._seen.add(key)
            step()
            return
        if key not in self._graphs:
            self._graphs[key] = self._recorded(step)
        self._graphs[key].replay()

    def _recorded(self, step: Callable[[], None]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        pool = next(iter(self._graphs.values())).pool() if self._graphs else None
        with torch.cuda.graph(graph, pool=pool):
            step()
        return graph


def rounded(rows: int, most: int) -> int:
    """Round a number of rows up to 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on, but not above `most`.

    >>> [rounded(n, 100) for n in (1, 5, 17, 49, 70)]
    [1, 6, 24, 64, 96]
    """
    size = 1
    while size < rows:
        half_more = size + size // 2
        if size % 2 == 0 and rows <= half_more:
            size = half_more
            break
        size *= 2
    return min(size, most)
