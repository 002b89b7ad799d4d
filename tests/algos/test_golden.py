"""The golden numbers: every formula once, on inputs small enough to work by hand."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from whet.algos.advantages import center, gae, leave_one_out, zscore
from whet.algos.losses import (
    KlEstimator,
    LossInputs,
    cispo,
    clip,
    dual_clip,
    kl,
    reverse_kl,
    sequence_mean,
    sequence_ratio,
    teacher_advantage,
    token_mean,
)
from whet.algos.preferences import dpo, ipo
from whet.evals.stats import pass_at_k

GROUP = [1.0, 0.0, 0.0, 1.0]


def _numbers(*values: float) -> Tensor:
    return torch.tensor(values)


def test_center() -> None:
    assert center(GROUP) == [0.5, -0.5, -0.5, 0.5]


@pytest.mark.parametrize(("ddof", "size"), [(0, 1.0), (1, 0.8660)])
def test_zscore(ddof: int, size: float) -> None:
    # The centred rewards are ±.5; their squares add up to 1, so the deviation is √(1/4) or √(1/3).
    assert zscore(GROUP, ddof=ddof) == pytest.approx([size, -size, -size, size], abs=1e-4)


def test_leave_one_out() -> None:
    # The others of a 1 are 0 0 1, with mean ⅓; the others of a 0 are 1 0 1, with mean ⅔.
    assert leave_one_out(GROUP) == pytest.approx([0.6667, -0.6667, -0.6667, 0.6667], abs=1e-4)


@pytest.mark.parametrize(
    ("ratio", "advantage", "high", "loss"),
    [
        (1.5, 1, 0.2, -1.2),
        (1.5, -1, 0.2, 1.5),
        (0.5, 1, 0.2, -0.5),
        (0.5, -1, 0.2, 0.8),
        (1.5, 1, 0.28, -1.28),
    ],
)
def test_clip(ratio: float, advantage: float, high: float, loss: float) -> None:
    torch.testing.assert_close(
        clip(_numbers(ratio), _numbers(advantage), low=0.2, high=high), _numbers(loss)
    )


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"), [(5.0, -2, 6.0), (2.0, -2, 4.0), (5.0, 2, -2.4)]
)
def test_dual_clip(ratio: float, advantage: float, loss: float) -> None:
    # At most 3 × 2; below that the ratio times 2; gains stop at 1.2 × 2 as before.
    found = dual_clip(_numbers(ratio), _numbers(advantage), low=0.2, high=0.2, cap=3.0)
    torch.testing.assert_close(found, _numbers(loss))


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"), [(9.0, 2, 5.0), (0.5, 2, 0.5), (9.0, -2, -5.0)]
)
def test_cispo(ratio: float, advantage: float, loss: float) -> None:
    # The log-probability is -.5 and the cap 1 + 4: min(9, 5) × 2 × .5 = 5, and .5 × 2 × .5 = .5.
    found = cispo(_numbers(ratio), _numbers(advantage), _numbers(-0.5), high=4.0)
    torch.testing.assert_close(found, _numbers(loss))


@pytest.mark.parametrize(("estimator", "value"), [("k1", 0.6931), ("k2", 0.2402), ("k3", 0.1931)])
def test_kl(estimator: KlEstimator, value: float) -> None:
    # d = log .5 - log .25 = log 2; d²/2 = .2402; exp(-d) - 1 + d = .5 - 1 + .6931.
    found = kl(_numbers(math.log(0.5)), _numbers(math.log(0.25)), estimator)
    torch.testing.assert_close(found, _numbers(value), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("decay", "advantage", "target"),
    [(1.0, [0.9, 0.8, 0.7], [1.0, 1.0, 1.0]), (0.5, [0.325, 0.45, 0.7], None)],
)
def test_gae(decay: float, advantage: list[float], target: list[float] | None) -> None:
    # Surprises: 0 + .2 - .1 = .1, 0 + .3 - .2 = .1, 1 + 0 - .3 = .7.
    # With λ = 1 they add up: .7, .8, .9. With λ = .5: .7, .1 + .35 = .45, .1 + .225 = .325.
    found, targets = gae(np.array([0.0, 0.0, 1.0]), np.array([0.1, 0.2, 0.3]), decay=decay)
    assert found.tolist() == pytest.approx(advantage)
    assert targets.tolist() == pytest.approx(target or [0.425, 0.65, 1.0])


def _inputs(
    logprob_M: Tensor, *, old_logprob_M: Tensor | None = None, ref_logprob_M: Tensor | None = None
) -> LossInputs:
    """One sequence of sampled tokens."""
    zeros = torch.zeros(len(logprob_M))
    return LossInputs(
        logprob_M=logprob_M,
        entropy_M=zeros,
        advantage_M=zeros,
        sampling_logprob_M=zeros,
        old_logprob_M=old_logprob_M,
        ref_logprob_M=ref_logprob_M,
        segment_M=zeros.long(),
    )


def test_sequence_ratio() -> None:
    # exp((.1 + .3) / 2) = e^.2
    inputs = _inputs(_numbers(-0.9, -0.7), old_logprob_M=_numbers(-1.0, -1.0))
    torch.testing.assert_close(sequence_ratio(inputs), _numbers(1.2214, 1.2214), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("smoothing", "loss"), [(0.0, 0.5544), (0.1, 0.5844)])
def test_dpo(smoothing: float, loss: float) -> None:
    # .1 × (2 + 1) = .3; log(1 + e^-.3) = .5544, and turned round log(1 + e^.3) = .8544; .9 × .5544
    # + .1 × .8544.
    found = dpo(_numbers(2.0), _numbers(-1.0), beta=0.1, smoothing=smoothing)
    torch.testing.assert_close(found, _numbers(loss), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("chosen", "loss"), [(2.0, 4.0), (4.0, 0.0), (6.0, 4.0)])
def test_ipo(chosen: float, loss: float) -> None:
    # 1 / (2 × .1) = 5: a difference of 3 is 2 short of it, one of 5 is right, one of 7 is 2 too
    # much.
    torch.testing.assert_close(ipo(_numbers(chosen), _numbers(-1.0), beta=0.1), _numbers(loss))


def test_distillation() -> None:
    # The policy gives the token .5, the teacher .25: d = log 2, the value is k3, the slope d; the
    # advantage is -d.
    policy, teacher = _numbers(math.log(0.5)).requires_grad_(), _numbers(math.log(0.25))
    loss = reverse_kl(_inputs(policy, ref_logprob_M=teacher))
    loss.sum().backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(loss.detach(), _numbers(0.1931), atol=1e-4, rtol=0)
    torch.testing.assert_close(policy.grad, _numbers(0.6931), atol=1e-4, rtol=0)
    torch.testing.assert_close(
        teacher_advantage(policy, teacher), _numbers(-0.6931), atol=1e-4, rtol=0
    )


def test_weights() -> None:
    assert token_mean([1, 3]) == [0.25, 0.25]
    assert sequence_mean([1, 3]) == pytest.approx([1 / 2, 1 / 6])


def test_pass_at_k() -> None:
    # Of the ten pairs of five answers, three hold none of the two right ones.
    assert pass_at_k(5, 2, 2) == pytest.approx(0.7)
