"""The learner of ranks (FSDP2) against the plain one on this machine: bits, seconds, memory.

    python bench/sharded.py --model 0.5b                 one rank: equal bits, ratio of seconds
    python bench/sharded.py --model 1.5b --length 32768  one long sequence a micro-batch
    python bench/sharded.py --host                       what the host does in one step, on a CPU
    torchrun --standalone --nproc-per-node 2 bench/sharded.py --model 0.5b --engine

Both learners take the same steps, on models with the same random weights, and take turns at being
first. Every batch is taken twice, and timed the second time: whoever meets new shapes first waits
for kernels and memory. The ratio is the median of the ratios of steps. Filling the whole model,
which a run does once before it samples or saves, is timed by itself (`sync_s`). `--profile` adds
the seconds of each phase on the host and on the device, calls that wait or allocate, and the
longest operations. `--host` counts the operations and the processor time of the gradients of one
step, of 24 narrow layers in 4 passes, where the host is all there is. With `--deterministic`, any number of ranks must end with the weights of the
plain learner, bit for bit. `--engine` samples on every rank after each step, and compares the
engine's log-probabilities with those of the shards, bit for bit.
"""

import argparse
import gc
import json
import os
import statistics
import sys
import time
from collections import Counter
from dataclasses import replace
from functools import partial

import whet  # noqa: F401 - first: it sets what torch reads while it loads

# isort: split
import numpy as np
import torch
from speed.shapes import QWEN, VOCAB
from torch import Tensor

from whet.algos.losses import token_mean
from whet.algos.objectives import sft_objective
from whet.batching.examples import Batch, Example
from whet.cluster.ranks import joined_ranks
from whet.engine.native import NativeConfig
from whet.models.sizes import new_config
from whet.models.source import torch_device, torch_dtype
from whet.models.transformer import Transformer, init_weights, rope_table
from whet.testing.fakes import example
from whet.testing.tiny import tiny_tokenizer
from whet.train.fsdp_learner import FSDPLearner
from whet.train.learner import (
    ForwardPass,
    LocalLearner,
    set_loss_weights,
    split_micro_batches,
)
from whet.train.learner_factory import FSDPLearnerFactory
from whet.train.policy import build_policy, set_arithmetic
from whet.train.selftest import measure_exactness
from whet.train.settings import TrainConfig
from whet.world import ClusterConfig, get_world


def make_model(name: str, length: int) -> Transformer:
    cfg = QWEN.get(name) or new_config(name, VOCAB[name], max(64, length))
    with torch_device():
        model = Transformer(cfg, dtype=torch.float32, device=str(torch_device()))
    init_weights(model, 0)
    model.to(torch_dtype("auto"))
    with torch_device():
        model.rope_CD = rope_table(cfg)
    return model


def make_examples(model: Transformer, length: int, tokens: int, seed: int) -> list[Example]:
    source = np.random.default_rng(seed)
    count = max(1, tokens // length)
    lengths = [length] if count == 1 else source.integers(length // 2, length, count).tolist()
    rows = [
        example(length=int(size), start=8, seed=seed * 1000 + index)
        for index, size in enumerate(lengths)
    ]
    return set_loss_weights(rows, token_mean)


def synchronize() -> None:
    if torch_device().type == "cuda":
        torch.cuda.synchronize()


def elapse(act: object) -> float:
    gc.collect()
    synchronize()
    start = time.perf_counter()
    act()  # type: ignore[operator]
    synchronize()
    return time.perf_counter() - start


class Phases(ForwardPass):
    """Marks where the phases of a step begin, on the host and on the device."""

    def __init__(self) -> None:
        self.marks: list[tuple[str, float, torch.cuda.Event | None]] = []

    def mark(self, phase: str) -> None:
        event = None
        if torch_device().type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        self.marks.append((phase, time.perf_counter(), event))

    def compute_logprobs(
        self, model: Transformer, batch: Batch, *, entropy_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        self.mark("forward")
        out = super().compute_logprobs(model, batch, entropy_gradient=entropy_gradient)
        self.mark("backward and next batch")
        return out

    def milliseconds(self) -> dict[str, float]:
        """Add up phases until the next mark; the device's include its waiting for the host."""
        synchronize()
        sums: Counter[str] = Counter()
        for (phase, start, event), (_, end, after) in zip(
            self.marks[:-1], self.marks[1:], strict=True
        ):
            sums[f"{phase}, host"] += (end - start) * 1000
            if event is not None and after is not None:
                sums[f"{phase}, device"] += event.elapsed_time(after)
        return {phase: round(taken, 1) for phase, taken in sums.items()}


def profile(name: str, learner: LocalLearner | FSDPLearner, examples: list[Example]) -> None:
    """Print the phases of one step, and the operations of another."""
    local = learner.local if isinstance(learner, FSDPLearner) else learner
    phases = local.forward = Phases()
    gc.collect()
    synchronize()
    is_gpu = torch_device().type == "cuda"
    before = torch.cuda.memory_stats() if is_gpu else {}
    phases.mark("first batch")
    learner.accumulate(examples, sft_objective())
    phases.mark("optimizer")
    learner.optim_step()
    phases.mark("end")
    row: dict[str, object] = {"profile": name, "ms": phases.milliseconds()}
    after = torch.cuda.memory_stats() if is_gpu else {}
    for key in ("num_device_alloc", "num_device_free", "num_alloc_retries"):
        row[key] = after.get(key, 0) - before.get(key, 0)
    local.forward = ForwardPass()
    with torch.profiler.profile() as profiler:
        learner.update(examples, sft_objective())
        synchronize()
    ops = profiler.key_averages()
    row["calls"] = {op.key: op.count for op in ops if op.key.startswith("cuda")}
    row["num_ops"] = sum(op.count for op in ops if op.key.startswith("aten::"))
    row["device_ms"] = round(sum(op.self_device_time_total for op in ops) / 1000, 1)
    print(json.dumps(row), flush=True)
    for order in ("self_device_time_total", "self_cpu_time_total")[0 if is_gpu else 1 :]:
        print(ops.table(sort_by=order, row_limit=15, max_name_column_width=60), flush=True)
    if is_gpu:  # warns of every operation for which the host waits
        torch.cuda.set_sync_debug_mode("warn")
        learner.update(examples, sft_objective())
        torch.cuda.set_sync_debug_mode("default")


def measure_host() -> int:
    """Print the operations and the least processor time of a step's gradients, of both learners."""
    cfg = TrainConfig(lr=1e-4, micro_batch_tokens=128)
    shape = replace(new_config("tiny", VOCAB["tiny"], 64), num_layers=24)
    examples = set_loss_weights([example(length=64, start=8, seed=n) for n in range(8)], token_mean)
    learners: dict[str, LocalLearner | FSDPLearner] = {}
    for name, make in {"plain": LocalLearner, "ranks": FSDPLearner}.items():
        model = Transformer(shape)
        init_weights(model, 0)
        learners[name] = make(model, cfg, steps=1)
        assert len(split_micro_batches(model, examples, cfg.micro_batch_tokens)) == 4
    taken: dict[str, list[float]] = {name: [] for name in learners}
    for number in range(8):  # the first meets new shapes
        for name in sorted(learners, reverse=number % 2 == 0):
            start = time.process_time()
            learners[name].accumulate(examples, sft_objective())
            taken[name].append(time.process_time() - start)
            learners[name].optim_step()
    print(f"{'learner':<10}{'operations':>12}{'processor ms':>14}{'ratio':>8}", flush=True)
    num_ops: dict[str, int] = {}
    for name, learner in learners.items():
        with torch.profiler.profile() as profiler:
            learner.accumulate(examples, sft_objective())
        num_ops[name] = sum(op.count for op in profiler.key_averages())
        least = min(taken[name][1:])
        ratio = least / min(taken["plain"][1:])
        print(f"{name:<10}{num_ops[name]:>12,}{least * 1000:>14.1f}{ratio:>8.3f}", flush=True)
    return 0 if num_ops["ranks"] <= 1.03 * num_ops["plain"] else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="0.5b")
    parser.add_argument("--length", type=int, default=1024, help="longest example")
    parser.add_argument("--tokens", type=int, default=65536, help="tokens of a step")
    parser.add_argument("--micro", type=int, default=16384, help="tokens of a micro-batch")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--engine", action="store_true")
    parser.add_argument("--deterministic", action="store_true", help="kernels with equal bits")
    parser.add_argument("--alone", action="store_true", help="only the learner of ranks")
    parser.add_argument("--profile", action="store_true", help="what the time of a step goes to")
    parser.add_argument("--host", action="store_true", help="the host's work in a step, on a CPU")
    args = parser.parse_args()
    for key, value in {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29611",
    }.items():
        os.environ.setdefault(key, value)
    with joined_ranks(ClusterConfig(timeout=120), is_forced=True):
        return measure_host() if args.host else compare(args)


def compare(args: argparse.Namespace) -> int:
    set_arithmetic(deterministic=args.deterministic)
    cfg = TrainConfig(
        lr=1e-4, micro_batch_tokens=max(args.micro, args.length), deterministic=args.deterministic
    )
    model = make_model(args.model, args.length)
    policy = None
    if args.engine:
        policy = build_policy(
            model,
            tiny_tokenizer(),
            NativeConfig(max_num_seqs=16),
            name="x",
            learner_factory=FSDPLearnerFactory(),
        )
    ranks = FSDPLearner(model, cfg, steps=args.steps, memory=policy.memory if policy else None)
    plain_model = None if args.alone else make_model(args.model, args.length)
    plain = None if plain_model is None else LocalLearner(plain_model, cfg, steps=args.steps)
    seconds: dict[str, list[float]] = {"plain": [], "ranks": []}
    exact = []
    for step in range(args.steps):
        examples = make_examples(model, args.length, args.tokens, step)
        learners = {"ranks": ranks} if plain is None else {"plain": plain, "ranks": ranks}
        for is_timed in (False, True):
            for name in sorted(learners, reverse=step % 2 == 0):
                taken = elapse(partial(learners[name].update, examples, sft_objective()))
                if is_timed:
                    seconds[name].append(taken)
        if policy is not None:
            ranks.sync_model()
            exact.append(measure_exactness(policy))
            policy.engine.sleep()
    if args.profile and get_world().size == 1:
        for name, learner in learners.items():
            profile(name, learner, examples)
    seconds["sync"] = [elapse(ranks.sync_model)]
    row: dict[str, object] = {"model": args.model, "ranks": get_world().size, "length": args.length}
    row |= {
        f"{name}_s": round(statistics.median(taken), 4) for name, taken in seconds.items() if taken
    }
    if plain_model is not None:
        pairs = list(zip(model.parameters(), plain_model.parameters(), strict=True))
        ratios = [b / a for a, b in zip(seconds["plain"], seconds["ranks"], strict=True)]
        row["ratio"] = round(statistics.median(ratios), 4)
        row["ratios"] = [round(ratio, 3) for ratio in ratios]
        row["equal_weights"] = sum(torch.equal(a, b) for a, b in pairs)
        row["weights"] = len(pairs)
        row["gap"] = max(
            float((a.detach().float() - b.detach().float()).abs().max()) for a, b in pairs
        )
    if exact:
        everywhere = [e for part in get_world().all_gather(exact, "exactness") for e in part]
        row["engine_equal"] = min(e.equal_fraction for e in everywhere)
        row["engine_tokens"] = sum(e.num_tokens for e in everywhere)
    if torch_device().type == "cuda":
        row["peak_gb"] = round(torch.cuda.max_memory_allocated() / 1e9, 1)
    if get_world().is_rank_zero:
        print(json.dumps(row), flush=True)
    is_compared = args.deterministic and plain_model is not None
    is_same = not is_compared or row["equal_weights"] == row["weights"]
    return 0 if is_same and row.get("engine_equal", 1.0) == 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
