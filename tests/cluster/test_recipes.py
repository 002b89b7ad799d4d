"""Whole recipes on ranks against one process: some of bench/ranks.py, which has them all."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from ranks import compare_ranks, run_alone

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(
    ("pipeline", "ranks"), [("sft", "3"), ("dpo", "2x2"), ("ppo", "4"), ("tango", "2")]
)
def test_ranks_sample_the_same_tokens_and_learn_the_same_weights(
    pipeline: str, ranks: str, tmp_path: Path
) -> None:
    run_alone(pipeline, tmp_path)
    for row in compare_ranks(pipeline, ranks, tmp_path):
        assert row.is_good, str(row)
