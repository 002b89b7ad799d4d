"""Exports in any dtype with what belongs to the model, and new models of random weights."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small import half_written, whet, write
from transformers import AutoModelForCausalLM, AutoTokenizer

from whet.commands.show_responses import load_run_policy
from whet.data.problems import write_problems
from whet.engine.native import NativeConfig
from whet.models.lora import LoraConfig
from whet.models.save import save_model
from whet.models.source import ModelSource, load_model, merge_adapters
from whet.testing.fakes import sum_problem
from whet.testing.tiny import tiny_model, tiny_policy, tiny_tokenizer
from whet.train.policy import build_policy

GENERATION = {"temperature": 0.6, "top_p": 0.95, "do_sample": True, "pad_token_id": 0}


@pytest.fixture(params=["qwen3", "llama"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    tokenizer = tiny_tokenizer()
    save_model(tiny_model(family=request.param, vocab_size=tokenizer.vocab_size), folder)
    tokenizer.save(folder)
    write(folder / "generation_config.json", json.dumps(GENERATION))
    return folder


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_an_export_has_the_dtype_that_is_asked_for(model: Path, dtype: str, tmp_path: Path) -> None:
    said = whet("export", model, tmp_path / "out", "--dtype", dtype)
    assert said.code == 0, said.err
    before = load_file(model / "model.safetensors")
    after = load_file(tmp_path / "out" / "model.safetensors")
    kind = getattr(torch, dtype)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name].to(kind), after[name]) for name in before)
    foreign = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    assert foreign.dtype is kind
    assert half_written(tmp_path) == []


def test_a_model_keeps_its_generation_settings_through_training_and_export(
    model: Path, tmp_path: Path
) -> None:
    policy = load_run_policy(str(model), slots=1)
    policy.save(tmp_path / "trained")
    assert whet("export", tmp_path / "trained", tmp_path / "out").code == 0
    foreign = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    settings = foreign.generation_config
    assert (settings.temperature, settings.top_p, settings.do_sample) == (0.6, 0.95, True)
    assert settings.eos_token_id == [tokenizer.eos_token_id]
    assert settings.pad_token_id == 0
    # With it, transformers would not train the embedding of that token.
    assert foreign.config.pad_token_id is None
    assert tokenizer.chat_template == policy.tokenizer.chat_template


def test_merged_adapters_keep_them_too(model: Path, tmp_path: Path) -> None:
    source = ModelSource(path=str(model), lora=LoraConfig(rank=2, alpha=4.0))
    device = torch.device("cpu")
    adapted, tokenizer = load_model(source, dtype=torch.float32, device=device, texts=[], seed=0)
    build_policy(adapted, tokenizer, NativeConfig(max_num_seqs=1), name="a").save(
        tmp_path / "adapters"
    )
    merge_adapters(tmp_path / "adapters", tmp_path / "out")
    row = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert row["temperature"] == 0.6


def test_pad_and_bos_of_the_tokenizer_are_written_where_no_file_has_them(tmp_path: Path) -> None:
    policy = tiny_policy()
    policy.save(tmp_path)
    pad = policy.tokenizer.id("<pad>")
    generation, config = (
        json.loads((tmp_path / file).read_text())
        for file in ("generation_config.json", "config.json")
    )
    assert generation["pad_token_id"] == pad and "pad_token_id" not in config
    assert generation["eos_token_id"] == config["eos_token_id"] == [policy.tokenizer.eos]


def test_weights_that_do_not_fit_the_dtype_are_refused(tmp_path: Path) -> None:
    policy = tiny_policy()
    with torch.no_grad():
        policy.model.embed.weight[0, 0] = 70000.0
    policy.save(tmp_path / "model")
    said = whet("export", tmp_path / "model", tmp_path / "out", "--dtype", "float16")
    assert said.code == 2 and "has values that float16 cannot hold" in said.last
    assert not (tmp_path / "out").exists() and half_written(tmp_path) == []


def test_an_unknown_dtype_is_refused_by_name(tmp_path: Path) -> None:
    said = whet("export", tmp_path, tmp_path / "out", "--dtype", "int8")
    assert said.last == "whet: --dtype is 'int8', expected one of bfloat16, float16, float32"


def test_a_new_model_knows_the_texts_and_is_one_that_transformers_loads(tmp_path: Path) -> None:
    write_problems(tmp_path, "rl", [sum_problem(12, 34)])
    out = tmp_path / "new"
    flags = ("--out", out, "--texts", tmp_path / "problems-rl.jsonl", "--family", "llama")
    said = whet("model", "new", "tiny", *flags, "--positions", 32)
    assert said.code == 0, said.err
    assert said.out.startswith(f"{out} is a tiny llama model of 0.0")
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer.encode("12 + 34")[0] == tokenizer.convert_tokens_to_ids("12")
    assert AutoModelForCausalLM.from_pretrained(out).config.max_position_embeddings == 32
    again = whet("model", "new", "tiny", *flags)
    assert again.last == f"whet: {out} is not empty; give a new folder"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("huge",), "model size is 'huge', expected one of tiny, mini"),
        (("tiny", "--family", "gpt2"), "--family is 'gpt2', expected one of qwen2"),
        (("tiny", "--positions", "0"), "--positions"),
    ],
)
def test_a_new_model_of_what_is_not_known_is_refused(
    args: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    texts = write(tmp_path / "a.txt", "1 + 1\n")
    said = whet("model", "new", *args, "--out", tmp_path / "out", "--texts", texts)
    assert said.code == 2 and words in said.err
    assert not (tmp_path / "out").exists()
