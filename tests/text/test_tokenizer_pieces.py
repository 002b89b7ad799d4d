"""The task tokenizer: numbers whole, phrases whole, the rest by characters, and the same in
transformers."""

import random
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from whet.errors import ConfigError
from whet.text.chat import ChatFormat
from whet.text.tokenizer import MAX_LEN, Tokenizer, split_pieces, train_tokenizer
from whet.types import Message

TRACE = "4 6 8 1\n8 - 4 = 4 left: 4 6 1\n4 - 5 = -1 left: -1 1/3\nanswer: (8 - 4) * 6 * 1 = 24\n"
TOKENIZER = train_tokenizer([TRACE, "13 - 12 = 1\n", "1/3 + -7 = -20/3\n"])
ASCII = st.text(alphabet=string.printable)


def _read(text: str) -> list[str]:
    return TOKENIZER.pieces(TOKENIZER.encode(text))


def test_numbers_are_single_tokens_with_their_space() -> None:
    assert _read("13 - 12 = 1\n") == ["13", " -", " 12", " =", " 1", "\n"]


def test_a_minus_is_a_sign_before_a_digit_and_an_operator_before_a_space() -> None:
    assert split_pieces(" - 5") == [" -", " 5"]
    assert split_pieces(" -5") == [" -5"]
    assert _read("4 - 5 = -1") == ["4", " -", " 5", " =", " -1"]


def test_fractions_are_whole() -> None:
    assert _read("1/3 + -7 = -20/3") == ["1/3", " +", " -7", " =", " -20/3"]


def test_a_run_ends_after_its_newline() -> None:
    assert split_pieces("a:\nb: 1\n\n2") == ["a:\n", "b:", " 1", "\n", "\n", "2"]


def test_unknown_text_falls_back_to_shorter_tokens() -> None:
    assert _read(" 999") == [" ", "9", "9", "9"]
    assert _read("qq left:") == ["q", "q", " left:"]


def test_a_long_run_costs_little_and_is_not_lost() -> None:
    text = "xyz " * 20_000

    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_only_a_character_without_a_token_is_lost() -> None:
    tokens = TOKENIZER.encode("4é - 5\x00")

    assert TOKENIZER.decode(tokens) == "4 - 5"
    assert TOKENIZER.pieces(tokens, keep_special=True) == ["4", "<unk>", " -", " 5", "<unk>"]


@pytest.mark.parametrize("name", ["<pad>", "<eos>", "<unk>"])
def test_the_name_of_a_special_token_is_plain_text(name: str) -> None:
    greedy = train_tokenizer([f"{name} x{name}", name] * 9)

    tokens = greedy.encode(f"1 {name}{name}")

    assert greedy.id(name) not in tokens
    assert greedy.decode(tokens) == f"1 {name}{name}"
    assert greedy.encode(name, special=True).tolist() == [greedy.id(name)]


@given(ASCII)
def test_any_ascii_text_comes_back(text: str) -> None:
    tokens = TOKENIZER.encode(text)

    assert TOKENIZER.decode(tokens) == text
    assert "".join(TOKENIZER.pieces(tokens)) == text


@given(st.text(alphabet="01 -/\n<eos>aé" + string.ascii_lowercase))
def test_pieces_are_counted_as_they_are_encoded(text: str) -> None:
    learned = train_tokenizer([text], max_pieces=10_000)

    known = [piece for piece in split_pieces(text) if piece.isascii()]

    assert (
        learned.pieces([token for token in learned.encode(text) if token != learned.id("<unk>")])
        == known
    )


def test_the_most_frequent_pieces_win_and_ties_go_by_text() -> None:
    learned = train_tokenizer(["77 cc 88 77", "bb 88 99"], max_pieces=2)

    # " 88" is seen twice; of those seen once, " 77" is the first by text.
    assert learned.vocab_size == len(string.printable) + 2 + 3
    assert (learned.id(" 77"), learned.id(" 88")) == (1 + 100 + 1, 1 + 100)


def test_words_are_single_tokens_numbers_digits_and_foreign_letters_are_kept() -> None:
    learned = train_tokenizer(["Ana Bodnár, 13 Ana Khan"], pieces="words")

    tokens = learned.encode("Ana Khan, Bodnár 31")

    assert learned.pieces(tokens) == [
        *("Ana", " Khan", ",", " Bodn", "á", "r", " ", "3", "1"),
    ]


def test_words_that_were_not_seen_come_back_and_special_names_stay_plain() -> None:
    learned = train_tokenizer(["one two <eos>"], pieces="words")

    tokens = learned.encode("two<eos> Lydia one")

    assert learned.decode(tokens) == "two<eos> Lydia one"
    assert learned.id("<eos>") not in tokens


def test_the_order_of_texts_does_not_matter(tmp_path: Path) -> None:
    texts = [f"{index % 17} + {index}\n" for index in range(300)]
    train_tokenizer(texts, max_pieces=50).save(tmp_path / "a")
    random.Random(1).shuffle(texts)
    train_tokenizer(texts, max_pieces=50).save(tmp_path / "b")

    assert (tmp_path / "a" / "tokenizer.json").read_bytes() == (
        tmp_path / "b" / "tokenizer.json"
    ).read_bytes()


def test_no_piece_is_longer_than_greedy_matching_can_afford() -> None:
    assert [len(piece) for piece in split_pieces("a" * 150)] == [
        MAX_LEN,
        MAX_LEN,
        150 - 2 * MAX_LEN,
    ]


def test_a_negative_number_of_pieces_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_pieces is -1"):
        train_tokenizer([], max_pieces=-1)


def test_transformers_reads_it_to_the_same_tokens(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path)

    own, foreign = Tokenizer.load(tmp_path), AutoTokenizer.from_pretrained(tmp_path)

    for text in (TRACE, " 999 é", "qq <eos>\n", "   \t\n\n x", "a" * 200):
        assert (
            foreign.encode(text, add_special_tokens=False)
            == own.encode(text, special=True).tolist()
        )
        assert foreign.decode(own.encode(text)) == own.decode(own.encode(text), keep_special=True)
    assert (foreign.eos_token_id, foreign.pad_token_id) == (own.eos, own.pad)
    assert len(foreign) == own.vocab_size


def test_the_plain_template_writes_the_question_a_newline_and_the_answer() -> None:
    chat = ChatFormat(TOKENIZER)
    messages = [
        Message(role="system", content="Be brief."),
        Message(role="user", content="4 6 8 1"),
        Message(role="assistant", content="8 - 4 = 4"),
    ]

    tokens, is_response = chat.conversation(messages)

    assert chat.render(messages, False) == "4 6 8 1\n8 - 4 = 4<eos>"
    assert TOKENIZER.pieces(tokens, keep_special=True) == [
        *"4",
        " 6",
        " 8",
        " 1",
        "\n",
        "8",
        " -",
        " 4",
        " =",
        " 4",
        "<eos>",
    ]
    assert is_response.tolist() == [False] * 5 + [True] * 6
    assert chat.encode_prompt(messages[:-1]).tolist() == tokens[:5].tolist()
    assert chat.stop_tokens == {TOKENIZER.id("<eos>")}
