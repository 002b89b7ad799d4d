"""Near duplicates: found by MinHash, decided by true similarity, and left out for a row that is kept."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from whet.data.clean.near import (
    choose_band_size,
    find_near_duplicates,
    hash_bands,
    measure_pairs,
    pair_candidates,
)
from whet.data.clean.word_hashes import HashedWords, hash_words

Replaced = dict[int, tuple[int, float]]


def find(
    texts: Sequence[str], threshold: float = 0.8, salts: Sequence[int] | None = None
) -> Replaced:
    words = hash_words(texts)
    bands = hash_bands(
        words, np.array(salts or [0] * len(texts), dtype=np.uint64), choose_band_size(threshold)
    )
    pairs = pair_candidates(bands, np.arange(len(texts)))

    def read(rows: Sequence[int]) -> HashedWords:
        return hash_words([texts[row] for row in rows])

    return find_near_duplicates(pairs, read, threshold, lambda count: None)


def sentence(seed: int, length: int = 60) -> list[str]:
    numbers = random.Random(seed)
    return [f"w{numbers.randrange(5000)}" for _ in range(length)]


def changed(words: list[str], *places: int) -> str:
    return " ".join(f"new{i}" if i in places else word for i, word in enumerate(words))


def test_the_similarity_is_shingles_in_both_of_those_in_either() -> None:
    texts = ["a b c d", "a b c e", "x y z"]

    def read(rows: Sequence[int]) -> HashedWords:
        return hash_words([texts[row] for row in rows])

    assert measure_pairs(np.array([[0, 1], [0, 2], [0, 0]]), read) == [1 / 3, 0.0, 1.0]


def test_a_row_with_two_changed_words_is_left_out_for_the_first() -> None:
    words = sentence(1)
    found = find([" ".join(sentence(2)), " ".join(words), changed(words, 10, 40)])
    assert found == {2: (1, pytest.approx(52 / 64))}


def test_a_row_below_the_threshold_stays() -> None:
    words = sentence(1)
    assert find([" ".join(words), changed(words, 10, 20, 30, 40)]) == {}


def test_rows_of_different_salts_never_meet() -> None:
    words = sentence(1)
    texts = [" ".join(words), changed(words, 10)]
    assert find(texts, salts=[1, 1]) and not find(texts, salts=[1, 2])


def test_every_row_left_out_is_similar_to_one_that_is_kept() -> None:
    """A chain in which each row is like the one before it and unlike the first."""
    words = sentence(3)
    chain = [changed(words, *range(5, 5 + 15 * step, 15)) for step in range(4)]
    found = find(chain, threshold=0.85)
    assert found.keys() == {1, 3}
    assert all(partner not in found for partner, _ in found.values())


def test_nearly_all_pairs_at_the_threshold_are_found() -> None:
    texts = []
    for seed in range(300):
        words = sentence(seed)
        texts += [" ".join(words), changed(words, 10, 40)]
    found = find(texts)
    assert len(found) >= 0.97 * 300
    assert all(row == partner + 1 for row, (partner, _) in found.items())


def test_a_bucket_of_copies_has_twice_as_many_pairs_as_rows_and_not_their_square() -> None:
    bands = np.zeros((1000, 3), dtype=np.uint64)
    assert len(pair_candidates(bands, np.arange(1000))) == 1997


def test_rows_without_words_are_no_duplicates() -> None:
    assert find(["", "", " "]) == {}
