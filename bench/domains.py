"""Does every domain learn? SFT from random weights, then RL, on tasks that whet generates.

    python bench/domains.py --device cuda --jobs 12 --seeds 1 2 3 --rates 3e-5 1e-4 --out runs/domains --resume

Each task and seed is its own pipeline, as a user would write it: SFT of a new model, an evaluation,
GRPO, an evaluation. Of several rates for RL, the one that ends with the best dev problems goes on, by
a seed that is not measured. The control goes on with SFT for the seconds that RL took, on the same
worked answers, and its checkpoint is picked by the same dev problems. All are measured on 400 test
problems, 8 answers each. SFT has 60,000 worked answers: with 6,000, which it sees 17 times, it learns
them by heart and solves next to none of the unseen ones.

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
Level = tuple[float, float]
WORDS = 'pieces = "words"'
PHRASES = 'pieces = "phrases"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A task, the difficulty of its problems, and how a new model reads it."""

    level: Level
    max_tokens: int
    pieces: str = WORDS


DOMAINS = {
    "countdown": Domain(level=(0.0, 0.4), max_tokens=24, pieces=PHRASES),
    "arithmetic": Domain(level=(0.0, 0.4), max_tokens=128),
    "knights": Domain(level=(0.0, 0.45), max_tokens=56),
    "ordering": Domain(level=(0.0, 0.2), max_tokens=56),
    "zebra": Domain(level=(0.0, 0.02), max_tokens=144),
    "tsp": Domain(level=(0.0, 0.1), max_tokens=32),
    "ged": Domain(level=(0.0, 0.2), max_tokens=40),
    "mcs": Domain(level=(0.0, 0.2), max_tokens=48),
    "connected": Domain(level=(0.0, 0.1), max_tokens=40),
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
batch_size = 128
model = {{ new = "{size}", positions = 512, {pieces} }}
train = {{ lr = 1e-3, lr_schedule = "cosine", warmup_steps = 50, weight_decay = 0.1, micro_batch_tokens = 32768 }}
validation = {{ every = {sft_every}, samples = 2 }}
"""
SFT_EVAL = """[stages.sft_eval]
kind = "eval"
problems = "{problems}"
model = {{ path = "@sft" }}
"""
RL = """[stages.{stage}]
kind = "rl"
problems = "{problems}"
model = {{ path = "@sft" }}
steps = {rl_steps}
problems_per_step = 64
group_size = 16
algo = {{ kl_coef = 0.001 }}
train = {{ lr = {rate}, lr_schedule = "linear", warmup_steps = 5, micro_batch_tokens = 32768 }}
validation = {{ every = {rl_every}, samples = 2 }}
"""
RL_EVAL = """[stages.rl_eval]
kind = "eval"
problems = "{problems}"
model = {{ path = "@rl" }}
"""
MORE = """[stages.more]
kind = "sft"
problems = "{problems}"
data = "{traces}"
steps = {more_steps}
batch_size = 128
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
    rates: tuple[float, ...]

    def data(self, name: str) -> Job:
        """Make the problems and worked answers."""
        return self._job(f"{name}-data", self._head(name, TUNING_SEED) + DATA.format())

    def tuning(self, name: str) -> Job:
        """SFT, then RL at each rate."""
        text = self._head(name, TUNING_SEED) + self._sft(name)
        text += "".join(self._rl(name, rate, f"rl_{n}") for n, rate in enumerate(self.rates))
        return self._job(f"{name}-rates", text, needs=(f"{name}-data",))

    def dev(self, name: str) -> list[float] | None:
        """The last share of dev problems solved at each rate; None if tuning has not ended."""
        job = self.tuning(name)
        if not job.is_done:
            return None
        runs = [stage_folder(job.folder, f"rl_{n}") for n in range(len(self.rates))]
        return [read_last_validation(folder) for folder in runs]

    def run(self, name: str, rate: float, seed: int) -> Job:
        """SFT, then RL, both measured."""
        problems, _ = self._data(name)
        text = self._head(name, seed) + self._sft(name) + SFT_EVAL.format(problems=problems)
        text += self._rl(name, rate, "rl") + RL_EVAL.format(problems=problems)
        return self._job(f"{name}-{seed}", text, needs=(f"{name}-data",))

    def control(self, name: str, seed: int) -> Job:
        """SFT that goes on for as long as RL took."""
        folder = self.out / f"{name}-{seed}"
        seconds = read_seconds(folder)
        problems, traces = self._data(name)
        steps = max(1, round(self.sft_steps * seconds["rl"] / seconds["sft"]))
        text = self._head(name, seed) + MORE.format(
            problems=problems,
            traces=traces,
            start=stage_folder(folder, "sft"),
            more_steps=steps,
            more_every=max(1, steps // 4),
        )
        return self._job(f"{name}-{seed}-more", text)

    def _data(self, name: str) -> tuple[Path, Path]:
        folder = self.data(name).folder
        return folder / "01-problems", folder / "02-traces"

    def _head(self, name: str, seed: int) -> str:
        domain = DOMAINS[name]
        low, high = domain.level
        return HEAD.format(name=name, low=low, high=high, seed=seed, max_tokens=domain.max_tokens)

    def _sft(self, name: str) -> str:
        problems, traces = self._data(name)
        return SFT.format(
            problems=problems,
            traces=traces,
            sft_steps=self.sft_steps,
            sft_every=max(1, self.sft_steps // 4),
            size=self.size,
            pieces=DOMAINS[name].pieces,
        )

    def _rl(self, name: str, rate: float, stage: str) -> str:
        problems, _ = self._data(name)
        return RL.format(
            stage=stage,
            problems=problems,
            rate=rate,
            rl_steps=self.rl_steps,
            rl_every=max(1, self.rl_steps // 4),
        )

    def _job(self, name: str, text: str, needs: tuple[str, ...] = ()) -> Job:
        return Job(name=name, text=text, folder=self.out / name, needs=needs)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, out="domains", jobs=2, threads=1)
    parser.add_argument("--only", nargs="+", default=list(DOMAINS), choices=list(DOMAINS))
    parser.add_argument("--size", default="small", help="size of the new models")
    parser.add_argument("--sft-steps", type=int, default=1000)
    parser.add_argument("--rl-steps", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--rates", type=float, nargs="+", default=[5e-5], help="of RL, to try")
    parser.add_argument("--stop", type=float, help="seconds after which the bench ends")
    args = parser.parse_args()
    out, machine = opened(args)
    if TUNING_SEED in args.seeds:
        parser.error(f"--seeds: {TUNING_SEED} is for the choice of rates; measure others")
    deadline = None if args.stop is None else time.monotonic() + args.stop
    study = Study(
        out=out,
        size=args.size,
        sft_steps=args.sft_steps,
        rl_steps=args.rl_steps,
        rates=tuple(args.rates),
    )
    rates = dict.fromkeys(args.only, study.rates[0])
    data = [study.data(name) for name in args.only]
    failed: dict[str, str] = {}
    dev: dict[str, list[float] | None] = {}
    if len(study.rates) > 1:
        failed |= run_all([*data, *map(study.tuning, args.only)], machine, deadline)
        dev = {name: study.dev(name) for name in args.only}
        rates |= {name: choose(study.rates, shares) for name, shares in dev.items() if shares}
        say("\n".join(f"{name}: {dev[name]}, goes on with {rates[name]:g}" for name in args.only))
    runs = {
        (name, seed): study.run(name, rates[name], seed) for seed in args.seeds for name in rates
    }
    controls: dict[tuple[str, int], Job] = {}
    for seed in args.seeds:  # each with its controls, so that a bench cut short has whole seeds
        failed |= run_all([*data, *(runs[name, seed] for name in rates)], machine, deadline)
        now = {(n, seed): study.control(n, seed) for n in rates if runs[n, seed].is_done}
        failed |= run_all(list(now.values()), machine, deadline)
        controls |= now
    tell(failed)
    rows = {}
    for name in args.only:
        seeds = [seed for seed in args.seeds if (name, seed) in controls]
        if seeds:
            rows[name] = Row(
                name=name,
                rate=rates[name],
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


def choose(rates: Sequence[float], dev: Sequence[float]) -> float:
    """The rate with the best dev problems.

    >>> choose([3e-5, 1e-4], [0.4, 0.6])
    0.0001
    """
    return max(zip(dev, rates, strict=True))[1]


def read_last_validation(folder: Path) -> float:
    rows = RunStore.view(folder).metrics()
    return [row["validation/pass@1"] for row in rows if "validation/pass@1" in row][-1]


def read_seconds(folder: Path) -> dict[str, float]:
    seconds: dict[str, float] = json.loads((folder / "summary.json").read_text())["seconds"]
    return seconds


HEADER = ["task", "level", "rate", "SFT", "RL", "RL's gain", "more SFT's gain", "RL above more SFT"]
HEADER += ["RL's gain by seed", "SFT + RL seconds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A task's runs that ended, a folder a seed, and those of the control."""

    name: str
    rate: float
    seeds: list[int]
    folders: list[Path]
    more: list[Path]

    def cells(self, limit: float) -> list[str]:
        before, after, more = self._shares()
        longest = max(self._longest())
        has_control = len(more) == len(before)
        return [
            self.name,
            "{:g} to {:g}".format(*DOMAINS[self.name].level),
            f"{self.rate:g}",
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
            "level": DOMAINS[self.name].level,
            "rate": self.rate,
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
