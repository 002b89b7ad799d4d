"""Does every method learn? Held-out pass@1 before and after, from one SFT start a seed, on
countdown with 3 numbers.

    python bench/learning.py --jobs 14 --threads 1 --out runs/learning --resume

Each run is its own pipeline, as a user would write it: a method's `rl` or `dpo` stage, whose last
checkpoint is measured on all 679 test problems, 8 answers each. DPO compares the start's own stored
answers. All methods take as many steps of as many answers (DAPO asks more where groups are equal).
The learning rate of each, GSPO's clip and DPO's beta are those of a small grid
(`bench/study/countdown.py`) that solve most dev problems from the start of seed 0, a seed that is
not measured; `--lr` skips that search. Two rows more provoke a collapse by a rate that is far too
high: for a twentieth of the steps without the guard, and for a quarter with it.

Test problems over the same numbers resemble each other, so gains are also given over sets of
numbers.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # whet need not be installed

from study.countdown import COLLAPSES, EVAL, METHODS, START, TRAIN, Method
from study.figures import (
    Shares,
    gain,
    mean_shares,
    measured,
    merged,
    pass_at_1,
    percent,
    points,
    stage_folder,
    table,
)
from study.jobs import Job, add_options, opened, publish, run_all, tell

from whet.evals.stats import Estimate
from whet.recipes.evaluate import SAMPLED
from whet.store.run import RunStore
from whet.types import Json

TUNING_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """One run that ended: pass@1 on test problems before and after, the last validation on dev, and what
    the guard did."""

    before: Estimate
    after: Estimate
    gain: Estimate
    dev: float | None
    restores: tuple[dict[str, Json], ...]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came of a method: its runs by seed, and the gain of their mean over problems and over
    sets of numbers."""

    lr: float
    settings: str
    runs: dict[int, Ended]
    gain: Estimate
    gain_by_numbers: Estimate


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, out="learning", jobs=2, threads=1)
    every = {**METHODS, **COLLAPSES}
    parser.add_argument(
        "--methods", nargs="+", choices=list(every), default=list(every), metavar="NAME"
    )
    parser.add_argument("--lr", type=float, help="one learning rate for all methods, and no search")
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--sft-steps", type=int, default=300)
    parser.add_argument(
        "--problems", type=int, default=1500, help="problems in each split, where there are as many"
    )
    args = parser.parse_args()
    out, machine = opened(args)
    if TUNING_SEED in args.seeds:
        parser.error(f"--seeds: {TUNING_SEED} is for the search of learning rates; measure others")
    study = Study(out=out, steps=args.steps, sft_steps=args.sft_steps, problems=args.problems)
    methods = {name: replace(every[name], lr=every[name].lr or args.lr) for name in args.methods}
    tried = {name: candidates(method) for name, method in methods.items() if method.lr is None}
    starts = [study.start(seed) for seed in (*args.seeds, *([TUNING_SEED] if tried else []))]
    failed = run_all([*starts, *study.trials(tried)], machine)
    dev = {
        name: [study.dev(f"{name} {number}") for number in range(len(row))]
        for name, row in tried.items()
    }
    chosen = {**methods, **{name: best(row, dev[name]) for name, row in tried.items()}}
    runs = [study.run(seed, name, method) for seed in args.seeds for name, method in chosen.items()]
    failed |= run_all(runs, machine)
    tell(failed)
    found = {name: find(study, args.seeds, name, method) for name, method in chosen.items()}
    result = {
        "steps": study.steps,
        "failed": sorted(failed),
        "searched": {name: _searched(row, dev[name]) for name, row in tried.items()},
        "methods": {name: asdict(each) if each else None for name, each in found.items()},
    }
    publish(out / "learning", to_table(args.seeds, found), result)
    return 1 if failed else 0


def candidates(method: Method) -> list[Method]:
    """What the search tries: every rate with every choice of settings."""
    choices = (method.settings, *method.others)
    return [replace(method, lr=lr, settings=settings) for settings in choices for lr in method.grid]


def best(tried: Sequence[Method], dev: Sequence[float | None]) -> Method:
    """The candidate that solves most dev problems; the first of equals, and of those that did not
    end."""
    return max(zip(tried, dev, strict=True), key=lambda row: -1.0 if row[1] is None else row[1])[0]


def _searched(tried: Sequence[Method], dev: Sequence[float | None]) -> list[dict[str, Json]]:
    pairs = zip(tried, dev, strict=True)
    return [{"lr": method.lr, "settings": method.settings, "dev": value} for method, value in pairs]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Where the runs are, and how long they are."""

    out: Path
    steps: int
    sft_steps: int
    problems: int

    def start(self, seed: int) -> Job:
        """SFT from random weights on one gold answer a problem."""
        text = START.format(seed=seed, problems=self.problems, sft_steps=self.sft_steps)
        if seed != TUNING_SEED:
            text += EVAL.format(problems="@problems", model="@sft")
        return Job(name=f"start, seed {seed}", text=text, folder=self.out / f"start-{seed}")

    def trials(self, tried: Mapping[str, Sequence[Method]]) -> list[Job]:
        """Runs of the search, from the start of its own seed, examined on dev problems."""
        named = [
            (f"{name} {number}", each)
            for name, row in tried.items()
            for number, each in enumerate(row)
        ]
        return [self._job(TUNING_SEED, name, method) for name, method in named]

    def run(self, seed: int, name: str, method: Method) -> Job:
        """A run that is measured on test problems."""
        job = self._job(seed, name, method)
        problems = self.out / f"start-{seed}" / "01-problems"
        return replace(job, text=job.text + EVAL.format(problems=problems, model="@train"))

    def folder(self, name: str, seed: int) -> Path:
        plain = "".join(
            letter if letter.isalnum() or letter == "+" else "-" for letter in name.lower()
        )
        return self.out / f"{plain}-{seed}"

    def dev(self, name: str, seed: int = TUNING_SEED) -> float | None:
        """What the last validation of a run found on dev problems; None if the run has not
        ended."""
        folder = self.folder(name, seed)
        if not (folder / "summary.json").is_file():
            return None
        rows = RunStore.view(stage_folder(folder, "train")).metrics()
        return [row["validation/pass@1"] for row in rows if "validation/pass@1" in row][-1]

    def _job(self, seed: int, name: str, method: Method) -> Job:
        begun = self.out / f"start-{seed}"
        text = TRAIN.format(
            seed=seed, kind=method.kind, steps=max(1, round(self.steps * method.share)), lr=method.lr,
            settings=method.settings, problems=begun / "01-problems", model=begun / "03-sft",
        )  # fmt: skip
        return Job(
            name=f"{name}, seed {seed}", text=text, folder=self.folder(name, seed), needs=(f"start, seed {seed}",),
            weight=method.weight,
        )  # fmt: skip


def find(study: Study, seeds: Sequence[int], name: str, method: Method) -> Found | None:
    """What came of a method over the seeds that ended; None if there is none."""
    ended = [seed for seed in seeds if study.run(seed, name, method).is_done]
    if not ended:
        return None
    before = {seed: measured(study.folder("start", seed), "eval") for seed in ended}
    after = {seed: measured(study.folder(name, seed), "eval") for seed in ended}
    first, last = mean_shares(list(before.values())), mean_shares(list(after.values()))
    unit_of = _numbers(study.folder("start", ended[0]))
    return Found(
        lr=method.lr or 0.0,
        settings=method.settings,
        runs={seed: _ended(study, name, seed, before[seed], after[seed]) for seed in ended},
        gain=gain(first, last),
        gain_by_numbers=gain(merged(first, unit_of), merged(last, unit_of)),
    )


def _ended(study: Study, name: str, seed: int, before: Shares, after: Shares) -> Ended:
    folder = study.folder(name, seed)
    run = RunStore.view(stage_folder(folder, "train"))
    return Ended(
        before=pass_at_1(before),
        after=pass_at_1(after),
        gain=gain(before, after),
        dev=study.dev(name, seed),
        restores=tuple(dict(event) for event in run.events() if event["event"] == "restore"),
        seconds=sum(json.loads((folder / "summary.json").read_text())["seconds"].values()),
    )


def _numbers(begun: Path) -> dict[str, str]:
    """The sorted numbers of each test problem, by its id."""
    found = {}
    for rollout in RunStore.view(stage_folder(begun, "eval")).rollouts("eval", SAMPLED):
        numbers = rollout.problem.payload["numbers"]
        assert isinstance(numbers, list), "a countdown problem has a list of numbers"
        found[rollout.problem.id] = " ".join(sorted(map(str, numbers)))
    return found


def to_table(seeds: Sequence[int], found: Mapping[str, Found | None]) -> str:
    """One row a method: before, after and gain of each seed, and the gain over all of them."""
    head = ["method", "lr", *(f"seed {seed}: before, after, gain" for seed in seeds)]
    head += ["gain, all seeds", "the same over sets of numbers", "every seed above 0"]
    return table(head, [_row(seeds, name, each) for name, each in found.items()])


def _row(seeds: Sequence[int], name: str, found: Found | None) -> list[str]:
    if found is None:
        return [name, *["did not end"] * (len(seeds) + 4)]
    cells = [name, f"{found.lr:g}"]
    for seed in seeds:
        run = found.runs.get(seed)
        cells += [
            f"{percent(run.before)}, {percent(run.after)}, {points(run.gain)}{_back(run)}"
            if run
            else "-"
        ]
    is_raised = len(found.runs) == len(seeds) and all(
        run.gain.low > 0 for run in found.runs.values()
    )
    return [*cells, points(found.gain), points(found.gain_by_numbers), "yes" if is_raised else "no"]


def _back(run: Ended) -> str:
    """Say when a run went back, and from what."""
    return "".join(
        f"; step {row['step']}: dev fell to {100 * float(str(row['validation'])):.1f} %, back to step {row['best']}"
        for row in run.restores
    )


if __name__ == "__main__":
    sys.exit(main())
