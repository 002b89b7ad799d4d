"""Does a stream learn what sampling and training in turn learn? Countdown on a CPU, four seeds.

    python bench/stream.py --out runs/stream --seeds 1 2 3 4

From one SFT start, on countdown with 3 numbers, each seed trains GRPO twice: in turn (`lag = 0`,
the engine in the learner's process) and streamed (`stream = true`, `lag = 2`, a worker in its own
process). The last checkpoints are measured on all test problems, 8 answers each. The result is the
paired difference of pass@1, with the chance of problems and seeds in its interval; aim: within 3
points of zero. Also: the groups that were dropped, their ages, how much of sampling was overlapped,
and whether each planned group was trained once. A run that has ended is not run again.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).parents[1]))  # whet need not be installed

from study.countdown import EVAL, START
from study.figures import measured, pass_at_1, percent, points, stage_folder, table

from whet.evals.comparison import compare_arms, estimate_over_seeds
from whet.rollout.stream_plan import read_stream
from whet.store.run import RunStore

ROOT = Path(__file__).parents[1]
AIM = 0.03
PER_STEP = 32
RUN = """kind = "run"
seed = {seed}
task = {{ name = "countdown" }}
sampling = {{ max_tokens = 16 }}
[stages.rl]
kind = "rl"
problems = "{start}/01-problems"
model = {{ path = "{start}/03-sft" }}
steps = {steps}
problems_per_step = {per_step}
group_size = 8
algo = {{ name = "grpo", num_minibatches = 2, importance_correction = {{ rule = "truncate" }} }}
train = {{ lr = {lr}, lr_schedule = "linear", warmup_steps = 5, micro_batch_tokens = 8192 }}
save = {{ every = 1000 }}
{arm}
[stages.end]
kind = "eval"
problems = "{start}/01-problems"
model = {{ path = "@rl" }}
"""
ARMS = {
    "turn": "engine = { max_num_seqs = 256 }",
    "stream": 'lag = 2\nstream = true\nengine = { kind = "fleet", workers = 1, max_num_seqs = 256 }',
}


def main(options: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="a folder for the runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args(options)
    out = args.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    start = START.format(seed=1, problems=1500, sft_steps=300)
    run(out / "start", start + EVAL.format(problems="@problems", model="@sft"))
    for seed in args.seeds:
        for arm, settings in ARMS.items():
            text = RUN.format(
                seed=seed,
                start=out / "start",
                steps=args.steps,
                per_step=PER_STEP,
                lr=args.lr,
                arm=settings,
            )
            run(out / f"{arm}-{seed}", text)
    return report(out, args.seeds, args.steps)


def run(folder: Path, text: str) -> None:
    """Run a pipeline on one thread, or go on with it."""
    file = folder.with_suffix(".toml")
    file.write_text(text)
    command = [sys.executable, "-m", "whet", "run", str(file), "--out", str(folder), "--resume"]
    with folder.with_suffix(".log").open("a") as log:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        subprocess.run(command, stdout=log, stderr=log, env=environment, check=True)


def report(out: Path, seeds: Sequence[int], steps: int) -> int:
    rows = []
    for seed in seeds:
        turn, stream = (out / f"{arm}-{seed}" for arm in ARMS)
        rl = RunStore.view(stage_folder(stream, "rl"))
        ledger = read_stream(rl.events())
        rows.append(
            [
                str(seed),
                percent(pass_at_1(measured(turn, "end"))),
                percent(pass_at_1(measured(stream, "end"))),
                f"{seconds(turn):.0f}",
                f"{seconds(stream):.0f}",
                f"{mean(rl, 'stream/overlap'):.0%}",
                f"{mean(rl, 'stream/age'):.2f}",
                f"{max(values(rl, 'stream/oldest')):.0f}",
                f"{ledger.num_dropped}",
                "yes" if ledger.is_complete(steps * PER_STEP) else "NO",
            ]
        )
    head = "seed,in turn,streamed,s,s,overlap,age,oldest,dropped,each planned group once"
    print(table(head.split(","), rows))
    before, after = ([measured(out / f"{arm}-{seed}", "end") for seed in seeds] for arm in ARMS)
    difference = compare_arms(before, after).difference
    print(f"start {percent(pass_at_1(measured(out / 'start', 'eval')))}")
    print(
        f"in turn {percent(estimate_over_seeds(before))}, streamed {percent(estimate_over_seeds(after))}"
    )
    is_met = difference.low >= -AIM and difference.high <= AIM
    print(f"difference {points(difference)} points: the interval is within 3: {is_met}")
    return 0 if is_met else 1


def values(run: RunStore, name: str) -> list[float]:
    return [row[name] for row in run.metrics() if name in row]


def mean(run: RunStore, name: str) -> float:
    return fmean(values(run, name))


def seconds(pipeline: Path) -> float:
    return sum(values(RunStore.view(stage_folder(pipeline, "rl")), "time/step"))


if __name__ == "__main__":
    sys.exit(main())
