"""The stages by kind: each has its settings, and a GPU that is too small ends one in a sentence."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from whet.errors import TrainError
from whet.pipeline import pipeline as kinds
from whet.pipeline.pipeline_config import STAGE_KINDS
from whet.recipes.make import MakeConfig
from whet.store.run import RunStore


def test_every_kind_is_that_of_its_settings() -> None:
    assert {name: cls.model_fields["kind"].default for name, cls in STAGE_KINDS.items()} == {
        name: name for name in STAGE_KINDS
    }


def test_a_gpu_without_enough_memory_is_one_sentence_that_says_what_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(cfg: MakeConfig, run: RunStore) -> None:
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of"
        )

    monkeypatch.setattr(MakeConfig, "run_in", full)
    said = r"make stage needs .* train\.offload_optimizer = true; `whet plan` says what fits$"
    with (
        RunStore.open(tmp_path / "run", MakeConfig(task="game24"), {}, resume=False) as run,
        pytest.raises(TrainError, match=said),
    ):
        kinds.run_stage(MakeConfig(task="game24"), run)


@pytest.mark.parametrize("ask", [lambda: np.zeros(1 << 50), lambda: torch.zeros(1 << 50)])
def test_a_machine_without_enough_memory_is_one_sentence_that_says_what_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], object]
) -> None:
    monkeypatch.setattr(MakeConfig, "run_in", lambda cfg, run: ask())
    said = r"make stage needs more memory than this machine has: lower engine.max_num_seqs or .* says what fits$"
    with (
        RunStore.open(tmp_path / "run", MakeConfig(task="game24"), {}, resume=False) as run,
        pytest.raises(TrainError, match=said),
    ):
        kinds.run_stage(MakeConfig(task="game24"), run)


def test_a_fault_that_is_not_of_memory_is_not_taken_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MakeConfig, "run_in", lambda cfg, run: torch.zeros(2) + torch.zeros(3))
    with (
        RunStore.open(tmp_path / "run", MakeConfig(task="game24"), {}, resume=False) as run,
        pytest.raises(RuntimeError),
    ):
        kinds.run_stage(MakeConfig(task="game24"), run)
