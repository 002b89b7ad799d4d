"""No system to compare: measures how fast this machine copies memory and multiplies matrices,
between the others' turns."""

import time
from collections.abc import Callable

import torch

from speed.serve import Round, serve
from speed.work import Spec

NUM_REPEATS = 3


def prepare(spec: Spec) -> Round:
    is_cuda = spec.work.device == "cuda"
    dtype = getattr(torch, spec.work.dtype)
    side = 8192 if is_cuda else 1024
    source = torch.ones(2**31 if is_cuda else 2**28, dtype=torch.uint8, device=spec.work.device)
    target = torch.empty_like(source)
    a, b = (torch.randn(side, side, dtype=dtype, device=spec.work.device) for _ in range(2))

    def round_of(number: int) -> dict[str, float]:
        began = time.perf_counter()
        copy = best(lambda: target.copy_(source), is_cuda)
        product = best(lambda: a @ b, is_cuda)
        return {
            "seconds": time.perf_counter() - began,
            "copy_bytes_per_s": 2 * source.numel() / copy,
            "matmul_flops_per_s": 2 * side**3 / product,
        }

    return round_of


def best(act: Callable[[], object], is_cuda: bool) -> float:
    """Seconds of the fastest of a few repeats: a ceiling is what the machine can do, not what it
    did on average."""
    times = []
    for _ in range(1 + NUM_REPEATS):
        began = time.perf_counter()
        act()
        if is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return min(times)


if __name__ == "__main__":
    serve(prepare)
