"""Groups of rewarded rollouts become training examples: advantages, then weights. Plain numbers, no model."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from whet.algos.advantages import State
from whet.algos.catalog import Algorithm
from whet.algos.weights import Weights
from whet.data.examples import Example
from whet.types import Group, Rollout


def credit(
    groups: Sequence[Group], algo: Algorithm, state: State, *, temperature: float
) -> tuple[list[Example], State]:
    """Turn each rollout into an example with its advantage. Unscored rollouts and groups of one scored are left out."""
    scored = [[rollout for rollout in group if rollout.reward is not None] for group in groups]
    usable = [group for group in scored if len(group) > 1]
    rewards = [[float(rollout.reward or 0.0) for rollout in group] for group in usable]
    advantages, state = algo.advantage(rewards, state)
    examples = [
        _example(rollout, advantage, temperature)
        for group, values in zip(usable, advantages, strict=True)
        for rollout, advantage in zip(group, values, strict=True)
    ]
    return examples, state


def weigh(examples: Sequence[Example], weights: Weights) -> list[Example]:
    """Give every example the weight of its tokens; all examples of one optimiser step must be given at once."""
    found = weights([example.num_targets for example in examples])
    return [replace(example, weight=weight) for example, weight in zip(examples, found, strict=True)]


def _example(rollout: Rollout, advantage: float, temperature: float) -> Example:
    completion = rollout.completion
    return Example(
        tokens=np.concatenate([rollout.prompt_tokens, completion.tokens]),
        start=len(rollout.prompt_tokens),
        group=rollout.group,
        rollout=rollout.id,
        temperature=temperature or 1.0,
        logprob=completion.logprobs,
        advantage=advantage,
    )
