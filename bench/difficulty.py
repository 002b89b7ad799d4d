"""Rollout tokens that training needs with a difficulty map and without one, for the same accuracy.

    python bench/difficulty.py --seeds 1 2 3 --jobs 2

Countdown with 3 to 5 numbers, most of the problems out of reach of a tiny model. After SFT, each of
2,000 training problems is answered three times (`measure`), which fills the map; then RL trains
once on all problems alike and once on a band of pass rates that starts from the map. Counted are
the tokens of all training rollouts until the mean of three validations in a row reaches the last of
uniform training; the filtered arm also pays for the measurement.
"""

import argparse
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from statistics import fmean, stdev

from whet.data.difficulty import read_map, update_map
from whet.store.run import RunStore

START = """kind = "run"
seed = {seed}
task = {{ name = "countdown", count = 10000, level = [0.0, 0.6] }}

[stages.problems]
kind = "make"
most = {{ rl = 2000, dev = 500, test = 10 }}

[stages.answers]
kind = "teach"
problems = "@problems"
per_problem = 1
workers = 1

[stages.sft]
kind = "sft"
data = "@answers"
problems = "@problems"
model = {{ new = "tiny", positions = 96 }}
steps = 600
batch_size = 64
train = {{ lr = 6e-3, lr_schedule = "cosine", warmup_steps = 30, weight_decay = 0.1, micro_batch_tokens = 8192 }}
sampling = {{ max_tokens = 24 }}
engine = {{ max_num_seqs = 512 }}

[stages.measure]
kind = "eval"
problems = "@problems"
model = {{ path = "@sft" }}
split = "rl"
samples = 2
sampling = {{ max_tokens = 24 }}
engine = {{ max_num_seqs = 512 }}
"""
RL = """kind = "rl"
seed = {seed}
task = {{ name = "countdown", count = 10000, level = [0.0, 0.6] }}
problems = "{start}/01-problems"
model = {{ path = "{start}/03-sft" }}
steps = {steps}
problems_per_step = 32
group_size = 8
sampling = {{ max_tokens = 24 }}
train = {{ lr = 5e-4, warmup_steps = 5, micro_batch_tokens = 8192 }}
engine = {{ max_num_seqs = 512 }}
validation = {{ every = 8, samples = 4 }}
save = {{ every = 1000 }}
{curriculum}"""
BAND = """
[curriculum]
kind = "band"
difficulty = "{map}"
rest = 8
"""
ARMS = {"uniform": "", "filtered": BAND}
WINDOW = 3
"""Validations averaged before an accuracy counts as reached."""
T95 = {2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571}
"""Student's quantile of a 95 % interval, by degrees of freedom."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs") / "difficulty")
    args = parser.parse_args()
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(lambda seed: begin(args.out / str(seed), seed), args.seeds))
        list(
            pool.map(
                lambda run: train(args.out / str(run[0]), run[0], run[1], args.steps),
                product(args.seeds, ARMS),
            )
        )
    ratios = [compare(args.out / str(seed), seed) for seed in args.seeds]
    reached = [ratio for ratio in ratios if ratio is not None]
    print(f"{len(reached)} of {len(ratios)} seeds reach the accuracy of uniform sampling")
    if len(reached) > 2:
        logs = [math.log(ratio) for ratio in reached]
        half = T95[len(logs) - 1] * stdev(logs) / math.sqrt(len(logs))
        low, middle, high = (math.exp(fmean(logs) + side * half) for side in (-1, 0, 1))
        print(
            f"tokens with the map / without: {middle:.2f} [{low:.2f}, {high:.2f}], 95 % over seeds"
        )
    return 0


def begin(folder: Path, seed: int) -> None:
    """Make problems and the model of a seed, and measure the problems."""
    run_whet("run", folder, START.format(seed=seed), folder / "start")
    measured = sorted((folder / "start" / "04-measure" / "rollouts").glob("*.parquet"))
    update_map(folder / "map.jsonl", measured)


def train(folder: Path, seed: int, arm: str, steps: int) -> None:
    curriculum = ARMS[arm].format(map=folder / "map.jsonl")
    text = RL.format(seed=seed, start=folder / "start", steps=steps, curriculum=curriculum)
    run_whet("rl", folder, text, folder / arm)


def compare(folder: Path, seed: int) -> float | None:
    """Return the tokens with the map over those without, for the accuracy of uniform sampling."""
    cost = sum(record.count.num_tokens for record in read_map(folder / "map.jsonl"))
    uniform, filtered = read_curve(folder / "uniform"), read_curve(folder / "filtered")
    target = uniform[-1][1]
    needed = next((tokens for tokens, accuracy in filtered if accuracy >= target), None)
    # The first time that uniform sampling itself is there.
    spent = next(tokens for tokens, accuracy in uniform if accuracy >= target)
    total = None if needed is None else cost + needed
    words = "not reached" if total is None else f"{total:,} tokens, {total / spent:.2f} of them"
    print(
        f"seed {seed}: uniform reaches {target:.1%} after {spent:,} tokens; with the map {words}, "
        f"{cost:,} of them to measure; ends at {filtered[-1][1]:.1%}",
        flush=True,
    )
    return None if total is None else total / spent


def read_curve(folder: Path) -> list[tuple[int, float]]:
    """Return the tokens sampled so far and the mean of the last validations, at each of them."""
    run = RunStore.view(folder)
    tokens = [
        sum(len(rollout.completion.tokens) for rollout in run.rollouts("train", step))
        for step in run.rollout_steps("train")
    ]
    points = [
        (row["step"], row["validation/pass@1"])
        for row in run.metrics()
        if "validation/pass@1" in row
    ]
    curve = []
    for index in range(WINDOW - 1, len(points)):
        window = points[index - WINDOW + 1 : index + 1]
        curve.append((sum(tokens[: int(window[-1][0])]), fmean(value for _, value in window)))
    return curve


def run_whet(verb: str, folder: Path, text: str, out: Path) -> None:
    if (out / "summary.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{out.name}.toml"
    file.write_text(text)
    command = [sys.executable, "-m", "whet", verb, str(file), "--out", str(out)]
    if out.exists():
        command.append("--resume")
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr[-800:]}")


if __name__ == "__main__":
    sys.exit(main())
