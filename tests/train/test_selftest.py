"""The exactness self-test: what it measures, what it says, and what training does about it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from whet.algos.algorithm import build_algorithm
from whet.algos.settings import AlgoConfig
from whet.engine.base import Request, SamplingParams
from whet.testing.tiny import tiny_policy
from whet.train.selftest import Exactness, compare_logprobs, measure_exactness

EXACT = Exactness(num_tokens=128, equal_fraction=1.0, largest_gap=0.0)
CLOSE = Exactness(num_tokens=128, equal_fraction=0.5, largest_gap=2e-6)


def test_on_a_cpu_engine_and_learner_are_close() -> None:
    torch.set_num_threads(1)
    found = measure_exactness(tiny_policy())

    assert 64 < found.num_tokens <= 128
    assert found.largest_gap < 1e-4
    assert found.is_exact == (found.equal_fraction == 1.0) == (found.largest_gap == 0.0)


def test_the_same_policy_gives_the_same_answer_and_stays_as_it_was() -> None:
    policy = tiny_policy()
    before = [weight.clone() for weight in policy.model.parameters()]

    assert measure_exactness(policy) == measure_exactness(policy)
    assert all(
        torch.equal(old, new) for old, new in zip(before, policy.model.parameters(), strict=True)
    )
    assert policy.engine.version == 0


def test_an_engine_with_other_weights_is_not_close() -> None:
    policy = tiny_policy()
    policy.engine.model = tiny_policy(seed=1).model

    found = measure_exactness(policy)

    assert found.largest_gap > 1.0
    assert found.equal_fraction < 0.1


def test_greedy_requests_are_scored_at_temperature_one() -> None:
    policy = tiny_policy()
    sampling = SamplingParams(temperature=0.0, max_tokens=4)
    request = Request(id="a", prompt=np.array([5, 9], dtype=np.int32), sampling=sampling, seed=0)

    assert compare_logprobs(policy, [request]).largest_gap < 1e-4


def test_a_short_context_leaves_room_to_sample() -> None:
    policy = tiny_policy()
    policy.engine.max_model_len = 18

    assert measure_exactness(policy).num_tokens > 64


def test_the_sentence_says_what_is_done() -> None:
    several, one = AlgoConfig(num_minibatches=4), AlgoConfig(num_minibatches=1)
    agreed = "exact: engine and learner agree bit for bit on 128 tokens"
    assert (
        EXACT.describe(several)
        == f"{agreed}, so the engine's log-probabilities serve as the old ones"
    )
    assert EXACT.describe(one) == f"{agreed}; one mini-batch a step needs no old log-probabilities"
    assert EXACT.describe(several, lag=1) == (
        f"{agreed}; old log-probabilities are computed all the same, since rollouts lag"
    )
    assert CLOSE.describe(several) == (
        "close: 50.0 % of 128 log-probabilities have the same bits, the largest gap is 2.0e-06, "
        "so old log-probabilities are computed again"
    )
    assert CLOSE.describe(one).endswith(
        "2.0e-06; one mini-batch a step needs no old log-probabilities"
    )
    in_reward = AlgoConfig(name="rloo", kl_coef=0.1)
    assert EXACT.describe(in_reward) == (
        f"{agreed}; old log-probabilities are computed for the KL in the reward"
    )
    assert CLOSE.describe(AlgoConfig(num_minibatches=4, old_logprobs="engine")).endswith(
        "are the old ones by algo.old_logprobs"
    )
    assert replace(CLOSE, equal_fraction=0.9999).describe(one).startswith("close: 99.9 %")


@pytest.mark.parametrize("found", [EXACT, CLOSE])
@pytest.mark.parametrize("num_minibatches", [1, 4])
@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("kl_coef", [0.0, 0.1])
def test_the_sentence_is_true_of_the_algorithm(
    found: Exactness, num_minibatches: int, lag: int, kl_coef: float
) -> None:
    cfg = AlgoConfig(name="rloo", kl_coef=kl_coef, num_minibatches=num_minibatches)
    needs_old_logprobs, said = (
        build_algorithm(found.apply(cfg, lag=lag), max_tokens=8).needs_old_logprobs,
        found.describe(cfg, lag=lag),
    )

    assert needs_old_logprobs == ("computed" in said)
    assert ("serve as the old ones" in said) == (found.apply(cfg, lag=lag).old_logprobs == "engine")


@pytest.mark.parametrize(
    ("found", "num_minibatches", "lag", "old", "needs_old_logprobs"),
    [
        (EXACT, 4, 0, "engine", False),
        (EXACT, 4, 1, "learner", True),
        (CLOSE, 4, 0, "learner", True),
        (EXACT, 1, 0, "learner", False),
    ],
)
def test_only_exact_log_probabilities_save_the_pass_for_old_ones(
    found: Exactness, num_minibatches: int, lag: int, old: str, needs_old_logprobs: bool
) -> None:
    cfg = found.apply(AlgoConfig(num_minibatches=num_minibatches), lag=lag)

    assert cfg.old_logprobs == old
    assert build_algorithm(cfg, max_tokens=8).needs_old_logprobs == needs_old_logprobs
