"""Make CUDA give the same bits every time, at some cost; a CPU with a fixed thread count does so
anyway."""

import torch


def settle(deterministic: bool) -> None:
    """Choose before CUDA starts whether kernels whose results vary from run to run are allowed."""
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.use_deterministic_algorithms(deterministic)
