"""Kill an SFT and an RL run, resume, and compare everything they leave with an uninterrupted run's.

    python bench/kill_resume.py --kills 50 --jobs 2

Each trial runs the pipeline below, is killed with SIGKILL, and goes on with --resume. `--kills` trials
are killed at a moment drawn over the whole run, and then one before each operation on a file of a
checkpoint: each that is opened for writing, flushed, renamed or removed. `--every N` takes only each
Nth of these. A trial passes when weights, optimizer, metrics, validations, rollouts and the names of all
files are those of the uninterrupted run.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from whet.cli import main as whet
from whet.pipeline.pipeline import run_pipeline  # noqa: F401 - loaded here, so that forks have it
from whet.store.files import sha256
from whet.store.run import RunStore
from whet.track.metrics import MACHINE_AREAS

PIPELINE = """
kind = "run"
task.name = "game24"
seed = 5
[stages.problems]
kind = "make"
most = { sft = 64, rl = 32, dev = 12, test = 0 }
[stages.traces]
kind = "teach"
problems = "@problems"
per_problem = 2
workers = 1
[stages.sft]
kind = "sft"
data = "@traces"
problems = "@problems"
steps = 12
batch_size = 16
model = { new = "tiny", positions = 48 }
train = { lr = 3e-3, warmup_steps = 5 }
sampling = { max_tokens = 24 }
validation = { every = 8, samples = 1 }
save = { every = 4, keep = 2 }
[stages.rl]
kind = "rl"
model = { path = "@sft" }
problems = "@problems"
steps = 8
problems_per_step = 4
group_size = 4
sampling = { max_tokens = 24 }
reward = { weights = { finished = 1.0, lines = -0.1 } }
algo = { name = "game24", kl_coef = 0.01, num_minibatches = 2 }
train = { lr = 1e-3 }
validation = { every = 6, samples = 1 }
save = { every = 3, keep = 2 }
"""
STAGES = ("03-sft", "04-rl")
FILE_EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate")
WRITING = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """When a run is killed: after some seconds, or before the n-th operation on a checkpoint."""

    number: int
    seconds: float | None = None
    operation: int | None = None
    words: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=10, help="at moments drawn over the run")
    parser.add_argument("--every", type=int, default=1, help="0: no kills at writes")
    parser.add_argument("--jobs", type=int, default=1, help="trials side by side")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--deterministic", action="store_true", help="for CUDA, where equality needs it"
    )
    args = parser.parse_args()
    # The order of a sum depends on the number of threads.
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        change = "train = { deterministic = true, " if args.deterministic else "train = { "
        (root / "small.toml").write_text(PIPELINE.replace("train = { ", change))
        began = time.monotonic()
        for name in ("first", "straight"):
            prepare(root, name)
            started = time.monotonic()
            if run(root, name):
                raise RuntimeError(f"the run failed:\n{(root / f'{name}.log').read_text()[-2000:]}")
        whole = time.monotonic() - started
        operations = json.loads((root / "straight.operations").read_text())
        moments = random.Random(args.seed)
        kills = [
            Kill(number=number, seconds=moments.uniform(0.3, 0.98) * whole)
            for number in range(args.kills)
        ]
        chosen = range(0, len(operations), args.every) if args.every else ()
        kills += [
            Kill(number=args.kills + index, operation=index, words=operations[index])
            for index in chosen
        ]
        with get_context("fork").Pool(args.jobs) as pool:
            results = list(pool.imap_unordered(partial(try_kill, root), kills))
    summary = {
        "kills": args.kills,
        "operations": len(operations),
        "killed_at_operations": len(kills) - args.kills,
        "equal": sum(results),
        "seconds_uninterrupted": round(whole, 1),
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(summary))
    return 0 if all(results) else 1


def try_kill(root: Path, kill: Kill) -> bool:
    """Kill a run and resume it; whether it ends as the uninterrupted one did."""
    name = f"killed-{kill.number}"
    seconds = kill.seconds
    prepare(root, name)
    while run(root, name, seconds=seconds, operation=kill.operation) != -signal.SIGKILL:
        # It ended first: on a busy machine no two runs take the same time.
        assert seconds is not None, "each operation of the uninterrupted run comes again"
        seconds *= 0.7
        prepare(root, name)
    reached = find_step(root / name)
    code = run(root, name)
    expected = facts(root / "straight") | {"files": list_files(root / "straight")}
    is_equal = code == 0 and facts(root / name) | {"files": list_files(root / name)} == expected
    when = f"after {seconds:5.2f} s" if seconds is not None else f"before {kill.words}"
    words = "equal" if is_equal else f"DIFFERENT\n{(root / f'{name}.log').read_text()[-2000:]}"
    print(f"kill {kill.number + 1:>3} {when} in {reached}: {words}", flush=True)
    shutil.rmtree(root / name)
    return is_equal


def prepare(root: Path, name: str) -> None:
    """Give a run the stages before training, which the first run has made."""
    shutil.rmtree(root / name, ignore_errors=True)
    (root / name).mkdir()
    for stage in ("01-problems", "02-traces"):
        if (root / "first" / stage).exists():
            shutil.copytree(root / "first" / stage, root / name / stage)


def run(
    root: Path, name: str, *, seconds: float | None = None, operation: int | None = None
) -> int:
    """Run the pipeline, or what is left of it, in a fork; kill it when that is due."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            code = _run_here(root, name, operation)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if seconds is not None:
        time.sleep(seconds)
        if os.waitpid(pid, os.WNOHANG)[0]:
            return 0
        os.killpg(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _run_here(root: Path, name: str, kill_at: int | None) -> int:
    os.setsid()
    log = os.open(root / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    operations = watch_files(root / name, kill_at)
    code = 0
    try:
        whet(["run", str(root / "small.toml"), "--out", str(root / name), "--resume"])
    except SystemExit as end:
        code = int(end.code or 0)
    (root / f"{name}.operations").write_text(json.dumps(operations))
    return code


def watch_files(folder: Path, kill_at: int | None) -> list[str]:
    """List what this process does to files of checkpoints in a folder, and die at `kill_at`."""
    operations: list[str] = []

    def add(event: str, path: object) -> None:
        if not isinstance(path, str | os.PathLike):
            return
        absolute = Path(os.fsdecode(path)).absolute()
        if folder in absolute.parents and "checkpoints" in absolute.parts:
            if len(operations) == kill_at:
                os.killpg(0, signal.SIGKILL)
            operations.append(f"{event} {absolute.relative_to(folder)}")

    def audit(event: str, args: tuple[object, ...]) -> None:
        is_write = event == "open" and isinstance(args[2], int) and args[2] & WRITING
        if is_write or event in FILE_EVENTS:
            add(event, args[0])

    def fsync(file: int) -> None:
        add("fsync", Path(f"/proc/self/fd/{file}").readlink())
        flush(file)

    flush = os.fsync
    os.fsync = fsync  # type: ignore[assignment]
    sys.addaudithook(audit)
    return operations


def find_step(folder: Path) -> str:
    """Say which step of which stage a run came to."""
    stage = max((path.name for path in folder.glob("0*")), default="no stage")
    rows = (
        RunStore.view(folder / stage).metrics() if (folder / stage / "config.toml").exists() else []
    )
    return f"{stage} step {int(rows[-1]['step']) if rows else 0}"


def list_files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def facts(folder: Path, stages: Sequence[str] = STAGES) -> dict[str, object]:
    """Hashes of the last weights and optimizer, and every metric row, validation and rollout, of the
    training stages, less what a clock measured."""
    found: dict[str, object] = {}
    for stage in stages:
        run = RunStore.view(folder / stage)
        last = max(path for path in run.checkpoint_folder.iterdir() if path.name.isdigit())
        for name in ("model.safetensors", "optimizer/state.safetensors"):
            found[f"{stage}/{name}"] = sha256(last / name)
        found[f"{stage}/metrics"] = [
            {name: x for name, x in row.items() if not name.startswith(MACHINE_AREAS)}
            for row in run.metrics()
        ]
        found[f"{stage}/evals"] = run.evals()
        found[f"{stage}/summary"] = run.summary()
        found[f"{stage}/rollouts"] = [
            [(r.id, r.text, r.reward) for r in run.rollouts("train", step)]
            for step in run.rollout_steps("train")
        ]
    return found


if __name__ == "__main__":
    sys.exit(main())
