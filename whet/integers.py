"""Integers: division that rounds up."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Counts = TypeVar("Counts", int, NDArray[np.int64])


def ceil_div(count: Counts, size: int) -> Counts:
    """Return how many parts of a size hold a count, or each of some counts.

    >>> ceil_div(5, 2)
    3
    """
    return -(-count // size)
