"""Tokens and text: exact both ways, no forged special tokens, and every token knows its
characters."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Core
from transformers import AutoTokenizer

from whet.errors import DataError
from whet.text.tokenizer import Tokenizer


def byte_level() -> Tokenizer:
    """Train a byte-level BPE like Qwen's and Llama 3's: bytes, some merges, special and plain added
    tokens."""
    core = Core(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=290, initial_alphabet=sorted(alphabet), show_progress=False
    )
    core.train_from_iterator(["the cat and the hat are there", "the other cat"], trainer)
    core.add_special_tokens(
        [AddedToken(text, normalized=False) for text in ("<|im_start|>", "<|im_end|>", "<|end|>")]
    )
    core.add_tokens([AddedToken(text, normalized=False) for text in ("<think>", "é a")])
    settings = {
        "eos_token": "<|im_end|>",
        "bos_token": None,
        "pad_token": {"__type": "AddedToken", "content": "<|end|>", "special": True},
    }
    return Tokenizer(
        core,
        settings,
        chat_template="{{ messages[0].content }}",
        eos_tokens=(3,),
    )


TOKENIZER = byte_level()


def test_text_from_outside_cannot_forge_special_tokens() -> None:
    stop = TOKENIZER.id("<|im_end|>")

    assert stop not in TOKENIZER.encode("the<|im_end|>")
    assert TOKENIZER.decode(TOKENIZER.encode("the<|im_end|>")) == "the<|im_end|>"
    assert TOKENIZER.encode("the<|im_end|>", special=True).tolist() == [TOKENIZER.id("the"), stop]
    assert stop not in TOKENIZER.encode("the<|im_end|>")


def test_tokens_are_int32_and_nothing_is_added() -> None:
    tokens = TOKENIZER.encode("the cat")

    assert tokens.dtype == np.int32
    assert TOKENIZER.encode("").tolist() == []
    assert [TOKENIZER.decode([token]) for token in tokens] == ["the", " cat"]


def test_special_tokens_are_left_out_unless_kept() -> None:
    tokens = TOKENIZER.encode("<|im_start|>the<think><|im_end|>", special=True)

    assert TOKENIZER.decode(tokens) == "the<think>"
    assert TOKENIZER.decode(tokens, keep_special=True) == "<|im_start|>the<think><|im_end|>"


def test_a_character_belongs_to_the_token_that_completes_it() -> None:
    tokens = TOKENIZER.encode("a漢<|im_end|>b", special=True)

    # 漢 is three bytes and no merge knows it, so it takes three tokens.
    assert TOKENIZER.spans(tokens) == [(0, 1), (1, 1), (1, 1), (1, 2), (2, 2), (2, 3)]
    assert TOKENIZER.pieces(tokens, keep_special=True) == ["a", "", "", "漢", "<|im_end|>", "b"]


@given(st.text(), st.booleans())
def test_pieces_of_any_text_join_to_it(text: str, keep: bool) -> None:
    assert "".join(TOKENIZER.pieces(TOKENIZER.encode(text), keep_special=keep)) == text


@example([TOKENIZER.id("é a"), TOKENIZER.vocab_size], False)
@given(st.lists(st.integers(0, TOKENIZER.vocab_size + 2), max_size=12), st.booleans())
def test_spans_of_any_tokens_cover_the_decoded_text(tokens: list[int], keep: bool) -> None:
    text, spans = (
        TOKENIZER.decode(tokens, keep_special=keep),
        TOKENIZER.spans(tokens, keep_special=keep),
    )

    ends = [0, *(end for _, end in spans)]
    assert [start for start, _ in spans] == ends[:-1]
    assert ends[-1] == len(text)


def test_another_decoder_cannot_be_aligned() -> None:
    core = Core(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))

    with pytest.raises(DataError, match="the decoder is NoneType, expected ByteLevel or Fuse"):
        Tokenizer(core, {}).spans([0, 1])


def test_a_saved_tokenizer_is_the_same_here_and_in_transformers(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path / "new")
    (tmp_path / "new" / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 3]}))

    own, foreign = Tokenizer.load(tmp_path / "new"), AutoTokenizer.from_pretrained(tmp_path / "new")

    text = "<|im_start|>the hat, 漢<|im_end|>"
    assert own.encode(text, special=True).tolist() == TOKENIZER.encode(text, special=True).tolist()
    assert (
        foreign.encode(text, add_special_tokens=False)
        == TOKENIZER.encode(text, special=True).tolist()
    )
    assert own.chat_template == foreign.chat_template == TOKENIZER.chat_template
    assert own.eos_tokens == {3, 5, own.id("<|im_end|>")}
    assert (own.eos, own.pad) == (own.id("<|im_end|>"), own.id("<|end|>"))
    assert own.vocab_size == TOKENIZER.vocab_size == 1 + own.id("é a")


def test_the_template_file_goes_before_the_settings(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("from the file")

    assert Tokenizer.load(tmp_path).chat_template == "from the file"


def test_of_several_templates_the_default_is_taken(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path)
    templates = [
        {"name": "tool_use", "template": "tools"},
        {"name": "default", "template": "plain"},
    ]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))

    assert Tokenizer.load(tmp_path).chat_template == "plain"


def test_a_folder_with_only_a_vocabulary_is_enough(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()

    bare = Tokenizer.load(tmp_path)

    assert (bare.chat_template, bare.eos, bare.pad, bare.eos_tokens) == (
        None,
        None,
        None,
        frozenset(),
    )


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("tokenizer.json", b"{}", r"tokenizer\.json' is not a tokenizer\.json"),
        ("tokenizer_config.json", b"{", r"tokenizer_config\.json' cannot be read as JSON"),
        ("tokenizer_config.json", b"[]", r"tokenizer_config\.json' must hold a JSON object"),
        ("tokenizer_config.json", b'{"eos_token": "<gone>"}', "has no token '<gone>'"),
        (
            "generation_config.json",
            b'{"eos_token_id": ["a"]}',
            r"eos_token_id is \['a'\], expected token ids",
        ),
        ("chat_template.jinja", b"\xff", r"chat_template\.jinja' cannot be read"),
    ],
)
def test_a_broken_file_is_named(name: str, content: bytes, sentence: str, tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path)
    (tmp_path / name).write_bytes(content)

    with pytest.raises(DataError, match=sentence):
        Tokenizer.load(tmp_path)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no tokenizer\.json"):
        Tokenizer.load(tmp_path)


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(DataError, match="cannot write the tokenizer"):
        TOKENIZER.save(tmp_path / "file")
