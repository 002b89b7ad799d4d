"""Rewarded rollouts become training examples: selection, advantages, weights. No model runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from whet.algos.advantages import Array, State, whiten
from whet.algos.algorithm import Algorithm
from whet.algos.losses import Weights, kl
from whet.algos.verifier import blend
from whet.data.examples import Example
from whet.errors import ConfigError
from whet.rollout.gather import GatherConfig
from whet.types import Group, Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The rollouts of a step that training uses, all of them rewarded."""

    groups: list[Group]
    masked: frozenset[str] = frozenset()
    """Ids of those that count for their siblings and have no loss of their own."""

    @property
    def rollouts(self) -> list[Rollout]:
        return [rollout for group in self.groups for rollout in group]


def select(
    groups: Sequence[Group], algo: Algorithm, gather: GatherConfig | None = None
) -> Selection:
    """Choose what a step trains on, in the one place where rollouts are left out.

    Left out are groups of equal reward where others were asked in their place, rollouts without a
    score, and what remains of a group where it is a single rollout and siblings are compared.
    """
    gather = gather or GatherConfig()
    fewest = 1 if algo.advantage is None else 2
    scored = [
        tuple(rollout for rollout in group if rollout.reward is not None)
        for group in gather.choose_groups(groups)
    ]
    usable = [group for group in scored if len(group) >= fewest]
    return Selection(groups=usable, masked=frozenset(gather.masked_ids(usable)))


def flatten(selection: Selection, *, temperature: float) -> list[Example]:
    """Turn each rollout into an example, to which a reference or a critic may add."""
    return [to_example(rollout, temperature) for rollout in selection.rollouts]


def to_example(rollout: Rollout, temperature: float) -> Example:
    """Take a rollout as it was sampled, before anything is known of its worth."""
    completion = rollout.completion
    return Example(
        tokens=np.concatenate([rollout.prompt_tokens, completion.tokens]),
        start=len(rollout.prompt_tokens),
        group=rollout.group,
        rollout=rollout.id,
        temperature=temperature or 1.0,
        sampling_logprob=completion.logprobs,
    )


def credit(
    selection: Selection,
    examples: Sequence[Example],
    algo: Algorithm,
    state: State,
    *,
    progress: float = 0.0,
) -> tuple[list[Example], State]:
    """Give each example that `flatten` made its advantage; return those that have a loss.

    `progress`, from 0 to 1, is how much of the run is done: with it the share of step credit falls.
    """
    assert [item.rollout for item in examples] == [item.id for item in selection.rollouts], (
        "examples belong to the rollouts of their groups, in order"
    )
    credited, is_live, state = _credit_outcome(selection.groups, examples, algo, state)
    if algo.whitens:
        white = whiten([_per_token(item) for item in credited], is_live)
        credited = [_with_advantage(*both) for both in zip(credited, white, strict=True)]
    if algo.step_credit is not None:
        answers = [
            [(rollout.steps, len(rollout.completion.tokens)) for rollout in group]
            for group in selection.groups
        ]
        steps = [array for group in algo.step_credit(answers) for array in group]
        alpha = algo.alpha(progress)
        credited = [
            _with_advantage(item, blend(_per_token(item), step, alpha))
            for item, step in zip(credited, steps, strict=True)
        ]
    return [item for item in credited if item.rollout not in selection.masked], state


def weigh(examples: Sequence[Example], weights: Weights) -> list[Example]:
    """Give every example the weight of its tokens; takes all examples of an optimiser step."""
    values = weights([example.num_targets for example in examples])
    return [
        replace(example, weight=weight) for example, weight in zip(examples, values, strict=True)
    ]


def _credit_outcome(
    groups: Sequence[Group], examples: Sequence[Example], algo: Algorithm, state: State
) -> tuple[list[Example], list[bool], State]:
    """Credit the reward of the whole answer; say of each example whether its group differs."""
    rewards = [[float(rollout.reward or 0.0) for rollout in group] for group in groups]
    penalties = [_penalty(example, algo) for example in examples]
    if algo.advantage is None:
        flat = [reward for group in rewards for reward in group]
        credited = [_spread(*parts, algo) for parts in zip(examples, flat, penalties, strict=True)]
        return credited, [True] * len(credited), state
    rest = iter(penalties)
    totals = [[reward - float(next(rest).sum()) for reward in group] for group in rewards]
    advantages, state = algo.advantage(totals, state)
    flat = [value for group in advantages for value in group]
    credited = [
        replace(example, advantage=value) for example, value in zip(examples, flat, strict=True)
    ]
    return credited, [max(group) > min(group) for group in totals for _ in group], state


def _spread(example: Example, reward: float, penalty: Array, algo: Algorithm) -> Example:
    """Spread the reward, which comes with the last token, over the tokens before."""
    assert algo.spread is not None
    if algo.needs_values and example.value is None:
        raise ConfigError(
            "this algorithm needs a critic, and there is none: set algo.name to another, "
            'such as "grpo"'
        )
    at_tokens = -penalty
    at_tokens[-1] += reward
    value = None if example.value is None else example.value.astype(np.float64)
    advantage, target = algo.spread(at_tokens, value)
    return replace(
        _with_advantage(example, advantage),
        value_target=None if target is None else target.astype(np.float32),
    )


def _penalty(example: Example, algo: Algorithm) -> Array:
    """What the KL to the reference takes off the reward of each token."""
    if algo.kl_in_reward == 0:
        return np.zeros(example.num_targets)
    assert example.sampling_logprob is not None and example.ref_logprob is not None, (
        "a KL in the reward needs a reference"
    )
    policy, reference = (
        torch.from_numpy(part.astype(np.float64))
        for part in (example.sampling_logprob, example.ref_logprob)
    )
    return algo.kl_in_reward * kl(policy, reference, algo.kl_estimator).numpy()


def _per_token(example: Example) -> Array:
    return np.broadcast_to(np.asarray(example.advantage, dtype=np.float64), (example.num_targets,))


def _with_advantage(example: Example, advantage: Array) -> Example:
    return replace(example, advantage=advantage.astype(np.float32))
