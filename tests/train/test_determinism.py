"""The switch for kernels that always give the same bits."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from whet.train.policy import set_arithmetic


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    was_on = torch.are_deterministic_algorithms_enabled()
    was_reduced = torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    yield
    torch.use_deterministic_algorithms(was_on)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = was_reduced


def test_it_is_switched_on_with_the_workspace_cublas_needs() -> None:
    set_arithmetic(deterministic=True)

    assert torch.are_deterministic_algorithms_enabled()


def test_cublas_may_not_split_sums_unless_the_user_says_so() -> None:
    names = ("CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", "TORCH_BLAS_PREFER_CUBLASLT")
    command = f"import os, whet; print(*(os.environ[name] for name in {names}))"
    clean = {name: value for name, value in os.environ.items() if name not in names}

    def said(**extra: str) -> str:
        run = [sys.executable, "-c", command]
        return subprocess.run(
            run, env=clean | extra, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert said() == ":16:8 1 1"
    assert said(CUBLAS_WORKSPACE_CONFIG=":4096:8") == ":4096:8 1 1"


def test_it_is_switched_off_again() -> None:
    set_arithmetic(deterministic=True)
    set_arithmetic(deterministic=False)

    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("deterministic", [False, True])
def test_sums_of_bfloat16_are_float32_with_and_without_it(deterministic: bool) -> None:
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    set_arithmetic(deterministic=deterministic)

    assert not torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
