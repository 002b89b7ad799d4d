"""What a solver hands back."""

from dataclasses import dataclass

NODE_LIMIT = 20_000
"""Searches stop after this many nodes; what they have by then is unproven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The best solution found, as lists of node numbers; `is_proven` where nothing better
    exists."""

    lists: tuple[tuple[int, ...], ...]
    value: float
    nodes: int
    is_proven: bool


def members(mask: int) -> tuple[int, ...]:
    """List the bits of a set in rising order.

    >>> members(0b1101)
    (0, 2, 3)
    """
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return tuple(found)
