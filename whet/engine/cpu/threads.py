"""Rows of a decode step spread over the cores of a CPU: each thread runs all layers for its share
of them.

Small models spend much of a step in operations too short to be split well, and threads that split
each of them wait for each other hundreds of times a step. Here they wait once.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import torch

from whet.models.transformer import Transformer

MOST_BYTES = 2**26
"""Largest weights that every core reads for itself: what its caches hold, or nearly."""
FEWEST_ROWS = 32
"""Rows that are worth a thread."""


class Team:
    """As many threads as torch may use, the caller's among them, each of which keeps to one
    core."""

    def __init__(self, members: int) -> None:
        self.members = members
        others = max(1, members - 1)
        self._pool = ThreadPoolExecutor(
            others, "decode", initializer=torch.set_num_threads, initargs=(1,)
        )

    def shares(self, rows: int) -> list[slice]:
        """Cut rows into nearly equal shares, fewer where there are too few.

        >>> Team(2).shares(101)
        [slice(0, 51, None), slice(51, 101, None)]
        """
        parts = max(1, min(self.members, rows // FEWEST_ROWS))
        ends = [-(-rows * part // parts) for part in range(parts + 1)]
        return [slice(first, last) for first, last in pairwise(ends)]

    def run(self, acts: Sequence[Callable[[], None]]) -> None:
        """Run all at once and wait for them; a failure of one is raised here."""
        if len(acts) == 1:
            acts[0]()
            return
        threads = torch.get_num_threads()
        waiting = [self._pool.submit(_without_gradient, act) for act in acts[1:]]
        try:
            torch.set_num_threads(1)
            _without_gradient(acts[0])
        finally:
            try:
                for each in waiting:
                    each.result()
            finally:
                # A thread that starts takes its number from the one set last, anywhere.
                torch.set_num_threads(threads)


def team_for(model: Transformer) -> Team | None:
    """Gather a team where it pays: a small model on a CPU with more than one core."""
    threads = torch.get_num_threads()
    return Team(threads) if model.device.type == "cpu" and threads > 1 and is_small(model) else None


def is_small(model: Transformer) -> bool:
    """Say whether every core may read all weights for itself."""
    return sum(each.numel() * each.element_size() for each in model.parameters()) <= MOST_BYTES


@torch.no_grad()
def _without_gradient(act: Callable[[], None]) -> None:
    act()
