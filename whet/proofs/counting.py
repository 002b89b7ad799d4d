"""Proofs by counting: token weights, the targets that a step sees, pass@k."""

from itertools import combinations
from math import comb

import torch
from torch import Tensor

from whet.algos import catalog
from whet.algos.rows import WeightsName
from whet.algos.terms import TokenTerms
from whet.evals import stats
from whet.proofs import specimen
from whet.proofs.base import Measure
from whet.train import credit
from whet.train.learner import Learner
from whet.train.optim import TrainConfig

LENGTHS = tuple(length - start for length, start in specimen.SHAPES)
DIVISOR = 50
MICRO_TOKENS = (40, 60, 85, 100, 10_000)
"""Sizes of micro-batches: the longest example alone, several, all at once."""


def divisor() -> Measure:
    """Compare the weights that each rule gives a step with those worked out from all of its
    lengths."""
    total = sum(LENGTHS)
    count = len(LENGTHS)
    expected: dict[WeightsName, list[float]] = {
        "token_mean": [1 / total] * count,
        "sequence_mean": [1 / (count * length) for length in LENGTHS],
        "sequence_sum": [1 / count] * count,
        "constant": [1 / (count * DIVISOR)] * count,
    }
    off: dict[str, float] = {}
    for name, wanted in expected.items():
        algo = catalog.build(catalog.AlgoConfig(weights=name), max_tokens=DIVISOR)
        found = [example.weight for example in credit.weigh(specimen.written(), algo.weights)]
        off[name] = max(abs(ours / right - 1) for ours, right in zip(found, wanted, strict=True))
    worst = max(off, key=lambda name: off[name])
    said = f"weights of {len(off)} rules over {total} tokens are off by {off[worst]:.1e}"
    return Measure(
        gap=off[worst], limit=1e-12, said=said + (f" ({worst})" if off[worst] > 1e-12 else "")
    )


def targets() -> Measure:
    """Count the tokens whose loss a step sums, for micro-batches of several sizes."""
    total = sum(LENGTHS)
    model = specimen.model(dtype=torch.float32)
    examples = specimen.written()
    missing = {}
    for tokens in MICRO_TOKENS:
        seen: list[int] = []

        def loss(terms: TokenTerms, seen: list[int] = seen) -> tuple[Tensor, dict[str, Tensor]]:
            seen.append(len(terms.logprob_M))
            return 0.0 * terms.logprob_M, {}

        learner = Learner(model, TrainConfig(micro_tokens=tokens), steps=1)
        learner.accumulate(examples, catalog.Objective(loss=loss))
        scored = sum(len(found) for found in learner.logprobs(examples))
        missing[tokens] = max(abs(total - sum(seen)), abs(total - scored))
    worst = max(missing, key=lambda tokens: missing[tokens])
    sizes = f"micro-batches of {MICRO_TOKENS[0]} to {MICRO_TOKENS[-1]:,} tokens"
    said = f"{missing[worst]} of {total} targets are missed or seen twice, {sizes}"
    return Measure(gap=missing[worst], limit=0, said=said)


def pass_at_k() -> Measure:
    """Compare pass@k with all ways to pick k of n answers, and its mean over draws with the chance
    it estimates."""
    n = 6
    gaps = []
    for k in range(1, n + 1):
        for correct in range(n + 1):
            picks = [min(pick) < correct for pick in combinations(range(n), k)]
            gaps.append(abs(stats.pass_at_k(n, correct, k) - sum(picks) / len(picks)))
        for chance in (0.1, 0.5, 0.9):
            draws = [comb(n, c) * chance**c * (1 - chance) ** (n - c) for c in range(n + 1)]
            mean = sum(draw * stats.pass_at_k(n, c, k) for c, draw in enumerate(draws))
            gaps.append(abs(mean - (1 - (1 - chance) ** k)))
    return Measure(
        gap=max(gaps),
        limit=1e-9,
        said=f"off by {max(gaps):.1e} from enumeration, up to {n} answers",
    )
