"""What the kernels agree on: how a projection splits into heads, and the order attention sums in.

All attention kernels sum in one order, so that the bits of a token do not depend on its company.
"""

from dataclasses import dataclass

BLOCK = 64
"""Keys taken at a time, from the start of the sequence."""
CHUNK = 512
"""Keys summed on their own before they are joined with those before them."""
TILE = 32
"""Queries per program. Tiles begin at multiples of it, so none straddles two blocks of keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Query heads, key/value heads, and the eps of their norms."""

    queries: int
    groups: int
    eps: float
