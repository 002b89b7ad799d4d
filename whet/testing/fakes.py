"""Small stand-ins for tests: an example of a given length, a scripted engine."""

import numpy as np

from whet.data.examples import Example


def example(*, length: int, start: int = 1, weight: float = 1.0, seed: int = 0) -> Example:
    """Make a training sequence of random tokens below 50."""
    tokens = np.random.default_rng(seed).integers(0, 50, size=length).astype(np.int32)
    logprob = np.zeros(length - start, dtype=np.float32)
    return Example(tokens=tokens, start=start, group="g", rollout=f"r{seed}", weight=weight, logprob=logprob)
