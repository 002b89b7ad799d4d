"""The run folder: settings, provenance, metrics, ledger, rollouts, evaluations, summary.

Only this file knows its layout: config.toml, provenance.json, metrics.jsonl, ledger.jsonl,
summary.json, report.html, rollouts/{train,eval}-000120.parquet, checkpoints/000120/,
evals/000120.json.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal

from whet.config import Config, Loaded, differences, load, show, to_table, to_toml
from whet.errors import ConfigError, DataError
from whet.store import jsonl
from whet.store.files import finite, read_json, write_atomic, write_json, writing
from whet.store.hashes import sha256
from whet.store.lock import Lock
from whet.store.provenance import now, provenance
from whet.store.rollouts import read_rollouts, write_rollouts
from whet.types import Group, Json, Rollout

Name = Literal["train", "eval"]
EVAL = r"(\d+)\.json"
BEGINNING = {".lock", "provenance.json", "config.toml", "ledger.jsonl"}
"""What a run has before its first step."""


class RunStore:
    """One run on disk. `open` it to write, which locks the folder; `view` it to read."""

    def __init__(self, folder: Path, *, lock: Lock | None) -> None:
        self.folder = folder
        self._lock = lock
        self.config_file = folder / "config.toml"
        self.report_file = folder / "report.html"
        self.checkpoint_folder = folder / "checkpoints"
        self._metrics = folder / "metrics.jsonl"
        self._ledger = folder / "ledger.jsonl"

    @staticmethod
    def open(
        folder: Path,
        config: Config,
        origin: Mapping[str, str],
        *,
        resume: bool,
        ignore: Sequence[str] = (),
    ) -> "RunStore":
        """Begin a run, continue one with the same settings, or find a finished one (`is_finished`).

        Keys under `ignore`, such as "track", may differ from those the run began with. A run that
        was stopped before it did anything is begun again.
        """
        run = RunStore(folder, lock=Lock(folder))
        try:
            run._enter(config, origin, resume, ignore)
        except BaseException:
            run.close()
            raise
        return run

    @staticmethod
    def view(folder: Path) -> "RunStore":
        """Read a run that another process may still be writing."""
        run = RunStore(folder, lock=None)
        if not run.config_file.is_file():
            raise DataError(f"{folder} holds no run: there is no {run.config_file.name} in it")
        return run

    @property
    def is_finished(self) -> bool:
        return (self.folder / "summary.json").is_file()

    @property
    def id(self) -> str:
        """Name the run apart from every other, also one begun later in the same folder."""
        return sha256(self.folder / "provenance.json")[:12]

    def provenance(self) -> dict[str, Json]:
        return _object(self.folder / "provenance.json")

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one row; a step may have several, such as one of training and one of evaluation.

        A number that is not finite is written as null.
        """
        row = {name: finite(float(value)) for name, value in metrics.items()}
        jsonl.append(self._metrics, {"step": step, **row})

    def metrics(self) -> list[dict[str, float]]:
        """Read all rows in order, each with its "step"."""
        rows = _own_rows(self._metrics)
        return [{k: float(v) for k, v in row.items() if isinstance(v, int | float)} for row in rows]

    def ledger(self, event: str, **facts: Json) -> None:
        """Note that something happened, with the time: a start, a resume, a restore, the end."""
        jsonl.append(self._ledger, {"time": now(), "event": event, **facts})

    def events(self) -> list[jsonl.Row]:
        return _own_rows(self._ledger)

    def write_rollouts(self, name: Name, step: int, groups: Iterable[Group]) -> Path:
        path = self._rollout_file(name, step)
        write_rollouts(path, groups)
        return path

    def rollouts(self, name: Name, step: int) -> list[Rollout]:
        return read_rollouts(self._rollout_file(name, step))

    def rollout_steps(self, name: Name) -> list[int]:
        return [step for step, _ in _numbered(self.folder / "rollouts", rf"{name}-(\d+)\.parquet")]

    def write_eval(self, step: int, result: Mapping[str, Json]) -> None:
        write_json(self.folder / "evals" / f"{step:06d}.json", dict(result))

    def evals(self) -> dict[int, dict[str, Json]]:
        """Read every evaluation by its step, in order."""
        return {step: _object(path) for step, path in _numbered(self.folder / "evals", EVAL)}

    def rewind(self, step: int) -> None:
        """Cut metrics, rollouts and evaluations past `step`, so that nothing stands twice after a
        resume."""
        jsonl.cut(self._metrics, lambda row: isinstance(row["step"], int) and row["step"] <= step)
        files = _numbered(self.folder / "rollouts", r"\w+-(\d+)\.parquet") + _numbered(
            self.folder / "evals", EVAL
        )
        for number, path in files:
            if number > step:
                path.unlink()

    def finish(self, summary: Mapping[str, Json]) -> None:
        """Write the summary, which makes the run a finished one."""
        self.ledger("finish")
        write_json(self.folder / "summary.json", dict(summary))

    def summary(self) -> dict[str, Json]:
        return _object(self.folder / "summary.json")

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> "RunStore":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _enter(
        self, config: Config, origin: Mapping[str, str], resume: bool, ignore: Sequence[str]
    ) -> None:
        if not self._is_begun():
            self._begin(config, origin)
            return
        if not self.is_finished and not resume:
            raise ConfigError(
                f"{self.folder} holds an unfinished run ({self._progress()}): "
                "add --resume to continue it, or choose another folder"
            )
        if changed := self._changes(config, ignore):
            raise ConfigError(
                f"{self.folder} holds a run with other settings ({'; '.join(changed)}): "
                "go back to those, or choose another folder"
            )
        if not self.is_finished:
            self._mend()
            self.ledger("resume", command=provenance(None)["command"])

    def _is_begun(self) -> bool:
        return self.config_file.is_file() and bool(self._work())

    def _begin(self, config: Config, origin: Mapping[str, str]) -> None:
        if strange := self._work():
            raise ConfigError(
                f"{self.folder} holds {strange[0]} and no run: choose another folder, or empty it"
            )
        seed = to_table(config).get("seed")
        origins = show(Loaded(config=config, origin=origin))
        note = "".join(
            f"# {line}\n" for line in ["Where each value came from:", *origins.splitlines()]
        )
        with writing(self._ledger):
            self._ledger.unlink(missing_ok=True)
        write_json(
            self.folder / "provenance.json", provenance(seed if isinstance(seed, int) else None)
        )
        write_atomic(self.config_file, f"{to_toml(config)}\n{note}")
        self.ledger("start", command=provenance(None)["command"])

    def _changes(self, config: Config, ignore: Sequence[str]) -> list[str]:
        try:
            before = load(type(config), self.config_file, []).config
        except ConfigError as error:
            raise ConfigError(
                f"{self.folder} holds a run of another kind or version ({error}): choose another folder"
            ) from error
        ignored = tuple(f"{key}{end}" for key in ignore for end in (".", ":"))
        return [line for line in differences(before, config) if not line.startswith(ignored)]

    def _mend(self) -> None:
        """Clear what a kill may have left: a file half written, a last line cut short."""
        with writing(self.folder):
            for place in (self.folder, self.folder / "rollouts", self.folder / "evals"):
                for path in place.glob(".*.new"):
                    path.unlink()
        for file in (self._metrics, self._ledger):
            jsonl.cut(file, lambda row: True)

    def _progress(self) -> str:
        checkpoints = [step for step, _ in _numbered(self.checkpoint_folder, r"(\d{6,})")]
        steps = [int(row["step"]) for row in self.metrics()] + checkpoints
        return f"step {max(steps)}" if steps else "no step yet"

    def _work(self) -> list[str]:
        """List what is there beyond a run's beginning; empty folders and half-written files do not
        count."""
        return sorted(
            path.name
            for path in self.folder.iterdir()
            if path.name not in BEGINNING
            and not re.fullmatch(r"\..*\.new", path.name)
            and not (path.is_dir() and not any(path.iterdir()))
        )

    def _rollout_file(self, name: Name, step: int) -> Path:
        return self.folder / "rollouts" / f"{name}-{step:06d}.parquet"


def _own_rows(path: Path) -> list[jsonl.Row]:
    return jsonl.read_rows(path, repair=True) if path.exists() else []


def _numbered(folder: Path, pattern: str) -> list[tuple[int, Path]]:
    """Find files named by a step, in the order of the steps."""
    if not folder.is_dir():
        return []
    found = [(re.fullmatch(pattern, path.name), path) for path in folder.iterdir()]
    return sorted((int(match[1]), path) for match, path in found if match)


def _object(path: Path) -> dict[str, Json]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise DataError(f"{path} should hold a JSON object")
    return value
