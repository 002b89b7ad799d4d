"""Pairs of answers on their way to the learner: what the reference thinks of them, then numbers and
weights."""

from collections.abc import Sequence
from dataclasses import replace

from whet.data.examples import Example, Pair
from whet.models.transformer import Transformer
from whet.train.learner import score_examples


def score_pairs(pairs: Sequence[Pair], reference: Transformer, micro_tokens: int) -> list[Pair]:
    """Add what the reference thinks of each token; an answer of several pairs is run once."""
    examples = {id(item): item for pair in pairs for item in (pair.chosen, pair.rejected)}
    found = score_examples(reference, list(examples.values()), micro_tokens)
    scored = {
        key: replace(item, ref_logprob=logprob)
        for (key, item), logprob in zip(examples.items(), found, strict=True)
    }
    return [
        Pair(chosen=scored[id(pair.chosen)], rejected=scored[id(pair.rejected)]) for pair in pairs
    ]


def weigh_pairs(pairs: Sequence[Pair]) -> list[Example]:
    """Lay out all pairs of one optimiser step, numbered, each with the same weight."""
    weight = 1.0 / len(pairs)
    return [
        replace(item, pair=number, is_chosen=is_chosen, weight=weight)
        for number, pair in enumerate(pairs)
        for item, is_chosen in ((pair.chosen, True), (pair.rejected, False))
    ]
