"""Preference losses on pairs laid out by hand: which tokens they add up, and which way they
push."""

import pytest
import torch
from torch import Tensor

from whet.algos.losses import LossInputs
from whet.algos.preferences import (
    PreferenceConfig,
    dpo,
    ipo,
    pair_log_ratios,
    preference_objective,
)

REFERENCE = (-2.0, -3.0, -1.0, -1.0, -4.0)


def _inputs(*logprobs: float) -> LossInputs:
    """Five tokens: two of the rejected answer, then three of the chosen one."""
    zeros = torch.zeros(5)
    return LossInputs(
        logprob_M=torch.tensor(logprobs, requires_grad=True),
        entropy_M=zeros,
        advantage_M=zeros,
        sampling_logprob_M=zeros,
        old_logprob_M=None,
        ref_logprob_M=torch.tensor(REFERENCE),
        segment_M=torch.tensor([0, 0, 1, 1, 1]),
        chosen_P=torch.tensor([1]),
        rejected_P=torch.tensor([0]),
    )


def _gradient(loss: Tensor, inputs: LossInputs) -> list[float]:
    loss.sum().backward()  # type: ignore[no-untyped-call]
    assert inputs.logprob_M.grad is not None
    return inputs.logprob_M.grad.tolist()


def test_log_ratios_are_sums_over_an_answer_or_means() -> None:
    inputs = _inputs(-2.5, -3.5, -0.5, 0.0, -3.0)
    # The rejected answer lost .5 twice; the chosen one gained .5, 1 and 1.
    assert [part.item() for part in pair_log_ratios(inputs)] == [2.5, -1.0]
    assert [part.item() for part in pair_log_ratios(inputs, per_token=True)] == pytest.approx(
        [2.5 / 3, -0.5]
    )


def test_metrics_are_rewards_as_dpo_reads_them() -> None:
    _, metrics, _ = preference_objective(PreferenceConfig(beta=0.2)).loss(
        _inputs(-2.5, -3.5, -0.5, 0.0, -3.0)
    )
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx(
        {
            "preference/accuracy": 1.0,
            "preference/margin": 0.7,
            "preference/chosen": 0.5,
            "preference/rejected": -0.2,
        }
    )


def test_at_the_reference_dpo_pushes_every_token_by_half_of_beta() -> None:
    inputs = _inputs(*REFERENCE)
    loss, metrics, _ = preference_objective(PreferenceConfig(beta=0.2)).loss(inputs)
    # -β × sigmoid(0): a tenth towards the chosen answer's tokens, a tenth away from the rejected one's.
    assert _gradient(loss, inputs) == pytest.approx([0.1, 0.1, -0.1, -0.1, -0.1])
    assert float(metrics["preference/accuracy"]) == 0.0


def test_ipo_pulls_back_a_pair_that_went_too_far() -> None:
    inputs = _inputs(-2.5, -3.5, -0.5, 0.0, -3.0)
    loss, _, _ = preference_objective(PreferenceConfig(name="ipo", beta=0.25)).loss(inputs)
    # The difference is 3.5, the aim 1 / .5 = 2: loss 1.5², slope 2 × 1.5 the other way.
    assert loss.item() == pytest.approx(2.25)
    assert _gradient(loss, inputs) == pytest.approx([-3.0, -3.0, 3.0, 3.0, 3.0])


def test_smoothing_has_its_minimum_where_the_pair_is_right_with_that_probability() -> None:
    # sigmoid(β × margin) = .9 at β × margin = log 9 = 2.1972.
    margin = torch.tensor([21.972], requires_grad=True)
    dpo(margin, torch.zeros(1), beta=0.1, smoothing=0.1).backward()  # type: ignore[no-untyped-call]
    assert margin.grad is not None
    assert float(margin.grad) == pytest.approx(0.0, abs=1e-5)


def test_losses_stay_finite_for_pairs_far_apart() -> None:
    far = torch.tensor([1e4, -1e4])
    assert torch.isfinite(dpo(far, torch.zeros(2), beta=1.0)).all()
    assert torch.isfinite(ipo(far, torch.zeros(2), beta=1.0)).all()


def test_smoothing_with_ipo_is_refused() -> None:
    with pytest.raises(ValueError, match=r'smoothing = 0.2 is for name = "dpo"'):
        PreferenceConfig(name="ipo", smoothing=0.2)
