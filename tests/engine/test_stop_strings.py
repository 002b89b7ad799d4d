"""Stop strings found in tails of a response are those found in all of it, for tokens that are
pieces of characters too, and the work grows with the length."""

from collections.abc import Callable

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models
from tokenizers.pre_tokenizers import ByteLevel

from whet.engine.base import Detokenize
from whet.engine.stop_strings import StopStringSearch
from whet.rng import make_rng
from whet.text.tokenizer import Tokenizer, train_tokenizer
from whet.types import Tokens

WORDS = ("\n\n", "中文", " a b", "b.", "é", "😀a", "a" * 30)
TEXTS = ("a", " a", "b", " b", ".", "\n", " ", "中", "文", "é", "😀", "aaaaaaaa", " the", "x")


def byte_level() -> Tokenizer:
    """Every byte is a token, so most characters are cut; two tokens are several bytes."""
    letters = {letter: index for index, letter in enumerate(sorted(ByteLevel.alphabet()))}
    vocabulary = letters | {"ĠĠ": 256, "ä¸Ń": 257, "<end>": 258}
    core = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(["<end>"])
    return Tokenizer(core, {})


def byte_fallback() -> Tokenizer:
    """As Llama 2: words begin with a space that the first one loses, and a run of byte tokens is
    either all valid or all invalid."""
    pieces = [text.replace(" ", "▁") for text in TEXTS if text not in ("\n", "文")]
    names = ["<unk>", *pieces, *(f"<0x{byte:02X}>" for byte in range(256)), "<end>"]
    vocabulary = {name: index for index, name in enumerate(dict.fromkeys(names))}
    core = tokenizers.Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    core.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    core.add_special_tokens(["<end>"])
    return Tokenizer(core, {})


def word_piece() -> Tokenizer:
    """Words are joined by spaces, except before marks."""
    names = ["<unk>", *(text.strip() for text in TEXTS if text.strip()), "##a", "##b", "<end>"]
    vocabulary = {name: index for index, name in enumerate(dict.fromkeys(names))}
    core = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="<unk>"))
    core.decoder = decoders.WordPiece()
    core.add_special_tokens(["<end>"])
    return Tokenizer(core, {})


def phrases() -> Tokenizer:
    return train_tokenizer(["a b a b. the x", "a the"])


TOKENIZERS = [byte_level, byte_fallback, word_piece, phrases]


def find_in_all(words: tuple[str, ...], tokens: Tokens, detokenize: Detokenize) -> int | None:
    for end in range(1, len(tokens) + 1):
        if any(word in detokenize(tokens[:end]) for word in words):
            return end
    return None


def bytes_of(tokenizer: Tokenizer) -> list[list[int]]:
    """The bytes of each text as tokens, where the tokenizer has byte tokens."""
    if "<0x0A>" in tokenizer.vocabulary:
        return [[tokenizer.id(f"<0x{byte:02X}>") for byte in text.encode()] for text in TEXTS]
    if len(tokenizer.vocabulary) == 259:
        alphabet = byte_letters()
        return [[tokenizer.id(alphabet[byte]) for byte in text.encode()] for text in TEXTS]
    return []


def byte_letters() -> dict[int, str]:
    """The letter of each byte in byte-level tokens, which ByteLevel writes for single characters
    below 128, and for the two bytes of those below 256."""
    encode = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str
    letters: dict[int, str] = {}
    for text in [*map(chr, range(256)), *TEXTS]:
        [(word, _)] = encode(text)
        letters |= dict(zip(text.encode(), word, strict=True))
    return letters


def random_tokens(tokenizer: Tokenizer, seed: int, length: int) -> Tokens:
    """Whole texts, runs of one token, and now and then any token at all, valid or not."""
    rng = make_rng(seed, "text")
    whole = [tokenizer.encode(text).tolist() for text in TEXTS] + bytes_of(tokenizer)
    tokens: list[int] = []
    while len(tokens) < length:
        kind = rng.random()
        if kind < 0.1:
            tokens.append(rng.randrange(tokenizer.vocab_size))
        elif kind < 0.2:
            tokens += [rng.choice(rng.choice(whole) or [0])] * rng.randrange(30)
        else:
            tokens += rng.choice(whole)
    return np.array(tokens[:length], dtype=np.int32)


@pytest.mark.parametrize("build", TOKENIZERS)
def test_a_search_in_tails_ends_where_a_search_in_all_of_the_text_does(
    build: Callable[[], Tokenizer],
) -> None:
    tokenizer = build()
    ends = list[int]()
    for seed in range(150):
        tokens = random_tokens(tokenizer, seed, 150)
        rng = make_rng(seed, "words")
        words = tuple(rng.sample(WORDS, rng.randrange(1, 3)))
        search = StopStringSearch(words, tokenizer.decode)
        cut = rng.randrange(len(tokens))

        found = search.find_end(tokens[:cut]) or search.find_end(tokens)

        assert found == find_in_all(words, tokens, tokenizer.decode), (seed, words)
        ends.append(found or 0)
    assert sum(end == 0 for end in ends) > 10 and sum(end > 40 for end in ends) > 10


@pytest.mark.parametrize("build", TOKENIZERS)
@pytest.mark.parametrize("longest", [2, 100])
def test_the_tokens_to_decode_grow_with_the_length_and_not_with_its_square(
    build: Callable[[], Tokenizer], longest: int
) -> None:
    tokenizer = build()
    counted = list[int]()

    def detokenize(tokens: Tokens) -> str:
        counted.append(len(tokens))
        return tokenizer.decode(tokens)

    tokens = random_tokens(tokenizer, 0, 4000)
    totals = list[int]()
    for length in (1000, 4000):
        counted.clear()
        assert StopStringSearch(("Q" * longest,), detokenize).find_end(tokens[:length]) is None
        totals.append(sum(counted))

    assert totals[1] < 6 * totals[0], "4 times the tokens would be 16 times the work"
    assert totals[1] < 4000 * (50 + 10 * longest), "on average a tail, and not half of all"
