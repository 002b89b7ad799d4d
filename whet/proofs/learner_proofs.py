"""Proofs of the learner: weights, targets, packing, splits, the first ratio; and pass@k."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import comb

import numpy as np
import torch
from torch import Tensor

from whet.algos import catalog
from whet.algos.losses import TokenTerms
from whet.algos.rows import ROWS, WeightsName
from whet.data.examples import Example, to_batch
from whet.evals import stats
from whet.models.transformer import Transformer
from whet.proofs import specimen
from whet.proofs.base import Measure
from whet.rng import stream
from whet.train import credit
from whet.train.learner import LocalLearner, divide, score_batch
from whet.train.optim import TrainConfig

LENGTHS = tuple(length - start for length, start in specimen.SHAPES)
DIVISOR = 50
MICRO_TOKENS = (40, 60, 85, 100, 10_000)
"""Sizes of micro-batches: the longest example alone, several, all at once."""


def divisor() -> Measure:
    """Compare the weights of each rule with those worked out from all lengths."""
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
        weights = [
            example.weight for example in credit.weigh(specimen.make_examples(), algo.weights)
        ]
        off[name] = max(abs(ours / right - 1) for ours, right in zip(weights, wanted, strict=True))
    worst = max(off, key=lambda name: off[name])
    text = f"weights of {len(off)} rules over {total} tokens are off by {off[worst]:.1e}"
    return Measure(
        gap=off[worst], limit=1e-12, text=text + (f" ({worst})" if off[worst] > 1e-12 else "")
    )


def targets() -> Measure:
    """Count the tokens whose loss a step sums, for micro-batches of several sizes."""
    total = sum(LENGTHS)
    model = specimen.model(dtype=torch.float32)
    examples = specimen.make_examples()
    missing = {}
    for tokens in MICRO_TOKENS:
        seen: list[int] = []

        def loss(terms: TokenTerms, seen: list[int] = seen) -> tuple[Tensor, dict[str, Tensor]]:
            seen.append(len(terms.logprob_M))
            return 0.0 * terms.logprob_M, {}

        learner = LocalLearner(model, TrainConfig(micro_tokens=tokens), steps=1)
        learner.accumulate(examples, catalog.Objective(loss=loss))
        scored = sum(len(scores) for scores in learner.logprobs(examples))
        missing[tokens] = max(abs(total - sum(seen)), abs(total - scored))
    worst = max(missing, key=lambda tokens: missing[tokens])
    sizes = f"micro-batches of {MICRO_TOKENS[0]} to {MICRO_TOKENS[-1]:,} tokens"
    text = f"{missing[worst]} of {total} targets are missed or seen twice, {sizes}"
    return Measure(gap=missing[worst], limit=0, text=text)


def pass_at_k() -> Measure:
    """Compare pass@k with enumeration, and its mean over draws with the true chance."""
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
        text=f"off by {max(gaps):.1e} from enumeration, up to {n} answers",
    )


LIMIT = 1e-5
"""Of the norm, in float32: what another order of adding up may change."""
CLOSE = 1e-4
"""Between a decode and a packed pass in float32, in nats."""
PENALISED = catalog.AlgoConfig(name="dapo", kl=0.1, entropy=0.01)
SEQUENCES = catalog.AlgoConfig(name="gspo")


@torch.no_grad()
def packing() -> Measure:
    """Score examples laid end to end and one by one."""
    model = specimen.model(dtype=torch.float32)
    examples = credit.weigh(specimen.make_examples(), _algo(PENALISED).weights)
    together, losses = _scores(model, examples)
    alone = [_scores(model, [example]) for example in examples]
    apart = float((together - torch.cat([scores for scores, _ in alone])).abs().max())
    total = float(sum(loss for _, loss in alone))
    gap = abs(losses / total - 1) if apart <= CLOSE else apart
    text = (
        f"loss {losses:.6f} packed and {total:.6f} one by one; log-probabilities up to {apart:.1e} "
        "apart"
    )
    return Measure(gap=gap, limit=LIMIT, text=text)


def splits() -> Measure:
    """Compute the gradient of one step in many splits, and compare with one by one."""
    off = {}
    model = specimen.model(dtype=torch.float32)
    for cfg in (PENALISED, SEQUENCES):
        algo = _algo(cfg)
        examples = credit.weigh(specimen.make_examples(), algo.weights)
        expected = _gradient(
            model, [[example] for example in examples], algo.objective, one_by_one=True
        )
        for name, parts, tokens in _ways(examples):
            gradients = _gradient(model, parts, algo.objective, tokens=tokens)
            off[f"{cfg.name}, {name}"] = max(
                (
                    float((gradients[key] - wanted).norm() / wanted.norm())
                    for key, wanted in expected.items()
                ),
                default=float("inf"),
            )
    worst = max(off, key=lambda name: off[name])
    return Measure(
        gap=off[worst],
        limit=LIMIT,
        text=f"{len(off)} ways to split it are up to {off[worst]:.1e} off ({worst})",
    )


def ratio() -> Measure:
    """Take the first loss of every algorithm: with ratio 1 a clipped one is -advantage."""
    policy = specimen.policy()
    examples = specimen.sample_examples(policy)
    learner = policy.learner(TrainConfig(micro_tokens=100), steps=1)
    off = {}
    names = [name for name, row in ROWS.items() if row.steps is None and row.advantage != "gae"]
    for name in names:
        algo = catalog.build(catalog.AlgoConfig(name=name), max_tokens=16)
        weighed = credit.weigh(examples, algo.weights)
        metrics = divide(learner.accumulate(weighed, algo.objective))
        learner.discard()
        off[name] = abs(metrics["policy/ratio"] - 1) + metrics["policy/step_kl"]
        if ROWS[name].surrogate == "clip":
            expected = -sum(e.weight * e.num_targets * float(np.mean(e.advantage)) for e in weighed)
            off[name] = max(off[name], abs(metrics["loss"] - expected) - 1e-5)
    worst = max(off, key=lambda name: off[name])
    text = f"first ratio of {len(names)} algorithms is off by {max(off[worst], 0):.1e}"
    return Measure(gap=off[worst], limit=0.0, text=text + (f" ({worst})" if off[worst] > 0 else ""))


def _algo(cfg: catalog.AlgoConfig) -> catalog.Algorithm:
    return catalog.build(cfg, max_tokens=16)


def _scores(model: Transformer, examples: list[Example]) -> tuple[Tensor, float]:
    batch = to_batch(examples, model.device)
    logprob_M, _ = score_batch(model, batch)
    return logprob_M, float(-(logprob_M * batch.weight_M).sum())


def _ways(examples: Sequence[Example]) -> Iterator[tuple[str, list[list[Example]], int]]:
    """Name, examples of each accumulation, and tokens of a micro-batch."""
    shuffled = list(examples)
    stream(0, "splits").shuffle(shuffled)
    for tokens in (40, 60, 100, 10_000):
        yield f"micro-batches of {tokens} tokens", [list(examples)], tokens
        yield f"shuffled, micro-batches of {tokens} tokens", [shuffled], tokens
    yield "backwards", [list(examples)[::-1]], 10_000
    yield "accumulated in two parts", [list(examples)[:3], list(examples)[3:]], 60
    yield (
        "accumulated in pairs",
        [shuffled[at : at + 2] for at in range(0, len(shuffled), 2)],
        10_000,
    )


def _gradient(
    model: Transformer,
    parts: Sequence[Sequence[Example]],
    objective: catalog.Objective,
    *,
    tokens: int = 10_000,
    one_by_one: bool = False,
) -> dict[str, Tensor]:
    learner = LocalLearner(model, TrainConfig(micro_tokens=tokens), steps=1)
    model.zero_grad()
    for part in parts:
        if one_by_one:
            learner.forward_backward(to_batch(list(part), learner.device), objective)
        else:
            learner.accumulate(part, objective)
    gradients = {
        name: weight.grad.clone()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }
    model.zero_grad()
    return gradients
