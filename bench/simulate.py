"""How well the simulation of `whet plan` predicts the seconds of a step: real runs of a fleet on this
machine within 15 %, and two published runs within 20 %.

    python bench/simulate.py
    python bench/simulate.py --only published
    python bench/simulate.py --only fleet --modes "streamed, lag = 2" --workers 3

Engines are processes that sleep a known time for each token of their rows, and an update sleeps
too, so that other work on the machine matters little. All costs, and the lengths of answers, come
from two calibration runs with one worker and another seed; nothing is fitted to the runs that are
compared. Exits with 1 if a limit is missed.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from pathlib import Path
from statistics import fmean
from typing import ParamSpec, TypeVar

from rich.console import Console
from rich.table import Table

from whet.cli import main as run_whet
from whet.data.problems import problem_file
from whet.engine import fleet_config
from whet.engine.native import NativeConfig
from whet.models.cost import GPUS, Cost, RankLayout
from whet.models.source import ModelSource
from whet.plan.cluster import PUBLISHED_FACTOR
from whet.plan.fleet_events import Engines, GroupLengths, sampling_seconds
from whet.plan.lengths import LogNormal, StoredLengths, read_lengths
from whet.plan.phases import ModelJob
from whet.plan.predict import shape_of
from whet.plan.simulate import (
    SimulatedLearner,
    SimulatedStep,
    find_bound,
    simulate_ahead,
    simulate_streamed,
)
from whet.plan.splits import build_engines, build_learner
from whet.rng import make_rng
from whet.store.run import RunStore
from whet.testing.workers import SlowConfig
from whet.train.policy import Policy
from whet.train.rl_step import RLTrainer
from whet.train.settings import TrainConfig

STEP_DELAY = 0.04
"""Seconds of a token, for all rows of an engine."""
UPDATE_DELAY = 2.0
TIMED: dict[str, list[float]] = {"update": [], "push": []}
"""Seconds of the updates and pushes that this process has done."""
FIRST = 3
"""Steps of a run before those that are measured."""
SLOTS = 8
GROUP_SIZE = 8
PROBLEMS = 12
P = ParamSpec("P")
T = TypeVar("T")
START = """kind = "run"
task.name = "game24"
seed = 3

[stages.problems]
kind = "make"

[stages.traces]
kind = "teach"
problems = "@problems"
workers = 1

[stages.sft]
kind = "sft"
data = "@traces"
steps = 20
batch_size = 32
model = { new = "tiny", positions = 64 }
train = { lr = 5e-3, warmup_steps = 5 }
validation = { every = 0 }
"""
RL = """kind = "rl"
task.name = "game24"
problems = "START/01-problems"
model = { path = "START/03-sft" }
group_size = GROUP_SIZE
sampling = { max_tokens = 40 }
reward = { weights = { finished = 1.0, lines = -0.1 } }
train = { lr = 1e-6 }
validation = { every = 0 }
save = { every = 1000 }
engine = { kind = "fleet", max_num_seqs = SLOTS }
"""


Draw = Callable[[], GroupLengths]


def draw_batches(draw: Draw) -> list[list[GroupLengths]]:
    return [[draw() for _ in range(PROBLEMS)] for _ in range(40)]


def simulate_in_turn(
    engines: Engines, learner: SimulatedLearner, batches: Sequence[Sequence[GroupLengths]]
) -> SimulatedStep:
    """Simulate a fleet that samples while the learner waits, and waits while it trains."""
    sampled = fmean(sampling_seconds(engines, batch) for batch in batches)
    bound = find_bound(engines, learner, batches[0])[1]
    return SimulatedStep(seconds=sampled + learner.push + learner.update, oldest=0, bound=bound)


MODES: Mapping[str, tuple[int, Callable[[Engines, SimulatedLearner, Draw], SimulatedStep]]] = {
    "in turn": (0, lambda engines, learner, draw: simulate_in_turn(engines, learner, draw_batches(draw))),
    "lag = 1": (1, lambda engines, learner, draw: simulate_ahead(engines, learner, draw_batches(draw), lag=1)),
    "streamed, lag = 2": (2, partial(simulate_streamed, problems=PROBLEMS, lag=2)),
}  # fmt: skip
"""The lag of each mode, and its simulation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Seconds that were measured or published, those predicted, and how far apart they may be."""

    name: str
    measured: float
    predicted: float
    limit: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=6, help="measured steps of each run")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", choices=["fleet", "published"])
    parser.add_argument("--modes", nargs="+", choices=[*MODES], default=[*MODES])
    args = parser.parse_args()
    rows: list[Compared] = []
    if args.only != "published":
        with tempfile.TemporaryDirectory() as folder:
            rows += compare_fleet(
                Path(folder), modes=args.modes, workers=args.workers, steps=args.steps
            )
    if args.only != "fleet":
        rows += compare_published()
    table = Table("seconds of", "measured", "predicted", "off", "allowed")
    for row in rows:
        cells = (f"{row.measured:.2f}", f"{row.predicted:.2f}", f"{100 * row.error:+.1f} %")
        table.add_row(row.name, *cells, f"± {100 * row.limit:.0f} %")
    Console(width=110).print(table)
    return int(any(abs(row.error) > row.limit for row in rows))


def compare_fleet(
    folder: Path, *, modes: Sequence[str], workers: Sequence[int], steps: int
) -> list[Compared]:
    """Run a fleet in each mode and compare its steps with the simulated ones."""
    script_delays()
    (folder / "start.toml").write_text(START)
    call("run", folder / "start.toml", "--out", folder / "start")
    # Without such problems there is no validation.
    problem_file(folder / "start" / "01-problems", "dev").unlink()
    text = RL.replace("START", str(folder / "start")).replace("GROUP_SIZE", str(GROUP_SIZE))
    (folder / "rl.toml").write_text(text.replace("SLOTS", str(SLOTS)))
    engine, learner, lengths = calibrate(folder, steps)
    rows = []
    for name in modes:
        lag, simulate = MODES[name]
        for count in workers:
            flags = ["--engine.workers", count, "--problems_per_step", PROBLEMS, "--seed", 2]
            flags += ["--stream", "true"] if name.startswith("streamed") else []
            run = train(folder, f"{name}-{count}", *flags, lag=lag, steps=steps)
            draw = partial(lengths.draw, GROUP_SIZE, make_rng(0, "bench", "simulate"))
            step = simulate(replace(engine, count=count), learner, draw)
            measured = fmean(row["time/step"] for row in run)
            title = f"a step, workers: {count}, {name}"
            rows.append(Compared(name=title, measured=measured, predicted=step.seconds, limit=0.15))
            print(f"{title}: {measured:.2f} s, predicted {step.seconds:.2f} s", file=sys.stderr)
    return rows


def calibrate(folder: Path, steps: int) -> tuple[Engines, SimulatedLearner, StoredLengths]:
    """Measure the seconds of a token in a batch that fills the slots of one worker once, and those
    of a push and an update in a batch of full size."""
    one = ["--engine.workers", 1, "--seed", 1, "--problems_per_step"]
    wave = train(folder, "wave", *one, SLOTS // GROUP_SIZE, lag=0, steps=steps)
    stored = RunStore.view(folder / "wave")
    longest = [
        max(len(rollout.completion.tokens) for rollout in stored.rollouts("train", step))
        for step in stored.rollout_steps("train")
    ]
    token = sum(row["time/sample"] for row in wave) / sum(longest[FIRST:])
    whole = train(folder, "whole", *one, PROBLEMS, lag=0, steps=steps)
    update, push = (fmean(TIMED[name][-steps:]) for name in ("update", "push"))
    rest = fmean(row["time/step"] - row["time/sample"] for row in whole) - update - push
    lengths = read_lengths(folder / "whole")
    print(
        f"calibrated: {1000 * token:.1f} ms a token, {update:.2f} s an update, {push:.2f} s a push, "
        f"{rest:.2f} s for the rest, which is not simulated; {lengths}",
        file=sys.stderr,
    )
    engine = Engines(count=1, by_rows=(token,) * (SLOTS + 1))
    return engine, SimulatedLearner(update=update, push=push), lengths


def train(folder: Path, name: str, *flags: object, lag: int, steps: int) -> list[dict[str, float]]:
    """Run RL, and return the metrics of its steps, but for the first, which start workers and fill
    queues, and the last, which sample nothing for later ones."""
    flags = *flags, "--lag", lag, "--steps", FIRST + steps + lag
    call("rl", folder / "rl.toml", "--out", folder / name, *flags)
    rows = [row for row in RunStore.view(folder / name).metrics() if "time/step" in row]
    return rows[FIRST : FIRST + steps]


def script_delays() -> None:
    """Let workers sleep for each token, and updates before they begin; note how long updates and
    pushes take."""
    fleet_config.NativeConfig = partial(SlowConfig, step_delay=STEP_DELAY)  # type: ignore[assignment, misc]
    RLTrainer.step = time_calls(RLTrainer.step, "update", delay=UPDATE_DELAY)  # type: ignore[method-assign]
    Policy.publish = time_calls(Policy.publish, "push")  # type: ignore[method-assign]


def time_calls(act: Callable[P, T], name: str, *, delay: float = 0.0) -> Callable[P, T]:
    def timed(*args: P.args, **named: P.kwargs) -> T:
        began = time.perf_counter()
        time.sleep(delay)
        result = act(*args, **named)
        TIMED[name].append(time.perf_counter() - began)
        return result

    return timed


def call(*words: object) -> None:
    """Call whet in this process, and show what it said only if it fails."""
    said = StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(said):
            run_whet([str(word) for word in words])
    except SystemExit as end:
        assert not end.code, said.getvalue()


def compare_published() -> list[Compared]:
    """Compare with "compare with verl" of RLinf's documentation: 1.5B on 8 H100 and 7B on 64, with
    engines of two GPUs. One factor is fitted to both: `PUBLISHED_FACTOR`."""
    small = "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"
    large = "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B"
    rows = []
    for name, model, gpus, answers, mean, sampling, step in (
        ("RLinf, 1.5B on 8 H100", small, 8, 512, 13_975, 266, 346),
        ("verl, 7B on 64 H100", large, 64, 2048, 10_426, 317, 447),
    ):
        sampled, rest = simulate_published(model, gpus=gpus, answers=answers, mean=mean)
        for part, published, seconds in (
            ("sampling", sampling, sampled),
            ("a step", step, sampled + rest),
        ):
            predicted = PUBLISHED_FACTOR * seconds
            title = f"{part}, {name}, times {PUBLISHED_FACTOR}"
            rows.append(Compared(name=title, measured=published, predicted=predicted, limit=0.2))
    return rows


def simulate_published(model: str, *, gpus: int, answers: int, mean: int) -> tuple[float, float]:
    """Simulate sampling, and the pass of the old policy with the update."""
    cost = Cost(cfg=shape_of(ModelSource(path=model), {}))
    samples = 16
    job = ModelJob(
        cost=cost,
        train=TrainConfig(micro_batch_tokens=28_672, gradient_checkpointing="on"),
        engine=NativeConfig(max_model_len=28_672),
        sequences=answers,
        samples=samples,
        prompt_tokens=300,
        new_tokens=mean,
        max_new_tokens=27_648,
        steps=1,
        frozen_model=cost,
        num_minibatches=4,
    )
    card = GPUS["h100"]
    engines = build_engines(job, card, gpus=gpus, tensor_parallel=2)
    assert engines is not None, "the runs were on such GPUs"
    lengths = LogNormal(mean=mean, limit=27_648)
    random = make_rng(0, "bench", "published")
    batches = [[lengths.draw(samples, random) for _ in range(answers // samples)] for _ in range(4)]
    placed = job.on(RankLayout(ranks=gpus, shard=8))
    learner = build_learner(placed, card, batches[0], is_collocated=True)
    sampled = fmean(sampling_seconds(engines, batch) for batch in batches)
    return sampled, learner.update + learner.push


if __name__ == "__main__":
    sys.exit(main())
