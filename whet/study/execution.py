"""Runs side by side: each `whet run` has its own process, as if a user had started it.

A run waits while another computes a stage that both need, so every stage is computed once. A failed
run is recorded with its error; runs that need the failed stage fail too.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

import whet
from whet.environment import die_with_parent
from whet.errors import ConfigError, WhetError
from whet.store.files import read_json
from whet.store.lock import is_locked
from whet.store.run import RunStore
from whet.study.runs import StudyRun
from whet.study.study_file import BudgetConfig
from whet.track.progress import say

PAUSE = 0.1
"""Seconds between two checks of the processes."""
MAX_WAIT = 60.0
"""Seconds in which a run that is asked to stop should have written its checkpoint."""
MAX_WORDS = 1_000
"""Characters of a failed run's error that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """How many runs to start at once, each with how many threads or on which GPUs."""

    jobs: int
    threads: int
    gpus: tuple[tuple[str, ...], ...] = ()
    """The GPUs of each run in turn; empty on a machine without."""

    @staticmethod
    def find(jobs: int | None, gpus_per_run: int = 1) -> "Machine":
        """Plan one run per GPU, or per core without GPUs, unless told otherwise."""
        cores = len(os.sched_getaffinity(0))
        listed = os.environ.get("CUDA_VISIBLE_DEVICES")
        ids = listed.split(",") if listed else map(str, range(torch.cuda.device_count()))
        gpus = list(ids) if torch.cuda.is_available() else []
        if gpus and gpus_per_run > len(gpus):
            raise ConfigError(f"--gpus is {gpus_per_run}, and this machine has {len(gpus)}")
        starts = range(0, len(gpus) - gpus_per_run + 1, gpus_per_run)
        sets = tuple(tuple(gpus[start : start + gpus_per_run]) for start in starts)
        at_once = jobs or len(sets) or cores
        return Machine(jobs=at_once, threads=max(1, cores // at_once), gpus=sets)

    def describe(self) -> str:
        """Say how many runs there are at a time, and on what."""
        if self.gpus:
            return f"{self.jobs} at a time on {sum(map(len, self.gpus))} GPUs"
        return f"{self.jobs} at a time on {self.threads} thread{'s' * (self.threads > 1)} each"

    def start(self, run: StudyRun, slot: int) -> subprocess.Popen[bytes]:
        """Start a run on the GPUs of a slot; it stops when this process dies."""
        gpus = self.gpus[slot % len(self.gpus)] if self.gpus else ()
        options = ["--gpus", str(len(gpus))] if len(gpus) > 1 else []
        command = [sys.executable, "-m", "whet", "run", str(run.file), "--out", str(run.folder)]
        path = os.pathsep.join(
            filter(None, [str(Path(whet.__file__).parents[1]), os.environ.get("PYTHONPATH")])
        )
        variables = {"PYTHONPATH": path, "OMP_NUM_THREADS": str(self.threads)}
        if gpus:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        with run.log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - our own interpreter
                [*command, "--resume", *options],
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the study, which stops its runs
                preexec_fn=partial(die_with_parent, signal.SIGTERM),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    run: StudyRun
    child: subprocess.Popen[bytes]
    slot: int
    began: float
    """Seconds since the epoch."""


class BudgetSpentError(WhetError):
    """The budget is used up before the study is finished."""


class Executor:
    """Runs the rounds of a study, and records the outcome of each run."""

    def __init__(self, machine: Machine, budget: BudgetConfig, planned: int) -> None:
        self.machine = machine
        self.budget = budget
        self.planned = planned
        """Runs in all, if later rounds keep their first levels."""
        self.runs: dict[str, StudyRun] = {}
        self.done: set[str] = set()
        self.failed: dict[str, str] = {}
        """The error of each run that failed."""
        self._finished: set[str] = set()  # keys of stages
        self._broken: dict[str, str] = {}  # keys of stages that failed, and in which run
        self._running: list[_Process] = []
        self._num_computed = 0
        self._began = time.monotonic()

    def execute(self, runs: Sequence[StudyRun]) -> None:
        """Run all that are not done, as many at a time as the machine takes."""
        new = [run for run in runs if run.name not in self.runs]
        self.runs |= {run.name: run for run in new}
        self.done |= {run.name for run in new if run.is_done}
        self._find_finished(new)
        waiting = [run for run in new if run.name not in self.done]
        try:
            while waiting or self._running:
                self._check_hours()
                waiting = self._start_ready(self._drop_broken(waiting))
                if waiting and not self._running and self._is_spent:
                    raise BudgetSpentError(
                        f"the budget of {self.budget.runs} runs is spent; with a larger "
                        "--budget.runs the same command continues"
                    )
                time.sleep(PAUSE)
                for process in [p for p in self._running if p.child.poll() is not None]:
                    self._running.remove(process)
                    self._note_end(process)
                self._find_finished(process.run for process in self._running)
        finally:
            self._stop_running()

    @property
    def hours(self) -> float:
        """Hours of all stages so far, unfinished ones included, each counted once."""
        folders = {stage.folder for run in self.runs.values() for stage in run.stages}
        return sum(map(_spent_seconds, folders)) / 3600

    def count_stages(self) -> tuple[int, int]:
        """Count finished stages, and how often a run used a stage computed by another."""
        keys = [stage.key for name in self.done for stage in self.runs[name].stages]
        return len(set(keys)), len(keys) - len(set(keys))

    def _find_finished(self, runs: Iterable[StudyRun]) -> None:
        stages = [stage for run in runs for stage in run.stages if stage.key not in self._finished]
        self._finished |= {stage.key for stage in stages if stage.seconds is not None}

    def _needed(self, run: StudyRun) -> set[str]:
        """Return the keys of the stages that a run still has to compute."""
        return {stage.key for stage in run.stages} - self._finished

    def _start_ready(self, waiting: Sequence[StudyRun]) -> list[StudyRun]:
        """Start runs in the free slots, except those that need a stage which another run is
        computing; return the runs left over."""
        slots = set(range(self.machine.jobs)) - {process.slot for process in self._running}
        others = []
        for run in waiting:
            is_claimed = any(self._needed(run) & self._needed(p.run) for p in self._running)
            if not slots or is_claimed or self._is_spent or self._is_written(run):
                others.append(run)
                continue
            run.prepare()
            slot = slots.pop()
            child = self.machine.start(run, slot)
            self._running.append(_Process(run=run, child=child, slot=slot, began=time.time()))
        return others

    def _is_written(self, run: StudyRun) -> bool:
        """Whether a process of an earlier call, about to stop, still writes what a run needs."""
        needed = [stage.folder for stage in run.stages if stage.key not in self._finished]
        if any(map(is_locked, [run.folder, *needed])):
            return True
        self._find_finished([run])
        return False

    def _drop_broken(self, waiting: Sequence[StudyRun]) -> list[StudyRun]:
        """Fail the runs that need a stage which failed in another run."""
        others = []
        for run in waiting:
            broken = [stage for stage in run.stages if stage.key in self._broken]
            if broken:
                owner = self._broken[broken[0].key]
                self._note_failure(run, f"the stage {broken[0].name}, shared with {owner}, failed")
            else:
                others.append(run)
        return others

    def _note_end(self, process: _Process) -> None:
        run, code = process.run, process.child.returncode
        self._find_finished([run])
        self._num_computed += 1
        seconds = time.time() - process.began
        if code == 0 and run.is_done:
            self.done.add(run.name)
            self._say(run, f"done in {format_seconds(seconds)}")
            return
        unfinished = [stage for stage in run.stages if stage.key not in self._finished]
        for stage in unfinished[:1]:
            file = RunStore(stage.folder, lock=None).stage_file
            if file.is_file() and file.stat().st_mtime >= process.began:
                self._broken[stage.key] = run.name
        self._note_failure(run, _read_last_words(run, code))

    def _note_failure(self, run: StudyRun, sentence: str) -> None:
        self.failed[run.name] = sentence
        self._say(run, f"failed: {sentence}")

    def _say(self, run: StudyRun, words: str) -> None:
        """Print one line for a run, with the rate and the time left."""
        ended = len(self.done) + len(self.failed)
        rate = self._num_computed / (time.monotonic() - self._began)
        left = max(0, self.planned - ended)
        pace = f"{60 * rate:.2g} runs per minute, about {format_seconds(left / rate)} left"
        say(f"[{ended}/{self.planned}] {run.name}: {words}" + (f"; {pace}" if rate else ""))

    @property
    def _is_spent(self) -> bool:
        """Whether the budget is used up, so that no further run may start."""
        num_started = len(self.done) + len(self.failed) + len(self._running)
        return self.budget.runs is not None and num_started >= self.budget.runs

    def _check_hours(self) -> None:
        most = self.budget.hours
        if most is not None and self.hours >= most:
            raise BudgetSpentError(
                f"the budget of {most:g} hours is spent after {len(self.done)} runs; with a "
                "larger --budget.hours the same command continues"
            )

    def _stop_running(self) -> None:
        """Ask runs to stop with a checkpoint, and kill those that do not stop."""
        for process in self._running:
            process.child.terminate()
        deadline = time.monotonic() + MAX_WAIT
        for process in self._running:
            try:
                process.child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.child.kill()
                process.child.wait()
        self._running.clear()


def format_seconds(seconds: float) -> str:
    """Write a span of time.

    >>> [format_seconds(seconds) for seconds in (8.2, 240, 9000)]
    ['8 s', '4 min', '2.5 h']
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _spent_seconds(folder: Path) -> float:
    """Return how long a stage has taken so far; a running one counts until now."""
    file = RunStore(folder, lock=None).stage_file
    facts = read_json(file) if file.is_file() else None
    if not isinstance(facts, dict):
        return 0.0
    spent, began = facts.get("spent"), facts.get("began")
    seconds = spent if isinstance(spent, float) else 0.0
    if isinstance(began, float) and is_locked(folder):
        seconds += time.time() - began
    return seconds


def _read_last_words(run: StudyRun, code: int) -> str:
    """Find the sentence with which a run failed, or else its last line."""
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    text = run.log.read_text(errors="replace").strip()
    _, is_said, sentence = f"\n{text}".rpartition("\nwhet: ")
    words = sentence if is_said else text.rpartition("\n")[2]
    lines = (line.strip().removeprefix("- ") for line in words.splitlines())
    return " ".join(" ".join(lines).split())[:MAX_WORDS] or f"it ended with code {code}"
