"""Pages about whole runs: the list, a single run, its metrics as series, and the differences
between the settings of two runs."""

import json
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import BinaryIO

import numpy as np

from whet import toml
from whet.errors import DataError
from whet.types import Json
from whet.viewer.facts import Facts
from whet.viewer.rollout_sources import find_rollout_files
from whet.viewer.run_folders import (
    ListedRun,
    Root,
    find_state,
    read_events,
    read_origins,
    read_run_settings,
    read_small,
    read_table,
    settings_key,
)

VALIDATION = "validation/pass@1"
MAX_POINTS = 2_000
"""Points of a series that are sent; longer ones are averaged over spans of equally many steps."""
TAIL_BYTES = 256
"""Bytes before the end that tell whether a file has only grown."""
HEADLINES = (
    "score/correct",
    VALIDATION,
    "reward/mean",
    "preference/accuracy",
    "validation/loss",
    "sft/token_loss",
    "loss",
)
"""The metric that the list of runs shows: the first of these with two points, or with one."""
SPARK_POINTS = 60


@dataclass(slots=True, kw_only=True)
class MetricSeries:
    """One metric: the steps where it was logged, and its values."""

    steps: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


class MetricsFile:
    """One metrics.jsonl. `refresh` reads new rows, or the whole file if it was rewritten."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.series: dict[str, MetricSeries] = {}
        self.last_step = 0
        self._offset = 0
        self._tail = 0
        self._lock = threading.Lock()

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
        """Hash the bytes before an offset; 0 if the file is shorter."""
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
                series = self.series.setdefault(name, MetricSeries())
                series.steps.append(step)
                series.values.append(value)

    def to_json(self, names: Sequence[str]) -> dict[str, Json]:
        """Give series by name, as steps and values."""
        return {
            name: list(map(_round, average_spans(self.series[name], MAX_POINTS)))
            for name in names
            if name in self.series
        }

    def headline(self) -> tuple[str, MetricSeries] | None:
        """Choose the metric that says most about the run."""
        for fewest in (2, 1):
            for name in HEADLINES:
                series = self.series.get(name)
                if series is not None and len(series.values) >= fewest:
                    return name, series
        return None


def average_spans(series: MetricSeries, most: int) -> tuple[list[float], list[float]]:
    """Average a series over at most `most` spans.

    >>> average_spans(MetricSeries(steps=[1, 2, 3, 4], values=[1.0, 3.0, 5.0, 7.0]), 2)
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


def spark(series: MetricSeries) -> list[Json]:
    """Shorten a series for a sparkline."""
    return [float(f"{value:.4g}") for value in average_spans(series, SPARK_POINTS)[1]]


class Overview:
    """Answers requests about runs; metrics files stay in memory, and only new rows are read."""

    def __init__(self, root: Root, facts: Facts) -> None:
        self._root = root
        self._facts = facts
        self._metrics: dict[str, MetricsFile] = {}
        self._intervals: dict[tuple[Path, int], dict[str, Json]] = {}
        self._lock = threading.Lock()

    def metrics(self, run: ListedRun) -> MetricsFile:
        path = self._root.open_path(run.folder / "metrics.jsonl")
        with self._lock:
            file = self._metrics.setdefault(run.id, MetricsFile(path))
        file.refresh()
        return file

    def read_intervals(self, run: ListedRun, names: Sequence[str]) -> dict[str, Json]:
        """Return the 95 % intervals of validations: steps, lows and highs; means are metrics."""
        if VALIDATION not in names:
            return {}
        folder = run.folder / "evals"
        rows = []
        for path in sorted(folder.glob("[0-9]*.json")) if folder.is_dir() else ():
            key = (path, path.stat().st_mtime_ns)
            if key not in self._intervals:
                passes = read_table(self._root, path).get("pass_at")
                first = passes.get("1") if isinstance(passes, dict) else None
                self._intervals[key] = first if isinstance(first, dict) else {}
            interval = self._intervals[key]
            if "low" in interval and "high" in interval:
                rows.append((int(path.stem), interval["low"], interval["high"]))
        return {VALIDATION: [list(column) for column in zip(*rows, strict=True)]} if rows else {}

    def list_runs(self) -> list[Json]:
        """Describe every run in a row; an unreadable run gives the reason."""
        rows: list[dict[str, Json]] = []
        for run in self._root.runs().values():
            try:
                rows.append(self.describe(run))
            except (DataError, OSError) as error:
                rows.append({"id": run.id, "state": "unreadable", "problem": str(error)})
        return list(rows)

    def describe(self, run: ListedRun) -> dict[str, Json]:
        settings = read_run_settings(self._root, run)
        provenance = read_table(self._root, run.folder / "provenance.json")
        metrics = self.metrics(run)
        headline = metrics.headline()
        times = metrics.series.get("time/step")
        recent = times.values[-20:] if times else []
        validation = metrics.series.get(VALIDATION)
        return {
            "id": run.id,
            "origin": run.origin,
            "kind": settings.get("kind", run.origin),
            "state": find_state(self._root, run),
            "task": _name_task(settings.get("task")),
            "model": _model(settings.get("model")),
            "algo": _name(settings.get("algo")),
            "seed": settings.get("seed"),
            "group": settings_key(settings) if settings else run.id,
            "step": metrics.last_step,
            "steps": settings.get("steps"),
            "seconds_per_step": sum(recent) / len(recent) if recent else None,
            "seconds": sum(times.values) if times else None,
            "started": provenance.get("started"),
            "headline": headline[0] if headline else None,
            "value": headline[1].values[-1] if headline else None,
            "spark": spark(headline[1]) if headline else [],
            "validation": max(validation.values) if validation else None,
            "result": self._result(run),
            "has_rollouts": any(True for _ in find_rollout_files(self._root, run)),
        }

    def _result(self, run: ListedRun) -> Json:
        """Return pass@1 of the first evaluation with its interval, for runs that only evaluate."""
        table = read_table(self._root, run.folder / "evals" / "000000.json")
        passes = table.get("pass_at")
        is_eval = not (run.folder / "metrics.jsonl").exists()
        return passes.get("1") if is_eval and isinstance(passes, dict) else None

    def read_run(self, run: ListedRun) -> dict[str, Json]:
        """Return the content of a run's page."""
        folder = run.folder
        evals: list[Json] = []
        names = sorted((folder / "evals").glob("*.json")) if (folder / "evals").is_dir() else []
        for path in names[-200:]:
            result = read_small(self._root, path)
            if isinstance(result, dict):  # the page has no use for the rates of problems
                result = {key: item for key, item in result.items() if key != "rates"}
            evals.append({"step": path.stem, "result": result})
        failure = self._root.open_path(folder / "failure.txt")
        metrics = self.metrics(run)
        return {
            **self.describe(run),
            "provenance": read_table(self._root, folder / "provenance.json"),
            "summary": read_table(self._root, folder / "summary.json"),
            "events": list(read_events(self._root, run)[-100:]) if run.origin == "whet" else [],
            "evals": evals,
            "metrics": [*sorted(metrics.series)],
            "failure": failure.read_text(errors="replace")[:20_000] if failure.is_file() else None,
            "settings": self.list_settings(run),
            "sets": list(dict.fromkeys(s.set for s in find_rollout_files(self._root, run))),
        }

    def list_settings(self, run: ListedRun) -> list[Json]:
        settings = read_run_settings(self._root, run)
        origins = read_origins(self._root, run)
        kind = str(settings.get("kind"))
        return [
            {
                "key": key,
                "value": toml.literal(value),
                "origin": origins.get(key, "default"),
                "meaning": self._facts.meaning(kind, key),
            }
            for key, value in toml.flatten(settings).items()
        ]

    def compare(self, first: ListedRun, second: ListedRun) -> dict[str, Json]:
        """List the settings that differ, each with its meaning, and separately paths that differ in
        their folders.

        If the algorithms differ, the settings behind their names are compared too.
        """
        tables = [read_run_settings(self._root, run) for run in (first, second)]
        old, new = (toml.flatten(table) for table in tables)
        kind = str(tables[0].get("kind"))
        if old.get("algo.name") != new.get("algo.name"):
            old, new = (self._expand_preset(flat) for flat in (old, new))
        rows: list[Json] = []
        for key in dict.fromkeys([*old, *new]):
            if old.get(key) != new.get(key) or (key in old) != (key in new):
                rows.append(
                    {
                        "key": key,
                        "words": describe_difference(key, old, new),
                        "is_path": _differ_in_folder(old.get(key), new.get(key)),
                        "meaning": self._facts.meaning(kind, key),
                        "a": toml.literal(old[key]) if key in old else None,
                        "b": toml.literal(new[key]) if key in new else None,
                    }
                )
        same = sum(key in new and old[key] == new[key] for key in old)
        return {"a": first.id, "b": second.id, "differences": rows, "same": same}

    def _expand_preset(self, flat: Mapping[str, Json]) -> dict[str, Json]:
        """Add the settings that the algorithm's name stands for, unless they are replaced."""
        preset = self._facts.preset(flat.get("algo.name"))
        parts = {f"algo.{name}": value for name, value in preset.items() if value is not None}
        return {**flat, **{key: value for key, value in parts.items() if key not in flat}}


def describe_difference(key: str, old: Mapping[str, Json], new: Mapping[str, Json]) -> str:
    """Describe how two values of a setting compare, if there is more to say than the values.

    >>> describe_difference("group_size", {"group_size": 6}, {"group_size": 16})
    'B is 2.67 × A'
    >>> describe_difference("lag", {"lag": 0}, {})
    'in B it has no effect or is not set'
    """
    if key not in new or key not in old:
        return f"in {'B' if key not in new else 'A'} it has no effect or is not set"
    a, b = old[key], new[key]
    if isinstance(a, bool) or key == "seed":
        return ""
    if isinstance(a, int | float) and isinstance(b, int | float) and a > 0 and b > 0:
        return f"B is {b / a:.3g} × A" if b > a else f"A is {a / b:.3g} × B"
    return ""


def _differ_in_folder(a: Json, b: Json) -> bool:
    """Whether two paths differ only in their folders, as stages of two pipelines do.

    >>> _differ_in_folder("runs/one/02-sft", "runs/two/02-sft")
    True
    """
    if not isinstance(a, str) or not isinstance(b, str):
        return False
    return "/" in a and "/" in b and Path(a).name == Path(b).name


def _name(table: Json) -> Json:
    """Return the name in a table such as `task`, or a bare name."""
    if isinstance(table, dict):
        name = table.get("name")
        return name if isinstance(name, str) else None
    return table if isinstance(table, str) else None


def _name_task(table: Json) -> Json:
    """Return a task's name, or the class of a user's own.

    >>> _name_task({"name": "own", "path": "roman.py:Roman"})
    'Roman'
    """
    name = _name(table)
    path = table.get("path") if isinstance(table, dict) else None
    return path.rpartition(":")[2] if name == "own" and isinstance(path, str) else name


def _model(table: Json) -> Json:
    if not isinstance(table, dict):
        return None
    model = table.get("path") or table.get("new")
    return model if isinstance(model, str) else None
