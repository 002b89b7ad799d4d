"""What the viewer knows of the package: meanings of settings, and rules of algorithms."""

import json
import sys
from pathlib import Path

import pytest

from whet.algos.advantages import ADVANTAGES
from whet.pipeline.pipeline_config import STAGE_KINDS
from whet.viewer.package_facts import list_meanings, main

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import metric_meanings


def test_settings_have_their_meanings_also_below_tables_with_variants() -> None:
    meanings = list_meanings(STAGE_KINDS["rl"])
    assert meanings["train.lr"] == "Peak learning rate."
    assert all(meanings[key] for key in ("steps", "sampling.temperature", "algo.kl_coef"))
    assert "engine.max_num_seqs" in meanings and "task.name" in meanings


def test_the_program_prints_what_every_algorithm_compares_rewards_by(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main()
    facts = json.loads(capsys.readouterr().out)
    assert facts["presets"]["grpo"]["advantage"] == "zscore"
    assert facts["presets"]["ppo"]["advantage"] == "gae"
    assert facts["presets"]["dapo"]["clip_high"] == 0.28
    assert set(ADVANTAGES) == {preset["advantage"] for preset in facts["presets"].values()}
    assert set(facts["meanings"]) == set(STAGE_KINDS)


def test_metrics_mean_on_the_pages_what_they_mean_in_the_documents() -> None:
    page = metric_meanings.MODULE.read_text()
    assert page == metric_meanings.render_module(), "run python tools/metric_meanings.py"
    assert '"score/correct": "share of correct responses"' in page
