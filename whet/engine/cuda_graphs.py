"""Decode steps captured as CUDA graphs: replaying one is a single launch.

A graph fixes addresses and sizes, so there is one for each batch size and longest length, both
rounded up to a few values. Lengths, pages and other inputs of each step are in tensors.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakSet

import torch

Key = tuple[int, int, bool]
_MIN_LENGTH = 1024
_ALIVE: WeakSet["DecodeGraphs"] = WeakSet()


class DecodeGraphs:
    """Graphs by size, all in one memory pool. A size first runs eagerly, to compile its kernels."""

    def __init__(self) -> None:
        self._graphs: dict[Key, torch.cuda.CUDAGraph] = {}
        self._seen: set[Key] = set()
        self.num_bytes = 0
        """Device memory that the graphs reserve."""
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        _ALIVE.add(self)

    def __len__(self) -> int:
        return len(self._graphs)

    def run(self, key: Key, step: Callable[[], None]) -> None:
        """Run a size eagerly the first time, capture it the second, and replay it from then on."""
        if key in self._graphs:
            self._graphs[key].replay()
        elif key in self._seen:
            self._graphs[key] = self._capture(step)
            self._graphs[key].replay()
        else:
            self._seen.add(key)
            step()

    def _capture(self, step: Callable[[], None]) -> torch.cuda.CUDAGraph:
        # Not torch.cuda.graph: it waits for the device, collects garbage and empties the
        # allocator's cache.
        graph = torch.cuda.CUDAGraph()
        before = torch.cuda.memory_reserved()
        with torch.cuda.stream(self._stream), _without_garbage_collection():
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            step()
            graph.capture_end()
        self.num_bytes += torch.cuda.memory_reserved() - before
        return graph


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Pause garbage collection: freeing an old graph or its memory would break the capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def graph_bytes() -> int:
    """Count the device memory that captured graphs reserve besides tensors."""
    return sum(graphs.num_bytes for graphs in _ALIVE)


def round_up_rows(rows: int, most: int) -> int:
    """Round rows up to 1, 2, 4, ..., 64, 96, 128, 192, 256 and so on, but not above `most`.

    >>> [round_up_rows(n, 600) for n in (1, 3, 33, 65, 97, 300, 513)]
    [1, 4, 64, 96, 128, 384, 600]
    """
    size = 1 << (rows - 1).bit_length()
    if size > 64 and rows <= size * 3 // 4:
        size = size * 3 // 4
    return min(size, most)


def round_up_length(tokens: int) -> int:
    """Round a length up to 1,024, 2,048, 4,096 and so on.

    >>> [round_up_length(n) for n in (5, 1024, 1025, 9000)]
    [1024, 1024, 2048, 16384]
    """
    return max(_MIN_LENGTH, 1 << (tokens - 1).bit_length())
