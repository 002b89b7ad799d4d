"""Make CUDA give the same bits every time, at some cost; a CPU with a fixed thread count does so anyway."""

import torch

from whet.environment import fix_cublas


def settle(deterministic: bool) -> None:
    """Choose before CUDA starts whether kernels whose results vary from run to run are allowed."""
    if deterministic:
        fix_cublas()
    torch.use_deterministic_algorithms(deterministic)
