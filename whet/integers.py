"""Integers: division that rounds up."""


def ceil_div(count: int, size: int) -> int:
    """Return how many parts of a size hold a count.

    >>> ceil_div(5, 2)
    3
    """
    return -(-count // size)
