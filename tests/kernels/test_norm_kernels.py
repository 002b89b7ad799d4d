"""Residual sum and norm: the plain twin against the formula, the kernels against the twin."""

import pytest
import torch
from interpreted import draw, grads_of, interpreted, leaves
from torch import Tensor

from whet.kernels.layer_ops import add_norm, torch_add_norm

EPS = 1e-5


def _by_formula(sum_TH: Tensor, weight_H: Tensor) -> Tensor:
    return sum_TH / (sum_TH.pow(2).mean(-1, keepdim=True) + EPS).sqrt() * weight_H


def test_norm_of_three_and_four_by_hand() -> None:
    normed, total = torch_add_norm(
        torch.tensor([[1.0, 4.0]]), torch.tensor([[2.0, 0.0]]), torch.tensor([1.0, 2.0]), 0.0
    )

    assert total.tolist() == [[3.0, 4.0]]
    # The mean square of 3 and 4 is 12.5, its root 3.53553.
    torch.testing.assert_close(normed, torch.tensor([[0.848528, 2.262742]]))


def test_without_a_residual_the_sum_is_the_input_itself() -> None:
    x_TH = draw(3, 8)

    normed_TH, sum_TH = add_norm(x_TH, None, torch.ones(8), EPS)

    assert sum_TH is x_TH
    torch.testing.assert_close(normed_TH, _by_formula(x_TH, torch.ones(8)))


def test_twin_has_the_gradients_of_the_formula() -> None:
    inputs = leaves(draw(5, 7, seed=1), draw(5, 7, seed=2), draw(7, seed=3))
    x_TH, residual_TH, weight_H = inputs

    found = grads_of(add_norm(x_TH, residual_TH, weight_H, EPS), inputs)

    total = x_TH + residual_TH
    exact = grads_of((_by_formula(total, weight_H), total), inputs)
    torch.testing.assert_close(found, exact)


def test_twin_has_the_gradients_of_the_formula_without_a_residual() -> None:
    inputs = leaves(draw(5, 7, seed=1), draw(7, seed=3))
    x_TH, weight_H = inputs

    found = grads_of(add_norm(x_TH, None, weight_H, EPS), inputs)

    torch.testing.assert_close(found, grads_of((_by_formula(x_TH, weight_H), x_TH), inputs))


def test_a_frozen_residual_takes_nothing_from_the_gradient_of_what_is_added() -> None:
    (x_TH,), residual_TH, weight_H = leaves(draw(5, 7, seed=1)), draw(5, 7, seed=2), draw(7, seed=3)

    found = grads_of(add_norm(x_TH, residual_TH, weight_H, EPS), [x_TH])

    total = x_TH + residual_TH
    torch.testing.assert_close(found, grads_of((_by_formula(total, weight_H), total), [x_TH]))


def test_low_precision_rounds_the_sum_before_the_norm_and_the_norm_once() -> None:
    x_TH, residual_TH, weight_H = (
        draw(*shape, seed=9).bfloat16() for shape in ((4, 16), (4, 16), (16,))
    )

    normed_TH, sum_TH = torch_add_norm(x_TH, residual_TH, weight_H, EPS)

    assert torch.equal(sum_TH, (x_TH.float() + residual_TH.float()).bfloat16())
    assert torch.equal(normed_TH, _by_formula(sum_TH.float(), weight_H.float()).bfloat16())


@interpreted
@pytest.mark.parametrize(("rows", "width"), [(1, 16), (3, 7), (5, 100), (0, 16)])
@pytest.mark.parametrize("has_residual", [True, False])
def test_triton_sum_and_norm_equal_the_twin(rows: int, width: int, has_residual: bool) -> None:
    x_TH, weight_H = draw(rows, width, seed=1), draw(width, seed=2)
    residual_TH = draw(rows, width, seed=3) if has_residual else None

    normed_TH, sum_TH = add_norm(x_TH, residual_TH, weight_H, EPS)

    exact_TH, exact_sum_TH = torch_add_norm(x_TH, residual_TH, weight_H, EPS)
    torch.testing.assert_close(normed_TH, exact_TH)
    assert torch.equal(sum_TH, exact_sum_TH)


@interpreted
@pytest.mark.parametrize("has_residual", [True, False])
@pytest.mark.parametrize("used", [(0, 1), (0,), (1,)])
def test_triton_gradients_equal_those_of_the_twin(
    has_residual: bool, used: tuple[int, ...]
) -> None:
    def grads(through: object) -> list[Tensor | None]:
        x_TH, residual_TH, weight_H = leaves(
            draw(11, 12, seed=1), draw(11, 12, seed=2), draw(12, seed=3)
        )
        both = through(x_TH, residual_TH if has_residual else None, weight_H, EPS)  # type: ignore[operator]
        sum((both[i] * draw(*both[i].shape, seed=50 + i)).sum() for i in used).backward()
        return [x_TH.grad, residual_TH.grad, weight_H.grad]

    torch.testing.assert_close(grads(add_norm), grads(torch_add_norm))


@interpreted
def test_triton_row_does_not_depend_on_its_neighbours() -> None:
    x_TH, weight_H = draw(6, 40, seed=1), draw(40, seed=2)

    alone_TH, _ = add_norm(x_TH[4:5], None, weight_H, EPS)

    assert torch.equal(alone_TH, add_norm(x_TH, None, weight_H, EPS)[0][4:5])
