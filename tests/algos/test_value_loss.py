"""Values: the clipped loss and its gradient, and how much of the targets they explain."""

import numpy as np
import pytest
import torch

from whet.algos.advantages import explained_variance
from whet.algos.values import value_loss


@pytest.mark.parametrize(
    ("value", "old", "target", "clip", "loss", "gradient"),
    [
        (0.5, 0.5, 1.0, 0.2, 0.125, -0.5),  # not moved: ½ · 0.5²
        (0.6, 0.5, 1.0, 0.2, 0.08, -0.4),  # moved within the clip: ½ · 0.4²
        (
            0.9,
            0.5,
            1.0,
            0.2,
            0.045,
            0.0,
        ),  # moved too far towards the target: held at 0.7, ½ · 0.3², nothing to gain
        (
            0.1,
            0.5,
            1.0,
            0.2,
            0.405,
            -0.9,
        ),  # moved away: ½ · 0.9² is more than ½ · 0.7², and pulls back
        (1.5, 0.5, 1.0, 0.2, 0.125, 0.5),  # beyond the target: ½ · 0.5² is more than ½ · 0.3²
        (0.9, 0.5, 1.0, None, 0.005, -0.1),  # no clip: ½ · 0.1²
    ],
)
def test_the_value_loss_and_its_gradient(
    value: float, old: float, target: float, clip: float | None, loss: float, gradient: float
) -> None:
    value_M = torch.tensor([value], requires_grad=True)
    found = value_loss(value_M, torch.tensor([old]), torch.tensor([target]), clip=clip)
    found.sum().backward()
    assert found.item() == pytest.approx(loss)
    assert value_M.grad is not None and value_M.grad.item() == pytest.approx(gradient)


def test_explained_variance_is_over_all_tokens_together() -> None:
    """Targets 0, 1, 2, 3 have variance 1.25; off by 0.5, -0.5, 0.5, -0.5 the rest has 0.25: 1 -
    0.2."""
    targets = [np.float32([0.0, 1.0]), np.float32([2.0, 3.0])]
    values = [np.float32([-0.5, 1.5]), np.float32([1.5, 3.5])]
    assert explained_variance(values, targets) == pytest.approx(0.8)


def test_a_constant_explains_nothing_and_an_offset_costs_nothing() -> None:
    target = [np.float32([0.0, 1.0, 2.0])]
    assert explained_variance([np.float32([7.0, 7.0, 7.0])], target) == 0.0
    assert explained_variance([np.float32([5.0, 6.0, 7.0])], target) == 1.0
    assert explained_variance([np.float32([0.0, -1.0, -2.0])], target) == -3.0


def test_targets_without_variance_count_as_not_explained() -> None:
    assert explained_variance([np.float32([1.0, 2.0])], [np.float32([3.0, 3.0])]) == 0.0
    assert explained_variance([], []) == 0.0
