"""silu(gate) * up: the plain twin against the formula, the kernels against the twin."""

import pytest
import torch
from interpreted import draw, grads_of, interpreted, leaves

from whet.kernels.layer_ops import swiglu, torch_swiglu


def test_gate_of_zero_closes_and_a_large_one_passes_by_hand() -> None:
    gate_up = torch.tensor([[0.0, 40.0, -1.0, 7.0, 0.5, 3.0]])

    # silu(-1) is -1 / (1 + e) = -0.268941.
    torch.testing.assert_close(torch_swiglu(gate_up), torch.tensor([[0.0, 20.0, -0.806824]]))


def test_twin_has_the_gradient_of_the_formula() -> None:
    (gate_up,) = leaves(draw(4, 10))
    gate, up = gate_up.chunk(2, -1)

    found = grads_of((swiglu(gate_up),), [gate_up])

    torch.testing.assert_close(found, grads_of((gate / (1 + (-gate).exp()) * up,), [gate_up]))


def test_low_precision_is_rounded_once() -> None:
    gate_up = draw(8, 32).bfloat16()
    gate, up = gate_up.double().chunk(2, -1)

    # Rounding silu(gate) first would differ in a good part of the 128 values.
    assert torch.equal(torch_swiglu(gate_up), (gate / (1 + (-gate).exp()) * up).bfloat16())


@interpreted
@pytest.mark.parametrize(("rows", "inner"), [(1, 3), (3, 2048), (2, 2050), (0, 4)])
def test_triton_values_and_gradients_equal_the_twin(rows: int, inner: int) -> None:
    (gate_up,) = leaves(draw(rows, 2 * inner))

    torch.testing.assert_close(swiglu(gate_up.detach()), torch_swiglu(gate_up))
    found = grads_of((swiglu(gate_up),), [gate_up])

    torch.testing.assert_close(found, grads_of((torch_swiglu(gate_up),), [gate_up]))
