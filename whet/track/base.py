"""Where metrics go: the Tracker protocol, and one tracker made of several."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

Metrics = Mapping[str, float]
"""Numbers of one step by `area/name`, such as `reward/mean`."""


class Tracker(Protocol):
    """Takes the metrics of each step as they come."""

    def log(self, step: int, metrics: Metrics) -> None: ...

    def close(self) -> None: ...


class Run(Protocol):
    """What a tracker needs of a run: where it lies, its name apart from all others, and its own
    metrics file."""

    folder: Path

    @property
    def id(self) -> str: ...

    def log_metrics(self, step: int, metrics: Metrics) -> None: ...


class Trackers:
    """Passes every step on to each of several trackers, in order; closes all when left as a
    context."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = tuple(trackers)

    def log(self, step: int, metrics: Metrics) -> None:
        for tracker in self._trackers:
            tracker.log(step, metrics)

    def close(self) -> None:
        for tracker in self._trackers:
            tracker.close()

    def __enter__(self) -> "Trackers":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
