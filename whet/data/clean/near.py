"""Near duplicates: MinHash finds candidates, and the Jaccard similarity of their shingles decides.

A shingle is three words in a row. A row is compared with the rows before it, and is left out only
in favour of a kept one, so each dropped row has a kept partner above the threshold.
"""

from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from whet.data.clean.word_hashes import HashedWords, Hashes, hash_ngrams, mix_hashes
from whet.rng import make_numpy_rng
from whet.types import Advance, Indices

SHINGLE = 3
"""Words per shingle. Questions are short: if one word of thirty changes, the similarity is 0.81,
but only 0.68 with the five words that are usual for documents."""
NUM_HASHES = 120
MIN_RECALL = 0.99
"""Of pairs exactly at the threshold, the fraction that MinHash should find."""
MIN_THRESHOLD = 0.5
_BLOCK = 2000
"""Pairs compared at a time."""
ReadWords = Callable[[Sequence[int]], HashedWords]
"""Reads rows by their numbers and hashes their words."""


def choose_band_size(threshold: float) -> int:
    """Choose how many hashes make a band: the most that still find pairs at the threshold.

    Two rows are candidates if all hashes of a band agree. Rows of similarity s do so with
    probability 1 - (1 - s^size)^bands.

    >>> choose_band_size(0.8), choose_band_size(0.5)
    (6, 3)
    """
    sizes = [size for size in range(1, 21) if NUM_HASHES % size == 0]
    recalls = {size: 1 - (1 - threshold**size) ** (NUM_HASHES // size) for size in sizes}
    return max(size for size in sizes if size == 1 or recalls[size] >= MIN_RECALL)


def hash_bands(words: HashedWords, salts: Hashes, band_size: int) -> Hashes:
    """Hash each text to one number per band [texts, bands]; equal numbers make candidates.

    Rows with different salts are never candidates.
    """
    shingles = hash_ngrams(words, SHINGLE, is_short_whole=True)
    is_filled = shingles.counts > 0
    short = (shingles.hashes >> np.uint64(32)).astype(np.uint32)
    starts = shingles.starts[:-1][is_filled]
    bands = np.zeros((NUM_HASHES // band_size, len(salts)), dtype=np.uint64)
    products = np.empty_like(short)
    for index, (factor, salt) in enumerate(zip(_FACTORS, _SALTS, strict=True)):
        if len(starts):
            np.multiply(short, factor, out=products)
            minima = np.minimum.reduceat(products, starts).astype(np.uint64)
            bands[index // band_size, is_filled] += minima * salt
    return mix_hashes(bands + salts).T


def pair_candidates(bands: Hashes, rows: Indices) -> Indices:
    """List pairs of rows that agree in a band [pairs, 2], earlier row first, by the later row.

    A row is paired with the first row of its bucket and with the one before it, so a bucket of
    copies has twice as many pairs as rows, not their square.
    """
    packed = [np.zeros(0, dtype=np.uint64)]
    for band in bands.T:
        keys = band[rows]
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        index = np.arange(len(keys))
        is_same = (index > 0) & (keys == np.roll(keys, 1))
        first = np.maximum.accumulate(np.where(is_same, 0, index))
        for partner in (first, index - 1):
            earlier = rows[order[partner[is_same]]].astype(np.uint64)
            later = rows[order[is_same]].astype(np.uint64)
            packed.append(later << np.uint64(32) | earlier)
    pairs = np.unique(np.concatenate(packed))
    return np.stack([pairs & np.uint64(0xFFFFFFFF), pairs >> np.uint64(32)], axis=1).astype(
        np.int64
    )


def find_near_duplicates(
    pairs: Indices, read_words: ReadWords, threshold: float, advance: Advance
) -> dict[int, tuple[int, float]]:
    """Return the rows to leave out, each with the row kept in its place and their similarity."""
    replaced: dict[int, tuple[int, float]] = {}
    for start in range(0, len(pairs), _BLOCK):
        block = pairs[start : start + _BLOCK]
        similar = [
            (later, earlier, value)
            for (earlier, later), value in zip(
                block.tolist(), measure_pairs(block, read_words), strict=True
            )
            if value >= threshold
        ]
        for later, partners in groupby(similar, key=lambda pair: pair[0]):
            if later not in replaced:
                kept = _find_kept(later, [p[1:] for p in partners], replaced, read_words, threshold)
                if kept is not None:
                    replaced[later] = kept
        advance(len(block))
    return replaced


def _find_kept(
    row: int,
    partners: Sequence[tuple[int, float]],
    replaced: dict[int, tuple[int, float]],
    read_words: ReadWords,
    threshold: float,
) -> tuple[int, float] | None:
    """Find a similar row that is kept: a partner, or the row kept in a partner's place."""
    kept = [partner for partner in partners if partner[0] not in replaced]
    if kept:
        return max(kept, key=lambda partner: partner[1])
    for other in dict.fromkeys(replaced[partner][0] for partner, _ in partners):
        value = measure_pairs(np.array([[other, row]]), read_words)[0]
        if value >= threshold:
            return other, value
    return None


def measure_pairs(pairs: Indices, read_words: ReadWords) -> list[float]:
    """Measure the Jaccard similarity of pairs: shared shingles over all shingles."""
    rows = np.unique(pairs)
    shingles = hash_ngrams(read_words(rows.tolist()), SHINGLE, is_short_whole=True)
    sets = [
        np.unique(shingles.hashes[start:end])
        for start, end in zip(shingles.starts[:-1], shingles.starts[1:], strict=True)
    ]
    places = np.searchsorted(rows, pairs).tolist()
    return [_jaccard(sets[first], sets[second]) for first, second in places]


def _jaccard(first: Hashes, second: Hashes) -> float:
    union = len(np.union1d(first, second))
    return (len(first) + len(second) - union) / union if union else 0.0


_RNG = make_numpy_rng(0, "minhash")
_FACTORS: NDArray[np.uint32] = _RNG.integers(0, 1 << 31, NUM_HASHES, dtype=np.uint32) * 2 + 1
_SALTS: Hashes = _RNG.integers(0, 1 << 63, NUM_HASHES, dtype=np.uint64) * np.uint64(2) + np.uint64(
    1
)
