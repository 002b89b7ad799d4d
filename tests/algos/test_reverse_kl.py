"""Distillation on a vocabulary small enough to sum over: the gradient is that of the KL to the
teacher."""

from dataclasses import replace

import torch
from torch import Tensor

from whet.algos.losses import LossInputs, reverse_kl, teacher_advantage
from whet.algos.objectives import distill_objective

POLICY = torch.tensor([0.5, -1.0, 0.3, 1.2], dtype=torch.float64)
TEACHER = torch.log_softmax(torch.tensor([1.0, 0.2, -0.7, 0.1], dtype=torch.float64), -1)


def _inputs(logprob_V: Tensor) -> LossInputs:
    """Every token of the vocabulary once, as if each had been sampled."""
    zeros = torch.zeros_like(logprob_V)
    return LossInputs(
        logprob_M=logprob_V,
        entropy_M=zeros,
        advantage_M=zeros,
        sampling_logprob_M=logprob_V.detach(),
        old_logprob_M=None,
        ref_logprob_M=TEACHER,
        segment_M=torch.zeros(4, dtype=torch.long),
    )


def _exact() -> tuple[Tensor, Tensor]:
    logits = POLICY.clone().requires_grad_()
    logprob = torch.log_softmax(logits, -1)
    kl = (logprob.exp() * (logprob - TEACHER)).sum()
    kl.backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    return kl.detach(), logits.grad


def test_value_and_gradient_are_those_of_the_reverse_kl_on_average() -> None:
    logits = POLICY.clone().requires_grad_()
    logprob = torch.log_softmax(logits, -1)
    loss = (logprob.detach().exp() * reverse_kl(_inputs(logprob))).sum()
    loss.backward()  # type: ignore[no-untyped-call]

    value, gradient = _exact()
    torch.testing.assert_close(loss.detach(), value)
    torch.testing.assert_close(logits.grad, gradient)


def test_reinforce_with_the_teachers_advantage_has_the_same_gradient() -> None:
    logits = POLICY.clone().requires_grad_()
    logprob = torch.log_softmax(logits, -1)
    loss = -(logprob.detach().exp() * teacher_advantage(logprob, TEACHER) * logprob).sum()
    loss.backward()  # type: ignore[no-untyped-call]

    torch.testing.assert_close(logits.grad, _exact()[1])


def test_older_samples_are_weighed_by_their_ratio() -> None:
    old = torch.log_softmax(torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64), -1)
    logits = POLICY.clone().requires_grad_()
    logprob = torch.log_softmax(logits, -1)
    inputs = _inputs(logprob)
    loss = (old.exp() * reverse_kl(replace(inputs, old_logprob_M=old))).sum()
    loss.backward()  # type: ignore[no-untyped-call]

    value, gradient = _exact()
    torch.testing.assert_close(loss.detach(), value)
    torch.testing.assert_close(logits.grad, gradient)


def test_the_logged_kl_is_never_negative_and_the_advantage_has_its_sign() -> None:
    logprob = torch.log_softmax(POLICY, -1)
    _, metrics, _ = distill_objective().loss(_inputs(logprob))
    assert bool((metrics["distill/kl"] >= 0).all())
    torch.testing.assert_close(metrics["distill/advantage"], TEACHER - logprob)
    assert float(metrics["policy/engine_gap"].sum()) == 0.0
