"""Groups of rewarded rollouts become training examples: advantages, then weights. Plain numbers, no
model."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from whet.algos.advantages import State
from whet.algos.catalog import Algorithm
from whet.algos.losses import kl
from whet.algos.returns import Array, whiten
from whet.algos.steps import blended
from whet.algos.weights import Weights
from whet.data.examples import Example
from whet.errors import ConfigError
from whet.types import Group, Rollout


def flatten(groups: Sequence[Group], algo: Algorithm, *, temperature: float) -> list[Example]:
    """Turn each rollout into an example, for a reference or a critic to add what they say of its
    tokens.

    Unscored rollouts are left out, and groups of one scored where siblings are compared.
    """
    return [
        example_of(rollout, temperature) for group in _usable(groups, algo) for rollout in group
    ]


def credit(
    groups: Sequence[Group],
    examples: Sequence[Example],
    algo: Algorithm,
    state: State,
    *,
    progress: float = 0.0,
) -> tuple[list[Example], State]:
    """Give each example, as `flatten` made them of the same groups, its advantage.

    `progress`, from 0 to 1, is how much of the run is done: with it the share of step credit falls.
    """
    usable = _usable(groups, algo)
    assert [example.rollout for example in examples] == [
        rollout.id for group in usable for rollout in group
    ], "examples belong to the rollouts of their groups, in order"
    found, is_live, state = _outcome(usable, examples, algo, state)
    if algo.whitens:
        white = whiten([_tokens(example) for example in found], is_live)
        found = [_with(example, array) for example, array in zip(found, white, strict=True)]
    if algo.step_credit is not None:
        answers = [
            [(rollout.steps, len(rollout.completion.tokens)) for rollout in group]
            for group in usable
        ]
        steps = [array for group in algo.step_credit(answers) for array in group]
        alpha = algo.alpha(progress)
        found = [
            _with(item, blended(_tokens(item), step, alpha))
            for item, step in zip(found, steps, strict=True)
        ]
    return found, state


def weigh(examples: Sequence[Example], weights: Weights) -> list[Example]:
    """Give every example the weight of its tokens; all examples of one optimiser step must be given
    at once."""
    found = weights([example.num_targets for example in examples])
    return [
        replace(example, weight=weight) for example, weight in zip(examples, found, strict=True)
    ]


def _usable(groups: Sequence[Group], algo: Algorithm) -> list[list[Rollout]]:
    scored = [[rollout for rollout in group if rollout.reward is not None] for group in groups]
    return [group for group in scored if len(group) > (0 if algo.advantage is None else 1)]


def _outcome(
    usable: Sequence[Sequence[Rollout]], examples: Sequence[Example], algo: Algorithm, state: State
) -> tuple[list[Example], list[bool], State]:
    """Credit for the reward of the whole answer; with it, which examples can tell a better answer
    from a worse."""
    rewards = [[float(rollout.reward or 0.0) for rollout in group] for group in usable]
    penalties = [_penalty(example, algo) for example in examples]
    if algo.advantage is None:
        flat = [reward for group in rewards for reward in group]
        found = [_by_token(*parts, algo) for parts in zip(examples, flat, penalties, strict=True)]
        return found, [True] * len(found), state
    left = iter(penalties)
    totals = [[reward - float(next(left).sum()) for reward in group] for group in rewards]
    advantages, state = algo.advantage(totals, state)
    flat = [value for group in advantages for value in group]
    found = [
        replace(example, advantage=value) for example, value in zip(examples, flat, strict=True)
    ]
    return found, [max(group) > min(group) for group in totals for _ in group], state


def _by_token(example: Example, reward: float, penalty: Array, algo: Algorithm) -> Example:
    """Spread the reward, which comes with the last token, over the tokens before."""
    assert algo.spread is not None
    if algo.needs_values and example.value is None:
        raise ConfigError(
            'this algorithm needs a critic, and there is none: set algo.name to another, such as "grpo"'
        )
    at_tokens = -penalty
    at_tokens[-1] += reward
    advantage, target = algo.spread(
        at_tokens, None if example.value is None else example.value.astype(np.float64)
    )
    return replace(
        _with(example, advantage),
        value_target=None if target is None else target.astype(np.float32),
    )


def _penalty(example: Example, algo: Algorithm) -> Array:
    """What the KL to the reference takes off the reward of each token."""
    if algo.kl_in_reward == 0:
        return np.zeros(example.num_targets)
    assert example.logprob is not None and example.ref_logprob is not None, (
        "a KL in the reward needs a reference"
    )
    policy, reference = (
        torch.from_numpy(part.astype(np.float64)) for part in (example.logprob, example.ref_logprob)
    )
    return algo.kl_in_reward * kl(policy, reference, algo.kl_estimator).numpy()


def _tokens(example: Example) -> Array:
    return np.broadcast_to(np.asarray(example.advantage, dtype=np.float64), (example.num_targets,))


def _with(example: Example, advantage: Array) -> Example:
    return replace(example, advantage=advantage.astype(np.float32))


def example_of(rollout: Rollout, temperature: float) -> Example:
    """A rollout as it was sampled, before anything is known of its worth."""
    completion = rollout.completion
    return Example(
        tokens=np.concatenate([rollout.prompt_tokens, completion.tokens]),
        start=len(rollout.prompt_tokens),
        group=rollout.group,
        rollout=rollout.id,
        temperature=temperature or 1.0,
        logprob=completion.logprobs,
    )
