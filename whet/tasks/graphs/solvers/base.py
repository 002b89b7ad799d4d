"""What a solver returns, and sets of nodes as bit masks."""

from collections.abc import Sequence
from dataclasses import dataclass

NODE_LIMIT = 20_000
"""Searches stop after this many nodes; their result is then unproven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The best solution known, as lists of node numbers; `is_proven` where nothing is better."""

    lists: tuple[tuple[int, ...], ...]
    value: float
    nodes: int
    is_proven: bool


def members(mask: int) -> tuple[int, ...]:
    """List the bits of a set in rising order.

    >>> members(0b1101)
    (0, 2, 3)
    """
    bits = []
    while mask:
        low = mask & -mask
        bits.append(low.bit_length() - 1)
        mask ^= low
    return tuple(bits)


def bitsets(n: int, edges: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Give every node the set of its neighbours; a node is not its own neighbour."""
    masks = [0] * n
    for a, b in edges:
        if a != b:
            masks[a] |= 1 << b
            masks[b] |= 1 << a
    return tuple(masks)
