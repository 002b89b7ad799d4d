"""Words and n-grams of many texts at once, as 64-bit hashes in numpy.

A word is a run of letters and digits, one Chinese, Japanese or Korean character, or a sign that
changes a formula: + - / = < > ^. Case, spaces and other signs make no difference.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from whet.rng import make_numpy_rng
from whet.types import Indices

Hashes = NDArray[np.uint64]
MAX_CHARACTERS = 1 << 20
"""Longer texts are compared by their beginning."""
_SIGNS = b"+-/=<>^"
_WIDE = re.compile("([\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff])")
_NO_WORD = re.compile(r"[^\w+\-/=<>^]+")
_WORD = re.compile(r"[a-z0-9\u0080-\U0010ffff]+|[+\-/=<>^]")
_SEPARATOR, _LETTER, _SIGN = 0, 1, 2
_ODD = np.uint64(1)


def normalise(text: str) -> str:
    """Write a text so that copies that differ in case, spaces or width of letters are equal.

    >>> normalise("What  is\\n2 + 2?")
    'what is 2 + 2?'
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.lower().split())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HashedWords:
    """The words of texts, end to end: text i has hashes[starts[i] : starts[i + 1]]."""

    hashes: Hashes
    starts: Indices

    @property
    def counts(self) -> Indices:
        """Return the number of words of each text."""
        return np.diff(self.starts)


def hash_words(texts: Sequence[str]) -> HashedWords:
    """Hash the words of normalised texts."""
    parts = [_to_bytes(text) for text in texts]
    data = np.frombuffer(b"\n".join(parts) + b"\n", dtype=np.uint8)
    ends = np.cumsum([len(part) + 1 for part in parts], dtype=np.int64)
    kinds = _KINDS[data]
    begins = kinds == _SIGN
    begins[0] |= kinds[0] == _LETTER
    begins[1:] |= (kinds[1:] == _LETTER) & (kinds[:-1] != _LETTER)
    first = np.flatnonzero(begins)
    starts = np.concatenate([[0], np.searchsorted(first, ends)]).astype(np.int64)
    # A separator is worth 0, so that a sum from word to word is that of the word alone.
    sums = _sum_powers(_VALUES[data])
    _, inverses = _powers(_table_size(len(data)))
    hashes = (sums[np.append(first[1:], len(data))[: len(first)]] - sums[first]) * inverses[first]
    return HashedWords(hashes=mix_hashes(hashes), starts=starts)


def list_words(text: str) -> list[str]:
    """List the words of a normalised text, as `hash_words` splits it.

    >>> list_words("is x+1 = 2, or not?")
    ['is', 'x', '+', '1', '=', '2', 'or', 'not']
    """
    return _WORD.findall(_to_bytes(text).decode())


def hash_ngrams(words: HashedWords, n: int, *, is_short_whole: bool = False) -> HashedWords:
    """Hash every n words in a row, text by text.

    A shorter text has no n-gram, or with `is_short_whole` a single one of all its words.
    """
    counts = words.counts
    sizes = np.minimum(counts, n) if is_short_whole else np.full_like(counts, n)
    num_grams = np.where(counts > 0, np.maximum(counts - sizes + 1, 0), 0)
    starts = np.concatenate([[0], np.cumsum(num_grams)])
    total = int(starts[-1])
    first = np.repeat(words.starts[:-1] - starts[:-1], num_grams) + np.arange(total)
    sums = _sum_powers(words.hashes)
    _, inverses = _powers(_table_size(len(words.hashes)))
    hashes = (sums[first + np.repeat(sizes, num_grams)] - sums[first]) * inverses[first]
    return HashedWords(hashes=mix_hashes(hashes), starts=starts)


def _to_bytes(text: str) -> bytes:
    text = text[:MAX_CHARACTERS]
    if not text.isascii():
        text = _WIDE.sub(r" \1 ", _NO_WORD.sub(" ", text))
    return text.encode("utf-8", "replace")


def _sum_powers(values: Hashes) -> Hashes:
    """Sum values times powers, from the left.

    The sum over a window is the difference of two such sums. Times the inverse power of its start,
    it does not depend on the position of the window (Karp and Rabin 1987).
    """
    powers, _ = _powers(_table_size(len(values)))
    sums = np.zeros(len(values) + 1, dtype=np.uint64)
    np.cumsum(values * powers[: len(values)], out=sums[1:])
    return sums


def _table_size(count: int) -> int:
    """Round a length up to a power of two, so that few tables are made."""
    return 1 << max(count, 1 << 20).bit_length()


def mix_hashes(hashes: Hashes) -> Hashes:
    """Spread the bits of a hash (splitmix64, Steele et al. 2014)."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))


def _draw_salts(name: str, count: int) -> Hashes:
    rng = make_numpy_rng(0, "words", name)
    return rng.integers(0, 1 << 63, count, dtype=np.uint64) * np.uint64(2) + _ODD


def _make_kinds() -> NDArray[np.uint8]:
    kinds = np.zeros(256, dtype=np.uint8)
    kinds[128:] = _LETTER
    for character in b"0123456789abcdefghijklmnopqrstuvwxyz":
        kinds[character] = _LETTER
    kinds[list(_SIGNS)] = _SIGN
    return kinds


@lru_cache(maxsize=2)
def _powers(count: int) -> tuple[Hashes, Hashes]:
    """Return the powers of a random odd number and of its inverse, modulo 2^64."""
    base = int(_draw_salts("base", 1)[0])
    inverse = pow(base, -1, 1 << 64)
    powers = []
    for number in (base, inverse):
        row = np.full(count, number, dtype=np.uint64)
        row[0] = _ODD
        powers.append(np.cumprod(row))
    return powers[0], powers[1]


_KINDS = _make_kinds()
_VALUES = np.where(_KINDS == _SEPARATOR, np.uint64(0), _draw_salts("letters", 256))
