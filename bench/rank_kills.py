"""Kill a random rank of two at a random moment, resume, and compare with an undisturbed run.

    python bench/rank_kills.py --out runs/kills --kills 20 --seed 0

The pipeline of bench/kill_resume.py runs on two ranks, and one of them is killed with SIGKILL after
a step drawn from all steps, and up to a second. A trial in four goes on by itself, as torchrun
starts both ranks again; the others are resumed by hand on one process, two and four ranks. A trial
passes if every step trained once, on the same problems and the same tokens as undisturbed, and the
weights are equal to rounding.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kill_resume import PIPELINE, STAGES, find_step
from ranks import MAX_GAP, torchrun, weight_gap

from whet.store.run import RunStore

ROOT = Path(__file__).resolve().parents[1]
STEPS = {"03-sft": 12, "04-rl": 8}
SIZES = (None, 1, 2, 4)
"""How a run goes on, in turn: by itself, or by hand on so many ranks."""
TIMEOUT = 300.0
"""Seconds a run may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """Which rank dies when, and on how many ranks the run goes on; None is by itself."""

    number: int
    rank: int
    stage: str
    step: int
    delay: float
    size: int | None


def main(options: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="a folder for the runs")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--background", action="store_true", help="write checkpoints in a thread")
    args = parser.parse_args(options)
    prepare(args.out, is_background=args.background)
    results = [try_kill(args.out, kill) for kill in draw_kills(args.kills, args.seed)]
    print(f"{sum(results)} of {len(results)} as undisturbed")
    return 0 if all(results) else 1


def draw_kills(count: int, seed: int) -> list[Kill]:
    draws = random.Random(seed)
    moments = [(stage, step) for stage, steps in STEPS.items() for step in range(steps)]
    kills = []
    for number in range(count):
        stage, step = draws.choice(moments)
        rank, delay = draws.randrange(2), draws.uniform(0.0, 1.0)
        size = SIZES[number % len(SIZES)]
        kill = Kill(number=number, rank=rank, stage=stage, step=step, delay=delay, size=size)
        kills.append(kill)
    return kills


def prepare(out: Path, *, is_background: bool) -> None:
    """Run the pipeline undisturbed on two ranks."""
    out.mkdir(parents=True, exist_ok=True)
    # Rates at which the rounding of another number of ranks stays rounding.
    slow = PIPELINE.replace("lr = 3e-3", "lr = 1e-4").replace("lr = 1e-3", "lr = 1e-4")
    in_thread = f"\ncluster.background_saves = {str(is_background).lower()}"
    (out / "small.toml").write_text(slow.replace("seed = 5", f"seed = 5{in_thread}"))
    if wait(start(out, "undisturbed", 2)):
        raise RuntimeError((out / "undisturbed.log").read_text()[-4000:])


def try_kill(out: Path, kill: Kill) -> bool:
    """Kill a rank and go on; whether the run ends as the undisturbed one did."""
    name = f"killed-{kill.number}"
    shutil.rmtree(out / name, ignore_errors=True)
    for stage in ("01-problems", "02-traces"):
        shutil.copytree(out / "undisturbed" / stage, out / name / stage)
    began = time.monotonic()
    is_by_itself = kill.size is None
    agent = start(out, name, 2, *(("--max-restarts", "1") if is_by_itself else ()))
    wait_for_step(agent, out / name / kill.stage / "metrics.jsonl", kill.step)
    time.sleep(kill.delay)
    is_killed = kill_rank(agent, kill.rank)
    reached = find_step(out / name)
    code = wait(agent)
    killed = time.monotonic() - began
    if not is_by_itself:
        code = wait(start(out, name, kill.size or 1, resume=True))
    differences = [f"exit code {code}"] if code else compare(out / "undisturbed", out / name)
    how = "by itself" if is_by_itself else f"by hand on {kill.size}"
    words = "; ".join(differences) or "as undisturbed"
    victim = f"rank {kill.rank}" if is_killed else "no rank, since it ended first,"
    print(
        f"kill {kill.number + 1:>3}: {victim} in {reached}, went on {how}: {words} "
        f"({killed:.0f} + {time.monotonic() - began - killed:.0f} s)",
        flush=True,
    )
    if not differences:
        shutil.rmtree(out / name)
    return not differences


def start(
    out: Path, name: str, size: int, *flags: str, resume: bool = False
) -> subprocess.Popen[bytes]:
    """Start a run on so many ranks; one is a process without torchrun."""
    launcher = torchrun(size, *flags) if size > 1 else []
    command = [sys.executable, *launcher, "-m", "whet", "run", str(out / "small.toml")]
    command += ["--out", str(out / name), *(["--resume"] if resume else [])]
    environ = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with (out / f"{name}.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environ)


def wait(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        return -signal.SIGKILL


def wait_for_step(agent: subprocess.Popen[bytes], metrics: Path, step: int) -> None:
    """Wait until a stage has so many rows of metrics, or the run ended."""
    while agent.poll() is None:
        if metrics.is_file() and metrics.read_bytes().count(b"\n") >= step:
            return
        time.sleep(0.01)


def find_rank(agent: int, rank: int) -> int | None:
    """The process of a rank that torchrun started, if it runs."""
    children = Path(f"/proc/{agent}/task/{agent}/children")
    for pid in children.read_text().split() if children.exists() else ():
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"RANK={rank}".encode() in environ:
            return int(pid)
    return None


def kill_rank(agent: subprocess.Popen[bytes], rank: int, number: int = signal.SIGKILL) -> bool:
    """Send a rank a signal; false if there is no such process any more."""
    pid = find_rank(agent.pid, rank)
    if pid is None:
        return False
    os.kill(pid, number)
    return True


def compare(undisturbed: Path, resumed: Path) -> list[str]:
    """Describe what is not as it was in the undisturbed run."""
    differences = []
    for stage in STAGES:
        before, after = RunStore.view(undisturbed / stage), RunStore.view(resumed / stage)
        steps = [int(row["step"]) for row in after.metrics()]
        if steps != [int(row["step"]) for row in before.metrics()]:
            differences.append(f"{stage} trained the steps {steps}")
        if sampled(before) != sampled(after):
            differences.append(f"{stage} sampled other answers")
        gap = weight_gap(before.checkpoint_folder, after.checkpoint_folder)
        if not gap <= MAX_GAP:
            differences.append(f"{stage} has weights off by {gap:.1e}")
    return differences


def sampled(run: RunStore) -> list[tuple[int, str, list[int]]]:
    """Every answer that a run trained on, in order: step, problem and tokens."""
    return [
        (step, rollout.problem.id, rollout.completion.tokens.tolist())
        for step in run.rollout_steps("train")
        for rollout in run.rollouts("train", step)
    ]


if __name__ == "__main__":
    sys.exit(main())
