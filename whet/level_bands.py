"""The five equal bands of difficulty that problems are made and reported in."""

NUM_LEVELS = 5
"""The number of bands."""


def level_band(level: float) -> int:
    """Return the band of a level, from 0.

    >>> [level_band(level) for level in (0.0, 0.19, 0.2, 0.99, 1.0)]
    [0, 0, 1, 4, 4]
    """
    return min(max(int(level * NUM_LEVELS), 0), NUM_LEVELS - 1)


def level_label(level: float | None, *, unknown: str) -> str:
    """Name the band of a level, from 1.

    >>> [level_label(level, unknown="none") for level in (0.0, 0.25, 1.0, None)]
    ['1', '2', '5', 'none']
    """
    return unknown if level is None else str(level_band(level) + 1)
