"""From credited examples to moved weights: mini-batches, weights, and the two passes some
algorithms need before."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from whet.algos.catalog import Algorithm
from whet.algos.early_stop import is_too_far
from whet.data.examples import Example
from whet.rng import stream
from whet.train.credit import weigh
from whet.train.critic import Critic
from whet.train.learner import Learner, Metrics
from whet.train.reference import Reference


def with_reference(
    examples: Sequence[Example], reference: Reference | None, micro_tokens: int
) -> list[Example]:
    """Add what the starting policy thinks of each token; nothing where there is no reference."""
    if reference is None:
        return list(examples)
    found = reference.logprobs(examples, micro_tokens)
    return [
        replace(example, ref_logprob=logprob)
        for example, logprob in zip(examples, found, strict=True)
    ]


def with_old(examples: Sequence[Example], learner: Learner) -> list[Example]:
    """Fix the log-probabilities at the start of a step, which later mini-batches are compared
    with."""
    found = learner.logprobs(examples)
    return [
        replace(example, old_logprob=logprob)
        for example, logprob in zip(examples, found, strict=True)
    ]


def update(
    learner: Learner,
    examples: Sequence[Example],
    algo: Algorithm,
    *,
    seed: int,
    critic: Critic | None = None,
) -> Metrics:
    """Take one optimiser step a mini-batch. Groups of equal reward keep their share of every
    divisor.

    Where an advantage of zero means a gradient of zero, those examples are not run at all: it
    changes nothing. Once the early stop finds the policy too far from the start of the step, what
    it says is left out, and counted. A critic learns first, and alone while its head start lasts.
    """
    if critic is not None:
        critic.model.body.num_checkpointed = learner.model.num_checkpointed
    values = {} if critic is None else critic.update(examples, seed=seed)
    if critic is not None and critic.is_alone:
        return values | {"step/empty": 0.0}
    return values | _update_policy(learner, examples, algo, seed=seed)


def _update_policy(
    learner: Learner, examples: Sequence[Example], algo: Algorithm, *, seed: int
) -> Metrics:
    if algo.needs_old:
        examples = with_old(examples, learner)
    collected: list[Metrics] = []
    batches = _minibatches(examples, algo.minibatches, seed)
    num_skipped = 0
    for index, batch in enumerate(batches):
        weighed = weigh(batch, algo.weights)
        live = [
            example
            for example in weighed
            if np.any(example.advantage) or algo.trains_on_zero_advantage
        ]
        if not live:
            continue
        metrics, is_skipped = _step(learner, live, algo)
        collected.append(metrics)
        num_skipped += is_skipped
        if is_skipped and algo.early_stop.action == "stop":
            num_skipped += len(batches) - index - 1
            break
    if not collected:
        return {"step/empty": 1.0}
    skipped = {"step/skipped": float(num_skipped)} if algo.early_stop.limit is not None else {}
    return _means(collected) | skipped | {"step/empty": 0.0}


def _step(learner: Learner, examples: Sequence[Example], algo: Algorithm) -> tuple[Metrics, bool]:
    """Take the optimiser step of a mini-batch, unless the early stop says otherwise."""
    metrics = learner.accumulate(examples, algo.objective)
    stop = algo.early_stop
    is_skipped = (
        stop.limit is not None
        and stop.scope != "micro_batch"
        and is_too_far(metrics["policy/stop_signal"], stop)
    )
    if is_skipped:
        learner.discard()
    return (
        metrics if is_skipped and stop.action != "zero" else metrics | learner.optim_step()
    ), is_skipped


def _means(collected: Sequence[Metrics]) -> Metrics:
    """Average each metric over the mini-batches that have it."""
    names = dict.fromkeys(name for metrics in collected for name in metrics)
    values = {name: [metrics[name] for metrics in collected if name in metrics] for name in names}
    return {name: sum(found) / len(found) for name, found in values.items()}


def _minibatches(examples: Sequence[Example], count: int, seed: int) -> list[list[Example]]:
    if count == 1:
        return [list(examples)] if examples else []
    order = list(examples)
    stream(seed, "minibatches").shuffle(order)
    return [part for part in (order[index::count] for index in range(count)) if part]
