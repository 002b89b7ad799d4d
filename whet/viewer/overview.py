"""What pages say about whole runs: the list, one run, and how two runs' settings differ."""

import threading
from collections.abc import Mapping

from whet import toml
from whet.errors import DataError
from whet.types import Json
from whet.viewer.facts import Facts
from whet.viewer.metrics import MetricsFile, spark
from whet.viewer.runs import (
    Root,
    Run,
    find_state,
    flatten_settings,
    read_events,
    read_origins,
    read_settings,
    read_small,
    read_table,
    settings_key,
)
from whet.viewer.sources import list_sources


class Overview:
    """Reads what is asked of runs; metrics files are kept, and read on where they have grown."""

    def __init__(self, root: Root, facts: Facts) -> None:
        self._root = root
        self._facts = facts
        self._metrics: dict[str, MetricsFile] = {}
        self._lock = threading.Lock()

    def metrics(self, run: Run) -> MetricsFile:
        path = self._root.open_path(run.folder / "metrics.jsonl")
        with self._lock:
            file = self._metrics.setdefault(run.id, MetricsFile(path))
        file.refresh()
        return file

    def list_runs(self) -> list[Json]:
        """Describe every run in a line; a run that cannot be read says why."""
        rows: list[dict[str, Json]] = []
        for run in self._root.runs().values():
            try:
                rows.append(self.describe(run))
            except (DataError, OSError) as error:
                rows.append({"id": run.id, "state": "unreadable", "problem": str(error)})
        return list(rows)

    def describe(self, run: Run) -> dict[str, Json]:
        settings = read_settings(self._root, run)
        provenance = read_table(self._root, run.folder / "provenance.json")
        metrics = self.metrics(run)
        headline = metrics.headline()
        times = metrics.series.get("time/step")
        recent = times.values[-20:] if times else []
        validation = metrics.series.get("validation/pass@1")
        return {
            "id": run.id,
            "origin": run.origin,
            "kind": settings.get("kind", run.origin),
            "state": find_state(self._root, run),
            "task": _name(settings.get("task")),
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
            "has_rollouts": any(True for _ in list_sources(self._root, run)),
        }

    def _result(self, run: Run) -> Json:
        """Give the first evaluation's pass@1 with its interval, of runs that only evaluate."""
        table = read_table(self._root, run.folder / "evals" / "000000.json")
        passes = table.get("pass_at")
        is_eval = not (run.folder / "metrics.jsonl").exists()
        return passes.get("1") if is_eval and isinstance(passes, dict) else None

    def read_run(self, run: Run) -> dict[str, Json]:
        """Give what one run's page shows."""
        folder = run.folder
        evals: list[Json] = []
        names = sorted((folder / "evals").glob("*.json")) if (folder / "evals").is_dir() else []
        for path in names[-200:]:
            evals.append({"step": path.stem, "result": read_small(self._root, path)})
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
            "sets": list(dict.fromkeys(s.set for s in list_sources(self._root, run))),
        }

    def list_settings(self, run: Run) -> list[Json]:
        settings = read_settings(self._root, run)
        origins = read_origins(self._root, run)
        kind = str(settings.get("kind"))
        return [
            {
                "key": key,
                "value": toml.literal(value),
                "origin": origins.get(key, "default"),
                "meaning": self._facts.meaning(kind, key),
            }
            for key, value in flatten_settings(settings).items()
        ]

    def compare(self, first: Run, second: Run) -> dict[str, Json]:
        """List the settings that differ, each with a sentence and its meaning."""
        tables = [read_settings(self._root, run) for run in (first, second)]
        old, new = (flatten_settings(table) for table in tables)
        kind = str(tables[0].get("kind"))
        rows: list[Json] = []
        for key in dict.fromkeys([*old, *new]):
            if old.get(key) != new.get(key) or (key in old) != (key in new):
                rows.append(
                    {
                        "key": key,
                        "words": describe_difference(key, old, new),
                        "meaning": self._facts.meaning(kind, key),
                        "a": toml.literal(old[key]) if key in old else None,
                        "b": toml.literal(new[key]) if key in new else None,
                    }
                )
        same = sum(key in new and old[key] == new[key] for key in old)
        return {"a": first.id, "b": second.id, "differences": rows, "same": same}


def describe_difference(key: str, old: Mapping[str, Json], new: Mapping[str, Json]) -> str:
    """Say how a setting differs.

    >>> describe_difference("train.lr", {"train.lr": 1e-6}, {"train.lr": 2e-6})
    'twice as much: 1e-06 in A, 2e-06 in B'
    >>> describe_difference("lag", {"lag": 0}, {})
    'A sets it to 0; in B it has no effect or is not set'
    """
    if key not in new:
        return f"A sets it to {toml.literal(old[key])}; in B it has no effect or is not set"
    if key not in old:
        return f"B sets it to {toml.literal(new[key])}; in A it has no effect or is not set"
    a, b = old[key], new[key]
    if isinstance(a, bool) and isinstance(b, bool):
        return f"{'on' if a else 'off'} in A, {'on' if b else 'off'} in B"
    both = f"{toml.literal(a)} in A, {toml.literal(b)} in B"
    if isinstance(a, int | float) and isinstance(b, int | float) and a > 0 and b > 0:
        return f"{_describe_ratio(b / a)}: {both}" if key != "seed" else both
    return both


def _describe_ratio(ratio: float) -> str:
    words = {2.0: "twice as much", 0.5: "half as much"}
    near = next((word for value, word in words.items() if abs(ratio / value - 1) < 1e-9), None)
    if near is not None:
        return near
    return f"{ratio:.3g} times as much" if ratio > 1 else f"{1 / ratio:.3g} times less"


def _name(table: Json) -> Json:
    """Give the name in a table such as `task`, or a name that stands for one."""
    if isinstance(table, dict):
        name = table.get("name")
        return name if isinstance(name, str) else None
    return table if isinstance(table, str) else None


def _model(table: Json) -> Json:
    if not isinstance(table, dict):
        return None
    model = table.get("path") or table.get("new")
    return model if isinstance(model, str) else None
