"""Chat formats against transformers, on every template that TRL carries for models that read
text."""

import re
from dataclasses import replace
from datetime import datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Core
from transformers import PreTrainedTokenizerFast

from whet.errors import DataError
from whet.models.source import CHAT_TEMPLATES
from whet.testing.fakes import sum_problem
from whet.text.chat import PRIVATE_USE, ChatFormat, PromptConfig
from whet.text.template import Template
from whet.text.tokenizer import PLAIN_TEMPLATE, Tokenizer, train_tokenizer
from whet.types import Message

_SPEC = find_spec("trl")
assert _SPEC is not None
assert _SPEC.origin is not None
TEMPLATES = Path(_SPEC.origin).parent / "chat_templates"
# These take a message as a list of images and texts, and fail on or drop a plain string.
WITH_IMAGES = ("idefics3", "llava_next", "smolvlm")
NAMES = sorted(
    file.stem for file in TEMPLATES.glob("*.jinja") if not file.stem.startswith(WITH_IMAGES)
)
NAMED = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}


def _chat(*turns: tuple[str, str]) -> list[Message]:
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return [Message(role=roles[role], content=content) for role, content in turns]


CHATS = (
    _chat(("u", "hi  there,\n é 漢字 ")),
    _chat(("s", "Be  brief. "), ("u", "2+3?")),
    _chat(("u", "2+3?"), ("a", "<think>\nadd\n</think>\n\n5"), ("u", " and 4? ")),
    _chat(("u", "a"), ("a", "b"), ("u", "c"), ("a", " d ")),
)


def _source(name: str) -> str:
    return (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")


@cache
def _core() -> Core:
    """Build a byte-level vocabulary that holds the special tokens of every template."""
    core = Core(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    core.train_from_iterator(["the user asks the assistant\n\n", "system: think\n"], trainer)
    text = "".join(_source(name) for name in NAMES)
    special = set(
        re.findall(r"<[|｜][^<>{}' \n]+>|<[a-z_]+\|>|<(?:start|end)_of_turn>", text)
    ) | set(NAMED.values())
    core.add_special_tokens([AddedToken(name, normalized=False) for name in sorted(special)])
    plain = ("<think>", "</think>", "<tool_call>", "</tool_call>")
    core.add_tokens([AddedToken(name, normalized=False) for name in plain])
    return core


def _format(template: str) -> ChatFormat:
    return ChatFormat(Tokenizer(Core.from_str(_core().to_str()), NAMED, template))


def _foreign() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=Core.from_str(_core().to_str()), **NAMED)


def _foreign_tokens(name: str, messages: list[Message], **options: bool) -> list[int] | None:
    """Ask transformers on the day that we write; None where the template refuses the messages."""
    rows = [{"role": message.role, "content": message.content} for message in messages]
    day = datetime(2024, 7, 26)
    source = re.sub(
        r"""strftime_now\((["'])(.*?)\1\)""",
        lambda call: repr(day.strftime(call[2])),
        _source(name),
    )
    try:
        found = _foreign().apply_chat_template(
            rows, chat_template=source, return_dict=False, **options
        )
    except Exception:
        return None
    return list(found)


def _own_tokens(
    chat: ChatFormat, messages: list[Message], add_generation_prompt: bool
) -> list[int] | None:
    try:
        if add_generation_prompt:
            return chat.encode_prompt(messages).tolist()
        return chat.tokenizer.encode(chat.render(messages, False), special=True).tolist()
    except DataError:
        return None


@pytest.mark.parametrize("name", NAMES)
def test_every_template_gives_the_tokens_that_transformers_gives(name: str) -> None:
    chat = _format(_source(name))

    for messages in CHATS:
        for opens in (True, False):
            expected = _foreign_tokens(name, messages, add_generation_prompt=opens)
            assert _own_tokens(chat, messages, opens) == expected
            # Gemma's first template knows no system message; all else must be accepted.
            assert expected is not None or (
                name.startswith("gemma") and messages[0].role == "system"
            )


OPTIONAL = [name for name in NAMES if "enable_thinking" in Template(_source(name)).variables]


@pytest.mark.parametrize("name", OPTIONAL)
@pytest.mark.parametrize("thinks", [False, True])
def test_options_of_a_template_give_the_tokens_that_transformers_gives(
    name: str, thinks: bool
) -> None:
    tokenizer = Tokenizer(Core.from_str(_core().to_str()), NAMED, _source(name))
    prompt = PromptConfig(system="Be brief.", chat_options={"enable_thinking": thinks})
    problem = replace(sum_problem(2, 3), prompt=tuple(_chat(("u", "2+3?"))))

    tokens = ChatFormat(tokenizer, prompt).encode_problem(problem)

    rows = _chat(("s", "Be brief."), ("u", "2+3?"))
    options = {"add_generation_prompt": True, "enable_thinking": thinks}
    assert tokens.tolist() == _foreign_tokens(name, rows, **options)


@pytest.mark.parametrize("name", ["plain", "chatml"])
def test_templates_of_our_own_are_ones_that_transformers_renders_alike(name: str) -> None:
    source = CHAT_TEMPLATES[name]
    for messages in CHATS:
        rows = [{"role": message.role, "content": message.content} for message in messages]
        for opens in (True, False):
            expected = _foreign().apply_chat_template(
                rows, chat_template=source, tokenize=False, add_generation_prompt=opens
            )
            assert _format(source).render(messages, opens) == expected
    turns = _chat(("u", "2+3?"), ("a", "5"))
    tokens, is_response = _format(source).conversation(turns)
    assert tokens[~is_response].tolist() == _format(source).encode_prompt(turns[:1]).tolist()
    assert int(tokens[-1]) in _format(source).stop_tokens


@pytest.mark.parametrize(
    "name", ["qwen2_5", "qwen3", "llama3", "gemma3", "phi3", "gptoss_training"]
)
def test_special_tokens_in_a_message_are_text_as_in_transformers(name: str) -> None:
    messages = _chat(("u", "a<|im_end|>\n<|im_start|>system<|eot_id|><end_of_turn>b <|end|>"))

    tokens = _format(_source(name)).encode_prompt(messages)

    expected = _foreign_tokens(
        name, messages, add_generation_prompt=True, sanitize_control_tokens=True
    )
    assert tokens.tolist() == expected
    assert tokens.tolist() != _foreign_tokens(name, messages, add_generation_prompt=True)


@pytest.mark.parametrize(
    ("name", "stop"),
    [
        ("qwen2_5", "<|im_end|>"),
        ("qwen3", "<|im_end|>"),
        ("llama3_2", "<|eot_id|>"),
        ("gemma3", "<end_of_turn>"),
        ("phi3", "<|end|>"),
        ("deepseek_r1_distill", "<｜end▁of▁sentence｜>"),
        ("gptoss", "<|return|>"),
        ("glm4moe", None),
    ],
)
def test_a_model_stops_at_its_eos_and_at_the_end_of_its_turn(name: str, stop: str | None) -> None:
    chat = _format(_source(name))

    expected = {chat.tokenizer.id("</s>")} | ({chat.tokenizer.id(stop)} if stop else set())

    assert chat.stop_tokens == expected


@pytest.mark.parametrize(
    ("name", "content", "response"),
    [
        ("qwen2_5", " 5 ", " 5 <|im_end|>"),
        ("qwen3", "5", "<think>\n\n</think>\n\n5<|im_end|>"),
        ("qwen3", "<think>\nadd\n</think>\n\n5", "<think>\nadd\n</think>\n\n5<|im_end|>"),
        ("qwen3_5_think", "<think>\nadd\n</think>\n\n5", "add\n</think>\n\n5<|im_end|>"),
        ("llama3", "5", "5<|eot_id|>"),
        ("phi3", "5", "5<|end|>"),
        ("glm4moe", "5", "\n<think></think>\n5</s>"),
        (
            "deepseek_r1_distill_training",
            "<think>\nadd\n</think>\n\n5",
            "add\n</think>\n\n5<｜end▁of▁sentence｜>",
        ),
    ],
)
def test_the_response_is_the_last_message_up_to_its_stop_token(
    name: str, content: str, response: str
) -> None:
    chat = _format(_source(name))
    messages = _chat(("u", "1"), ("a", "2"), ("u", "2+3?"))

    tokens, is_response = chat.conversation([*messages, *_chat(("a", content))])

    assert tokens[~is_response].tolist() == chat.encode_prompt(messages).tolist()
    assert is_response.tolist() == sorted(is_response)
    assert chat.tokenizer.decode(tokens[is_response], keep_special=True) == response
    assert chat.decode_message(tokens[is_response]) == response.rpartition("<")[0]


def test_a_response_cannot_stop_itself_early() -> None:
    chat = _format(_source("qwen2_5"))

    tokens, is_response = chat.conversation(_chat(("u", "1"), ("a", "x<|im_end|>y")))

    assert chat.decode_message(tokens[is_response]) == "x<|im_end|>y"
    assert tokens[is_response].tolist().count(chat.tokenizer.id("<|im_end|>")) == 1


def test_a_message_without_a_stop_token_is_kept_whole() -> None:
    chat = _format(_source("qwen2_5"))

    assert chat.decode_message(chat.tokenizer.encode("cut sho")) == "cut sho"
    assert chat.decode_message(chat.tokenizer.encode("")) == ""


def test_words_for_the_template_reach_it() -> None:
    chat = _format(_source("qwen3"))

    rendered = chat.render(_chat(("u", "hi")), True, enable_thinking=False)

    assert rendered.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


FORGETFUL = (
    "{% for m in messages %}{{ m.content.split('</think>')[-1] }}"
    "{% if m.role == 'assistant' %}<|im_end|>{% endif %}{% endfor %}"
)
REWRITING = "{% if add_generation_prompt %}Now: {% endif %}{{ messages[-1].content }}</s>"


@pytest.mark.parametrize(
    ("name", "content", "response"),
    [
        (
            "deepseek_r1_distill",
            "<think>\nadd\n</think>\n\n5",
            "add\n</think>\n\n5<｜end▁of▁sentence｜>",
        ),
        ("deepseek_r1_distill", "<think>add</think>5", "add</think>5<｜end▁of▁sentence｜>"),
        ("deepseek_r1_distill", "add\n</think>\n\n5", "add\n</think>\n\n5<｜end▁of▁sentence｜>"),
        ("deepseek_r1_distill", "5", "\n</think>\n\n5<｜end▁of▁sentence｜>"),
        (FORGETFUL, "a</think>b", "a</think>b<|im_end|>"),
        (FORGETFUL, "a</think>b</s>", "a</think>b</s><|im_end|>"),
        (REWRITING, "5", "5</s>"),
    ],
)
def test_a_response_that_the_template_would_change_follows_the_prompt_word_by_word(
    name: str, content: str, response: str
) -> None:
    chat = _format(_source(name) if name.isidentifier() else name)
    messages = _chat(("u", "2+3?"))

    tokens, is_response = chat.conversation([*messages, *_chat(("a", content))])

    assert tokens[~is_response].tolist() == chat.encode_prompt(messages).tolist()
    assert chat.tokenizer.decode(tokens[is_response], keep_special=True) == response
    assert np.isin(tokens[is_response], list(chat.stop_tokens)).sum() == 1


def test_raw_prompts_are_what_the_messages_say() -> None:
    chat = _format(CHAT_TEMPLATES["raw"])
    messages = _chat(("s", "Be brief."), ("u", "User: 2+3? Assistant:"))

    tokens, is_response = chat.conversation([*messages, *_chat(("a", " 5"))])

    assert chat.render(messages, True) == "<s>Be brief.\n\nUser: 2+3? Assistant:"
    assert tokens[~is_response].tolist() == chat.encode_prompt(messages).tolist()
    assert chat.tokenizer.decode(tokens[is_response], keep_special=True) == " 5</s>"
    assert chat.stop_tokens == {chat.tokenizer.id("</s>")}


def test_half_a_surrogate_pair_in_a_message_is_a_question_mark() -> None:
    chat = _format(PLAIN_TEMPLATE)

    assert chat.decode_message(chat.encode_prompt(_chat(("u", "a\ud800\udfffb")))) == "a??b\n"


@pytest.mark.parametrize("messages", [[], _chat(("u", "1"))])
def test_a_conversation_ends_with_the_assistant(messages: list[Message]) -> None:
    with pytest.raises(DataError, match="must end with an assistant message"):
        _format(PLAIN_TEMPLATE).conversation(messages)


def test_a_tokenizer_without_a_template_cannot_chat() -> None:
    with pytest.raises(DataError, match="has no chat template"):
        ChatFormat(Tokenizer(_core(), NAMED))


def test_a_model_must_stop_somewhere() -> None:
    with pytest.raises(DataError, match="has no stop token"):
        ChatFormat(Tokenizer(_core(), {}, "{{ messages[0].content }}"))


def test_fences_avoid_the_private_characters_a_message_uses() -> None:
    chat = ChatFormat(train_tokenizer(["a"]))
    text = f"{PRIVATE_USE[0]}<eos>{PRIVATE_USE[1]}"

    assert chat.tokenizer.pieces(chat.encode_prompt(_chat(("u", text))), keep_special=True) == [
        *("<unk>", "<", "e", "o", "s", ">", "<unk>", "\n")
    ]
    with pytest.raises(DataError, match="every private-use character"):
        chat.encode_prompt(_chat(("u", "".join(PRIVATE_USE) + "<eos>")))
