"""Where weights come from."""

import json
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from whet.errors import ConfigError, DataError
from whet.models.save import save_model
from whet.models.source import ModelSource, open_model, torch_device, torch_dtype
from whet.models.transformer import PackedAttention, init_weights
from whet.testing.tiny import tiny_model, tiny_policy
from whet.text.chat import ChatFormat
from whet.text.tokenizer import Tokenizer
from whet.types import Message

TEXTS = ["1 + 2", "3", "20 + 22", "42"]


def test_a_new_model_is_drawn_from_the_seed_with_a_tokenizer_of_the_texts() -> None:
    source = ModelSource(new="tiny", positions=32)

    model, tokenizer = open_model(
        source, dtype=torch.float32, device=torch_device(), texts=TEXTS, seed=4
    )
    again, _ = open_model(source, dtype=torch.float32, device=torch_device(), texts=TEXTS, seed=4)
    other, _ = open_model(source, dtype=torch.float32, device=torch_device(), texts=TEXTS, seed=5)

    assert (model.cfg.vocab_size, model.cfg.max_positions) == (tokenizer.vocab_size, 32)
    assert len(tokenizer.encode("42")) == 1
    assert torch.equal(model.embed.weight, again.embed.weight)
    assert not torch.equal(model.embed.weight, other.embed.weight)


def test_a_new_model_computes_what_it_computes_once_it_is_loaded(tmp_path: Path) -> None:
    source = ModelSource(new="tiny", positions=32)
    model, tokenizer = open_model(
        source, dtype=torch.bfloat16, device=torch_device(), texts=TEXTS, seed=4
    )
    save_model(model, tmp_path)
    tokenizer.save(tmp_path)

    stored = ModelSource(path=str(tmp_path))
    loaded, _ = open_model(stored, dtype=torch.bfloat16, device=torch_device(), texts=[], seed=0)

    assert model.rope_CD.dtype == loaded.rope_CD.dtype == torch.float32
    assert torch.equal(model.rope_CD, loaded.rope_CD)
    tokens_T = torch.arange(8, device=model.device) % model.cfg.vocab_size
    positions_T = torch.arange(20, 28, device=model.device)
    hidden = [
        network(tokens_T, positions_T, PackedAttention(torch.tensor([8], device=model.device)))
        for network in (model, loaded)
    ]
    assert torch.equal(*hidden)


def opened(folder: Path, **settings: str) -> ChatFormat:
    source = ModelSource(path=str(folder), **settings)
    _, tokenizer = open_model(source, dtype=torch.float32, device=torch_device(), texts=[], seed=0)
    return ChatFormat(tokenizer)


CHAT = (
    Message(role="system", content="Add."),
    Message(role="user", content="1 + 2"),
    Message(role="assistant", content="<think>\n3?\n</think>\n\n3"),
)


def test_a_raw_prompt_is_the_text_of_its_messages_and_ends_in_the_answer(tmp_path: Path) -> None:
    tiny_policy().save(tmp_path)

    chat = opened(tmp_path, chat_template="raw")

    assert chat.render(CHAT[1:2], True) == "1 + 2"
    assert chat.render(CHAT[:2], True) == "Add.\n\n1 + 2"
    assert chat.render(CHAT[1:], False) == "1 + 2<think>\n3?\n</think>\n\n3<eos>"


def test_a_raw_prompt_begins_with_the_token_that_begins_texts(tmp_path: Path) -> None:
    tiny_policy().save(tmp_path)
    settings = tmp_path / "tokenizer_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "bos_token": "<pad>"}))

    assert opened(tmp_path, chat_template="raw").render(CHAT[1:2], True) == "<pad>1 + 2"


def test_the_think_template_opens_the_thought_and_asks_for_it(tmp_path: Path) -> None:
    tiny_policy().save(tmp_path)

    chat = opened(tmp_path, chat_template="think")

    asked = "<|im_start|>user\n1 + 2<|im_end|>\n<|im_start|>assistant\n<think>"
    first, _, rest = chat.render(CHAT[1:2], True).partition("<|im_end|>\n")
    assert first.startswith("<|im_start|>system\n") and "<think>" in first
    assert rest == asked
    assert chat.render(CHAT[:2], True) == f"<|im_start|>system\nAdd.<|im_end|>\n{asked}"
    assert chat.render(CHAT, False).endswith("<think>\n3?\n</think>\n\n3<|im_end|>\n")


def test_a_template_of_ones_own_is_a_file_and_stays_with_the_checkpoint(tmp_path: Path) -> None:
    tiny_policy().save(tmp_path / "model")
    file = tmp_path / "mine.jinja"
    file.write_text("{% for m in messages %}[{{ m.content }}]{% endfor %}{{ eos_token }}")

    chat = opened(tmp_path / "model", chat_template=str(file))
    chat.tokenizer.save(tmp_path / "model")

    assert chat.render(CHAT[1:2], False) == "[1 + 2]<eos>"
    assert opened(tmp_path / "model").render(CHAT[1:2], False) == "[1 + 2]<eos>"


def test_a_template_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    tiny_policy().save(tmp_path)
    with pytest.raises(
        ConfigError,
        match=r"model.chat_template = 'gone.jinja' is neither raw, plain, chatml, think nor",
    ):
        opened(tmp_path, chat_template="gone.jinja")


def test_a_saved_policy_is_opened_with_its_tokenizer(tmp_path: Path) -> None:
    policy = tiny_policy()
    policy.save(tmp_path)

    model, tokenizer = open_model(
        ModelSource(path=str(tmp_path)),
        dtype=torch.float32,
        device=torch_device(),
        texts=[],
        seed=0,
    )

    assert torch.equal(model.embed.weight.cpu(), policy.model.embed.weight)
    assert tokenizer.vocab_size == policy.tokenizer.vocab_size


def open_with(folder: Path, template: str | None) -> Tokenizer:
    source = ModelSource(path=str(folder), chat_template=template)
    _, tokenizer = open_model(source, dtype=torch.float32, device=torch_device(), texts=[], seed=0)
    return tokenizer


def test_a_base_model_without_a_template_reads_raw_prompts(tmp_path: Path) -> None:
    tiny_policy().save(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    del settings["chat_template"]
    file.write_text(json.dumps(settings))

    with pytest.raises(DataError, match=r'set model.chat_template to a jinja file, or to "raw"'):
        ChatFormat(open_with(tmp_path, None))
    chat = ChatFormat(open_with(tmp_path, "raw"))

    question = Message(role="user", content="1 + 2 =")
    assert chat.decode_message(chat.encode_prompt([question])) == "1 + 2 ="


def test_the_plain_template_has_turns_without_special_tokens(tmp_path: Path) -> None:
    tiny_policy().save(tmp_path)

    chat = opened(tmp_path, chat_template="plain")

    assert chat.render(CHAT[:2], True) == "Add.\n\nUser: 1 + 2\n\nAssistant:"
    tokens, is_response = chat.conversation(CHAT)
    assert tokens[~is_response].tolist() == chat.encode_prompt(CHAT[:2]).tolist()
    answer = chat.tokenizer.decode(tokens[is_response], keep_special=True)
    assert answer == " <think>\n3?\n</think>\n\n3<eos>"


def test_chatml_is_for_tokenizers_that_have_its_tokens(tmp_path: Path) -> None:
    tiny_policy().save(tmp_path)
    with pytest.raises(ConfigError, match=r'lacks: set it to "plain"'):
        opened(tmp_path, chat_template="chatml")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "give path"),
        ({"path": "x", "new": "tiny"}, "not both"),
        ({"new": "gigantic"}, "should be one of tiny"),
        ({"new": "tiny", "lora": {"rank": 2}}, "give path, not new"),
    ],
)
def test_a_source_that_says_nothing_or_too_much_is_refused(
    given: dict[str, object], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        ModelSource.model_validate(given)


def test_a_new_model_needs_texts_for_its_tokenizer() -> None:
    with pytest.raises(ConfigError, match="training texts"):
        open_model(
            ModelSource(new="tiny"), dtype=torch.float32, device=torch_device(), texts=[], seed=0
        )


def test_the_compute_type_follows_the_device_unless_it_is_named() -> None:
    assert torch_dtype("bfloat16") == torch.bfloat16
    assert torch_dtype("float32") == torch.float32
    assert torch_dtype("auto") == (
        torch.bfloat16 if torch_device().type == "cuda" else torch.float32
    )


def test_new_embeddings_have_a_standard_deviation_of_0_02() -> None:
    model = tiny_model()
    init_weights(model, 0)
    assert float(model.embed.weight.detach().std()) == pytest.approx(0.02, rel=0.1)


def test_new_residual_outputs_are_scaled_down_by_depth() -> None:
    model = tiny_model()
    init_weights(model, 0)
    shrink = (2 * model.cfg.num_layers) ** -0.5
    for weight, scale in (
        (model.layers[0].qkv.weight, 1.0),
        (model.layers[0].mlp.gate_up.weight, 1.0),
        (model.layers[0].out.weight, shrink),
        (model.layers[0].mlp.down.weight, shrink),
    ):
        assert float(weight.detach().std()) == pytest.approx(
            scale * weight.shape[1] ** -0.5, rel=0.1
        )
