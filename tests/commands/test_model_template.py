"""`whet model template` shows, replaces and checks; `whet model info` says what a model is."""

import hashlib
import json
from pathlib import Path

import pytest
from small import half_written, whet, write
from transformers import AutoTokenizer

from whet.models.save import save_model
from whet.models.source import CHAT_TEMPLATES
from whet.testing.tiny import tiny_model, tiny_policy, tiny_tokenizer
from whet.text.chat import ChatFormat
from whet.text.tokenizer import Tokenizer
from whet.types import Message

OWN = tiny_tokenizer().chat_template or ""


@pytest.fixture(params=["qwen3", "llama"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    tokenizer = tiny_tokenizer()
    folder = tmp_path / "model"
    save_model(tiny_model(family=request.param, vocab_size=tokenizer.vocab_size), folder)
    tokenizer.save(folder)
    return folder


def test_a_template_is_printed_as_it_is(model: Path) -> None:
    said = whet("model", "template", model)
    assert (said.code, said.out) == (0, f"{OWN}\n")


def test_another_template_is_shown_as_a_diff_and_nothing_is_written(model: Path) -> None:
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    said = whet("model", "template", model, "--set", "plain")
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[:2] == [f"--- {model} (own)", "+++ plain"]
    assert "+{{ bos_token }}" in lines and "-{{ message.content + eos_token }}" in lines
    assert "nothing is written" in said.err
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before


def test_a_copy_with_another_template_is_read_alike_by_transformers(
    model: Path, tmp_path: Path
) -> None:
    write(model / "chat_template.jinja", OWN)
    out = tmp_path / "out"
    said = whet("model", "template", model, "--set", "plain", "--out", out)
    assert said.code == 0, said.err
    tokenizer = Tokenizer.load(out)
    assert tokenizer.chat_template == CHAT_TEMPLATES["plain"]
    rows = [{"role": "user", "content": "1 + 2"}]
    expected = AutoTokenizer.from_pretrained(out).apply_chat_template(
        rows, add_generation_prompt=True, return_dict=False
    )
    ours = ChatFormat(tokenizer).encode_prompt([Message(role="user", content="1 + 2")])
    assert ours.tolist() == list(expected)
    weights = "model.safetensors"
    assert (out / weights).read_bytes() == (model / weights).read_bytes()
    assert half_written(tmp_path) == []


def test_the_same_template_has_no_diff(model: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "own.jinja", OWN)
    said = whet("model", "template", model, "--set", file)
    assert said.out == f"{file} is the template that {model} has\n"


def test_a_faulty_template_ends_lint_with_a_code(model: Path, tmp_path: Path) -> None:
    said = whet("model", "template", model, "--lint")
    assert said.code == 0 and "ok    stop token: " in said.out and OWN not in said.out
    file = write(tmp_path / "x.jinja", "{{ '<|im_start|>' + messages[0].content }}")
    said = whet("model", "template", model, "--set", file, "--lint")
    assert said.code == 1 and "fault special tokens: <|im_start|>" in said.out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--out", "x"), "name it with --set"),
        (("--set", "none.jinja"), "'none.jinja' is neither raw, plain, chatml, think nor"),
        (("--set", "chatml"), "needs the tokens <|im_start|> and <|im_end|>"),
        (("--set", "BROKEN"), "the chat template does not compile"),
        (("--set", "plain", "--out", "MODEL"), "is not empty; give a new folder"),
    ],
)
def test_a_mistake_is_a_sentence(
    flags: tuple[str, ...], words: str, model: Path, tmp_path: Path
) -> None:
    broken = write(tmp_path / "broken.jinja", "{% for %}")
    names = {"BROKEN": broken, "MODEL": model}
    said = whet("model", "template", model, *(names.get(flag, flag) for flag in flags))
    assert said.code == 2 and words in said.last


def test_a_base_model_without_a_template_is_told_how_to_get_one(model: Path) -> None:
    file = model / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    del settings["chat_template"]
    write(file, json.dumps(settings))
    assert "has no chat template: give it one, such as --set plain" in (
        whet("model", "template", model).last
    )
    assert whet("model", "template", model, "--lint").code == 1
    assert whet("model", "template", model, "--set", "plain", "--lint").code == 0
    assert "model.chat_template may be a file, raw, plain" in " ".join(
        whet("model", "info", model).out.split()
    )


def test_info_has_the_facts_of_a_model(tmp_path: Path) -> None:
    policy = tiny_policy()
    policy.save(tmp_path)
    said = whet("model", "info", tmp_path)
    assert said.code == 0, said.err
    text = " ".join(said.out.split())
    count = sum(weight.numel() for weight in policy.model.parameters())
    digest = hashlib.sha256(OWN.encode()).hexdigest()[:12]
    for words in (
        "family qwen3 (Qwen3ForCausalLM)",
        f"parameters {count / 1e6:,.4g} million",
        "layers 2 of 64, 4 heads on 2 key-value heads of 16",
        "context 64 tokens",
        "dtype float32",
        f"template its own, sha256 {digest}, options: none",
        f"stop tokens <eos> ({policy.tokenizer.eos})",
        # 2 bytes a weight; 2 x 2 layers x 2 heads x 16 numbers x 2 bytes x 1,000 tokens
        f"to sample {2 * count / 1e6:.3g} MB of weights, 0.256 MB of cache per 1,000 tokens",
        # weight, gradient, master and two moments: 2 + 4 + 12 bytes
        f"to train {18 * count / 1e6:.3g} MB of weights, gradients and optimizer",
    ):
        assert words in text


def test_info_of_what_is_no_model_is_a_sentence(tmp_path: Path) -> None:
    said = whet("model", "info", tmp_path / "none")
    assert said.code == 2 and "is neither a folder nor a hub id" in said.last
