"""Does every domain learn? SFT from random weights, then RL, on tasks that whet generates.

    python bench/domains.py --device cuda --jobs 14 --seeds 1 2 3 --out runs/domains --resume

First a seed that is not measured takes SFT at a few levels of difficulty of each task. The level
goes on at which it solves a share of dev problems nearest to 40 %: where SFT solves nothing, RL has
nothing to choose from. Then each task and seed is its own pipeline, as a user would write it: SFT
of a new model, an evaluation, GRPO, an evaluation. The control goes on with SFT for the seconds
that RL took, on the same worked answers, and its checkpoint is picked by the same dev problems. All
are measured on 400 test problems, 8 answers each. SFT has 60,000 worked answers: with 6,000, which it
sees 17 times, it learns them by heart and solves next to none of the unseen ones.

A gain is that of a seed over its own SFT, paired by problem; intervals are over seeds and problems.
`--seconds` is how long the first two training stages may take together before a row is marked as
over the limit. `--stop` ends the bench after so many seconds with a table of what is there.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # whet need not be installed

from study.figures import Shares, measured, percent, points, stage_folder
from study.figures import table as to_table
from study.jobs import Job, add_options, opened, publish, run_all, say, tell

from whet.evals.comparison import estimate_over_seeds, squared_half_width
from whet.evals.stats import Estimate
from whet.store.run import RunStore

TUNING_SEED = 0
AIM = 0.4
"""The share of dev problems that SFT should solve before RL."""
Level = tuple[float, float]
WORDS = 'pieces = "words"'
PHRASES = 'pieces = "phrases"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A task, the levels of difficulty to try, and how a new model reads it."""

    levels: tuple[Level, ...]
    max_tokens: int
    pieces: str = WORDS


DOMAINS = {
    "countdown": Domain(levels=((0.0, 0.199), (0.0, 0.4)), max_tokens=24, pieces=PHRASES),
    "arithmetic": Domain(levels=((0.0, 0.4), (0.2, 0.6)), max_tokens=200),
    "knights": Domain(levels=((0.0, 0.45), (0.2, 0.6)), max_tokens=56),
    "ordering": Domain(levels=((0.0, 0.2), (0.0, 0.4)), max_tokens=56),
    "zebra": Domain(levels=((0.0, 0.1), (0.0, 0.25)), max_tokens=144),
    "mvc": Domain(levels=((0.0, 0.1), (0.0, 0.25)), max_tokens=40),
    "mis": Domain(levels=((0.0, 0.1), (0.0, 0.25)), max_tokens=40),
    "mcp": Domain(levels=((0.0, 0.1), (0.0, 0.25)), max_tokens=40),
    "tsp": Domain(levels=((0.0, 0.1), (0.0, 0.25)), max_tokens=32),
    "connected": Domain(levels=((0.0, 0.2), (0.0, 0.5)), max_tokens=40),
}

HEAD = """kind = "run"
seed = {seed}
task = {{ name = "{name}", count = 60000, level = [{low}, {high}] }}
sampling = {{ max_tokens = {max_tokens} }}
engine = {{ max_num_seqs = 1024, kv_cache_gb = 1 }}
"""
DATA = """[stages.problems]
kind = "make"
most = {{ sft = 60000, rl = 8000, dev = 200, test = 400 }}
[stages.traces]
kind = "teach"
problems = "@problems"
per_problem = 1
workers = 1
"""
SFT = """[stages.sft]
kind = "sft"
problems = "{problems}"
data = "{traces}"
steps = {sft_steps}
batch_size = 256
model = {{ new = "{size}", positions = 512, {pieces} }}
train = {{ lr = 1e-3, lr_schedule = "cosine", warmup_steps = 50, weight_decay = 0.1, micro_batch_tokens = 32768 }}
validation = {{ every = {sft_every}, samples = 2 }}
"""
RL = """[stages.sft_eval]
kind = "eval"
problems = "{problems}"
model = {{ path = "@sft" }}
[stages.rl]
kind = "rl"
problems = "{problems}"
model = {{ path = "@sft" }}
steps = {rl_steps}
problems_per_step = 64
group_size = 16
algo = {{ kl_coef = 0.001 }}
train = {{ lr = 2e-4, lr_schedule = "linear", warmup_steps = 5, micro_batch_tokens = 32768 }}
validation = {{ every = {rl_every}, samples = 2 }}
[stages.rl_eval]
kind = "eval"
problems = "{problems}"
model = {{ path = "@rl" }}
"""
MORE = """[stages.more]
kind = "sft"
problems = "{problems}"
data = "{traces}"
steps = {more_steps}
batch_size = 256
model = {{ path = "{start}" }}
train = {{ lr = 5e-4, lr_schedule = "cosine", warmup_steps = 50, weight_decay = 0.1, micro_batch_tokens = 32768 }}
validation = {{ every = {more_every}, samples = 2 }}
[stages.more_eval]
kind = "eval"
problems = "{problems}"
model = {{ path = "@more" }}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Where the runs are, how large their models, and how long they train."""

    out: Path
    size: str
    sft_steps: int
    rl_steps: int

    def trial(self, name: str, level: Level) -> Job:
        """Make the problems and worked answers of a level, and try SFT on them."""
        text = self._head(name, level, TUNING_SEED) + DATA.format()
        text += self._sft(name, "@problems", "@traces")
        low, high = (round(100 * end) for end in level)
        return self._job(f"{name} at {low} to {high}", text)

    def dev(self, name: str, level: Level) -> float | None:
        """The best share of dev problems that a trial solved; None if it has not ended."""
        job = self.trial(name, level)
        if not job.is_done:
            return None
        rows = RunStore.view(stage_folder(job.folder, "sft")).metrics()
        return max(row["validation/pass@1"] for row in rows if "validation/pass@1" in row)

    def run(self, name: str, level: Level, seed: int) -> Job:
        """SFT, then RL, both measured."""
        problems, traces = self._data(name, level)
        rl_every = max(1, self.rl_steps // 4)
        text = self._head(name, level, seed) + self._sft(name, problems, traces)
        text += RL.format(problems=problems, rl_steps=self.rl_steps, rl_every=rl_every)
        return self._job(f"{name}-{seed}", text)

    def control(self, name: str, level: Level, seed: int) -> Job:
        """SFT that goes on for as long as RL took."""
        folder = self.run(name, level, seed).folder
        seconds = read_seconds(folder)
        problems, traces = self._data(name, level)
        steps = max(1, round(self.sft_steps * seconds["rl"] / seconds["sft"]))
        text = self._head(name, level, seed) + MORE.format(
            problems=problems,
            traces=traces,
            start=stage_folder(folder, "sft"),
            more_steps=steps,
            more_every=max(1, steps // 4),
        )
        return self._job(f"{name}-{seed}-more", text)

    def _data(self, name: str, level: Level) -> tuple[Path, Path]:
        folder = self.trial(name, level).folder
        return folder / "01-problems", folder / "02-traces"

    def _head(self, name: str, level: Level, seed: int) -> str:
        low, high = level
        tokens = DOMAINS[name].max_tokens
        return HEAD.format(name=name, low=low, high=high, seed=seed, max_tokens=tokens)

    def _sft(self, name: str, problems: Path | str, traces: Path | str) -> str:
        return SFT.format(
            problems=problems,
            traces=traces,
            sft_steps=self.sft_steps,
            sft_every=max(1, self.sft_steps // 4),
            size=self.size,
            pieces=DOMAINS[name].pieces,
        )

    def _job(self, name: str, text: str) -> Job:
        return Job(name=name, text=text, folder=self.out / name.replace(" ", "-"))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, out="domains", jobs=2, threads=1)
    parser.add_argument("--only", nargs="+", default=list(DOMAINS), choices=list(DOMAINS))
    parser.add_argument("--size", default="small", help="size of the new models")
    parser.add_argument("--sft-steps", type=int, default=500)
    parser.add_argument("--rl-steps", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--levels-only", action="store_true", help="end after the choice of levels")
    parser.add_argument("--stop", type=float, help="seconds after which the bench ends")
    args = parser.parse_args()
    out, machine = opened(args)
    if TUNING_SEED in args.seeds:
        parser.error(f"--seeds: {TUNING_SEED} is for the choice of levels; measure others")
    deadline = None if args.stop is None else time.monotonic() + args.stop
    study = Study(out=out, size=args.size, sft_steps=args.sft_steps, rl_steps=args.rl_steps)
    trials = [study.trial(name, level) for name in args.only for level in DOMAINS[name].levels]
    failed = run_all(trials, machine, deadline)
    dev = {name: [study.dev(name, level) for level in DOMAINS[name].levels] for name in args.only}
    levels = {name: choose(DOMAINS[name].levels, dev[name]) for name in args.only}
    ready = {name: level for name, level in levels.items() if level is not None}
    say("\n".join(f"{name}: {_told(name, dev[name], levels[name])}" for name in args.only))
    if args.levels_only:
        tell(failed)
        return 1 if failed else 0
    keys = [(name, seed) for seed in args.seeds for name in ready]
    runs = {key: study.run(key[0], ready[key[0]], key[1]) for key in keys}
    failed |= run_all(list(runs.values()), machine, deadline)
    ended = [key for key in keys if runs[key].is_done]
    controls = {key: study.control(key[0], ready[key[0]], key[1]) for key in ended}
    failed |= run_all(list(controls.values()), machine, deadline)
    tell(failed)
    rows = {}
    for name in ready:
        seeds = [seed for seed in args.seeds if (name, seed) in ended]
        if seeds:
            rows[name] = Row(
                name=name,
                level=ready[name],
                seeds=seeds,
                folders=[runs[name, seed].folder for seed in seeds],
                more=[job.folder for seed in seeds if (job := controls[name, seed]).is_done],
            )
    result = {
        "dev": dev,
        "failed": sorted(failed),
        "rows": {k: r.numbers() for k, r in rows.items()},
    }
    publish(
        out / "domains",
        to_table(HEADER, [row.cells(args.seconds) for row in rows.values()]),
        result,
    )
    return 1 if failed else 0


def choose(levels: Sequence[Level], dev: Sequence[float | None]) -> Level | None:
    """The level with a share of dev problems nearest to the aim; None if no trial ended.

    >>> choose([(0.0, 0.1), (0.0, 0.4)], [0.9, 0.2])
    (0.0, 0.4)
    """
    ended = [
        (abs(share - AIM), level)
        for level, share in zip(levels, dev, strict=True)
        if share is not None
    ]
    return min(ended)[1] if ended else None


def _told(name: str, dev: Sequence[float | None], level: Level | None) -> str:
    shares = ", ".join(
        f"{low:g} to {high:g}: {'not ended' if share is None else f'{100 * share:.1f} %'}"
        for (low, high), share in zip(DOMAINS[name].levels, dev, strict=True)
    )
    return f"dev after SFT by level {shares}; goes on with {level}"


def read_seconds(folder: Path) -> dict[str, float]:
    seconds: dict[str, float] = json.loads((folder / "summary.json").read_text())["seconds"]
    return seconds


HEADER = ["task", "level", "SFT", "RL", "RL's gain", "more SFT's gain", "RL above more SFT"]
HEADER += ["RL's gain by seed", "SFT + RL seconds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A task's runs that ended, a folder a seed, and those of the control."""

    name: str
    level: Level
    seeds: list[int]
    folders: list[Path]
    more: list[Path]

    def cells(self, limit: float) -> list[str]:
        before, after, more = self._shares()
        longest = max(self._longest())
        has_control = len(more) == len(before)
        return [
            self.name,
            f"{self.level[0]:g} to {self.level[1]:g}",
            percent(estimate_over_seeds(before)),
            percent(estimate_over_seeds(after)),
            points(gain_over_seeds(before, after)),
            points(gain_over_seeds(before, more)) if has_control else "not run",
            points(gain_over_seeds(more, after)) if has_control else "not run",
            ", ".join(
                f"{100 * gain_over_seeds([first], [last]).mean:+.1f}"
                for first, last in zip(before, after, strict=True)
            ),
            f"{longest:.0f}{' over the limit' if longest > limit else ''}",
        ]

    def numbers(self) -> dict[str, object]:
        """Each seed's mean share of right answers, and its seconds."""
        before, after, more = ([_mean(shares) for shares in arm] for arm in self._shares())
        return {
            "level": self.level,
            "seeds": self.seeds,
            "sft": before,
            "rl": after,
            "more": more,
            "seconds": self._longest(),
        }

    def _shares(self) -> tuple[list[Shares], list[Shares], list[Shares]]:
        return (
            [measured(folder, "sft_eval") for folder in self.folders],
            [measured(folder, "rl_eval") for folder in self.folders],
            [measured(folder, "more_eval") for folder in self.more],
        )

    def _longest(self) -> list[float]:
        seconds = [read_seconds(folder) for folder in self.folders]
        return [round(row["sft"] + row["rl"], 1) for row in seconds]


def gain_over_seeds(before: Sequence[Shares], after: Sequence[Shares]) -> Estimate:
    """The gain of runs over their own starts, with an interval over seeds and problems.

    >>> gain_over_seeds([{"a": 0.0, "b": 0.5}], [{"a": 0.5, "b": 1.0}])
    Estimate(mean=0.5, low=0.5, high=0.5, count=2)
    """
    pairs = zip(before, after, strict=True)
    gains_SP = np.array([[last[key] - first[key] for key in before[0]] for first, last in pairs])
    mean = float(gains_SP.mean())
    half = float(np.sqrt(squared_half_width(gains_SP)))
    return Estimate(mean=mean, low=mean - half, high=mean + half, count=gains_SP.shape[1])


def _mean(shares: Mapping[str, float]) -> float:
    return round(sum(shares.values()) / len(shares), 4)


if __name__ == "__main__":
    sys.exit(main())
