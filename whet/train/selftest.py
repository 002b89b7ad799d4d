"""Check on this machine whether engine and learner compute the same log-probabilities."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whet.algos.settings import AlgoConfig
from whet.batching.examples import Example
from whet.engine.base import Request, SamplingParams
from whet.rng import derive, make_numpy_rng
from whet.train.policy import Policy
from whet.train.settings import TrainConfig

_PROMPTS = 8
_NEW_TOKENS = 16
LONGEST_PROMPT = 640
_MICRO_TOKENS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Exactness:
    """How engine and learner compare, token by token."""

    num_tokens: int
    equal_fraction: float
    largest_gap: float

    @property
    def is_exact(self) -> bool:
        """Whether all log-probabilities are equal in every bit."""
        return self.equal_fraction == 1.0

    @property
    def summary(self) -> str:
        # Not 100.0 % unless all of them agree.
        percent = math.floor(1000 * self.equal_fraction) / 10
        return (
            f"{percent} % of {self.num_tokens} log-probabilities have the same bits, "
            f"the largest gap is {self.largest_gap:.1e}"
        )

    def describe(self, cfg: AlgoConfig, *, lag: int = 0) -> str:
        """Describe the result and its consequence for training."""
        exact = f"exact: engine and learner agree bit for bit on {self.num_tokens} tokens"
        result = exact if self.is_exact else f"close: {self.summary}"
        if cfg.num_minibatches == 1 and cfg.needs_old_logprobs:
            return f"{result}; old log-probabilities are computed for the KL in the reward"
        if cfg.num_minibatches == 1:
            return f"{result}; one mini-batch a step needs no old log-probabilities"
        if cfg.old_logprobs == "engine":
            return f"{result}; the engine's log-probabilities are the old ones by algo.old_logprobs"
        if not self.is_exact:
            return f"{result}, so old log-probabilities are computed again"
        if lag > 0:
            return f"{result}; old log-probabilities are computed all the same, since rollouts lag"
        return f"{result}, so the engine's log-probabilities serve as the old ones"

    def apply(self, cfg: AlgoConfig, *, lag: int = 0) -> AlgoConfig:
        """Use the engine's log-probabilities as the old ones if they are exact, which saves a pass.

        Rollouts that lag behind the current weights still need that pass.
        """
        is_saved = self.is_exact and lag == 0 and cfg.num_minibatches > 1
        return cfg.model_copy(update={"old_logprobs": "engine"}) if is_saved else cfg


def measure_exactness(policy: Policy) -> Exactness:
    """Sample a few tokens for prompts of mixed lengths, and compute their log-probabilities again.

    It takes about a second.
    """
    size = policy.model.cfg.vocab_size
    room = max(1, min(LONGEST_PROMPT, policy.engine.max_model_len - _NEW_TOKENS))
    requests = []
    for index in range(_PROMPTS):
        rng = make_numpy_rng(0, "exactness", index)
        prompt = rng.integers(0, size, 1 + (room - 1) * (index + 1) // _PROMPTS).astype(np.int32)
        sampling = SamplingParams(max_tokens=_NEW_TOKENS)
        requests.append(
            Request(
                id=str(index), prompt=prompt, sampling=sampling, seed=derive(0, "exactness", index)
            )
        )
    return compare_logprobs(policy, requests)


def compare_logprobs(policy: Policy, requests: Sequence[Request]) -> Exactness:
    """Sample all requests, compute their log-probabilities in packed batches, and compare."""
    completions = dict(policy.engine.generate(requests))
    examples = [
        Example(
            tokens=np.concatenate([request.prompt, completions[request.id].tokens]),
            response_start=len(request.prompt),
            group_id="",
            rollout_id=request.id,
            temperature=request.sampling.temperature or 1.0,
        )
        for request in requests
    ]
    frozen = policy.learner_factory.build_frozen_model(
        policy.model, TrainConfig(micro_batch_tokens=_MICRO_TOKENS)
    )
    learner_logprobs = np.concatenate(frozen.compute_logprobs(examples))
    engine_logprobs = np.concatenate([completions[request.id].logprobs for request in requests])
    return Exactness(
        num_tokens=len(learner_logprobs),
        equal_fraction=float(np.mean(learner_logprobs == engine_logprobs)),
        largest_gap=float(np.abs(learner_logprobs - engine_logprobs).max()),
    )
