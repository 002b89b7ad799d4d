"""Runs and Slurm jobs: their state, their progress, the time left, and their last lines."""

import shutil
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from rich.table import Table
from rich.text import Text

from whet.cluster.failure import read_tail
from whet.cluster.slurm import run_tool
from whet.errors import ConfigError, DataError, visible
from whet.store.lock import is_locked
from whet.store.run import RunStore, stage_folders
from whet.track.progress import printer, say

RATE_STEPS = 20
"""Steps whose mean time predicts the rest."""
_LAST_LINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The progress of one run."""

    name: str
    state: str
    step: int
    steps: int | None
    seconds_per_step: float | None
    last_lines: tuple[str, ...]

    @property
    def seconds_left(self) -> float | None:
        if self.steps is None or self.seconds_per_step is None or self.state != "running":
            return None
        return (self.steps - self.step) * self.seconds_per_step


def read_run_progress(folder: Path) -> RunProgress:
    """Read a run folder that another process may be writing."""
    run = RunStore.view(folder)
    rows = [row for row in run.metrics() if "time/step" in row]
    times = [row["time/step"] for row in rows[-RATE_STEPS:]]
    try:
        steps = tomllib.loads(run.config_file.read_text()).get("steps")
    except (OSError, ValueError):
        steps = None
    return RunProgress(
        name=str(folder),
        state=_find_state(run),
        step=int(rows[-1]["step"]) if rows else 0,
        steps=steps if isinstance(steps, int) else None,
        seconds_per_step=sum(times) / len(times) if times else None,
        last_lines=_last_lines(folder),
    )


def _find_state(run: RunStore) -> str:
    if run.is_finished:
        return "finished"
    if is_locked(run.folder):
        return "running"
    metrics = run.metrics_file
    changed = metrics.stat().st_mtime if metrics.is_file() else 0.0
    pages = [folder / "failure.txt" for folder in (run.folder, run.folder.parent)]
    is_failed = any(page.is_file() and page.stat().st_mtime > changed for page in pages)
    return "failed" if is_failed else "stopped"


def _last_lines(folder: Path) -> tuple[str, ...]:
    """Find the last lines of rank 0, in the folder of the run or of its pipeline."""
    for home in (folder, folder.parent):
        logs = sorted(home.glob("logs/*/start-*-rank-0000.log"), key=lambda p: p.stat().st_mtime)
        if logs:
            lines = [line for line in read_tail(logs[-1]) if line.strip()]
            return tuple(lines[-_LAST_LINES:])
    return ()


def find_runs(folders: Iterable[Path]) -> list[Path]:
    """Find run folders in or below folders; a pipeline counts as its stages."""
    runs: list[Path] = []
    for folder in folders:
        if (folder / "config.toml").is_file():
            runs.append(folder)
        elif stages := stage_folders(folder):
            runs += stages
        elif folder.is_dir():
            below = sorted(path for path in folder.iterdir() if path.is_dir())
            runs += [run for path in below for run in find_runs([path])]
        else:
            raise DataError(f"{folder} is not a folder of runs")
    return runs


def list_slurm_jobs() -> list[list[str]]:
    """Ask Slurm for the user's jobs: number, state, time, limit, nodes, reason, name."""
    if not shutil.which("squeue"):
        return []
    text = run_tool(["squeue", "--me", "--noheader", "--format=%i|%T|%M|%l|%D|%R|%j"])
    return [line.split("|", 6) for line in text.splitlines() if line.count("|") >= 6]


def print_jobs(folders: Iterable[Path]) -> None:
    """Print the jobs in Slurm's queue, then the runs with their progress."""
    jobs: list[list[str]] = []
    try:
        jobs = list_slurm_jobs()
    except ConfigError as error:
        say(str(error))
    if jobs:
        table = Table("job", "state", "time", "limit", "nodes", "where or why", "name")
        for job in jobs:
            table.add_row(*(Text(visible(cell)) for cell in job))
        printer.print(table)
    runs = find_runs(folders)
    if not runs and not jobs:
        printer.print("no runs and no jobs")
    for folder in runs:
        run = read_run_progress(folder)
        printer.print(visible(_format(run)), markup=False)
        for line in run.last_lines if run.state != "finished" else ():
            printer.print(f"  | {visible(line)}", markup=False)


def _format(run: RunProgress) -> str:
    parts = [run.state]
    parts.append(f"step {run.step:,}" + (f" of {run.steps:,}" if run.steps else ""))
    if run.seconds_per_step is not None:
        parts.append(f"{run.seconds_per_step:.3g} s per step")
    if run.seconds_left is not None:
        parts.append(f"{timedelta(seconds=round(run.seconds_left))} left")
    return f"{run.name}: {', '.join(parts)}"
