"""Levels of difficulty from any column: ordered words, or numbers cut at edges or into equal parts.

A level is a number from 0, the easiest, to 1. A bin has the level of its middle.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from whet.data.importers.base import show, write_number
from whet.data.importers.mapped import read_column
from whet.errors import ConfigError, DataError
from whet.types import Json

MAX_BINS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelBins:
    """How values of a column become levels."""

    words: tuple[str, ...] = ()
    """Values from the easiest to the hardest."""
    edges: tuple[float, ...] = ()
    """Edges between the bins; a number equal to an edge is in the higher bin."""
    is_reversed: bool = False
    """Whether low numbers are hard, as pass rates are."""

    def to_level(self, value: Json) -> float:
        """Return the level of a value. Without words or edges, it is a number from 0 to 1 itself.

        >>> LevelBins(words=("easy", "medium", "hard")).to_level("Medium")
        0.5
        >>> LevelBins(edges=(2.0,), is_reversed=True).to_level(3)
        0.25
        """
        if self.words:
            name = write_number(value) if isinstance(value, str | int | float) else ""
            folded = [word.casefold() for word in self.words]
            if name.casefold() not in folded:
                raise DataError(
                    f"has the level {show(value)}, which is not one of {', '.join(self.words)}"
                )
            level = (folded.index(name.casefold()) + 0.5) / len(folded)
        elif self.edges:
            level = (bisect_right(self.edges, to_number(value)) + 0.5) / (len(self.edges) + 1)
        else:
            level = to_number(value)
            if not 0 <= level <= 1:
                raise DataError(
                    f"has the level {show(value)}, which is not a number from 0 to 1: --bins 5 "
                    "makes levels from any numbers, --bins easy,hard from words"
                )
        return 1 - level if self.is_reversed else level


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelColumn:
    """The column that holds difficulty, and how its values become levels."""

    name: str
    bins: LevelBins | int
    """A number means that many equal parts, whose edges are not known yet."""
    is_reversed: bool = False

    @staticmethod
    def parse(name: str | None, bins: str | None, *, is_reversed: bool) -> "LevelColumn | None":
        """Parse the command line's options for levels; None if there are none."""
        if name is None:
            if bins is not None or is_reversed:
                raise ConfigError("--bins and --reverse need --level COLUMN")
            return None
        parsed = parse_bins(bins, is_reversed=is_reversed)
        return LevelColumn(name=name, bins=parsed, is_reversed=is_reversed)

    def resolve(self, rows: Iterable[Mapping[str, Json]]) -> "LevelColumn":
        """Find the edges of equal parts, in one pass over all rows."""
        if isinstance(self.bins, LevelBins):
            return self
        numbers: list[float] = []
        for row in rows:
            with suppress(DataError):  # such a row is refused when it is read the second time
                numbers.append(to_number(read_column(row, self.name)))
        return replace(self, bins=cut_evenly(numbers, self.bins, is_reversed=self.is_reversed))

    def read(self, row: Mapping[str, Json]) -> float:
        """Return the level of a row."""
        assert isinstance(self.bins, LevelBins), "equal parts are resolved first"
        return self.bins.to_level(read_column(row, self.name))


def parse_bins(text: str | None, *, is_reversed: bool) -> LevelBins | int:
    """Parse ordered words, ordered edges, or a number of equal parts.

    >>> parse_bins("easy,hard", is_reversed=False).words, parse_bins("5", is_reversed=False)
    (('easy', 'hard'), 5)
    """
    if text is None:
        return LevelBins(is_reversed=is_reversed)
    parts = [part.strip() for part in text.split(",")]
    numbers = [_parse_number(part) for part in parts]
    edges = tuple(number for number in numbers if number is not None)
    if len(edges) < len(parts):
        if edges or len({part.casefold() for part in parts}) < len(parts) or not all(parts):
            raise ConfigError(
                f"--bins {text} should be words from easy to hard, each once, or numbers alone"
            )
        return LevelBins(words=tuple(parts), is_reversed=is_reversed)
    if len(parts) > 1:
        if sorted(set(edges)) != list(edges):
            raise ConfigError(f"--bins {text} should increase from edge to edge")
        return LevelBins(edges=edges, is_reversed=is_reversed)
    if not (edges[0].is_integer() and 2 <= edges[0] <= MAX_BINS):
        raise ConfigError(f"--bins {text} should be from 2 to {MAX_BINS} equal parts")
    return int(edges[0])


def cut_evenly(values: Sequence[float], num_bins: int, *, is_reversed: bool) -> LevelBins:
    """Choose edges that give bins about equally many values; equal values share a bin."""
    numbers = np.array(values)
    if not len(numbers):
        raise DataError("no row has a number to compute levels from")
    edges = np.unique(np.quantile(numbers, np.arange(1, num_bins) / num_bins, method="higher"))
    edges = edges[edges > numbers.min()]
    if not len(edges):
        raise DataError(f"all rows have the same number, {numbers[0]:g}: it gives no levels")
    return LevelBins(edges=tuple(edges.tolist()), is_reversed=is_reversed)


def to_number(value: Json) -> float:
    """Read a number, or text that holds one."""
    number = _parse_number(value) if isinstance(value, str) else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    if number is None or not isfinite(number):
        raise DataError(
            f"has the level {show(value)}, which is not a number: name the words with --bins"
        )
    return number


def _parse_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
