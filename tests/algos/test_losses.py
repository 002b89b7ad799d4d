"""Surrogates and penalties: golden values, and gradients against exact expectations on a toy
vocabulary."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from whet.algos.losses import (
    KlEstimator,
    LossInputs,
    cispo,
    clip,
    dual_clip,
    exact_kl,
    kl,
    nll,
    reinforce,
    segment_mean,
    segment_sum,
    sequence_ratio,
    step_kl,
    token_ratio,
    unit_ratio,
)

LOGITS = (0.3, -1.2, 0.8, 2.0, -0.5)
REFERENCE = (1.0, 0.1, -0.4, 0.7, 0.2)


OLD = (0.0, 0.4, 1.1, 1.2, -1.0)
ESTIMATORS: tuple[KlEstimator, ...] = ("k1", "k2", "k3")


def _inputs(
    logprob_M: Tensor, old_logprob_M: Tensor | None, segments: tuple[int, ...] | None = None
) -> LossInputs:
    zeros = torch.zeros(len(logprob_M))
    return LossInputs(
        logprob_M=logprob_M,
        entropy_M=zeros,
        advantage_M=zeros,
        sampling_logprob_M=zeros,
        old_logprob_M=old_logprob_M,
        ref_logprob_M=None,
        segment_M=zeros.long() if segments is None else torch.tensor(segments),
    )


def _numbers(*values: float) -> Tensor:
    return torch.tensor(values)


@pytest.mark.parametrize(
    ("ratio", "advantage", "high", "loss"),
    [
        (1.5, 1.0, 0.2, -1.2),
        (1.5, -1.0, 0.2, 1.5),
        (0.5, 1.0, 0.2, -0.5),
        (0.5, -1.0, 0.2, 0.8),
        (1.5, 1.0, 0.28, -1.28),
        (1.1, 2.0, 0.2, -2.2),
    ],
)
def test_clip_is_the_pessimistic_bound(
    ratio: float, advantage: float, high: float, loss: float
) -> None:
    found = clip(_numbers(ratio), _numbers(advantage), low=0.2, high=high)

    torch.testing.assert_close(found, _numbers(loss))


@pytest.mark.parametrize(
    ("ratio", "advantage", "slope"),
    [
        (1.5, 1.0, 0.0),
        (1.5, -1.0, 1.0),
        (0.5, 1.0, -1.0),
        (0.5, -1.0, 0.0),
        (1.0, 2.0, -2.0),
        (1.0, -2.0, 2.0),
    ],
)
def test_clip_has_no_slope_where_a_gain_is_beyond_the_bound(
    ratio: float, advantage: float, slope: float
) -> None:
    ratio_M = torch.tensor([ratio], requires_grad=True)

    clip(ratio_M, _numbers(advantage), low=0.2, high=0.2).sum().backward()

    torch.testing.assert_close(ratio_M.grad, _numbers(slope))


def test_ratio_is_exactly_one_at_first_use_and_has_the_gradient_of_the_logprob() -> None:
    logprob_M = torch.tensor([-0.1, -7.3, -23.456789], requires_grad=True)

    ratio_M = token_ratio(_inputs(logprob_M, None))
    ratio_M.sum().backward()

    assert ratio_M.tolist() == [1.0, 1.0, 1.0]
    torch.testing.assert_close(logprob_M.grad, torch.ones(3))


def test_ratio_compares_with_the_old_logprob() -> None:
    ratio_M = token_ratio(_inputs(_numbers(math.log(0.6)), _numbers(math.log(0.4))))

    torch.testing.assert_close(ratio_M, _numbers(1.5))


def test_reinforce_weighs_the_logprob_by_the_advantage() -> None:
    found = reinforce(_numbers(1.0, 2.0), _numbers(1.5, -4.0), _numbers(-2.0, -0.5))

    torch.testing.assert_close(found, _numbers(3.0, -4.0))


@pytest.mark.parametrize(
    "surrogate", [reinforce, partial(cispo, high=4.0)], ids=["reinforce", "cispo"]
)
def test_a_ratio_only_weighs_the_policy_gradient_and_has_none_of_its_own(
    surrogate: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> None:
    logprob_M = _numbers(math.log(0.6)).requires_grad_()
    ratio_M = (logprob_M - math.log(0.4)).exp()

    surrogate(ratio_M, _numbers(2.0), logprob_M).sum().backward()

    # d/dlogprob of -ratio * advantage * logprob, with the ratio of 1.5 held fixed.
    torch.testing.assert_close(logprob_M.grad, _numbers(-3.0))


def test_segment_sums_and_means_stay_within_their_sequence_in_any_order() -> None:
    values, segments = _numbers(1.0, 10.0, 2.0, 6.0), torch.tensor([2, 0, 2, 2])

    assert segment_sum(values, segments).tolist() == [9.0, 10.0, 9.0, 9.0]
    assert segment_mean(values, segments).tolist() == [3.0, 10.0, 3.0, 3.0]


def test_the_sequence_ratio_is_the_geometric_mean_of_each_sequence() -> None:
    # Log-ratios .1, .3 and -.6: e^.2 for the first two, e^-.6 alone.
    inputs = _inputs(_numbers(-0.9, -0.7, -1.6), _numbers(-1.0, -1.0, -1.0), (0, 0, 1))

    torch.testing.assert_close(sequence_ratio(inputs), torch.exp(_numbers(0.2, 0.2, -0.6)))


def test_the_sequence_ratio_bounds_the_log_ratio_of_each_token_before_the_mean() -> None:
    # Log-ratios 60, bounded to 20, and 0: a mean of 10.
    inputs = _inputs(_numbers(-1.0, -1.0), _numbers(-61.0, -1.0), (0, 0))

    torch.testing.assert_close(sequence_ratio(inputs), torch.exp(_numbers(10.0, 10.0)))


def test_the_sequence_ratio_is_exactly_one_at_first_use() -> None:
    assert sequence_ratio(_inputs(_numbers(-0.1, -7.3, -23.4), None, (0, 0, 1))).tolist() == [
        1.0,
        1.0,
        1.0,
    ]


@pytest.mark.parametrize("low_high", [0.5, 0.05])
def test_the_clipped_sequence_ratio_has_the_papers_gradient(low_high: float) -> None:
    """Against the objective as the paper writes it: a ratio, an advantage and a clip a sequence,
    then the mean."""
    old, lengths, advantages = torch.tensor([-1.0, -1.2, -0.3, -2.0, -0.7]), [3, 2], [1.3, -0.7]
    mine, paper = (
        torch.tensor([-0.8, -1.1, -0.5, -1.7, -0.6], requires_grad=True) for _ in range(2)
    )
    inputs = _inputs(mine, old, (0, 0, 0, 1, 1))
    advantage_M = torch.repeat_interleave(torch.tensor(advantages), torch.tensor(lengths))
    loss_weight_M = torch.tensor([1 / 6, 1 / 6, 1 / 6, 1 / 4, 1 / 4])

    loss = (
        clip(sequence_ratio(inputs), advantage_M, low=low_high, high=low_high) * loss_weight_M
    ).sum()
    ratios = [part.mean().exp() for part in torch.split(paper - old, lengths)]
    gains = [
        torch.minimum(ratio * a, ratio.clamp(1 - low_high, 1 + low_high) * a)
        for ratio, a in zip(ratios, advantages, strict=True)
    ]
    expected = -torch.stack(gains).mean()
    loss.backward()
    expected.backward()

    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(mine.grad, paper.grad)
    # Ratios e^.0333 and e^.2: the narrow clip stops neither a rise below 1.05 nor a cost.
    assert mine.grad is not None and (mine.grad != 0).all()


def test_without_a_ratio_every_token_counts_once_and_nothing_flows() -> None:
    ratio_M = unit_ratio(_inputs(_numbers(-1.0, -2.0).requires_grad_(), _numbers(-3.0, -3.0)))

    assert ratio_M.tolist() == [1.0, 1.0]
    assert not ratio_M.requires_grad


def test_dual_clip_has_no_slope_beyond_its_bound() -> None:
    ratio_M = torch.tensor([5.0, 2.0, 5.0], requires_grad=True)

    dual_clip(ratio_M, _numbers(-1.0, -1.0, 1.0), low=0.2, high=0.2, cap=3.0).sum().backward()

    torch.testing.assert_close(ratio_M.grad, _numbers(0.0, 1.0, 0.0))


@pytest.mark.parametrize(("ratio", "slope"), [(9.0, -10.0), (1.5, -3.0), (0.1, -0.2)])
def test_cispo_caps_the_slope_and_drops_no_token(ratio: float, slope: float) -> None:
    logprob_M = torch.tensor([-1.0], requires_grad=True)

    cispo(_numbers(ratio), _numbers(2.0), logprob_M, high=4.0).sum().backward()

    torch.testing.assert_close(logprob_M.grad, _numbers(slope))


def test_policies_with_nothing_in_common_give_finite_losses_and_gradients() -> None:
    logprob_M = torch.tensor([-1.0, -300.0], requires_grad=True)
    inputs = _inputs(logprob_M, _numbers(-300.0, -1.0), (0, 1))
    other = _numbers(-300.0, -1.0)

    total = sequence_ratio(inputs).sum() + token_ratio(inputs).sum()
    for estimator in ESTIMATORS:
        total = total + exact_kl(logprob_M, other, token_ratio(inputs), estimator).sum()
    total.backward()

    assert logprob_M.grad is not None
    assert torch.isfinite(total) and torch.isfinite(logprob_M.grad).all()


def test_nll_is_minus_the_logprob() -> None:
    assert nll(_inputs(_numbers(-2.0, -0.5), None)).tolist() == [2.0, 0.5]


@pytest.mark.parametrize(("estimator", "value"), [("k1", 0.6931), ("k2", 0.2402), ("k3", 0.1931)])
def test_kl_estimators_of_a_half_against_a_quarter(estimator: KlEstimator, value: float) -> None:
    found = kl(_numbers(math.log(0.5)), _numbers(math.log(0.25)), estimator)

    torch.testing.assert_close(found, _numbers(value), atol=1e-4, rtol=0)


def _policy() -> tuple[Tensor, Tensor, Tensor]:
    logits = torch.tensor(LOGITS, dtype=torch.float64, requires_grad=True)
    reference = torch.log_softmax(torch.tensor(REFERENCE, dtype=torch.float64), -1)
    return logits, torch.log_softmax(logits, -1), reference


def _estimated_gradient(estimator: KlEstimator) -> Tensor:
    """The gradient of the loss, averaged exactly over all tokens the policy might sample."""
    logits, logprob_V, reference_V = _policy()
    (logprob_V.detach().exp() * kl(logprob_V, reference_V, estimator)).sum().backward()
    assert logits.grad is not None
    return logits.grad


def _exact_gradient(*, forward: bool) -> Tensor:
    logits, logprob_V, reference_V = _policy()
    if forward:
        divergence = (reference_V.exp() * (reference_V - logprob_V)).sum()
    else:
        divergence = (logprob_V.exp() * (logprob_V - reference_V)).sum()
    divergence.backward()
    assert logits.grad is not None
    return logits.grad


def test_the_gradient_of_k2_is_that_of_the_kl_to_the_reference() -> None:
    assert _exact_gradient(forward=False).abs().max() > 0.1

    torch.testing.assert_close(_estimated_gradient("k2"), _exact_gradient(forward=False))


def test_the_gradient_of_k1_is_nothing() -> None:
    torch.testing.assert_close(_estimated_gradient("k1"), torch.zeros(5, dtype=torch.float64))


def test_the_gradient_of_k3_is_that_of_the_kl_from_the_reference() -> None:
    torch.testing.assert_close(_estimated_gradient("k3"), _exact_gradient(forward=True))
    assert (_exact_gradient(forward=True) - _exact_gradient(forward=False)).abs().max() > 0.05


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("sampler", [LOGITS, OLD])
def test_exact_kl_has_the_gradient_of_the_kl_whoever_sampled(
    estimator: KlEstimator, sampler: tuple[float, ...]
) -> None:
    logits, logprob_V, reference_V = _policy()
    old_V = torch.log_softmax(torch.tensor(sampler, dtype=torch.float64), -1)

    ratio_V = torch.exp(logprob_V - old_V)
    (old_V.exp() * exact_kl(logprob_V, reference_V, ratio_V, estimator)).sum().backward()

    torch.testing.assert_close(logits.grad, _exact_gradient(forward=False))


def test_exact_estimates_differ_in_value_alone() -> None:
    slopes, values = [], []
    for estimator in ESTIMATORS:
        _, logprob_V, reference_V = _policy()
        logprob_V = logprob_V.detach().requires_grad_()
        ratio_V = torch.exp(
            logprob_V - torch.log_softmax(torch.tensor(OLD, dtype=torch.float64), -1)
        )
        found_V = exact_kl(logprob_V, reference_V, ratio_V, estimator)
        slopes.append(torch.autograd.grad(found_V.sum(), logprob_V)[0])
        values.append(found_V.detach())

    # Ratio × d, token by token: d/dx of r (e^-d - 1 + d) is r (e^-d - 1 + d) + r (1 - e^-d).
    torch.testing.assert_close(slopes[0], slopes[1])
    torch.testing.assert_close(slopes[0], slopes[2])
    assert (values[0] - values[2]).abs().max() > 0.1


def test_estimates_as_they_are_have_another_gradient_for_tokens_of_older_weights() -> None:
    old_V = torch.log_softmax(torch.tensor(OLD, dtype=torch.float64), -1)
    for estimator in ESTIMATORS:
        logits, logprob_V, reference_V = _policy()
        (old_V.exp() * kl(logprob_V, reference_V, estimator)).sum().backward()
        assert logits.grad is not None
        assert (logits.grad - _exact_gradient(forward=False)).abs().max() > 0.05


@pytest.mark.parametrize("estimator", ["k1", "k3"])
@pytest.mark.parametrize("sampler", [LOGITS, OLD])
def test_the_value_of_k1_and_of_k3_is_the_kl_on_average(
    estimator: KlEstimator, sampler: tuple[float, ...]
) -> None:
    _, logprob_V, reference_V = _policy()
    old_V = torch.log_softmax(torch.tensor(sampler, dtype=torch.float64), -1)

    found = (
        old_V.exp() * exact_kl(logprob_V, reference_V, torch.exp(logprob_V - old_V), estimator)
    ).sum()

    torch.testing.assert_close(found, (logprob_V.exp() * (logprob_V - reference_V)).sum())


def test_k3_is_never_negative() -> None:
    _, logprob_V, reference_V = _policy()

    assert (kl(logprob_V, reference_V, "k3") >= 0).all()


def test_step_kl_is_on_average_the_kl_from_the_old_policy() -> None:
    _, logprob_V, _ = _policy()
    old_V = torch.log_softmax(torch.tensor(OLD, dtype=torch.float64), -1)

    found = (old_V.exp() * step_kl(torch.exp(logprob_V - old_V))).sum()

    torch.testing.assert_close(found, (old_V.exp() * (old_V - logprob_V)).sum())


class _Pairs:
    """All answers of two tokens over a vocabulary of three, with probabilities of policy and
    reference."""

    def __init__(self) -> None:
        source = torch.Generator().manual_seed(0)
        self.logits = [
            torch.randn(shape, generator=source, dtype=torch.float64, requires_grad=True)
            for shape in ((3,), (3, 3))
        ]
        reference = [
            torch.randn(shape, generator=source, dtype=torch.float64) for shape in ((3,), (3, 3))
        ]
        self.policy, self.reference = self._logprobs(self.logits), self._logprobs(reference)

    @staticmethod
    def _logprobs(logits: list[Tensor]) -> Tensor:
        """Log-probabilities of both tokens of each of the nine answers, [9, 2]."""
        first, second = (torch.log_softmax(part, -1) for part in logits)
        return torch.stack(
            [torch.stack([first[a], second[a, b]]) for a in range(3) for b in range(3)]
        )

    def gradient(self, loss: Tensor) -> Tensor:
        return torch.cat([part.flatten() for part in torch.autograd.grad(loss, self.logits)])


def _kl_of_answers() -> Tensor:
    pairs = _Pairs()
    chances = pairs.policy.sum(1).exp()
    return pairs.gradient((chances * (pairs.policy - pairs.reference).sum(1)).sum())


def test_k1_in_the_reward_has_the_gradient_of_the_kl_of_whole_answers() -> None:
    pairs = _Pairs()
    chances = pairs.policy.sum(1).detach().exp()
    k1 = kl(pairs.policy.detach(), pairs.reference, "k1")
    to_go = torch.stack([k1[:, 0] + k1[:, 1], k1[:, 1]], dim=1)

    loss_of_tokens = reinforce(torch.ones_like(to_go), -to_go, pairs.policy)

    torch.testing.assert_close(
        pairs.gradient((chances[:, None] * loss_of_tokens).sum()), _kl_of_answers()
    )


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_other_estimators_in_the_reward_have_another(estimator: KlEstimator) -> None:
    pairs = _Pairs()
    chances = pairs.policy.sum(1).detach().exp()
    total = kl(pairs.policy.detach(), pairs.reference, estimator).sum(1, keepdim=True)

    found = pairs.gradient(
        (chances[:, None] * reinforce(torch.ones_like(total), -total, pairs.policy)).sum()
    )

    assert (found - _kl_of_answers()).abs().max() > 0.05


def test_a_kl_in_the_loss_is_that_of_each_token_after_its_own_beginning() -> None:
    pairs = _Pairs()
    chances = pairs.policy.sum(1).detach().exp()
    loss = (
        chances[:, None] * exact_kl(pairs.policy, pairs.reference, torch.ones(9, 2), "k2")
    ).sum()

    found, whole = pairs.gradient(loss), _kl_of_answers()

    # The first token answers for itself alone in the loss, and in the reward also for where it
    # leads.
    torch.testing.assert_close(found[3:], whole[3:])
    assert (found[:3] - whole[:3]).abs().max() > 0.05
