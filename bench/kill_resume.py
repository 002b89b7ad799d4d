"""Kill an SFT and an RL run at random moments, resume, and compare the final weights with an
uninterrupted run's.

    python bench/kill_resume.py --kills 10

Each trial runs the pipeline below, is killed with SIGKILL at a moment drawn over the whole run, and
goes on with
--resume. A trial passes when the last checkpoint of both stages has the same SHA-256 as the uninterrupted run's, and
no metric row or rollout file stands twice.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from whet.store.files import sha256
from whet.store.run import RunStore
from whet.track.metrics import MACHINE_AREAS

PIPELINE = """
kind = "run"
task.name = "game24"
seed = 5
[stages.traces]
kind = "teach"
per_problem = 4
workers = 1
[stages.sft]
kind = "sft"
data = "@traces"
steps = 60
batch = 32
model = { new = "tiny", positions = 48 }
train = { lr = 3e-3, warmup = 5 }
sampling = { max_tokens = 24 }
validation = { every = 30, samples = 1 }
save = { every = 7 }
[stages.rl]
kind = "rl"
model = { path = "@sft" }
steps = 24
problems_per_step = 8
group_size = 4
sampling = { max_tokens = 24 }
reward = { weights = { correct = 0.55, process = 0.3, length = 0.15 } }
algo = { name = "game24", kl = 0.01, minibatches = 2 }
train = { lr = 1e-3 }
validation = { every = 12, samples = 1 }
save = { every = 5 }
"""
STAGES = ("02-sft", "03-rl")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--deterministic", action="store_true", help="for CUDA, where equality needs it"
    )
    args = parser.parse_args()
    moments = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "small.toml"
        change = "train = { deterministic = true, " if args.deterministic else "train = { "
        file.write_text(PIPELINE.replace("train = { ", change))
        began = time.monotonic()
        finish(file, Path(place) / "straight")
        whole = time.monotonic() - began
        expected = facts(Path(place) / "straight")
        passed = 0
        for trial in range(args.kills):
            folder = Path(place) / f"killed-{trial}"
            # The start of Python and the traces take the first part; the rest is spread over both
            # training stages.
            moment = moments.uniform(0.25, 0.95) * whole
            began = time.monotonic()
            stop(start(file, folder), lambda: time.monotonic() - began >= moment)  # noqa: B023 - called at once
            where = reached(folder)
            finish(file, folder)
            same = facts(folder) == expected
            passed += same
            print(
                f"kill {trial + 1:>2} after {moment:5.1f} s in {where:<22} {'equal' if same else 'DIFFERENT'}",
                flush=True,
            )
    print(
        json.dumps({"kills": args.kills, "equal": passed, "seconds_uninterrupted": round(whole, 1)})
    )
    return 0 if passed == args.kills else 1


def start(file: Path, folder: Path) -> subprocess.Popen[str]:
    """Start the pipeline in a process group of its own, on one thread: the order of a sum depends
    on their number."""
    return subprocess.Popen(
        [sys.executable, "-m", "whet", "run", str(file), "--out", str(folder), "--resume"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def finish(file: Path, folder: Path) -> None:
    """Run the pipeline, or what is left of it, to its end."""
    child = start(file, folder)
    _, said = child.communicate()
    if child.returncode:
        raise RuntimeError(f"the run failed:\n{said[-2000:]}")


def stop(
    child: subprocess.Popen[str], is_due: Callable[[], bool], how: signal.Signals = signal.SIGKILL
) -> tuple[int, str]:
    """Send a signal to a run's whole group once it is due, unless the run ends first; its exit code
    and last words."""
    while child.poll() is None and not is_due():
        time.sleep(0.002)
    if child.poll() is None:
        os.killpg(child.pid, how)
    _, said = child.communicate()
    return child.returncode, said


def reached(folder: Path) -> str:
    """Say which step of which stage a run came to."""
    stage = max((path.name for path in folder.glob("0*")), default="no stage")
    rows = (
        RunStore.view(folder / stage).metrics() if (folder / stage / "config.toml").exists() else []
    )
    return f"{stage} step {int(rows[-1]['step']) if rows else 0}"


def facts(folder: Path, stages: Sequence[str] = STAGES) -> dict[str, object]:
    """Hashes of the last weights and optimiser, and every metric row, validation and rollout, of the
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
