"""What the viewer knows of the package: meanings of settings, and rules of algorithms."""

import json

import pytest

from whet.algos.advantages import GROUP_RULES
from whet.pipeline.pipeline import KINDS
from whet.viewer.package_facts import list_meanings, main


def test_settings_have_their_meanings_also_below_tables_with_variants() -> None:
    meanings = list_meanings(KINDS["rl"])
    assert meanings["train.lr"] == "Peak learning rate."
    assert all(meanings[key] for key in ("steps", "sampling.temperature", "algo.kl_coef"))
    assert "engine.max_num_seqs" in meanings and "task.name" in meanings


def test_the_program_prints_what_every_algorithm_compares_rewards_by(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main()
    facts = json.loads(capsys.readouterr().out)
    assert facts["advantages"]["grpo"] == "zscore" and facts["advantages"]["ppo"] == "gae"
    assert set(GROUP_RULES) <= set(facts["advantages"].values())
    assert set(facts["meanings"]) == set(KINDS)
