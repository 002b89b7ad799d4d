"""Proof that a checkpoint holds all that the next step depends on."""

import tempfile
from pathlib import Path

import torch

from whet.algos.catalog import AlgoConfig, build
from whet.proofs import specimen
from whet.proofs.base import Measure
from whet.train import checkpoint
from whet.train.learner import LocalLearner, update
from whet.train.optim import TrainConfig
from whet.train.policy import Policy, set_determinism

STEPS = 4
ALGO = build(AlgoConfig(name="grpo", minibatches=2), max_tokens=16)


def resume() -> Measure:
    """Take two steps, save, take a third; load into another model and take the third again."""
    straight = specimen.policy()
    stopped = specimen.policy(seed=1)
    cfg = TrainConfig(lr=1e-3, schedule="linear", warmup=1)
    first, second = (policy.learner(cfg, steps=2 * STEPS) for policy in (straight, stopped))
    for step in range(2):
        _step(straight, first, step)
    with tempfile.TemporaryDirectory(prefix="whet-doctor-") as folder:
        checkpoint.save_training(Path(folder), straight, first, {})
        checkpoint.load_training(Path(folder), stopped, second)
    for policy, learner in ((straight, first), (stopped, second)):
        _step(policy, learner, 2)
    pairs = [
        (first.optimizer.masters[name], second.optimizer.masters[name])
        for name in first.optimizer.masters
    ]
    gap = max(float((ours - theirs).detach().abs().max()) for ours, theirs in pairs)
    same = sum(int(torch.equal(ours, theirs)) for ours, theirs in pairs)
    text = (
        f"a step after, {same} of {len(pairs)} weights have the same bits, and the largest "
        f"difference is {gap:.1e}"
    )
    return Measure(gap=gap, limit=0.0 if first.device.type == "cpu" else 1e-6, text=text)


def _step(policy: Policy, learner: LocalLearner, step: int) -> None:
    policy.publish(step)
    examples = specimen.sample_examples(policy)
    was_settled = torch.are_deterministic_algorithms_enabled()
    set_determinism(True)
    try:
        update(learner, examples, ALGO, seed=step)
    finally:
        set_determinism(was_settled)
