"""Metrics of runs as series, read again only where a file has grown."""

import json
import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import BinaryIO

import numpy as np

from whet.types import Json

MAX_POINTS = 2_000
"""Points of a series that are sent; longer ones are averaged over spans of equally many steps."""
TAIL_BYTES = 256
"""Bytes before the end that tell whether a file has only grown."""
HEADLINES = (
    "score/correct",
    "validation/pass@1",
    "reward/mean",
    "preference/accuracy",
    "validation/loss",
    "sft/token_loss",
    "loss",
)
"""What the list of runs shows of each: the first of these with two points, or with one."""
SPARK_POINTS = 60


@dataclass(slots=True, kw_only=True)
class Series:
    """One metric: the steps at which it was logged, and its values."""

    steps: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


class MetricsFile:
    """One metrics.jsonl. `refresh` reads what was added, or all of a file that was rewritten."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.series: dict[str, Series] = {}
        self.last_step = 0
        self._offset = 0
        self._tail = 0
        self._lock = threading.Lock()

    @property
    def version(self) -> str:
        """Change whenever there is something new."""
        return f"{self._offset}-{self._tail}"

    def refresh(self) -> None:
        with self._lock:
            try:
                with self.path.open("rb") as file:
                    self._read(file)
            except FileNotFoundError:
                self._forget()

    def _read(self, file: BinaryIO) -> None:
        if self._offset and self._hash_before(file, self._offset) != self._tail:
            self._forget()
        file.seek(self._offset)
        lines = file.read()
        end = lines.rfind(b"\n") + 1
        if not end:
            return
        for line in lines[:end].splitlines():
            self._add(line)
        self._offset += end
        self._tail = self._hash_before(file, self._offset)

    def _hash_before(self, file: BinaryIO, offset: int) -> int:
        """Hash the bytes before an offset; 0 where the file is shorter."""
        start = max(offset - TAIL_BYTES, 0)
        file.seek(start)
        tail = file.read(offset - start)
        return zlib.crc32(tail) if len(tail) == offset - start else 0

    def _forget(self) -> None:
        self.series, self.last_step, self._offset, self._tail = {}, 0, 0, 0

    def _add(self, line: bytes) -> None:
        try:
            row: Json = json.loads(line)
        except ValueError:
            return
        step = row.get("step") if isinstance(row, dict) else None
        if not isinstance(row, dict) or not isinstance(step, int | float):
            return
        self.last_step = max(self.last_step, int(step))
        for name, value in row.items():
            if name != "step" and isinstance(value, int | float) and isfinite(value):
                series = self.series.setdefault(name, Series())
                series.steps.append(step)
                series.values.append(value)

    def to_json(self, names: Sequence[str]) -> dict[str, Json]:
        """Give series by name, as steps and values."""
        return {
            name: list(map(_round, shorten(self.series[name], MAX_POINTS)))
            for name in names
            if name in self.series
        }

    def headline(self) -> tuple[str, Series] | None:
        """Choose the metric that says most about the run."""
        for fewest in (2, 1):
            for name in HEADLINES:
                series = self.series.get(name)
                if series is not None and len(series.values) >= fewest:
                    return name, series
        return None


def shorten(series: Series, most: int) -> tuple[list[float], list[float]]:
    """Average a series over at most `most` spans of points.

    >>> shorten(Series(steps=[1, 2, 3, 4], values=[1.0, 3.0, 5.0, 7.0]), 2)
    ([2, 4], [2.0, 6.0])
    """
    count = len(series.values)
    if count <= most:
        return series.steps, series.values
    edges = np.linspace(0, count, most + 1).astype(int)
    sums = np.add.reduceat(np.array(series.values, dtype=float), edges[:-1])
    means = sums / np.diff(edges)
    return [series.steps[end - 1] for end in edges[1:]], means.tolist()


def _round(values: Sequence[float]) -> Json:
    return [float(f"{value:.6g}") for value in values]


def spark(series: Series) -> list[Json]:
    """Shorten a series to a small line."""
    return [float(f"{value:.4g}") for value in shorten(series, SPARK_POINTS)[1]]
