"""The trackers: the run's JSON lines and the console always, TensorBoard and Weights & Biases on
demand."""

import importlib
import math
import sys
import time
from collections.abc import Mapping
from types import ModuleType
from typing import Literal, Protocol, TextIO

from rich.console import Console
from rich.text import Text

from whet.config import Config
from whet.errors import ConfigError
from whet.track.base import Metrics, Run, Tracker, Trackers


class TrackConfig(Config):
    """Where metrics go besides the run folder and the console."""

    sinks: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Further places, each an optional package."""
    project: str = "whet"
    """The Weights & Biases project; nothing else uses it."""

    def without_effect(self) -> dict[str, str]:
        return {} if "wandb" in self.sinks else {"project": 'track.sinks has no "wandb"'}


def open_trackers(
    cfg: TrackConfig,
    run: Run,
    columns: Mapping[str, str],
    *,
    every: int = 1,
    console: Console | None = None,
) -> Trackers:
    """Open the trackers of a run. The console, a progress bar's own if given, shows `columns`:
    metrics by label."""
    trackers: list[Tracker] = [
        JsonlTracker(run),
        ConsoleTracker(columns, every=every, console=console),
    ]
    if "tensorboard" in cfg.sinks:
        trackers.append(TensorBoardTracker(run))
    if "wandb" in cfg.sinks:
        trackers.append(WandbTracker(run, cfg.project))
    return Trackers(trackers)


class JsonlTracker:
    """Writes the run's own metrics file, from which the report is drawn."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def log(self, step: int, metrics: Metrics) -> None:
        self._run.log_metrics(step, metrics)

    def close(self) -> None:
        pass


class ConsoleTracker:
    """Prints one aligned line a step, or every few steps, with a handful of metrics; nothing where
    there are none."""

    def __init__(
        self,
        columns: Mapping[str, str],
        *,
        every: int = 1,
        console: Console | None = None,
        stream: TextIO | None = None,
    ) -> None:
        self._columns = dict(columns)
        self._every = every
        self._stream = stream or sys.stderr
        self._console = console or (Console(file=self._stream) if self._stream.isatty() else None)

    def log(self, step: int, metrics: Metrics) -> None:
        shown = [
            (label, number(metrics[name]))
            for name, label in self._columns.items()
            if name in metrics
        ]
        if not shown or step % self._every:
            return
        line = Text(f"step {step:>6}", style="bold")
        for label, text in shown:
            line.append(f"  {label} ", style="dim not bold").append(
                f"{text:<8}", style="cyan not bold"
            )
        if self._console is None:
            print(line.plain, file=self._stream, flush=True)
        else:
            self._console.print(line, soft_wrap=True)

    def close(self) -> None:
        pass


class TensorBoardTracker:
    """Writes event files to `tensorboard/` in the run folder, without TensorFlow or torch."""

    def __init__(self, run: Run) -> None:
        self._folder = run.folder / "tensorboard"
        writers = _optional("tensorboard.summary.writer.event_file_writer", "tensorboard")
        self._open = writers.EventFileWriter
        self._events = _optional("tensorboard.compat.proto.event_pb2", "tensorboard")
        self._summaries = _optional("tensorboard.compat.proto.summary_pb2", "tensorboard")
        self._writer: _EventWriter | None = None

    def log(self, step: int, metrics: Metrics) -> None:
        if self._writer is None:
            self._writer = self._start(step)
        values = [
            self._summaries.Summary.Value(tag=name, simple_value=value)
            for name, value in metrics.items()
        ]
        summary = self._summaries.Summary(value=values)
        self._writer.add_event(
            self._events.Event(wall_time=time.time(), step=step, summary=summary)
        )

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _start(self, step: int) -> "_EventWriter":
        writer: _EventWriter = self._open(str(self._folder))
        # A session that starts at a step makes TensorBoard forget that step and later ones of the
        # session before.
        session = self._events.SessionLog(status=self._events.SessionLog.START)
        writer.add_event(self._events.Event(wall_time=time.time(), step=step, session_log=session))
        return writer


class WandbTracker:
    """Sends metrics to Weights & Biases; a resumed run goes on under the same id."""

    def __init__(self, run: Run, project: str) -> None:
        wandb = _optional("wandb", "wandb")
        self._session = wandb.init(
            project=project, name=run.folder.name, id=run.id, dir=str(run.folder), resume="allow"
        )

    def log(self, step: int, metrics: Metrics) -> None:
        self._session.log(dict(metrics), step=step)

    def close(self) -> None:
        self._session.finish()


def number(value: float) -> str:
    """Write a metric in at most eight characters or so: whole numbers as such, others with four
    digits.

    >>> number(512.0), number(0.123456), number(1.5e-7)
    ('512', '0.1235', '1.5e-07')
    """
    if math.isfinite(value) and value == int(value) and abs(value) < 1e8:
        return str(int(value))
    return f"{value:.4g}"


class _EventWriter(Protocol):
    def add_event(self, event: object) -> None: ...

    def close(self) -> None: ...


def _optional(module: str, package: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f'track.sinks names "{package}", which is not installed: pip install {package}, or leave it out'
        ) from error
