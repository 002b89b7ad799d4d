"""Named, independent random streams. Every random choice in whet takes its generator from here."""

import hashlib
import random

import numpy as np

Key = str | int


def derive(seed: int, *keys: Key) -> int:
    """Derive a 63-bit seed from a seed and names; different names give independent streams.

    >>> derive(1, "rollout", 3) == derive(1, "rollout", 3) != derive(1, "rollout", 4)
    True
    """
    text = repr((seed, *keys)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def make_rng(seed: int, *keys: Key) -> random.Random:
    """Make a Python generator, for shuffles and choices."""
    return random.Random(derive(seed, *keys))


def make_numpy_rng(seed: int, *keys: Key) -> np.random.Generator:
    """Make a numpy generator, for arrays."""
    return np.random.Generator(np.random.PCG64(derive(seed, *keys)))
