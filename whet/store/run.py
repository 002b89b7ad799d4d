"""The run folder: its layout and its lock.

docs/architecture.md lists the files. Other packages get their paths from `RunStore`; only the
viewer spells out file names, because it checks every path before it opens it.
"""

import re
import shlex
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from whet.config import (
    Config,
    LoadedSettings,
    differences,
    load_settings,
    show_settings,
    to_table,
    to_toml,
)
from whet.errors import ConfigError, DataError
from whet.store import files
from whet.store.files import Row, read_object, to_finite, write_atomic, write_errors, write_json
from whet.store.lock import Lock
from whet.store.provenance import collect_provenance, utc_now
from whet.store.rollouts import check_parquet, read_rollouts, write_rollouts
from whet.types import Group, Json, Metrics, Rollout, read_integer

RolloutSet = Literal["train", "eval", "rejected"]
"""rejected: responses of a teacher that its rule does not keep."""
RUN_FOLDERS = ("checkpoints", "rollouts", "evals", "answers", "logs")
"""Folders in a run folder; `shards` is not one of them, since each shard is itself a run folder."""
_EVAL = r"(\d+)\.json"
ORIGINS = "# Where each value came from:"
FIRST_FILES = {
    ".lock",
    "provenance.json",
    "config.toml",
    "ledger.jsonl",
    "logs",
    "failure.txt",
    "shards",
    "progress.json",
}
"""What a folder may hold before the run has taken a step."""


class RunStore:
    """One run on disk. `open` it to write, which locks the folder; `view` it to read."""

    def __init__(self, folder: Path, *, lock: Lock | None) -> None:
        self.folder = folder
        self._lock = lock
        self.config_file = folder / "config.toml"
        self.report_file = folder / "report.html"
        self.checkpoint_folder = folder / "checkpoints"
        self.stage_file = folder / "stage.json"
        self.metrics_file = folder / "metrics.jsonl"
        self.summary_file = folder / "summary.json"
        self.response_folder = folder / "answers"  # the name in run folders
        self.shard_folder = folder / "shards"
        self.opened = time.perf_counter()  # when this process began with it
        self.steps_before: int | None = None  # of a run that now continues to more
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
        """Start a run, continue one with the same settings, or open a finished one.

        Keys under `ignore`, such as "track", may differ from those the run started with, and
        `steps` may be more: then even a finished run continues. A run that was stopped before it
        did anything starts again.
        """
        run = RunStore(folder, lock=Lock(folder))
        try:
            run._start_or_continue(config, origin, resume, ignore)
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
        """Whether there is a summary that is not empty."""
        try:
            return bool(self.summary())
        except DataError:
            return False

    @property
    def id(self) -> str:
        """Unique id of the run, also among later runs in the same folder."""
        return files.sha256(self.folder / "provenance.json")[:12]

    def provenance(self) -> Row:
        return read_object(self.folder / "provenance.json")

    def pin_inputs(self, hashes: Mapping[str, str]) -> None:
        """Record the hashes of the files that the run reads; a resumed run must read the same.

        Otherwise its later steps would differ from an uninterrupted run's.
        """
        before = self.inputs()
        if not any(row["event"] == "inputs" for row in self.events()):
            self.log_event("inputs", files=dict(hashes))
            return
        for name in sorted({*before, *hashes}):
            if before.get(name) != hashes.get(name):
                raise DataError(
                    f"{name} is not the file that the run in {self.folder} began with: put it "
                    "back, or start again in another folder"
                )

    def inputs(self) -> dict[str, str]:
        """Read the hashes of the files that the run began with, by their names."""
        rows = [row["files"] for row in self.events() if row["event"] == "inputs"]
        digests = rows[0] if rows and isinstance(rows[0], dict) else {}
        return {name: str(digest) for name, digest in digests.items()}

    def settings(self) -> list[tuple[str, str, str]]:
        """Read every setting that is shown: its key, its value, and where it came from."""
        lines = self.config_file.read_text(encoding="utf-8").splitlines()
        start = lines.index(ORIGINS) + 1 if ORIGINS in lines else len(lines)
        rows = []
        for line in lines[start:]:
            key, _, rest = line.removeprefix("# ").partition(" = ")
            value, _, origin = rest.rpartition("  # ")
            rows.append((key.strip(), value.strip(), origin))
        return rows

    def checkpoint_folders(self) -> dict[int, Path]:
        """List the checkpoints by their steps, oldest first."""
        return dict(_find_steps(self.checkpoint_folder, r"(\d{6,})"))

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append a row; a step may have several, such as one of training and one of validation.

        Numbers that are not finite are written as null.
        """
        row = {name: to_finite(float(value)) for name, value in metrics.items()}
        files.append_row(self.metrics_file, {"step": step, **row})

    def metrics(self) -> list[Metrics]:
        """Read all rows in order, each with its "step"."""
        rows = [row for row in _read_own_rows(self.metrics_file) if _has_step(row)]
        return [{k: float(v) for k, v in row.items() if isinstance(v, int | float)} for row in rows]

    def log_event(self, event: str, **facts: Json) -> None:
        """Record an event with its time: a start, a resume, a restore, the end."""
        files.append_row(self._ledger, {"time": utc_now(), "event": event, **facts})

    def events(self) -> list[Row]:
        return _read_own_rows(self._ledger)

    def write_rollouts(self, name: RolloutSet, step: int, groups: Iterable[Group]) -> Path:
        path = self.rollout_file(name, step)
        write_rollouts(path, groups)
        return path

    def rollouts(self, name: RolloutSet, step: int) -> list[Rollout]:
        return read_rollouts(self.rollout_file(name, step))

    def rollout_steps(self, name: RolloutSet) -> list[int]:
        files = _find_steps(self.folder / "rollouts", rf"{name}-(\d+)\.parquet")
        return [step for step, _ in files]

    def rollout_files(self, name: RolloutSet) -> list[Path]:
        """List the files of one set in the order of their steps."""
        return [self.rollout_file(name, step) for step in self.rollout_steps(name)]

    def list_rollouts(self) -> list[tuple[RolloutSet, int]]:
        """List the stored sets of rollouts, each with its step."""
        return [(name, step) for name in get_args(RolloutSet) for step in self.rollout_steps(name)]

    def write_eval(self, step: int, result: Mapping[str, Json]) -> None:
        write_json(self.folder / "evals" / f"{step:06d}.json", dict(result))

    def evals(self) -> dict[int, Row]:
        """Read every evaluation by its step, in order."""
        return {step: read_object(path) for step, path in _find_steps(self.folder / "evals", _EVAL)}

    def list_lost_results(self, step: int) -> list[str]:
        """Describe missing or unreadable results up to `step`; nothing depends on them.

        The ends of rollout files are read, not the rollouts.
        """
        losses = []
        if missing := len({*range(1, step + 1)} - {int(row["step"]) for row in self.metrics()}):
            losses.append(f"metrics.jsonl lacks {missing:,} of {step:,} steps")
        for path in (path for number, path in self._list_files() if number <= step):
            read = read_object if path.suffix == ".json" else check_parquet
            try:
                read(path)
            except DataError as error:
                losses.append(str(error))
        return losses

    def rewind(self, step: int) -> None:
        """Delete metrics, rollouts and evaluations after `step`, which a resumed run repeats."""
        files.filter_rows(self.metrics_file, lambda row: _has_step(row, up_to=step))
        for number, path in self._list_files():
            if number > step:
                path.unlink()

    def _list_files(self) -> list[tuple[int, Path]]:
        """List rollouts and evaluations, each with its step."""
        rollouts = _find_steps(self.folder / "rollouts", r"\w+-(\d+)\.parquet")
        return rollouts + _find_steps(self.folder / "evals", _EVAL)

    def finish(self, summary: Mapping[str, Json]) -> None:
        """Write the summary, which marks the run as finished."""
        self.log_event("finish")
        write_json(self.summary_file, dict(summary))

    def summary(self) -> Row:
        return read_object(self.summary_file)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> "RunStore":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _start_or_continue(
        self, config: Config, origin: Mapping[str, str], resume: bool, ignore: Sequence[str]
    ) -> None:
        if not self.config_file.is_file() or not self._list_results():
            self._start(config, origin)
            return
        if not self.is_finished and not resume:
            raise ConfigError(
                f"{self.folder} holds an unfinished run ({self._progress()}): "
                "add --resume to continue it, or choose another folder"
            )
        before = self._read_config(config)
        changes = _list_changes(before, config, ignore)
        if changes and all(line.startswith("steps: ") for line in changes):
            self._change_steps(before, config, origin, resume)
        elif changes:
            raise ConfigError(
                f"{self.folder} holds a run with other settings ({'; '.join(changes)}): "
                "go back to those, or choose another folder"
            )
        if not self.is_finished:
            self._repair()
            self.log_event("resume", command=shlex.join(sys.argv))

    def _start(self, config: Config, origin: Mapping[str, str]) -> None:
        if others := self._list_results():
            raise ConfigError(
                f"{self.folder} holds {others[0]} and no run: choose another folder, or empty it"
            )
        seed = to_table(config).get("seed")
        facts = collect_provenance(seed if isinstance(seed, int) else None)
        with write_errors(self._ledger):
            self._ledger.unlink(missing_ok=True)
        write_json(self.folder / "provenance.json", facts)
        self._write_config(config, origin)
        self.log_event("start", command=facts["command"])

    def _write_config(self, config: Config, origin: Mapping[str, str]) -> None:
        origins = show_settings(LoadedSettings(config=config, origin=origin)).splitlines()
        note = "".join(f"# {line}\n" for line in origins)
        write_atomic(self.config_file, f"{to_toml(config)}\n{ORIGINS}\n{note}")

    def _read_config(self, config: Config) -> Config:
        try:
            return load_settings(type(config), self.config_file, []).config
        except ConfigError as error:
            raise ConfigError(
                f"{self.folder} holds a run of another kind or version ({error}): "
                "choose another folder"
            ) from error

    def _change_steps(
        self, before: Config, config: Config, origin: Mapping[str, str], resume: bool
    ) -> None:
        """Let a run continue to more steps, as an unfinished one from now on."""
        old, new = (read_integer(to_table(cfg)["steps"]) for cfg in (before, config))
        if new < old:
            raise ConfigError(
                f"steps = {new} is below the {old} of the run in {self.folder}, and a run cannot "
                f"be shortened: go back to {old}, or choose another folder"
            )
        if not resume:
            raise ConfigError(
                f"{self.folder} holds a finished run of {old} steps: add --resume to continue to "
                f"{new}, or choose another folder"
            )
        self.log_event("extend", before=old, steps=new)
        # First the summary: a kill in between leaves an unfinished run of as many steps as before.
        with write_errors(self.summary_file):
            self.summary_file.unlink(missing_ok=True)
        self._write_config(config, origin)
        self.steps_before = old

    def _repair(self) -> None:
        """Remove the leftovers of a kill: half-written files, last lines cut short."""
        with write_errors(self.folder):
            for folder in (self.folder, self.folder / "rollouts", self.folder / "evals"):
                for path in folder.glob(".*.new"):
                    path.unlink()
        for file in (self.metrics_file, self._ledger):
            files.filter_rows(file, lambda row: True)

    def _progress(self) -> str:
        checkpoints = list(self.checkpoint_folders())
        steps = [int(row["step"]) for row in self.metrics()] + checkpoints
        if not steps:
            return "no step yet"
        last = f"checkpoint of step {checkpoints[-1]}" if checkpoints else "no checkpoint"
        return f"step {max(steps)}, {last}"

    def _list_results(self) -> list[str]:
        """List the files of the run, without its first and half-written ones."""
        names = []
        for path in self.folder.iterdir():
            is_empty = path.is_dir() and not any(path.iterdir())
            if not is_empty and not re.fullmatch(r"\..*\.new", path.name):
                names.append(path.name)
        return sorted({*names} - FIRST_FILES)

    def rollout_file(self, name: RolloutSet, step: int) -> Path:
        return self.folder / "rollouts" / f"{name}-{step:06d}.parquet"


def _list_changes(before: Config, config: Config, ignore: Sequence[str]) -> list[str]:
    ignored = tuple(f"{key}{end}" for key in ignore for end in (".", ":"))
    return [line for line in differences(before, config) if not line.startswith(ignored)]


def stage_folders(folder: Path) -> list[Path]:
    """List the run folders in a pipeline's folder, in order of the stages."""
    return sorted(file.parent for file in folder.glob("[0-9][0-9]-*/config.toml"))


def model_folder(location: str) -> Path:
    """Find the model that a run or pipeline folder hands on; return any other location as it is."""
    path = Path(location)
    runs = sorted(path.glob("[0-9][0-9]-*/summary.json"), reverse=True) if path.is_dir() else []
    for file in [path / "summary.json", *runs]:
        summary = files.read_json(file) if file.is_file() else None
        model = summary.get("model") if isinstance(summary, dict) else None
        if isinstance(model, str):
            return file.parent / model
    if runs or (path / "ledger.jsonl").is_file():
        raise DataError(f"{location} has no model yet: no training run in it is finished")
    return path


def find_run(location: str) -> Path | None:
    """Find the run folder that a model, a checkpoint or a file of rollouts belongs to, if any."""
    path = Path(location)
    if not (path / "config.toml").is_file():
        try:
            path = model_folder(location)
        except DataError:
            return None
        if path.parent.name not in ("checkpoints", "rollouts"):
            return None
        path = path.parent.parent
    return path if (path / "config.toml").is_file() else None


def _read_own_rows(path: Path) -> list[Row]:
    return files.read_rows(path, repair=True) if path.exists() else []


def _has_step(row: Row, *, up_to: float = float("inf")) -> bool:
    step = row.get("step")
    return isinstance(step, int) and step <= up_to


def _find_steps(folder: Path, pattern: str) -> list[tuple[int, Path]]:
    """Find the files that are named by a step, in the order of the steps."""
    paths = folder.iterdir() if folder.is_dir() else ()
    matches = [(re.fullmatch(pattern, path.name), path) for path in paths]
    return sorted((int(match[1]), path) for match, path in matches if match)
