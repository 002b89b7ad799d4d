"""Open the trackers of a run, including those of optional packages: TensorBoard, W&B."""

import importlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Protocol

from rich.console import Console

from whet.errors import ConfigError
from whet.track.metrics import (
    ConsoleTracker,
    JsonlTracker,
    TrackConfig,
    TrackedRun,
    Tracker,
    Trackers,
)
from whet.types import Metrics, Rollout, Verdict
from whet.world import get_world

MAX_SHOWN = 2_000
"""Characters of a prompt or response that are shown in a table of samples."""


@contextmanager
def open_trackers(
    cfg: TrackConfig,
    run: TrackedRun,
    columns: Mapping[str, str],
    *,
    every: int = 1,
    steps: int | None = None,
    console: Console | None = None,
) -> Iterator[Tracker]:
    """Open the trackers of a run; `columns` maps the metrics on the console to their labels."""
    lines = ConsoleTracker(columns, every=every, steps=steps, console=console)
    trackers: list[Tracker] = [JsonlTracker(run), lines]
    sinks = cfg.sinks if get_world().is_rank_zero else ()
    if "tensorboard" in sinks:
        trackers.append(TensorBoardTracker(run))
    if "wandb" in sinks:
        trackers.append(WandbTracker(run, cfg.project))
    tracker = Trackers(trackers if get_world().is_rank_zero else [])
    try:
        yield tracker
    finally:
        tracker.close()


class TensorBoardTracker(Tracker):
    """Writes event files to `tensorboard/` in the run folder, without TensorFlow or torch."""

    def __init__(self, run: TrackedRun) -> None:
        self._folder = run.folder / "tensorboard"
        writers = _load_optional("tensorboard.summary.writer.event_file_writer", "tensorboard")
        self._open = writers.EventFileWriter
        self._events = _load_optional("tensorboard.compat.proto.event_pb2", "tensorboard")
        self._summaries = _load_optional("tensorboard.compat.proto.summary_pb2", "tensorboard")
        self._tensors = _load_optional("tensorboard.compat.proto.tensor_pb2", "tensorboard")
        self._writer: _EventWriter | None = None

    def log(self, step: int, metrics: Metrics) -> None:
        value = self._summaries.Summary.Value
        self._write(step, [value(tag=name, simple_value=x) for name, x in metrics.items()])

    def log_responses(self, step: int, rollouts: Sequence[Rollout]) -> None:
        metadata = self._summaries.SummaryMetadata
        markdown = _markdown(rollouts).encode()
        text = self._tensors.TensorProto(dtype="DT_STRING", string_val=[markdown])
        plugin = metadata(plugin_data=metadata.PluginData(plugin_name="text"))
        value = self._summaries.Summary.Value(tag="answers", metadata=plugin, tensor=text)
        self._write(step, [value])

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _write(self, step: int, values: list[object]) -> None:
        if self._writer is None:
            self._writer = self._open(str(self._folder))
            # After a session start at a step, TensorBoard drops that step and later ones of the
            # earlier session.
            session = self._events.SessionLog(status=self._events.SessionLog.START)
            self._add(step, session_log=session)
        self._add(step, summary=self._summaries.Summary(value=values))

    def _add(self, step: int, **content: object) -> None:
        assert self._writer is not None, "events are added to an open writer"
        self._writer.add_event(self._events.Event(wall_time=time.time(), step=step, **content))


class WandbTracker(Tracker):
    """Sends metrics to Weights & Biases; a resumed run continues under the same id."""

    def __init__(self, run: TrackedRun, project: str) -> None:
        self._wandb = _load_optional("wandb", "wandb")
        self._session = self._wandb.init(
            project=project, name=run.folder.name, id=run.id, dir=str(run.folder), resume="allow"
        )

    def log(self, step: int, metrics: Metrics) -> None:
        self._session.log(dict(metrics), step=step)

    def log_responses(self, step: int, rollouts: Sequence[Rollout]) -> None:
        table = self._wandb.Table(columns=list(SAMPLE_COLUMNS), data=[_cells(r) for r in rollouts])
        self._session.log({"answers": table}, step=step)

    def close(self) -> None:
        self._session.finish()


SAMPLE_COLUMNS = ("task", "prompt", "answer", "verdict", "note")


def _cells(rollout: Rollout) -> list[str]:
    prompt = rollout.problem.prompt[-1].content if rollout.problem.prompt else ""
    verdict = rollout.score.verdict.value if rollout.score else Verdict.UNSCORED.value
    note = rollout.score.note if rollout.score else ""
    return [rollout.problem.task, prompt[:MAX_SHOWN], rollout.text[:MAX_SHOWN], verdict, note]


def _markdown(rollouts: Sequence[Rollout]) -> str:
    rule = ["---"] * len(SAMPLE_COLUMNS)
    rows = [list(SAMPLE_COLUMNS), rule, *map(_cells, rollouts)]
    lines = (" | ".join(map(_escape, row)) for row in rows)
    return "\n".join(f"| {line} |" for line in lines)


def _escape(cell: str) -> str:
    r"""Let Markdown show a text as it is, on one line.

    >>> _escape("2*3 <b>\n\\(x\\)")
    '2\\*3 &lt;b><br>\\\\\\(x\\\\\\)'
    """
    return re.sub(r"[\\`*_\[\]()#|]", r"\\\g<0>", cell.replace("<", "&lt;")).replace("\n", "<br>")


class _EventWriter(Protocol):
    def add_event(self, event: object) -> None: ...

    def close(self) -> None: ...


def _load_optional(module: str, package: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f'track.sinks names "{package}", which is not installed: '
            f"pip install {package}, or leave it out"
        ) from error
