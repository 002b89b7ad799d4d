"""Proofs of the engine: it agrees with the learner, before and after the weights move."""

from collections.abc import Sequence

import numpy as np
import torch

from whet.algos.catalog import AlgoConfig, build
from whet.data.examples import Example
from whet.kernels.switch import uses_triton
from whet.proofs import specimen
from whet.proofs.base import Measure
from whet.proofs.gradient import CLOSE
from whet.train.learner import update
from whet.train.optim import TrainConfig
from whet.train.policy import Policy
from whet.train.selftest import check_exact, compare
from whet.types import Floats

VERSION = 7
ROUGH = 0.25
"""Between the same two in bfloat16, where neither is exact; other weights are several nats away."""


def engine() -> Measure:
    """Sample more requests than slots, some sharing a prompt, and score them packed."""
    policy = specimen.policy()
    exactness = compare(policy, specimen.requests(policy.model.cfg.vocab_size))
    return Measure(gap=exactness.largest_gap, limit=_limit(policy), text=exactness.summary)


def engine_of(policy: Policy) -> Measure:
    """Do the same with a model of the user's."""
    exactness = check_exact(policy)
    return Measure(gap=exactness.largest_gap, limit=_limit(policy), text=exactness.summary)


def publish() -> Measure:
    """Move the weights far, publish, and sample: engine and learner must agree."""
    policy = specimen.policy()
    before = specimen.sample_examples(policy)
    learner = policy.learner(TrainConfig(lr=0.05), steps=1)
    update(learner, before, build(AlgoConfig(name="grpo"), max_tokens=16), seed=0)
    moved = float(
        np.abs(np.concatenate(learner.logprobs(before)) - _engine_logprobs(before)).mean()
    )
    policy.publish(VERSION)
    asked = specimen.requests(policy.model.cfg.vocab_size)
    versions = sorted({completion.version for _, completion in policy.engine.generate(asked)})
    after = specimen.sample_examples(policy)
    ours = np.concatenate(learner.logprobs(after))
    theirs = _engine_logprobs(after)
    gap = float(np.abs(ours - theirs).max())
    text = (
        f"the update moves log-probabilities by {moved:.1f}; after it their sum is "
        f"{theirs.sum():.3f} in the engine, "
        f"{ours.sum():.3f} in the learner; version {', '.join(map(str, versions))} of {VERSION}"
    )
    is_telling = versions == [VERSION] and moved > 4 * ROUGH
    return Measure(gap=gap if is_telling else float("inf"), limit=_rounding(policy), text=text)


def _engine_logprobs(examples: Sequence[Example]) -> Floats:
    """What the engine said of each token when it sampled it."""
    return np.concatenate(
        [example.sampling_logprob for example in examples if example.sampling_logprob is not None]
    )


def _limit(policy: Policy) -> float:
    """Our kernels give the same bits; elsewhere products of other shapes round otherwise."""
    return 0.0 if uses_triton(policy.model.device) else _rounding(policy)


def _rounding(policy: Policy) -> float:
    return CLOSE if policy.model.dtype == torch.float32 else ROUGH
