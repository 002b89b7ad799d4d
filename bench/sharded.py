"""The learner of ranks (FSDP2) against the plain one on this machine: bits, seconds, memory.

    python bench/sharded.py --model 0.5b                 one rank: equal bits, ratio of seconds
    python bench/sharded.py --model 1.5b --length 32768  one long sequence a micro-batch
    torchrun --standalone --nproc-per-node 2 bench/sharded.py --model 0.5b --engine

Both learners take the same steps in turns, on models with the same random weights. With
`--deterministic`, one rank must end with the weights of the plain learner, bit for bit. `--engine` samples on every rank after each
step, and compares the engine's log-probabilities with those of the shards, bit for bit.
"""

import argparse
import json
import os
import statistics
import sys
import time
from functools import partial

import whet  # noqa: F401 - first: it sets what torch reads while it loads

# isort: split
import numpy as np
import torch
from speed.shapes import QWEN, VOCAB

from whet.algos.losses import token_mean
from whet.algos.objectives import sft_objective
from whet.cluster.ranks import joined_ranks
from whet.data.examples import Example
from whet.engine.native import NativeConfig
from whet.models.sizes import new_config
from whet.models.source import torch_device, torch_dtype
from whet.models.transformer import Transformer, init_weights, rope_table
from whet.testing.fakes import example
from whet.testing.tiny import tiny_tokenizer
from whet.train.fsdp_learner import FSDPLearner
from whet.train.learner import LocalLearner, set_loss_weights
from whet.train.optim import TrainConfig
from whet.train.policy import FSDPLearnerFactory, build_policy, set_determinism
from whet.train.selftest import check_exact
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


def elapse(act: object) -> float:
    if torch_device().type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    act()  # type: ignore[operator]
    if torch_device().type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="0.5b")
    parser.add_argument("--length", type=int, default=1024, help="longest example")
    parser.add_argument("--tokens", type=int, default=65536, help="tokens of a step")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--engine", action="store_true")
    parser.add_argument("--deterministic", action="store_true", help="kernels with equal bits")
    parser.add_argument("--alone", action="store_true", help="only the learner of ranks")
    args = parser.parse_args()
    for key, value in {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29611",
    }.items():
        os.environ.setdefault(key, value)
    with joined_ranks(ClusterConfig(timeout=120), is_forced=True):
        return compare(args)


def compare(args: argparse.Namespace) -> int:
    set_determinism(args.deterministic)
    cfg = TrainConfig(lr=1e-4, micro_batch_tokens=max(16384, args.length))
    model = make_model(args.model, args.length)
    policy = None
    if args.engine:
        policy = build_policy(
            model,
            tiny_tokenizer(),
            NativeConfig(max_num_seqs=16),
            name="x",
            learners=FSDPLearnerFactory(),
        )
    ranks = FSDPLearner(model, cfg, steps=args.steps, memory=policy.memory if policy else None)
    plain_model = None if args.alone else make_model(args.model, args.length)
    plain = None if plain_model is None else LocalLearner(plain_model, cfg, steps=args.steps)
    seconds: dict[str, list[float]] = {"plain": [], "ranks": []}
    exact = []
    for step in range(args.steps):
        examples = make_examples(model, args.length, args.tokens, step)
        if plain is not None:
            seconds["plain"].append(elapse(partial(plain.update, examples, sft_objective())))
        seconds["ranks"].append(elapse(partial(ranks.update, examples, sft_objective())))
        if policy is not None:
            exact.append(check_exact(policy))
            policy.engine.sleep()
    row: dict[str, object] = {"model": args.model, "ranks": get_world().size, "length": args.length}
    row |= {
        f"{name}_s": round(statistics.median(taken[1:]), 4)
        for name, taken in seconds.items()
        if taken
    }
    if plain_model is not None:
        pairs = list(zip(model.parameters(), plain_model.parameters(), strict=True))
        row["ratio"] = round(row["ranks_s"] / row["plain_s"], 4)  # type: ignore[operator]
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
    is_compared = args.deterministic and get_world().size == 1 and plain_model is not None
    is_same = not is_compared or row["equal_weights"] == row["weights"]
    return 0 if is_same and row.get("engine_equal", 1.0) == 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
