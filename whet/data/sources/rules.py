"""Rules by which a source keeps rows: one column, and what its value must be."""

import re
from functools import cache
from typing import Literal

from pydantic import Field

from whet.config import Config
from whet.data.importers.base import show
from whet.data.importers.mapped import read_column
from whet.data.row_files import Row
from whet.errors import ConfigError
from whet.types import Json

Value = str | bool | int | float
MAX_SEARCHED = 100_000
"""Characters of a value that patterns are searched in."""


class Rule(Config):
    """A condition on one column; where several are given, all must hold."""

    column: str
    """Its name, or a path such as `extra_info.index`. A row without it cannot be read."""
    equals: Value | None = None
    """The value itself."""
    one_of: tuple[Value, ...] = ()
    """Values of which it is one."""
    none_of: tuple[Value, ...] = ()
    """Values of which it is none."""
    min: float | None = None
    """The smallest number, such as a pass rate; text that is a number counts as one."""
    max: float | None = None
    """The largest number."""
    min_chars: int | None = Field(default=None, ge=0)
    """The fewest characters of a text."""
    max_chars: int | None = Field(default=None, ge=0)
    """The most characters of a text."""
    empty: Literal["no", "yes"] | None = None
    """`no` leaves out rows where it is null, a blank text or an empty list; `yes` the others."""
    matching: str = ""
    """A regular expression that is found in the text."""
    not_matching: str = ""
    """A regular expression that is not."""

    def check(self) -> None:
        """Refuse a rule that says nothing, and an expression that is none."""
        if self == Rule(column=self.column):
            raise ConfigError(f"the rule for the column {self.column!r} has no condition")
        for pattern in (self.matching, self.not_matching):
            try:
                re.compile(pattern)
            except (re.error, RecursionError) as error:
                raise ConfigError(f"{pattern!r} is no regular expression: {error}") from error

    def explain(self, row: Row) -> str | None:
        """Say why a row is left out; None where it is kept."""
        value = read_column(row, self.column)
        failure = self._find_failure(value)
        return failure and f"{self.column} {failure}"

    def _find_failure(self, value: Json) -> str | None:
        if self.equals is not None and not _is_same(value, self.equals):
            return f"is not {show(self.equals)}"
        if self.one_of and not any(_is_same(value, item) for item in self.one_of):
            return f"is none of {show(list(self.one_of))}"
        if any(_is_same(value, item) for item in self.none_of):
            return f"is {show(value)}"
        if self.empty is not None and (self.empty == "yes") != _is_empty(value):
            return "is empty" if self.empty == "no" else "is not empty"
        return self._find_number_failure(value) or self._find_text_failure(value)

    def _find_number_failure(self, value: Json) -> str | None:
        if self.min is None and self.max is None:
            return None
        number = _to_number(value)
        if number is None:
            return "is not a number"
        if self.min is not None and number < self.min:
            return f"is below {self.min:g}"
        return f"is above {self.max:g}" if self.max is not None and number > self.max else None

    def _find_text_failure(self, value: Json) -> str | None:
        text = value if isinstance(value, str) else "" if value is None else show(value)
        if self.min_chars is not None and len(text) < self.min_chars:
            return f"has fewer than {self.min_chars:,} characters"
        if self.max_chars is not None and len(text) > self.max_chars:
            return f"has more than {self.max_chars:,} characters"
        if self.matching and not _compile(self.matching).search(text[:MAX_SEARCHED]):
            return f"does not match {self.matching}"
        if self.not_matching and _compile(self.not_matching).search(text[:MAX_SEARCHED]):
            return f"matches {self.not_matching}"
        return None


_compile = cache(re.compile)


def _is_same(value: Json, wanted: Value) -> bool:
    """Compare with true and 1 apart."""
    return value == wanted and isinstance(value, bool) == isinstance(wanted, bool)


def _is_empty(value: Json) -> bool:
    return value is None or value == [] or (isinstance(value, str) and not value.strip())


def _to_number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return float(value)
    except ValueError:
        return None
