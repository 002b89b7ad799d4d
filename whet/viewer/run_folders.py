"""The runs below a folder: their states and settings.

Every file is opened through `Root.open_path`, which follows no link out of the folder. Nothing is
written, and no lock is taken.
"""

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from whet import toml
from whet.errors import DataError
from whet.store.files import read_json, read_rows
from whet.store.run import RUN_FOLDERS
from whet.types import Json

MAX_DEPTH = 6
"""Folders below the given one in which runs are looked for."""
MAX_RUNS = 2_000
SCAN_SECONDS = 2.0
"""Seconds for which a listing is reused, so that several pages that poll cost one scan."""
FRESH_SECONDS = 90.0
"""A run on another machine, whose lock is not visible here, is alive if it wrote this recently."""
EVENT_BYTES = 4_096
"""Bytes before the end of a ledger in which its last event is looked for."""
MAX_FILE_BYTES = 64 << 20
"""Larger settings, summaries and tables are refused."""
REPORT = "report.html"
VERL_DUMP = re.compile(r"\d+\.jsonl")
WANDB_TABLE = re.compile(r".+\.table\.json")
SKIPPED = {*RUN_FOLDERS, "node_modules", "__pycache__"}
"""Folders in which no runs are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """A run folder of whet, or a folder with another system's rollouts."""

    id: str
    """The path below the root, with slashes; "." for the root itself."""
    folder: Path
    origin: str
    """`whet`, `verl` or `wandb`."""


class Root:
    """The folder to show. This class reads nothing outside it."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise DataError(f"{folder} is not a folder; `whet view` takes a folder with runs in it")
        self.folder = folder.resolve()
        self._runs: dict[str, ListedRun] = {}
        self._files: dict[str, Path] = {}
        self._reports: dict[str, Path] = {}
        self._scanned = 0.0

    def open_path(self, path: Path) -> Path:
        """Resolve a path; refuse one that leads outside the folder, also through a link."""
        real = path.resolve()
        if not real.is_relative_to(self.folder):
            raise DataError(f"{path.name} leads out of the folder that is shown")
        return real

    def runs(self) -> dict[str, ListedRun]:
        """Find all runs by id, at most once every two seconds."""
        self._scan()
        return self._runs

    def run(self, name: str) -> ListedRun:
        """Look up a run by its id, which is never used as a path."""
        run = self.runs().get(name)
        if run is None:
            raise DataError(f"there is no run {name!r} in this folder")
        return run

    def files(self) -> dict[str, Path]:
        """Find problem files and tables of results, by path below the root."""
        self._scan()
        return self._files

    def reports(self) -> dict[str, Path]:
        """Find the reports of pipelines and single stages, by folder below the root."""
        self._scan()
        return self._reports

    def _scan(self) -> None:
        if time.monotonic() - self._scanned < SCAN_SECONDS:
            return
        runs: dict[str, ListedRun] = {}
        files: dict[str, Path] = {}
        reports: dict[str, Path] = {}
        for folder, names in self._walk(self.folder, 0):
            name = folder.relative_to(self.folder).as_posix()
            origin = _find_origin(names)
            if origin is not None and len(runs) < MAX_RUNS:
                runs[name] = ListedRun(id=name, folder=folder, origin=origin)
            if REPORT in names:
                reports[name] = folder / REPORT
            for file in names:
                if file.endswith((".jsonl", ".json")) and not file.startswith("."):
                    path = folder / file
                    files[path.relative_to(self.folder).as_posix()] = path
        self._runs, self._files, self._reports = runs, files, reports
        self._scanned = time.monotonic()

    def _walk(self, folder: Path, depth: int) -> Iterator[tuple[Path, list[str]]]:
        try:
            with os.scandir(folder) as items:
                entries = sorted(items, key=lambda entry: entry.name)
        except OSError:
            return
        yield folder, [entry.name for entry in entries if not entry.is_dir()]
        for entry in entries:
            is_hidden = entry.name.startswith(".") or entry.name in SKIPPED
            if is_hidden or depth >= MAX_DEPTH or not entry.is_dir():
                continue
            # A link to a folder inside is another name of it, one to the outside is not followed.
            if not entry.is_symlink():
                yield from self._walk(folder / entry.name, depth + 1)


def _find_origin(names: list[str]) -> str | None:
    if "config.toml" in names and {"provenance.json", "ledger.jsonl"} & set(names):
        return "whet"
    if any(VERL_DUMP.fullmatch(name) for name in names):
        return "verl"
    return "wandb" if any(WANDB_TABLE.fullmatch(name) for name in names) else None


def read_small(root: Root, path: Path) -> Json:
    """Read a JSON file of bounded size; None if there is none."""
    real = root.open_path(path)
    if not real.is_file():
        return None
    if real.stat().st_size > MAX_FILE_BYTES:
        raise DataError(f"{path.name} is larger than the viewer reads")
    return read_json(real)


def read_table(root: Root, path: Path) -> dict[str, Json]:
    """Read a JSON object; anything else counts as an empty one."""
    try:
        value = read_small(root, path)
    except DataError:
        return {}
    return value if isinstance(value, dict) else {}


def read_events(root: Root, run: ListedRun) -> list[dict[str, Json]]:
    path = root.open_path(run.folder / "ledger.jsonl")
    return read_rows(path, repair=True) if path.is_file() else []


def read_run_settings(root: Root, run: ListedRun) -> dict[str, Json]:
    """Read a run's settings as nested tables; empty if unreadable."""
    path = run.folder / "config.toml"
    if run.origin != "whet" or not path.is_file():
        return {}
    try:
        return toml.read(root.open_path(path))
    except (DataError, OSError, ValueError):
        return {}


def read_origins(root: Root, run: ListedRun) -> dict[str, str]:
    """Read the origin of each setting from the comments in config.toml."""
    path = run.folder / "config.toml"
    if run.origin != "whet":
        return {}
    text = root.open_path(path).read_text(encoding="utf-8", errors="replace")
    rows = re.findall(r"^# (\S+) += .*  # (.+)$", text, re.MULTILINE)
    return dict(rows)


def find_state(root: Root, run: ListedRun) -> str:
    """Tell whether a run is finished, running, failed or stopped, without touching its lock."""
    if run.origin != "whet":
        return "imported"
    if read_table(root, run.folder / "summary.json"):
        return "finished"
    changed = max(_changed(run.folder / name) for name in ("metrics.jsonl", "rollouts"))
    if _is_lock_held(run.folder / ".lock"):
        return "running"
    if _read_last_event(root, run) == "stop":
        return "stopped"
    if time.time() - changed < FRESH_SECONDS:
        return "running"
    pages = [folder / "failure.txt" for folder in (run.folder, run.folder.parent)]
    return "failed" if any(_changed(page) > changed for page in pages) else "stopped"


def _read_last_event(root: Root, run: ListedRun) -> Json:
    """Return the last event of a ledger, reading from its end: it may have a row for each step."""
    try:
        with root.open_path(run.folder / "ledger.jsonl").open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(file.tell() - EVENT_BYTES, 0))
            row: Json = json.loads(file.read().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return None
    return row.get("event") if isinstance(row, dict) else None


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _is_lock_held(path: Path) -> bool:
    """Ask the kernel who holds locks; trying the lock could make a starting run fail."""
    try:
        inode = path.stat().st_ino
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return False
    return any(f":{inode} " in line for line in lines if "FLOCK" in line)


def settings_key(table: Mapping[str, Json]) -> str:
    """Return what runs of different seeds share: all settings but seeds and paths."""
    left_out = ("seed", "problems", "data", "model.path", "track.", "cluster.")
    flat = toml.flatten(table).items()
    return repr(sorted((k, repr(v)) for k, v in flat if not k.startswith(left_out)))
