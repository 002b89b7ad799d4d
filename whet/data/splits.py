"""Split problems by the hash of their text: a problem keeps its split when rows are added."""

from collections.abc import Mapping
from itertools import accumulate

from whet.errors import ConfigError
from whet.rng import derive
from whet.types import SPLITS, Split

_RANGE = 1 << 63


def split_by_hash(text: str, fractions: Mapping[Split, float], seed: int) -> Split:
    """Return the split of a text, which depends on the text alone.

    >>> split_by_hash("What is 2 + 2?", {"rl": 0.9, "dev": 0.1}, seed=42)
    'rl'
    """
    names = [split for split in SPLITS if fractions.get(split, 0.0) > 0]
    ends = list(accumulate(fractions[split] for split in names))
    if len(names) < len([value for value in fractions.values() if value]) or not names:
        raise ConfigError(f"split = {dict(fractions)} should give sft, rl, dev or test a fraction")
    if abs(ends[-1] - 1) > 1e-6:
        raise ConfigError(f"the fractions of a split should add up to 1, not to {ends[-1]:g}")
    position = derive(seed, "split", text) / _RANGE
    chosen = (name for name, end in zip(names, ends, strict=True) if position < end)
    return next(chosen, names[-1])
