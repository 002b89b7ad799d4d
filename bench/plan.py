"""How well `whet plan` predicts: memory and seconds of every phase of an RL step, predicted and
measured.

    python bench/plan.py
    python bench/plan.py --only 7b --steps 2
    python bench/plan.py --device cpu

Five pairs of a model and a batch, random weights, run one after the other: rollout, the reference's
pass where there is a KL, the update, each step whole. The first step is warm-up. `7b` is a sixth
pair, run where it is asked for: its optimizer lives in host memory. On a CPU one tiny pair runs,
and only its seconds are measured.
"""

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TypeVar

import torch
from rich.console import Console
from rich.table import Table
from speed.shapes import config_of, drawn
from speed.sides.ours import credited, engine_of, requests_of
from speed.work import Spec, Work

from whet.algos.algorithm import build_algorithm
from whet.algos.settings import AlgoConfig
from whet.engine.cuda_graphs import graph_bytes
from whet.engine.native import NativeConfig, NativeEngine
from whet.models.cost import GB, GPUS, Cost
from whet.plan.phases import ModelJob, StepPhase, phases
from whet.train.learner import LocalLearner, LogprobModel, add_logprobs
from whet.train.learner_factory import build_reference
from whet.train.memory import DeviceMemory
from whet.train.rl_step import update_policy
from whet.train.settings import TrainConfig

Settings = dict[str, str | int | float | bool]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A model and a batch: prompts x samples of prompt + new tokens."""

    model: str
    prompts: int
    samples: int
    prompt: int
    new: int
    train: Settings = field(default_factory=dict)
    engine: Settings = field(default_factory=dict)
    kl: float = 0.0


PAIRS = {
    "0.5b": Pair(model="0.5b", prompts=64, samples=8, prompt=64, new=512, train={"micro_batch_tokens": 32768}),
    "0.5b, long, whole context": Pair(
        model="0.5b", prompts=32, samples=8, prompt=256, new=1024, engine={"max_model_len": 32768, "max_num_seqs": 512}
    ),
    "0.5b, layers twice": Pair(
        model="0.5b", prompts=64, samples=8, prompt=128, new=256, train={"micro_batch_tokens": 65536, "gradient_checkpointing": "on"}
    ),
    "1.5b": Pair(model="1.5b", prompts=64, samples=8, prompt=64, new=512),
    "1.5b, reference in host memory": Pair(
        model="1.5b", prompts=16, samples=8, prompt=512, new=512, kl=0.01,
        train={"micro_batch_tokens": 8192, "offload_reference": True},
    ),
    "7b": Pair(model="7b", prompts=8, samples=8, prompt=64, new=256, train={"micro_batch_tokens": 8192, "offload_optimizer": True}),
    "tiny": Pair(model="tiny", prompts=2, samples=2, prompt=4, new=5, kl=0.01, train={"gradient_checkpointing": "on"}),
}  # fmt: skip
DEFAULT = {"cuda": [name for name in PAIRS if name not in ("7b", "tiny")], "cpu": ["tiny"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One phase: bytes at its peak, None if nobody counts them, and seconds."""

    peak: float | None
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--gpu", choices=[*GPUS], default="h200", help="the card that runs this")
    parser.add_argument("--only", choices=[*PAIRS], action="append", help="run these pairs alone")
    parser.add_argument("--steps", type=int, default=2, help="measured steps, after one of warm-up")
    args = parser.parse_args()
    rows = []
    for name in args.only or DEFAULT[args.device]:
        rows.append(row_of(name, args))
        print(
            f"{name}: {rows[-1]['whole_seconds']:.1f} s with its start", file=sys.stderr, flush=True
        )
    show(rows)
    print(json.dumps({"gpu": args.gpu, "device": args.device, "pairs": rows} | worst(rows)))
    return 0


def row_of(name: str, args: argparse.Namespace) -> dict[str, object]:
    began = time.perf_counter()
    pair = PAIRS[name]
    spec = spec_of(pair, args.device)
    train = TrainConfig.model_validate({"lr": 1e-6, "dtype": spec.work.dtype} | pair.train)
    found, start = measure(pair, spec, train, args.steps)
    predicted = {phase.name: phase for phase in phases(job_of(pair, spec, train), GPUS[args.gpu])}
    assert predicted.keys() == found.keys(), "the plan knows the phases of a step"
    parts = {phase: compared(predicted[phase], found[phase]) for phase in found}
    peaks = [each.peak for each in found.values() if each.peak is not None]
    seconds = (
        sum(each.seconds for each in found.values()),
        sum(each.seconds for each in predicted.values()),
    )
    peak = max(each.peak for each in predicted.values())
    return {
        "pair": name,
        "phases": parts,
        "predicted_peak_bytes": peak,
        "measured_peak_bytes": max(peaks) if peaks else None,
        "memory_error": peak / max(peaks) - 1 if peaks else None,
        "predicted_step_seconds": seconds[1],
        "measured_step_seconds": seconds[0],
        "step_error": seconds[1] / seconds[0] - 1 if peaks else None,
        "start_seconds": start,
        "whole_seconds": time.perf_counter() - began,
    }


def compared(phase: StepPhase, found: Measured) -> dict[str, object]:
    known = found.peak is not None
    return {
        "predicted_bytes": phase.peak,
        "measured_bytes": found.peak,
        "memory_error": phase.peak / found.peak - 1 if found.peak is not None else None,
        "predicted_seconds": phase.seconds,
        "measured_seconds": found.seconds,
        "time_error": phase.seconds / found.seconds - 1 if known else None,
        "held": dict(phase.held),
        "note": phase.note,
    }


def spec_of(pair: Pair, device: str) -> Spec:
    work = Work(
        model=pair.model, device=device, dtype="bfloat16" if device == "cuda" else "float32", lengths="fixed",
        prompts=pair.prompts, samples=pair.samples, prompt_tokens=pair.prompt, new_tokens=pair.new, cap=pair.new,
        slots=pair.prompts * pair.samples, threads=0, rounds=1, seed=0,
    )  # fmt: skip
    settings: Settings = {f"engine.{name}": value for name, value in pair.engine.items()}
    return Spec(
        work=work,
        task="rl_step",
        vocab_size=config_of(work).vocab_size,
        folder=None,
        settings=settings,
    )


def job_of(pair: Pair, spec: Spec, train: TrainConfig) -> ModelJob:
    """The pair as `whet plan` sees a step of it."""
    work = spec.work
    cost = Cost(cfg=config_of(work), width=2 if work.dtype == "bfloat16" else 4)
    engine = NativeConfig.model_validate(
        {"max_num_seqs": work.slots, "max_model_len": work.context} | pair.engine
    )
    job = ModelJob(
        cost=cost, train=train, engine=engine, sequences=work.num_requests, samples=pair.samples, prompt_tokens=pair.prompt,
        new_tokens=pair.new, steps=1,
    )  # fmt: skip
    return (
        replace(job, frozen_model=cost, frozen_model_bytes=float(cost.width * cost.parameters))
        if pair.kl
        else job
    )


def measure(
    pair: Pair, spec: Spec, train: TrainConfig, steps: int
) -> tuple[dict[str, Measured], float]:
    """Take the steps of a pair; medians of its phases, and the seconds of its start."""
    began = time.perf_counter()
    before = left_over(spec.work.device)
    model = drawn(spec.work)
    engine = engine_of(spec, model)
    reference = build_reference(model, train) if pair.kl else None
    memory = DeviceMemory(model.device)
    memory.add(engine)
    learner = LocalLearner(model, train, steps=1000, memory=memory)
    meter = Meter(spec.work.device, engine, before)
    meter.settle()
    start = time.perf_counter() - began
    rounds = [
        step(pair, spec, engine, reference, learner, meter, number) for number in range(1 + steps)
    ]
    names = rounds[0].keys()
    return {name: middle([taken[name] for taken in rounds[1:] or rounds]) for name in names}, start


def step(
    pair: Pair,
    spec: Spec,
    engine: NativeEngine,
    reference: LogprobModel | None,
    learner: LocalLearner,
    meter: "Meter",
    number: int,
) -> dict[str, Measured]:
    algo, found = (
        build_algorithm(AlgoConfig(kl_coef=pair.kl), max_tokens=pair.new),
        dict[str, Measured](),
    )
    requests = requests_of(spec, number)
    done, found["sample"] = meter.of(lambda: dict(engine.generate(requests)))
    examples = credited(spec, requests, done)
    # Given back before the next phase begins, so that its peak does not count the cache of the one
    # before.
    learner.reserve_memory(examples)
    if reference is not None:
        read, found["read"] = meter.of(lambda: add_logprobs(examples, "ref_logprob_M", reference))
        examples = read
    _, found["update"] = meter.of(lambda: update_policy(learner, examples, algo, seed=number))
    engine.load_weights([], engine.version + 1)
    return found


class Meter:
    """Times what is done on a device, and asks its allocator for the peak."""

    def __init__(self, device: str, engine: NativeEngine, before: int) -> None:
        self.is_cuda, self.engine = device == "cuda", engine
        self.before = before

    def settle(self) -> None:
        if self.is_cuda:
            torch.cuda.synchronize()

    def of(self, act: Callable[[], T]) -> tuple[T, Measured]:
        if self.is_cuda:
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        result = act()
        self.settle()
        seconds = time.perf_counter() - began
        # Recorded steps hold memory that no tensor has.
        held = (
            torch.cuda.max_memory_allocated() - self.before + graph_bytes() if self.is_cuda else 0
        )
        peak = float(held) if self.is_cuda else None
        return result, Measured(peak=peak, seconds=seconds)


def left_over(device: str) -> int:
    """Bytes that earlier pairs have left on the device."""
    gc.collect()
    if device == "cpu":
        return 0
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated()


def middle(rounds: list[Measured]) -> Measured:
    peaks = [each.peak for each in rounds if each.peak is not None]
    return Measured(
        peak=max(peaks) if peaks else None, seconds=median(each.seconds for each in rounds)
    )


def worst(rows: list[dict[str, object]]) -> dict[str, float | None]:
    """The largest errors of peak memory and of step time over all pairs."""
    out: dict[str, float | None] = {}
    for key in ("memory_error", "step_error"):
        errors = [abs(value) for row in rows if isinstance(value := row[key], float)]
        out[f"largest_{key}"] = max(errors) if errors else None
    return out


def show(rows: list[dict[str, object]]) -> None:
    table = Table(
        "pair",
        "phase",
        "GB predicted",
        "measured",
        "off",
        "seconds predicted",
        "measured",
        "off",
        "note",
    )
    for row in rows:
        parts = row["phases"]
        assert isinstance(parts, dict), "a row has phases"
        for name, part in parts.items():
            memory, taken = cells(part, "bytes", "memory", GB), cells(part, "seconds", "time", 1.0)
            table.add_row(str(row["pair"]), name, *memory, *taken, str(part["note"]))
    Console(width=160).print(table)


def cells(
    part: dict[str, float | None], what: str, error: str, unit: float
) -> tuple[str, str, str]:
    measured, off = part[f"measured_{what}"], part[f"{error}_error"]
    return (
        f"{(part[f'predicted_{what}'] or 0.0) / unit:.2f}",
        "" if measured is None else f"{measured / unit:.2f}",
        "" if off is None else f"{100 * off:+.1f} %",
    )


if __name__ == "__main__":
    sys.exit(main())
