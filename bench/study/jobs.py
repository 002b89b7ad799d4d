"""Pipelines side by side: each a file and its own process, run as a user would, so many at a time.

A pipeline that was finished with the same file is not run again; one that was killed goes on where
it was.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAUSE = 0.1
"""Seconds between two looks at the children."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One pipeline: its text, the folder it fills, and the jobs that come first where they are run
    with it."""

    name: str
    text: str
    folder: Path
    needs: tuple[str, ...] = ()
    weight: float = 1.0
    """How long it takes, beside the others; the longest that can start starts first."""
    slots: int = 1
    """How many jobs' worth of threads it can use; where fewer run at once, it has as many."""

    @property
    def file(self) -> Path:
        return self.folder.with_suffix(".toml")

    @property
    def log(self) -> Path:
        return self.folder.with_suffix(".log")

    @property
    def is_done(self) -> bool:
        return (
            (self.folder / "summary.json").is_file()
            and self.file.is_file()
            and self.file.read_text() == self.text
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """How many jobs run at once, on how many threads each, on which device."""

    jobs: int
    threads: int
    device: str

    def slots(self, job: Job) -> int:
        return min(job.slots, self.jobs)

    def environment(self, job: Job) -> dict[str, str]:
        """whet from this tree; where the CPU is asked for no GPU in sight, since recipes take one
        that they see."""
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        threads = self.threads * self.slots(job)
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if self.device == "cpu" else {}
        return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(threads), **hidden}

    def start(self, job: Job) -> subprocess.Popen[bytes]:
        job.folder.parent.mkdir(parents=True, exist_ok=True)
        job.file.write_text(job.text)
        command = [
            sys.executable,
            "-m",
            "whet",
            "run",
            str(job.file),
            "--out",
            str(job.folder),
            "--resume",
        ]
        with job.log.open("ab") as log:
            return subprocess.Popen(
                command,
                env=self.environment(job),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )


def add_options(parser: argparse.ArgumentParser, *, out: str, jobs: int, threads: int) -> None:
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=jobs, help="runs at once")
    parser.add_argument("--threads", type=int, default=threads, help="threads of each run")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--out", type=Path, default=Path("runs") / out)
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue with what is in --out; finished runs are kept",
    )


def opened(args: argparse.Namespace) -> tuple[Path, Machine]:
    """The folder to work in, which holds nothing unless it is to be resumed, and the machine."""
    out: Path = args.out.resolve()
    if out.exists() and any(out.iterdir()) and not args.resume:
        raise SystemExit(
            f"--out {args.out} is not empty; give --resume to continue it, or another folder"
        )
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit("stopped")
    )  # so that children do not stay behind
    return out, Machine(jobs=args.jobs, threads=args.threads, device=args.device)


def run_all(jobs: Sequence[Job], machine: Machine, deadline: float | None = None) -> dict[str, str]:
    """Run every job that is not done, after those it needs; what failed, by name, with its last
    words. At the deadline, a time of the monotonic clock, what is not done is stopped."""
    names = {job.name for job in jobs}
    waiting = [job for job in sorted(jobs, key=lambda job: -job.weight) if not job.is_done]
    done = names - {job.name for job in waiting}
    for name in sorted(done):
        say(f"{name}: done before")
    failed: dict[str, str] = {}
    running: dict[str, tuple[Job, subprocess.Popen[bytes], float]] = {}
    clock = Clock(total=sum(job.weight for job in waiting), at_once=machine.jobs)
    try:
        while waiting or running:
            if deadline is not None and time.monotonic() > deadline:
                names_left = [*(job.name for job in waiting), *running]
                return failed | dict.fromkeys(names_left, "out of time: give --resume to go on")
            for job in [job for job in waiting if set(job.needs) & failed.keys()]:
                waiting.remove(job)
                failed[job.name] = "what it needs failed"
            for job in [job for job in waiting if done.issuperset(names.intersection(job.needs))]:
                if (
                    sum(machine.slots(other) for other, _, _ in running.values())
                    + machine.slots(job)
                    > machine.jobs
                ):
                    continue
                waiting.remove(job)
                running[job.name] = (job, machine.start(job), time.monotonic())
            for job, child, began in _ended(running.values()):
                del running[job.name]
                seconds = time.monotonic() - began
                clock.count(job.weight, seconds)
                if child.returncode:
                    failed[job.name] = "\n".join(
                        job.log.read_text(errors="replace").splitlines()[-12:]
                    )
                else:
                    done.add(job.name)
                how = "failed after" if child.returncode else "done in"
                say(
                    f"[{len(done) + len(failed)}/{len(jobs)}] {job.name}: {how} {seconds:.0f} s; {clock.left()}"
                )
            time.sleep(PAUSE)
    finally:
        for _, child, _ in running.values():
            child.kill()
            child.wait()
    return failed


class Clock:
    """Tells how much longer it will take, from how long so much work has taken."""

    def __init__(self, *, total: float, at_once: int) -> None:
        self.total, self.at_once, self.weight, self.seconds = total, at_once, 0.0, 0.0

    def count(self, weight: float, seconds: float) -> None:
        self.weight, self.seconds = self.weight + weight, self.seconds + seconds

    def left(self) -> str:
        seconds = (self.total - self.weight) * self.seconds / max(self.weight, 1e-9) / self.at_once
        return f"about {seconds:.0f} s left"


def tell(failed: Mapping[str, str]) -> None:
    """Show the last words of what failed."""
    for name, words in failed.items():
        say(f"\n{name} failed:\n{words}")


def publish(file: Path, text: str, result: Mapping[str, object]) -> None:
    """Print a table and, on the last line, JSON; keep both beside each other as `file` with .md and
    .json."""
    last = json.dumps(result)
    file.with_suffix(".md").write_text(text + "\n")
    file.with_suffix(".json").write_text(last + "\n")
    print(text)
    print(last)


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _ended(
    running: Iterable[tuple[Job, subprocess.Popen[bytes], float]],
) -> list[tuple[Job, subprocess.Popen[bytes], float]]:
    return [row for row in running if row[1].poll() is not None]
