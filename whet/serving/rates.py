"""Limits per minute, as pure arithmetic on a clock that the caller reads."""


class PerMinute:
    """Spread amounts evenly over time: at most `limit` a minute; None has no limit.

    >>> limit = PerMinute(60)
    >>> [limit.reserve(1, now=0.0) for _ in range(3)]
    [0.0, 1.0, 2.0]
    """

    def __init__(self, limit: int | None) -> None:
        self._seconds_each = 60.0 / limit if limit else 0.0
        self._free_at = 0.0

    def reserve(self, amount: int, now: float) -> float:
        """Take an amount, and return the seconds to wait before it may be used."""
        begin = max(self._free_at, now)
        self._free_at = begin + amount * self._seconds_each
        return begin - now

    def correct(self, amount: int) -> None:
        """Add what was used beyond what was reserved, or give back what was not."""
        self._free_at += amount * self._seconds_each
