"""Two ranks on one GPU against one process: GRPO of the 24-game model and of the 0.5B shape.

    python bench/two_ranks_one_card.py --out runs/card [--only game24 0.5b] [--steps 6]

Both train in bfloat16 with `train.deterministic`, where the number of ranks changes no bit of an
update, so that every sampled token must be the same. A row per model says how many answers of how
many steps have the same tokens, the largest gap of a weight at the end, and the largest mean gap
between the log-probabilities of engine and learner in a step, which is 0 where all bits are equal.
`tiny` tries it on a CPU, where engine and learner never agree in all bits.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import torch
from ranks import are_same, torchrun, weight_gap
from speed.shapes import QWEN

from whet.models.save import save_model
from whet.models.source import torch_device
from whet.models.transformer import Transformer, init_weights
from whet.store.run import RunStore
from whet.text.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parents[1]
FIRST = """
kind = "run"
seed = 7
task = {{ name = "game24", format = "v4", depth = 2 }}
sampling = {{ max_tokens = {max_tokens} }}
engine = {{ max_num_seqs = 256, max_model_len = 512 }}

[stages.traces]
kind = "teach"
task = {{ length = "wide" }}
per_problem = 4
workers = 2

[stages.first]
kind = "sft"
data = "@traces"
steps = {first_steps}
batch_size = {batch}
model = {{ new = "{new}", positions = 1536 }}
train = {{ lr = 1e-3, warmup_steps = 20, dtype = "bfloat16" }}
validation = {{ every = 1000, samples = 1 }}
"""
SHAPED = """
[stages.shaped]
kind = "sft"
data = "@traces"
steps = 60
batch_size = 32
model = {{ path = "{folder}" }}
train = {{ lr = 1e-4, warmup_steps = 10, dtype = "bfloat16" }}
validation = {{ every = 1000, samples = 1 }}
"""
RL = """
[stages.rl]
kind = "rl"
model = {{ path = "@{start}" }}
steps = {steps}
problems_per_step = 16
group_size = 8
reward = {{ weights = {{ correct = 1.0, finished = 1.0, lines = -0.1 }} }}
algo = {{ kl_coef = 0.001 }}
train = {{ lr = {lr}, micro_batch_tokens = {micro}, dtype = "bfloat16", deterministic = true }}
validation = {{ every = 1000, samples = 1 }}
save = {{ every = 1000 }}
"""
CASES = {
    "tiny": {"new": "tiny", "first_steps": 20, "batch": 16, "max_tokens": 64, "lr": 1e-4},
    "game24": {"new": "medium", "first_steps": 100, "batch": 128, "max_tokens": 320, "lr": 1e-4},
    "0.5b": {"new": "tiny", "first_steps": 1, "batch": 16, "max_tokens": 128, "lr": 1e-5},
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="a folder for the runs")
    parser.add_argument("--only", nargs="*", choices=CASES, default=["game24", "0.5b"])
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    print(
        f"{'model':<10}{'steps':>6}{'updates':>9}{'same answers':>16}{'weight gap':>12}"
        f"{'engine gap, 1 rank':>20}{'2 ranks':>10}{'seconds':>9}",
        flush=True,
    )
    results = [compare(name, args.out / name, args.steps) for name in args.only]
    return 0 if all(results) else 1


def compare(name: str, out: Path, steps: int) -> bool:
    """Train on one process, then on two ranks, print a row; whether all answers are the same."""
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    file = out / "pipeline.toml"
    case = CASES[name]
    text = FIRST.format(**case)
    start = "first"
    if name in QWEN:
        file.write_text(text)
        run([], file, out / "run")
        write_random_model(name, out / "model", out / "run")
        text += SHAPED.format(folder=out.absolute() / "model")
        start = "shaped"
    micro = 4096 if torch_device().type == "cuda" else 1536
    file.write_text(text + RL.format(start=start, steps=steps, lr=case["lr"], micro=micro))
    run([], file, out / "run")
    (stage,) = (out / "run").glob("[0-9]*-rl")
    alone = out / "alone"
    shutil.rmtree(alone, ignore_errors=True)
    stage.rename(alone)
    run(torchrun(2), file, out / "run")
    one, two = RunStore.view(alone), RunStore.view(stage)
    same = []
    for step in one.rollout_steps("train"):
        pairs = zip(one.rollouts("train", step), two.rollouts("train", step), strict=True)
        same += [(step, are_same(*pair)) for pair in pairs]
    num_same = sum(is_same for _, is_same in same)
    gaps = [
        max(row.get("policy/engine_gap", 0.0) for row in store.metrics()) for store in (one, two)
    ]
    updates = sum("train/grad_norm" in row for row in two.metrics())
    gap = weight_gap(one.checkpoint_folder, two.checkpoint_folder)
    print(
        f"{name:<10}{steps:>6}{updates:>9}{f'{num_same} of {len(same)}':>16}{gap:>12.1e}"
        f"{gaps[0]:>20.1e}{gaps[1]:>10.1e}{time.monotonic() - began:>9.0f}",
        flush=True,
    )
    if num_same < len(same):
        first = min(step for step, is_same in same if not is_same)
        print(f"    the first answer that differs is of step {first}", flush=True)
    for store, ranks in ((one, 1), (two, 2)):
        for event in store.events():
            if event["event"] == "exactness":
                print(f"    exactness on {ranks}: {event}", flush=True)
    return num_same == len(same) and updates > 0


def write_random_model(name: str, folder: Path, run_folder: Path) -> None:
    """Write a model of a published shape with random weights, and the tokenizer of a small one."""
    (stage,) = run_folder.glob("[0-9]*-first")
    checkpoint = max(RunStore.view(stage).checkpoint_folder.glob("[0-9]*"))
    model = Transformer(QWEN[name], device=str(torch_device()))
    init_weights(model, 0)
    save_model(model.to(torch.bfloat16), folder)
    Tokenizer.load(checkpoint).save(folder)


def run(launcher: list[str], file: Path, folder: Path) -> None:
    command = [sys.executable, *launcher, "-m", "whet", "run", str(file), "--out", str(folder)]
    environ = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--resume"], capture_output=True, text=True, env=environ, timeout=500
    )
    if done.returncode:
        raise RuntimeError(f"{file} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


if __name__ == "__main__":
    sys.exit(main())
