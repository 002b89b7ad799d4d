"""Every test of this folder is marked `gpu` and skipped where there is no CUDA device, or where
tests/conftest.py hides it: run them by `pytest -m gpu`."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.gpu)
            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device, and -m gpu"))


@pytest.fixture(autouse=True)
def _no_engine_of_an_earlier_test() -> Iterator[None]:
    """Free what earlier tests left on the device, so that counts of its memory are a test's own."""
    gc.collect()
    yield
