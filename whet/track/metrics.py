"""The metrics of a step, from its rollouts and its clock, and the trackers that receive them.

The run's JSON lines and the console always receive them; TensorBoard and Weights & Biases are
optional.
"""

import math
import resource
import sys
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, pstdev
from typing import Literal, Protocol, TextIO, get_args

from rich.console import Console
from rich.text import Text

from whet.config import Config
from whet.types import (
    RAISED,
    FinishReason,
    Group,
    Metrics,
    Problem,
    Rollout,
    Score,
    Verdict,
    all_equal,
    rewards_of,
)
from whet.world import get_world

Phase = Literal["sample", "grade", "logprobs", "update"]
TIME_METRICS: dict[Phase, str] = {
    "sample": "time/sample",
    "grade": "time/grade",
    "logprobs": "time/score",
    "update": "time/update",
}
"""The metric of each phase of a step."""
OutsidePhase = Literal["start", "validate", "save"]
OUTSIDE_EVENT = "seconds"
"""The event with the seconds of each phase outside the steps."""
MACHINE_AREAS = ("time/", "engine/", "memory/")
"""Areas of metrics that depend on the machine and differ between equal runs."""


CELL = 8
"""Width of a metric on the console, in characters."""
ROWS_PER_HEADER = 20


class TrackConfig(Config):
    """Where metrics go besides the run folder and the console."""

    sinks: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Further trackers; each needs an optional package."""
    project: str = "whet"
    """Weights & Biases project."""

    def without_effect(self) -> dict[str, str]:
        return {} if "wandb" in self.sinks else {"project": 'track.sinks has no "wandb"'}


class TrackedRun(Protocol):
    """The parts of a run that a tracker uses: folder, unique id and metrics file."""

    folder: Path

    @property
    def id(self) -> str: ...

    def log_metrics(self, step: int, metrics: Metrics) -> None: ...


class Clock:
    """Measures the time of each phase of a step. An inner phase pauses the outer one.

    clock.start()
    with clock.measure("sample"):
        groups = sample()
    tracker.log(step, clock.lap())
    """

    def __init__(
        self,
        *,
        peak_bytes: Callable[[], int] | None = None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Read peak memory from `peak_bytes`, such as CUDA's; by default, of this process."""
        self._peak_bytes = peak_bytes or _peak_resident_bytes
        self._now = now
        self._open: list[Phase] = []
        self.start()

    def start(self) -> None:
        """Begin a step; earlier time, such as a validation, does not count."""
        self._last = self._now()
        self._clear()

    @contextmanager
    def measure(self, phase: Phase) -> Iterator[None]:
        """Count the seconds of a block in the metric of its phase."""
        self._add_time()
        self._open.append(phase)
        try:
            yield
        finally:
            self._add_time()
            self._open.pop()

    def count_sampling(self, *, tokens: int, row_steps: int, useful: int) -> None:
        """Add the counters of an engine call: `useful` of its `row_steps` produced a token."""
        self._tokens += tokens
        self._row_steps += row_steps
        self._useful += useful

    def lap(self) -> Metrics:
        """End a step: return its metrics, and start the next one."""
        self._add_time()
        metrics = {name: self._seconds[phase] for phase, name in TIME_METRICS.items()}
        metrics["time/step"] = self._last - self._start
        peaks = get_world().all_gather(self._peak_bytes(), "the end of a step's work")
        metrics["memory/peak_gb"] = max(peaks) / 1e9
        if self._row_steps:
            seconds = metrics["time/sample"]
            metrics["engine/tokens_per_s"] = self._tokens / seconds if seconds else 0.0
            metrics["engine/slots_busy"] = self._useful / self._row_steps
        self._clear()
        return metrics

    def _clear(self) -> None:
        self._start = self._last
        self._seconds: dict[Phase, float] = defaultdict(float)
        self._tokens = self._row_steps = self._useful = 0

    def _add_time(self) -> None:
        now = self._now()
        if self._open:
            self._seconds[self._open[-1]] += now - self._last
        self._last = now


class OutsideClock:
    """Measures what a training stage does outside its steps, which have a `Clock`."""

    def __init__(self, *, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self.seconds: dict[OutsidePhase, float] = dict.fromkeys(get_args(OutsidePhase), 0.0)

    def count_start(self, began: float) -> None:
        """Count the seconds since the stage began, by `time.perf_counter`."""
        self.seconds["start"] = self._now() - began

    @contextmanager
    def measure(self, phase: OutsidePhase) -> Iterator[None]:
        """Count the seconds of a block in its phase."""
        began = self._now()
        try:
            yield
        finally:
            self.seconds[phase] += self._now() - began


def _peak_resident_bytes() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # Linux counts in KiB


def measure_rollouts(groups: Sequence[Group]) -> Metrics:
    """Average rewards, scores and lengths over all rollouts, and measure groups without a signal.

    If a step has problems of several tasks or sources, the main metrics are also given for each, as
    `score/correct/<task>` and `score/correct/source/<source>`.
    """
    rollouts = [rollout for group in groups for rollout in group]
    rewards, graded = rewards_of(rollouts), _list_scores(rollouts)
    ends = [rollout.completion.finish_reason for rollout in rollouts]
    metrics = {
        "reward/mean": fmean(rewards) if rewards else 0.0,
        "reward/deviation": pstdev(rewards) if rewards else 0.0,
        "score/unscored": float(len(rollouts) - len(graded)),
        "score/raised": float(sum(score.note.startswith(RAISED) for score in graded)),
        "length/mean": fmean(len(r.completion.tokens) for r in rollouts),
        "length/unfinished": fmean(end is FinishReason.LENGTH for end in ends),
        "groups/equal": fmean(all_equal(rewards_of(group)) for group in groups),
    }
    for name in sorted({name for score in graded for name in score.parts}):
        metrics[f"score/{name}"] = fmean(score.parts.get(name, 0.0) for score in graded)
    for label, part in split_by_task_and_source(groups).items():
        metrics |= _main_figures([rollout for group in part for rollout in group], label)
    return metrics


def split_by_task_and_source(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Split groups by `<task>` and by `source/<source>`, if there are several."""
    by_task = _split(groups, lambda problem: problem.task)
    return by_task | _split(groups, lambda problem: f"source/{problem.source}")


def _split(groups: Sequence[Group], key: Callable[[Problem], str]) -> dict[str, list[Group]]:
    parts: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        parts[key(group[0].problem)].append(group)
    return dict(parts) if len(parts) > 1 else {}


def _main_figures(rollouts: Sequence[Rollout], label: str) -> Metrics:
    rewards = rewards_of(rollouts)
    figures = {f"length/mean/{label}": fmean(len(r.completion.tokens) for r in rollouts)}
    if rewards:
        figures[f"reward/mean/{label}"] = fmean(rewards)
    if graded := _list_scores(rollouts):
        figures[f"score/correct/{label}"] = fmean(s.parts.get("correct", 0.0) for s in graded)
    return figures


def _list_scores(rollouts: Sequence[Rollout]) -> list[Score]:
    return [r.score for r in rollouts if r.score and r.score.verdict != Verdict.UNSCORED]


class Tracker(ABC):
    """Receives the metrics of each step, and occasionally sample responses."""

    @abstractmethod
    def log(self, step: int, metrics: Metrics) -> None:
        """Record the metrics of a step."""

    def log_responses(self, step: int, rollouts: Sequence[Rollout]) -> None:
        """Record some graded responses, if the tracker can show them."""
        return

    def close(self) -> None:
        """Flush the buffers."""
        return


class Trackers(Tracker):
    """Passes every step on to several trackers, in order."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = tuple(trackers)

    def log(self, step: int, metrics: Metrics) -> None:
        for tracker in self._trackers:
            tracker.log(step, metrics)

    def log_responses(self, step: int, rollouts: Sequence[Rollout]) -> None:
        for tracker in self._trackers:
            tracker.log_responses(step, rollouts)

    def close(self) -> None:
        for tracker in self._trackers:
            tracker.close()


class JsonlTracker(Tracker):
    """Writes the run's own metrics file, on which the report is based."""

    def __init__(self, run: TrackedRun) -> None:
        self._run = run

    def log(self, step: int, metrics: Metrics) -> None:
        self._run.log_metrics(step, metrics)


class ConsoleTracker(Tracker):
    """Prints a row of metrics below labels, at the first step and every `every` steps.

    Seven metrics fit 80 columns. Without a terminal, and so without a progress bar, a row also
    predicts the time left until `steps`.
    """

    def __init__(
        self,
        columns: Mapping[str, str],
        *,
        every: int = 1,
        steps: int | None = None,
        console: Console | None = None,
        stream: TextIO | None = None,
    ) -> None:
        self._columns = dict(columns)
        self._every = every
        self._steps = steps
        self._stream = stream or sys.stderr
        self._console = console
        self._first: tuple[int, float] | None = None
        self._shown: list[str] = []
        self._rows = 0

    def log(self, step: int, metrics: Metrics) -> None:
        names = {name for name in self._columns if name in metrics}
        if not names or (step > 1 and step % self._every):
            return
        if not names <= set(self._shown) or self._rows % ROWS_PER_HEADER == 0:
            self._shown = [name for name in self._columns if name in names.union(self._shown)]
            self._rows = 0
            labels = "".join(f" {self._columns[name]:>{CELL}}" for name in self._shown)
            left = "" if self._console or self._steps is None else f"{'left':>10}"
            self._print(Text(f"{'step':>6}{labels}{left}", style="dim"))
        self._rows += 1
        row = Text(f"{step:>6}", style="bold")
        for name in self._shown:
            text = format_number(metrics[name]) if name in names else ""
            row.append(f" {text:>{CELL}}", style="cyan not bold")
        self._print(row.append(self._predict_end(step), style="dim not bold"))

    def _print(self, line: Text) -> None:
        if self._console is None:
            print(line.plain.rstrip(), file=self._stream, flush=True)
        else:
            self._console.print(line, soft_wrap=True)

    def _predict_end(self, step: int) -> str:
        now = time.monotonic()
        first, start = self._first = self._first or (step, now)
        if self._console or self._steps is None or not first < step < self._steps:
            return ""
        seconds = f"{(self._steps - step) * (now - start) / (step - first):,.0f} s"
        return f"{seconds:>10}"


def format_number(value: float) -> str:
    """Write a metric in at most eight characters: integers in full, others with up to four digits.

    >>> format_number(512.0), format_number(0.123456), format_number(1.5e-7)
    ('512', '0.1235', '1.5e-07')
    >>> format_number(5.0184e-05), format_number(-5.0184e-05)
    ('5.02e-05', '-5e-05')
    """
    if math.isfinite(value) and value == int(value) and abs(value) < 1e7:
        return str(int(value))
    texts = (f"{value:.{digits}g}" for digits in (4, 3, 2, 1))
    return next(text for text in texts if len(text) <= CELL)
