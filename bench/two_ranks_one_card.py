"""Two ranks on one GPU against one process: GRPO of the 24-game model and of the 0.5B shape.

    python bench/two_ranks_one_card.py --out runs/card [--only game24 0.5b] [--steps 3]

Both train in bfloat16 with `train.deterministic`, where the number of ranks changes no bit of an
update, so that every sampled token must be the same. A row per model says how many answers of how
many steps have the same tokens, the largest gap of a weight at the end, and the largest mean gap
between the log-probabilities of engine and learner in a step, over the answers of all ranks: 0 if
all bits are equal. Lines below have the test of exactness at the start, by the rank that is worst,
and the seconds of each part. `tiny` and `narrow` try both kinds on a CPU, where engine and learner
never agree in all bits.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

import torch
from ranks import are_same, torchrun, weight_gap
from speed.shapes import QWEN

from whet.library import task
from whet.models.config import ModelConfig
from whet.models.save import save_model
from whet.models.source import torch_device
from whet.models.transformer import Transformer, init_weights
from whet.store.run import RunStore
from whet.text.tokenizer import train_tokenizer

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 300
"""Seconds after which a run is given up."""
START = """
kind = "run"
seed = 7
task = {{ name = "game24", format = "v4", depth = 2 }}
sampling = {{ max_tokens = {max_tokens} }}
engine = {{ max_num_seqs = 256, max_model_len = 512 }}
validation = {{ samples = 1 }}

[stages.traces]
kind = "teach"
task = {{ length = "wide" }}
per_problem = {per_problem}
workers = 2

[stages.first]
kind = "sft"
data = "@traces"
steps = {first_steps}
batch_size = {batch}
model = {{ {model} }}
train = {{ lr = {first_lr}, warmup_steps = 10, dtype = "bfloat16" }}

[stages.rl]
kind = "rl"
model = {{ path = "@first" }}
steps = {steps}
problems_per_step = {problems}
group_size = 8
reward = {{ weights = {{ correct = 1.0, finished = 1.0, lines = -0.1 }} }}
algo = {{ kl_coef = 0.001 }}
train = {{ lr = {lr}, micro_batch_tokens = {micro}, dtype = "bfloat16", deterministic = true }}
save = {{ every = 1000 }}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model to train, first on worked answers and then by GRPO."""

    new: str | None = None
    """A named size, or a published shape with random weights."""
    shape: ModelConfig | None = None
    first_steps: int
    first_lr: float
    batch: int
    per_problem: int
    max_tokens: int
    problems: int
    """Of a step, with 8 answers each."""
    lr: float


NARROW = replace(
    QWEN["0.5b"],
    vocab_size=2048,
    hidden_size=64,
    intermediate_size=128,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
)
LARGE = Case(
    shape=QWEN["0.5b"],
    first_steps=40,
    first_lr=1e-4,
    batch=32,
    per_problem=1,
    max_tokens=64,
    problems=8,
    lr=1e-5,
)
SMALL = Case(
    new="medium",
    first_steps=100,
    first_lr=1e-3,
    batch=128,
    per_problem=4,
    max_tokens=320,
    problems=16,
    lr=1e-4,
)
CASES = {
    "tiny": replace(SMALL, new="tiny", first_steps=20, batch=16, per_problem=1, max_tokens=64),
    "game24": SMALL,
    "narrow": replace(LARGE, shape=NARROW, first_lr=1e-3),
    "0.5b": LARGE,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="a folder for the runs")
    parser.add_argument("--only", nargs="*", choices=CASES, default=["game24", "0.5b"])
    parser.add_argument("--steps", type=int, default=3)
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
    model = f'new = "{case.new}", positions = 1536'
    if case.shape is not None:
        write_random_model(case.shape, out / "model")
        model = f'path = "{out.absolute() / "model"}"'
    micro = 4096 if torch_device().type == "cuda" else 1536
    file.write_text(START.format(**asdict(case), model=model, steps=steps, micro=micro))
    seconds = {"model": time.monotonic() - began}
    seconds |= run([], file, out / "run")
    (stage,) = (out / "run").glob("[0-9]*-rl")
    alone = out / "alone"
    shutil.rmtree(alone, ignore_errors=True)
    stage.rename(alone)
    seconds["two ranks"] = run(torchrun(2), file, out / "run")["rl"]
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
    parts = ", ".join(f"{part} {taken:.0f}" for part, taken in seconds.items())
    print(f"    seconds: {parts}", flush=True)
    for store, ranks in ((one, 1), (two, 2)):
        for event in store.events():
            if event["event"] == "exactness":
                print(f"    exactness on {ranks}: {event}", flush=True)
    return num_same == len(same) and updates > 0


def write_random_model(shape: ModelConfig, folder: Path) -> None:
    """Write a model of a published shape with random weights, and a tokenizer of the task's texts.

    Its last tokens are never in an answer.
    """
    game = task("game24", format="v4", depth=2, length="wide")
    texts = [
        text
        for problem in islice(game.problems("sft"), 300)
        for text in (problem.prompt[-1].content, game.solve(problem, 0) or "")
    ]
    model = Transformer(shape, device=str(torch_device()))
    init_weights(model, 0)
    save_model(model.to(torch.bfloat16), folder)
    train_tokenizer(texts).save(folder)


def run(launcher: list[str], file: Path, folder: Path) -> dict[str, float]:
    """Run the stages that are not finished; return the seconds of each."""
    command = [sys.executable, *launcher, "-m", "whet", "run", str(file), "--out", str(folder)]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environ = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [*command, "--resume"], capture_output=True, text=True, env=environ, timeout=LIMIT
    )
    if done.returncode:
        raise RuntimeError(f"{file} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    taken: dict[str, float] = json.loads((folder / "summary.json").read_text())["seconds"]
    return taken


if __name__ == "__main__":
    sys.exit(main())
