"""The rows of the catalogue: each name is the bundle its paper says, and penalties are on where they are set."""

import math

import pytest
import torch
from torch import Tensor

from whet.algos.catalog import AlgoConfig, AlgoName, build, policy_objective, sft_objective
from whet.algos.terms import TokenTerms

REWARDS = [[1.0, 0.0, 0.0, 1.0]]


def _terms(
    logprob: list[float],
    *,
    advantage: list[float],
    old: list[float] | None = None,
    reference: list[float] | None = None,
    entropy: list[float] | None = None,
) -> TokenTerms:
    zeros = torch.zeros(len(logprob))
    return TokenTerms(
        logprob_M=torch.tensor(logprob, requires_grad=True),
        entropy_M=zeros if entropy is None else torch.tensor(entropy),
        advantage_M=torch.tensor(advantage),
        behaviour_M=zeros - 1.0,
        old_M=None if old is None else torch.tensor(old),
        reference_M=None if reference is None else torch.tensor(reference),
        segment_M=zeros.long(),
    )


def _loss(cfg: AlgoConfig, terms: TokenTerms) -> Tensor:
    return policy_objective(cfg).loss(terms)[0].detach()


@pytest.mark.parametrize(
    ("name", "advantage", "weights"),
    [
        ("grpo", 0.8660, [1 / 2, 1 / 6]),
        ("dr_grpo", 0.5, [1 / 20, 1 / 20]),
        ("rloo", 0.6667, [1 / 2, 1 / 2]),
        ("game24", 0.9998, [1 / 2, 1 / 6]),
    ],
)
def test_each_name_is_its_row(name: AlgoName, advantage: float, weights: list[float]) -> None:
    algo = build(AlgoConfig(name=name), max_tokens=10)

    found, _ = algo.advantage(REWARDS, {})
    assert found[0] == pytest.approx([advantage, -advantage, -advantage, advantage], abs=1e-4)
    assert algo.weights([1, 3]) == pytest.approx(weights)
    assert (algo.needs_reference, algo.trains_on_zero_advantage, algo.minibatches) == (False, False, 1)


@pytest.mark.parametrize(
    ("cfg", "needs_reference", "trains_on_zero"),
    [
        (AlgoConfig(kl=0.1), True, True),
        (AlgoConfig(entropy=0.01), False, True),
        (AlgoConfig(entropy=-0.01), False, True),
        (AlgoConfig(), False, False),
    ],
)
def test_only_penalties_give_a_gradient_to_zero_advantage(
    cfg: AlgoConfig, needs_reference: bool, trains_on_zero: bool
) -> None:
    algo = build(cfg, max_tokens=10)

    assert (algo.needs_reference, algo.trains_on_zero_advantage) == (needs_reference, trains_on_zero)
    assert algo.objective.needs_entropy_gradient == (cfg.entropy != 0)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "game24"])
def test_clipped_algorithms_stop_paying_at_their_bounds(name: AlgoName) -> None:
    half = math.log(0.5)
    terms = _terms([half + math.log(1.5), half + math.log(0.5)], advantage=[1.0, -1.0], old=[half, half])

    loss = _loss(AlgoConfig(name=name, clip_low=0.3, clip_high=0.28), terms)

    torch.testing.assert_close(loss, torch.tensor([-1.28, 0.7]))


def test_rloo_is_the_plain_policy_gradient() -> None:
    terms = _terms([-2.0, -0.5], advantage=[1.0, -3.0], old=[-1.0, -9.0])

    torch.testing.assert_close(_loss(AlgoConfig(name="rloo"), terms), torch.tensor([2.0, -1.5]))


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_kl_enters_by_its_weight_and_is_logged_as_k3(estimator: str) -> None:
    penalty = {"k1": math.log(2), "k2": 0.5 * math.log(2) ** 2, "k3": 0.5 - 1 + math.log(2)}
    cfg = AlgoConfig.model_validate({"kl": 0.1, "kl_estimator": estimator})
    terms = _terms([math.log(0.5)], advantage=[2.0], reference=[math.log(0.25)])

    loss_M, metrics = policy_objective(cfg).loss(terms)

    torch.testing.assert_close(loss_M.detach(), torch.tensor([-2.0 + 0.1 * penalty[estimator]]))
    torch.testing.assert_close(metrics["policy/kl"].detach(), torch.tensor([penalty["k3"]]))


def test_the_entropy_bonus_lowers_the_loss_by_its_weight() -> None:
    terms = _terms([-1.0], advantage=[2.0], entropy=[1.5])

    torch.testing.assert_close(_loss(AlgoConfig(entropy=0.1), terms), torch.tensor([-2.15]))
    torch.testing.assert_close(_loss(AlgoConfig(), terms), torch.tensor([-2.0]))


def test_metrics_say_entropy_clipped_share_and_the_gap_to_the_engine() -> None:
    old = [-2.0] * 4
    terms = _terms([-2.0, -1.0, -3.0, -1.9], advantage=[1.0] * 4, old=old, entropy=[0.5, 1.0, 1.5, 2.0])

    _, metrics = policy_objective(AlgoConfig()).loss(terms)

    assert set(metrics) == {"policy/entropy", "policy/clip_fraction", "policy/engine_gap"}
    assert metrics["policy/entropy"].tolist() == [0.5, 1.0, 1.5, 2.0]
    # Ratios 1, e, 1/e and e^0.1 = 1.105.
    assert metrics["policy/clip_fraction"].tolist() == [0.0, 1.0, 1.0, 0.0]
    torch.testing.assert_close(metrics["policy/engine_gap"].detach(), torch.tensor([1.0, 0.0, 2.0, 0.9]))


def test_sft_is_the_likelihood_and_counts_tokens_above_one_half() -> None:
    terms = _terms([-0.1, -2.0, math.log(0.51)], advantage=[0.0] * 3)

    loss_M, metrics = sft_objective().loss(terms)

    torch.testing.assert_close(loss_M.detach(), torch.tensor([0.1, 2.0, -math.log(0.51)]))
    assert metrics["sft/likely_tokens"].tolist() == [1.0, 0.0, 1.0]
