"""Norm, rotation and gate in C: exact against plain torch in double precision, and the same bits in
any company."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from interpreted import draw, head_spec, leaves
from torch import Tensor

from whet.kernels import IS_INTERPRETED, AttentionOptions
from whet.kernels.c import library as c_library
from whet.kernels.layer_ops import (
    add_norm,
    split_heads,
    split_heads_into,
    swiglu,
    torch_add_norm,
    torch_split_heads,
    torch_swiglu,
)

pytestmark = pytest.mark.skipif(
    IS_INTERPRETED or c_library.library() is None,
    reason="there is no C compiler, or Triton's interpreter is on",
)
EPS = 1e-5
ROWS = [1, 7, 32, 33, 301]
HEADS = [(2, 2, 16), (8, 4, 32), (3, 1, 48), (4, 1, 64)]
NO_TABLE = torch.empty(0)
Outputs = tuple[Tensor, ...]


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kernel, its twin and what both are given: a table that has no slope, inputs that have a
    line a row, weights."""

    kernel: Callable[..., Outputs]
    twin: Callable[..., Outputs]
    inputs: list[Tensor]
    weights: list[Tensor]
    table: Tensor = NO_TABLE

    def values_and_grads(self) -> list[Tensor]:
        inputs = leaves(*self.inputs, *self.weights)
        outputs = self.kernel(self.table, *inputs)
        return [*outputs, *_grads(outputs, inputs)]

    def exact(self) -> list[Tensor]:
        inputs = leaves(*(x.double() for x in (*self.inputs, *self.weights)))
        outputs = self.twin(self.table.double(), *inputs)
        return [*outputs, *_grads(outputs, inputs)]

    def only(self, rows: slice) -> "Case":
        return replace(self, table=self.table[rows], inputs=[x[rows] for x in self.inputs])


def _norm_case(rows: int, width: int, has_residual: bool) -> Case:
    def through(by: Callable[..., Outputs]) -> Callable[..., Outputs]:
        return lambda _, x, *others: by(x, others[0] if has_residual else None, others[-1], EPS)

    inputs = [draw(rows, width, seed=seed) for seed in range(1 + has_residual)]
    return Case(
        kernel=through(add_norm),
        twin=through(torch_add_norm),
        inputs=inputs,
        weights=[draw(width, seed=3)],
    )


def _turn_case(rows: int, heads: int, groups: int, size: int, has_norm: bool) -> Case:
    def through(by: Callable[..., Outputs]) -> Callable[..., Outputs]:
        return lambda table, qkv, *norms: by(qkv, head_spec(table, None, heads, groups, *norms))

    angle = 3 * draw(rows, size // 2, seed=4)
    return Case(
        kernel=through(split_heads),
        twin=through(torch_split_heads),
        table=torch.cat([angle.cos(), angle.sin()], -1),
        inputs=[draw(rows, (heads + 2 * groups) * size, seed=7)],
        weights=[draw(size, seed=5), draw(size, seed=6)] if has_norm else [],
    )


def _gate_case(rows: int, inner: int) -> Case:
    gate_up = 3 * draw(rows, 2 * inner, seed=8)
    return Case(
        kernel=lambda _, x: (swiglu(x),),
        twin=lambda _, x: (torch_swiglu(x),),
        inputs=[gate_up],
        weights=[],
    )


def _cases(rows: int) -> dict[str, Case]:
    return {
        **{f"norm of {width}": _norm_case(rows, width, True) for width in (16, 48, 256)},
        "norm without residual": _norm_case(rows, 64, False),
        **{f"turn of {shape}": _turn_case(rows, *shape, True) for shape in HEADS},
        **{f"turn of {shape} without norm": _turn_case(rows, *shape, False) for shape in HEADS},
        **{f"gate of {inner}": _gate_case(rows, inner) for inner in (16, 48, 768)},
    }


NAMES = list(_cases(1))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_are_those_of_the_twin_in_double_precision(
    name: str, rows: int
) -> None:
    case = _cases(rows)[name]

    for found, exact in zip(case.values_and_grads(), case.exact(), strict=True):
        assert found.is_contiguous()
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5 * _size(exact))


@pytest.mark.parametrize("name", NAMES)
def test_the_number_of_threads_changes_no_bit(name: str) -> None:
    case = _cases(301)[name]
    two = case.values_and_grads()

    torch.set_num_threads(1)

    assert _same(case.values_and_grads(), two)


@pytest.mark.parametrize("name", NAMES)
def test_values_have_the_same_bits_without_gradients(name: str) -> None:
    case = _cases(33)[name]

    with torch.no_grad():
        found = case.kernel(case.table, *case.inputs, *case.weights)

    assert _same(found, case.values_and_grads()[: len(found)])


@pytest.mark.parametrize("name", NAMES)
def test_a_row_alone_has_the_values_and_slopes_it_has_among_others(name: str) -> None:
    case, row = _cases(301)[name], slice(200, 201)

    def by_row(case: Case) -> list[Tensor]:
        inputs = leaves(*case.inputs)
        outputs = case.kernel(case.table, *inputs, *case.weights)
        return [*outputs, *torch.autograd.grad(outputs, inputs, [out.detach() for out in outputs])]

    assert _same(by_row(case.only(row)), [x[row] for x in by_row(case)])


@pytest.mark.parametrize("name", NAMES)
def test_no_rows_give_no_values_and_weights_no_slope(name: str) -> None:
    found = _cases(1)[name].only(slice(0, 0)).values_and_grads()

    assert not any(x.any() for x in found)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_number_shows_in_its_row_and_nowhere_else(name: str) -> None:
    case = _cases(9)[name]
    for x in case.inputs:
        x[4] = torch.nan

    for out in case.kernel(case.table, *case.inputs, *case.weights):
        assert out.isnan().flatten(1).all(1).tolist() == [row == 4 for row in range(9)]
        assert out.isnan().flatten(1).any(1).sum() == 1


def test_the_sum_is_exact_and_without_a_residual_it_is_the_input_itself() -> None:
    x_TH, residual_TH, weight_H = draw(5, 32, seed=1), draw(5, 32, seed=2), torch.ones(32)

    assert torch.equal(add_norm(x_TH, residual_TH, weight_H, EPS)[1], x_TH + residual_TH)
    assert add_norm(x_TH, None, weight_H, EPS)[1] is x_TH


@pytest.mark.parametrize("used", [0, 1])
@pytest.mark.parametrize("has_residual", [True, False])
def test_an_output_that_nobody_uses_takes_no_part_in_the_gradient(
    used: int, has_residual: bool
) -> None:
    case = _norm_case(9, 32, has_residual)

    def grads(through: Callable[..., Outputs], dtype: torch.dtype) -> list[Tensor | None]:
        inputs = leaves(*(x.to(dtype) for x in (*case.inputs, *case.weights)))
        (through(None, *inputs)[used] * draw(9, 32, seed=11)).sum().backward()
        return [None if x.grad is None else x.grad.float() for x in inputs]

    torch.testing.assert_close(grads(case.kernel, torch.float32), grads(case.twin, torch.float64))


@pytest.mark.parametrize("name", ["norm of 48", "turn of (8, 4, 32)"])
def test_frozen_weights_leave_the_gradient_of_the_rows_as_it_is(name: str) -> None:
    case = _cases(33)[name]
    inputs = leaves(*case.inputs)

    outputs = case.kernel(case.table, *inputs, *case.weights)

    found = _grads(outputs, inputs)
    assert _same(found, case.values_and_grads()[len(outputs) :][: len(found)])


@pytest.mark.parametrize("name", NAMES)
def test_inputs_and_slopes_may_lie_apart_in_memory(name: str) -> None:
    case = _cases(9)[name]
    inputs = leaves(*case.inputs, *case.weights)
    outputs = case.kernel(_apart(case.table), *(_apart(x) for x in inputs))

    found = torch.autograd.grad(outputs, inputs, [_apart(x) for x in _slopes(outputs)])

    assert _same([*outputs, *found], case.values_and_grads())


def test_gates_far_from_zero_neither_overflow_nor_lose_their_slope() -> None:
    gate = torch.tensor(
        [-1e30, -1e4, -200.0, -80.0, -1e-20, 0.0, 1e-20, 80.0, 200.0, 1e4, 1e30]
    ).repeat(16)
    gate_up = torch.cat([gate, torch.full_like(gate, 2.0)])[None]
    ours, exact = leaves(gate_up, gate_up.double())

    for mine, theirs in (
        (swiglu(ours), torch_swiglu(exact)),
        (_slope(swiglu, ours), _slope(torch_swiglu, exact)),
    ):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-5, atol=1e-30)


def test_positions_name_lines_of_the_table() -> None:
    angle = draw(50, 16, seed=4)
    table, qkv_TX, positions_T = (
        torch.cat([angle.cos(), angle.sin()], -1),
        draw(6, 8 * 32),
        torch.arange(40, 10, -5),
    )

    found = split_heads(qkv_TX, head_spec(table, positions_T, 4, 2))

    given = split_heads(qkv_TX, head_spec(table[positions_T], None, 4, 2))
    assert _same(found, given)


def test_a_model_with_unknown_features_is_split_by_torch() -> None:
    spec = head_spec(draw(6, 32, seed=4), None, 4, 2, draw(32, seed=5), draw(32, seed=6))
    unknown = replace(spec, options=AttentionOptions(has_kernels=False))
    qkv_TX = draw(6, 8 * 32)

    assert _same(split_heads(qkv_TX, unknown), torch_split_heads(qkv_TX, spec))
    assert not _same(split_heads(qkv_TX, spec), torch_split_heads(qkv_TX, spec))


def test_rows_that_are_filed_have_the_bits_of_those_returned() -> None:
    table, qkv_BX = draw(50, 32, seed=4), draw(3, 8 * 32)
    norms, keys, values = (
        [draw(32, seed=5), draw(32, seed=6)],
        torch.zeros(1, 2, 16, 32),
        torch.zeros(1, 2, 16, 32),
    )
    positions_B, cells_B = torch.tensor([3, 1, 4]), torch.tensor([5, 0, 7])

    spec = head_spec(table, positions_B, 4, 2, *norms)
    q_BND = split_heads_into(qkv_BX, spec, keys, values, cells_B)

    filed = q_BND, keys[0][:, cells_B].transpose(0, 1), values[0][:, cells_B].transpose(0, 1)
    returned = split_heads(qkv_BX, spec)
    assert _same(filed, returned)


def _grads(outputs: Outputs, inputs: list[Tensor]) -> list[Tensor]:
    """Pull slopes through all outputs at once: the same numbers in either precision."""
    slopes = [slope.to(out.dtype) for slope, out in zip(_slopes(outputs), outputs, strict=True)]
    return list(torch.autograd.grad(outputs, inputs, slopes))


def _slopes(outputs: Outputs) -> list[Tensor]:
    return [draw(*out.shape, seed=100 + i) for i, out in enumerate(outputs)]


def _slope(gate: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(gate(x).sum(), [x])
    return found


def _apart(x: Tensor) -> Tensor:
    return torch.stack([x, x], -1)[..., 0]


def _same(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    return all(torch.equal(mine, theirs) for mine, theirs in zip(found, expected, strict=True))


def _size(x: Tensor) -> float:
    """The root mean square: what a rounding error is small against."""
    return float(x.detach().pow(2).mean().sqrt())


def test_norms_of_queries_alone_are_refused() -> None:
    qkv_TX, rope_TD = torch.zeros(2, 4 * 16), torch.zeros(2, 16)
    with pytest.raises(AssertionError, match="neither"):
        split_heads(qkv_TX, head_spec(rope_TD, None, 2, 1, torch.ones(16), None))
