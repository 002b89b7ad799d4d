import json
from pathlib import Path

import pytest

from whet.errors import DataError
from whet.store.run import model_folder


def finish(folder: Path, **summary: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(summary))


def test_a_run_stands_for_the_checkpoint_it_handed_on(tmp_path: Path) -> None:
    finish(tmp_path / "run", model="checkpoints/000040")
    assert model_folder(str(tmp_path / "run")) == tmp_path / "run" / "checkpoints" / "000040"


def test_a_pipeline_stands_for_the_last_of_its_runs_that_has_a_model(tmp_path: Path) -> None:
    finish(tmp_path, seed="1")
    finish(tmp_path / "02-sft", model="checkpoints/000010")
    finish(tmp_path / "10-rl", model="checkpoints/000020")
    finish(tmp_path / "11-eval", sampled="x")
    finish(tmp_path / ".old-12-rl-1", model="checkpoints/000030")
    assert model_folder(str(tmp_path)) == tmp_path / "10-rl" / "checkpoints" / "000020"


def test_any_other_place_is_given_back(tmp_path: Path) -> None:
    assert model_folder("Qwen/Qwen3-0.6B") == Path("Qwen/Qwen3-0.6B")
    assert model_folder(str(tmp_path)) == tmp_path
    assert model_folder(str(tmp_path / "none")) == tmp_path / "none"


def test_a_pipeline_without_a_trained_model_says_so(tmp_path: Path) -> None:
    finish(tmp_path / "01-problems", problems="x")
    with pytest.raises(DataError, match="has no model yet: no training run in it is finished"):
        model_folder(str(tmp_path))


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").write_text("")
    with pytest.raises(DataError, match="has no model yet"):
        model_folder(str(tmp_path))


def test_a_broken_summary_is_named(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(DataError, match=r"broken JSON in .*summary\.json"):
        model_folder(str(tmp_path))
