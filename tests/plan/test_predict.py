"""Predictions before a run: a table, a way out, an exit code."""

import json
from pathlib import Path

import pytest
from small import whet, write

from whet.models.config import ModelConfig, to_hf_config

RL = """kind = "rl"
task.name = "game24"
model = {{ path = "{model}" }}
problems_per_step = 64
group_size = 8
sampling = {{ max_tokens = 512 }}
engine = {{ max_num_seqs = 512, max_model_len = 1024 }}
train = {{ micro_batch_tokens = 16384 }}
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
    (tmp_path / "seven" / "config.json").write_text(json.dumps(to_hf_config(shape)))
    return tmp_path / "seven"


def test_a_pipeline_is_planned_stage_by_stage_and_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = whet("plan", Path(__file__).parents[2] / "experiments" / "game24_gpu.toml")
    assert said.code == 0, said.err
    assert said.err == "", "a prediction is what was asked for"
    words = said.out.split()
    for word in ("sft", "sft_eval", "rl", "rl_eval", "update", "sample", "hours"):
        assert word in words
    assert not list(tmp_path.iterdir())


def test_what_does_not_fit_is_named_with_a_way_out(seven: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "rl.toml", RL.format(model=seven))
    said = whet("plan", file)
    assert said.code == 1
    # 7.6 billion weights take 15 GB, their masters and moments 91, gradients 30: 4 GB are left for
    # all the rest.
    assert (
        "rl, update: 149.1 GB do not fit into 142.6; set train.offload_optimizer = true" in said.out
    )

    said = whet("plan", file, "--train.offload_optimizer", "true")
    assert said.code == 0 and "91.4 GB in host memory" in said.out
    said = whet("plan", file, "--train.offload_optimizer", "true", "--gpu", "a100")
    assert said.code == 0 and "the cache is given back for the update" in said.out
    assert "layers run twice" in said.out


def test_fewer_tokens_a_pass_are_advised_where_they_are_enough(seven: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "rl.toml", RL.format(model=seven))
    flags = (
        "--train.offload_optimizer",
        "true",
        "--train.gradient_checkpointing",
        "off",
        "--train.micro_batch_tokens",
        65536,
    )
    said = whet("plan", file, *flags)
    assert said.code == 1
    # 4.4 MB a token: 65,536 take 291 GB, half of them 146, and a quarter fits.
    assert "set train.micro_batch_tokens = 16384" in said.out
    assert whet("plan", file, *flags[:-1], 16384).code == 0
    assert whet("plan", file, *flags[:-1], 32768).code == 1


def test_a_reference_can_wait_in_host_memory(seven: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "rl.toml", RL.format(model=seven))
    flags = ("--train.offload_optimizer", "true", "--algo.kl_coef", 0.01)
    here, far = (
        whet("plan", file, *flags),
        whet("plan", file, *flags, "--train.offload_reference", "true"),
    )
    assert "reference 15.2" in here.out and "91.4 GB in host memory" in here.out
    # 12 bytes a weight and two more.
    assert "106.6 GB in host memory" in far.out and "read" in far.out.split()


def test_without_a_kl_no_reference_is_planned_for(seven: Path, tmp_path: Path) -> None:
    said = whet(
        "plan",
        write(tmp_path / "rl.toml", RL.format(model=seven)),
        "--train.offload_optimizer",
        "true",
    )
    assert "reference" not in said.out and "read" not in said.out.split()


def test_adapters_need_no_more_than_their_own_gradients(seven: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "rl.toml", RL.format(model=seven))
    said = whet("plan", file, "--model.lora", "{ rank = 16 }")
    # 40.4 million weights: half a gigabyte of masters and moments.
    assert said.code == 0 and "optimizer 0.5" in said.out


OTHERS = """kind = "{kind}"
task.name = "game24"
model = {{ path = "{model}" }}
{more}
sampling = {{ max_tokens = 512 }}
train = {{ offload_optimizer = true }}
"""


@pytest.mark.parametrize(
    ("kind", "more", "words"),
    [
        ("dpo", "", ["update"]),
        ("distill", 'teacher = { path = "MODEL" }', ["sample", "read", "update"]),
        (
            "tango",
            'verifier = { path = "MODEL" }\nverifier_train = { offload_optimizer = true }',
            ["sample", "update", "others"],
        ),
    ],
)
def test_every_kind_that_trains_is_planned(
    seven: Path, tmp_path: Path, kind: str, more: str, words: list[str]
) -> None:
    text = OTHERS.format(kind=kind, model=seven, more=more.replace("MODEL", str(seven)))
    said = whet("plan", write(tmp_path / f"{kind}.toml", text))
    assert said.code in (0, 1), said.err
    assert set(words) <= set(said.out.split())


def test_solutions_to_be_verified_are_planned_and_the_last_line_says_what_is_not_counted(
    seven: Path, tmp_path: Path
) -> None:
    text = f'kind = "verifications"\ntask.name = "game24"\nmodel = {{ path = "{seven}" }}\nsampling = {{ max_tokens = 512 }}\n'
    said = whet("plan", write(tmp_path / "v.toml", text))
    assert said.code == 0, said.err
    assert {"verifications", "sample"} <= set(said.out.split())
    last = said.out.splitlines()[-1]
    assert last.startswith("not counted: validation, ") and "as if of 512 problems" in last


def test_an_unknown_card_and_a_model_that_is_nowhere_are_one_sentence(tmp_path: Path) -> None:
    file = write(tmp_path / "rl.toml", RL.format(model=tmp_path / "nowhere"))
    said = whet("plan", file, "--gpu", "abacus")
    assert said.code == 2 and "expected one of h200" in said.err
    said = whet("plan", file)
    assert said.code == 2 and "neither a folder with a config.json nor a hub id" in said.err


SFT = """kind = "sft"
task.name = "math"
data = "{data}"
model = {{ path = "{model}" }}
epochs = 3
batch_size = 4
held_out = 2
train.offload_optimizer = true
"""


def test_epochs_are_planned_by_the_answers_that_are_there(seven: Path, tmp_path: Path) -> None:
    data = tmp_path / "answers.jsonl"
    file = write(tmp_path / "sft.toml", SFT.format(model=seven, data=data))
    said = whet("plan", file)
    assert "sft: time not counted, its epochs are of responses not there yet" in said.out
    assert "0.00 hours in all" in said.out

    rows = [{"prompt": f"What is {n} + 1?", "response": f"{n + 1}"} for n in range(12)]
    data.write_text("\n".join(map(json.dumps, rows)))
    said = whet("plan", file)
    (update,) = [line.split() for line in said.out.splitlines() if " update " in line]
    assert update[-2] == "8", "3 epochs of 12 - 2 answers, 4 in a step: 7.5 steps"
    assert "not there yet" not in said.out
