"""Run a function on several ranks over gloo, each a process of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing


def run_ranks(size: int, work: Callable[..., Any], folder: Path, *args: Any) -> list[Any]:
    """Call `work(*args)` on every rank; what each returned, in the order of ranks."""
    multiprocessing.spawn(_run, args=(size, work, folder, args), nprocs=size)
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(size)]


def _run(
    rank: int, size: int, work: Callable[..., Any], folder: Path, args: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    file = f"file://{folder / 'rendezvous'}"
    dist.init_process_group("gloo", init_method=file, rank=rank, world_size=size)
    torch.save(work(*args), folder / f"rank{rank}.pt")
    dist.destroy_process_group()
