"""Does every domain learn? SFT from random weights, then RL, on tasks that whet generates.

    python bench/domains.py --device cuda --jobs 12 --seeds 1 2 3 --out runs/domains --resume

Each task and seed is a pipeline of its own, as a user would write it: problems, worked answers, SFT
of a new model, an evaluation, GRPO, an evaluation. The control goes on with SFT for the seconds that
RL took, on the same worked answers, and its checkpoint is picked by the same dev problems. All are
measured on 400 test problems, 8 answers each. SFT has few worked answers and RL many problems, since
a problem with a grader is cheap and a worked answer is not.

Gains are over RL or the control minus SFT, paired by problem and averaged over seeds; the interval is
over problems. `--seconds` is how long the first two training stages may take together before a row
is marked as over the limit.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # whet need not be installed

from study.figures import gain, mean_shares, measured, pass_at_1, percent, points, stage_folder
from study.figures import table as to_table
from study.jobs import Job, add_options, opened, publish, run_all, tell

Key = tuple[str, int]
"""A task and a seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A task at a difficulty that a small model from random weights can begin to solve."""

    task: str
    """The settings of the task, without its name and seed."""
    max_tokens: int
    sft_problems: int = 8000
    sft_steps: int = 800
    rl_steps: int = 80
    reward: str = ""


DOMAINS = {
    "countdown": Domain(task="level = [0.0, 0.4]", max_tokens=40),
    "arithmetic": Domain(task="level = [0.3, 0.9]", max_tokens=160),
    "last_letter": Domain(task="level = [0.2, 1.0]", max_tokens=400, sft_problems=1000),
    "knights": Domain(task="level = [0.0, 0.3]", max_tokens=64),
    "ordering": Domain(task="level = [0.0, 0.3]", max_tokens=64),
    "zebra": Domain(task="level = [0.0, 0.2]", max_tokens=160),
    "mvc": Domain(task="level = [0.0, 0.4]", max_tokens=96),
    "mis": Domain(task="level = [0.0, 0.4]", max_tokens=96),
    "tsp": Domain(task="level = [0.0, 0.3]", max_tokens=64),
    "connected": Domain(task="level = [0.0, 0.5]", max_tokens=64),
}

PIPELINE = """kind = "run"
seed = {seed}
task = {{ name = "{name}", count = 20000, {task} }}
sampling = {{ max_tokens = {max_tokens} }}
engine = {{ max_num_seqs = 1024 }}
[stages.problems]
kind = "make"
most = {{ sft = {sft_problems}, rl = 5200, dev = 200, test = 400 }}
[stages.traces]
kind = "teach"
problems = "@problems"
per_problem = 2
workers = 2
[stages.sft]
kind = "sft"
problems = "@problems"
data = "@traces"
steps = {sft_steps}
batch_size = 256
model = {{ new = "{size}", positions = {positions} }}
train = {{ lr = 1e-3, lr_schedule = "cosine", warmup_steps = 50, weight_decay = 0.1, micro_batch_tokens = 65536 }}
validation = {{ every = 200, samples = 2 }}
[stages.sft_eval]
kind = "eval"
problems = "@problems"
model = {{ path = "@sft" }}
[stages.rl]
kind = "rl"
problems = "@problems"
model = {{ path = "@sft" }}
steps = {rl_steps}
problems_per_step = 64
group_size = 16
{reward}algo = {{ kl_coef = 0.001 }}
train = {{ lr = 2e-4, lr_schedule = "linear", warmup_steps = 5, micro_batch_tokens = 65536 }}
validation = {{ every = 20, samples = 2 }}
[stages.rl_eval]
kind = "eval"
problems = "@problems"
model = {{ path = "@rl" }}
"""

CONTROL = """kind = "run"
seed = {seed}
task = {{ name = "{name}", count = 20000, {task} }}
sampling = {{ max_tokens = {max_tokens} }}
engine = {{ max_num_seqs = 1024 }}
[stages.more]
kind = "sft"
problems = "{problems}"
data = "{traces}"
steps = {steps}
batch_size = 256
model = {{ path = "{start}" }}
train = {{ lr = 5e-4, lr_schedule = "cosine", warmup_steps = 50, weight_decay = 0.1, micro_batch_tokens = 65536 }}
validation = {{ every = {every}, samples = 2 }}
[stages.more_eval]
kind = "eval"
problems = "{problems}"
model = {{ path = "@more" }}
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, out="domains", jobs=2, threads=1)
    parser.add_argument("--only", nargs="+", default=list(DOMAINS), choices=list(DOMAINS))
    parser.add_argument("--size", default="small", help="size of the new models")
    parser.add_argument("--positions", type=int, default=1536)
    parser.add_argument("--steps", type=float, default=1.0, help="factor of all training steps")
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--no-control", action="store_true")
    args = parser.parse_args()
    out, machine = opened(args)
    jobs = {(name, seed): _job(out, name, seed, args) for seed in args.seeds for name in args.only}
    failed = run_all(list(jobs.values()), machine)
    ended = {key: job for key, job in jobs.items() if job.name not in failed}
    controls = {}
    if not args.no_control:
        controls = {key: _control(out, *key, job.folder) for key, job in ended.items()}
        failed |= run_all(list(controls.values()), machine)
    tell(failed)
    whole = [name for name in args.only if all((name, seed) in ended for seed in args.seeds)]
    controls = {key: job for key, job in controls.items() if job.name not in failed}
    rows = {name: _row(name, args, jobs, controls) for name in whole}
    head = ["task", "SFT", "RL", "RL's gain", "more SFT's gain", "by seed", "SFT + RL seconds"]
    publish(out / "domains", to_table(head, list(rows.values())), rows)
    return 1 if failed else 0


def _job(out: Path, name: str, seed: int, args: argparse.Namespace) -> Job:
    domain = DOMAINS[name]
    text = PIPELINE.format(
        name=name,
        seed=seed,
        task=domain.task,
        max_tokens=domain.max_tokens,
        sft_problems=domain.sft_problems,
        sft_steps=max(1, round(domain.sft_steps * args.steps)),
        rl_steps=max(1, round(domain.rl_steps * args.steps)),
        reward=f"reward = {domain.reward}\n" if domain.reward else "",
        size=args.size,
        positions=args.positions,
    )
    return Job(name=f"{name}-{seed}", text=text, folder=out / f"{name}-{seed}")


def _control(out: Path, name: str, seed: int, base: Path) -> Job:
    """SFT that goes on for as long as RL took."""
    seconds = _seconds(base)
    done = sum('"loss"' in row for row in (stage_folder(base, "sft") / "metrics.jsonl").open())
    steps = max(1, round(done * seconds["rl"] / seconds["sft"]))
    text = CONTROL.format(
        name=name,
        seed=seed,
        task=DOMAINS[name].task,
        max_tokens=DOMAINS[name].max_tokens,
        problems=stage_folder(base, "problems"),
        traces=stage_folder(base, "traces"),
        start=stage_folder(base, "sft"),
        steps=steps,
        every=max(1, steps // 4),
    )
    return Job(name=f"{name}-{seed}-more", text=text, folder=out / f"{name}-{seed}-more")


def _seconds(folder: Path) -> dict[str, float]:
    seconds: dict[str, float] = json.loads((folder / "summary.json").read_text())["seconds"]
    return seconds


def _row(
    name: str, args: argparse.Namespace, jobs: Mapping[Key, Job], controls: Mapping[Key, Job]
) -> list[str]:
    keys = [(name, seed) for seed in args.seeds]
    before = [measured(jobs[key].folder, "sft_eval") for key in keys]
    after = [measured(jobs[key].folder, "rl_eval") for key in keys]
    more = [measured(controls[key].folder, "more_eval") for key in keys if key in controls]
    seconds = [_seconds(jobs[key].folder) for key in keys]
    longest = max(row["sft"] + row["rl"] for row in seconds)
    return [
        name,
        percent(pass_at_1(mean_shares(before))),
        percent(pass_at_1(mean_shares(after))),
        points(gain(mean_shares(before), mean_shares(after))),
        points(gain(mean_shares(before), mean_shares(more))) if more else "not run",
        ", ".join(
            points(gain(first, last)).split(" ")[0]
            for first, last in zip(before, after, strict=True)
        ),
        f"{longest:.0f}{' over the limit' if longest > args.seconds else ''}",
    ]


if __name__ == "__main__":
    sys.exit(main())
