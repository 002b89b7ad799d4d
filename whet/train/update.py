"""From credited examples to moved weights: mini-batches, weights, and the two passes some algorithms need before."""

from collections.abc import Sequence
from dataclasses import replace

from whet.algos.catalog import Algorithm
from whet.data.examples import Example
from whet.models.transformer import Transformer
from whet.rng import stream
from whet.train.credit import weigh
from whet.train.learner import Learner, Metrics, score_examples


def with_reference(examples: Sequence[Example], reference: Transformer | None, micro_tokens: int) -> list[Example]:
    """Add what the starting policy thinks of each token; nothing where there is no reference."""
    if reference is None:
        return list(examples)
    found = score_examples(reference, examples, micro_tokens)
    return [replace(example, ref_logprob=logprob) for example, logprob in zip(examples, found, strict=True)]


def with_old(examples: Sequence[Example], learner: Learner) -> list[Example]:
    """Fix the log-probabilities at the start of a step, which later mini-batches are compared with."""
    found = learner.logprobs(examples)
    return [replace(example, old_logprob=logprob) for example, logprob in zip(examples, found, strict=True)]


def update(learner: Learner, examples: Sequence[Example], algo: Algorithm, *, seed: int) -> Metrics:
    """Take one optimiser step a mini-batch. Groups of equal reward keep their share of every divisor.

    Where an advantage of zero means a gradient of zero, those examples are not run at all: it changes nothing.
    """
    if algo.minibatches > 1:
        examples = with_old(examples, learner)
    collected: list[Metrics] = []
    for batch in _minibatches(examples, algo.minibatches, seed):
        weighed = weigh(batch, algo.weights)
        live = [example for example in weighed if example.advantage != 0 or algo.trains_on_zero_advantage]
        if live:
            collected.append(learner.update(live, algo.objective))
    if not collected:
        return {"step/empty": 1.0}
    names = collected[0].keys()
    return {name: sum(metrics[name] for metrics in collected) / len(collected) for name in names} | {"step/empty": 0.0}


def _minibatches(examples: Sequence[Example], count: int, seed: int) -> list[list[Example]]:
    if count == 1:
        return [list(examples)]
    order = list(examples)
    stream(seed, "minibatches").shuffle(order)
    return [part for part in (order[index::count] for index in range(count)) if part]
