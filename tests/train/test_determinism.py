"""The switch for kernels that always give the same bits."""

import os
from collections.abc import Iterator

import pytest
import torch

from whet.train.determinism import settle


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    workspace, was_on = os.environ.get("CUBLAS_WORKSPACE_CONFIG"), torch.are_deterministic_algorithms_enabled()
    yield
    torch.use_deterministic_algorithms(was_on)
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
    if workspace is not None:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = workspace


def test_it_is_switched_on_with_the_workspace_cublas_needs() -> None:
    settle(True)

    assert torch.are_deterministic_algorithms_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] in (":4096:8", ":16:8")


def test_it_is_switched_off_again() -> None:
    settle(True)
    settle(False)

    assert not torch.are_deterministic_algorithms_enabled()
