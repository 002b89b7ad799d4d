"""Predictions before a run: a table, a way out, an exit code."""

import json
from pathlib import Path

import pytest
from small import whet, write

from whet.models.config import ModelConfig, to_json

RL = """kind = "rl"
model = {{ path = "{model}" }}
problems_per_step = 64
group_size = 8
sampling = {{ max_tokens = 512 }}
engine = {{ slots = 512, context = 1024 }}
train = {{ micro_tokens = 16384 }}
"""


@pytest.fixture
def seven(tmp_path: Path) -> Path:
    """A folder with the shape of Qwen2.5-7B and no weights."""
    shape = ModelConfig(
        family="qwen2", vocab_size=152064, hidden_size=3584, intermediate_size=18944, num_layers=28, num_heads=28,
        num_kv_heads=4, head_dim=128, max_positions=32768, rope_theta=1e6, norm_eps=1e-6, tied=False, qkv_bias=True,
        qk_norm=False,
    )  # fmt: skip
    (tmp_path / "seven").mkdir()
    (tmp_path / "seven" / "config.json").write_text(json.dumps(to_json(shape)))
    return tmp_path / "seven"


def test_a_pipeline_is_planned_stage_by_stage_and_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = whet("plan", Path(__file__).parents[2] / "experiments" / "game24_gpu.toml")
    assert said.code == 0, said.err
    words = said.err.split()
    for word in ("sft", "sft_eval", "rl", "rl_eval", "update", "sample", "hours"):
        assert word in words
    assert not list(tmp_path.iterdir())


def test_what_does_not_fit_is_named_with_a_way_out(seven: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "rl.toml", RL.format(model=seven))
    said = whet("plan", file)
    assert said.code == 1
    # 7.6 billion weights take 15 GB, their masters and moments 91, gradients 30: little is left for 16,384 tokens.
    assert "rl, update:" in said.err and "do not fit into 150.1; set train.micro_tokens = " in said.err

    most = int(said.err.split("train.micro_tokens = ")[1].split()[0])
    assert whet("plan", file, "--train.micro_tokens", most).code == 0
    assert whet("plan", file, "--train.micro_tokens", most + 1024).code == 1
    assert whet("plan", file, "--train.offload", "true").code == 0


def test_an_unknown_card_and_a_model_that_is_nowhere_are_one_sentence(tmp_path: Path) -> None:
    file = write(tmp_path / "rl.toml", RL.format(model=tmp_path / "nowhere"))
    said = whet("plan", file, "--gpu", "abacus")
    assert said.code == 2 and "expected one of h200" in said.err
    said = whet("plan", file)
    assert said.code == 2 and "neither a folder with a config.json nor a hub id" in said.err
