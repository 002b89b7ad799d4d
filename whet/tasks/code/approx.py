"""`pytest.approx` for tests that run where pytest is not installed."""

import math

_Number = int | float | complex


class Approx:
    """Equal within a tolerance, as in pytest: the larger of `abs` and `rel` × expected."""

    def __init__(
        self, expected: object, rel: float | None = None, abs: float | None = None
    ) -> None:
        self._expected = expected
        self._rel = rel
        self._abs = abs

    def __eq__(self, actual: object) -> bool:
        return self._near(actual, self._expected)

    __hash__ = None  # type: ignore[assignment]

    def _near(self, actual: object, expected: object) -> bool:
        if isinstance(expected, dict):
            if not isinstance(actual, dict) or actual.keys() != expected.keys():
                return False
            return all(self._near(actual[key], expected[key]) for key in expected)
        if isinstance(expected, list | tuple):
            if not isinstance(actual, list | tuple) or len(actual) != len(expected):
                return False
            return all(map(self._near, actual, expected))
        if isinstance(expected, _Number) and isinstance(actual, _Number):
            return actual == expected or self._is_close(actual, expected)
        return actual == expected

    def _is_close(self, actual: complex, expected: complex) -> bool:
        least = 1e-12 if self._abs is None else self._abs
        relative = (1e-6 if self._abs is None else 0.0) if self._rel is None else self._rel
        distance = abs(actual - expected)
        return math.isfinite(distance) and distance <= max(relative * abs(expected), least)
