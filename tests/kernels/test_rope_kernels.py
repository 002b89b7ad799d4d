"""Rotation and per-head norm: the plain twin against complex numbers, the kernels against the
twin."""

import pytest
import torch
from interpreted import draw, grads_of, head_spec, interpreted, leaves
from torch import Tensor

from whet.kernels.layer_ops import rotate, split_heads, split_heads_into, torch_split_heads

EPS, SIZE, POSITIONS = 1e-5, 16, 50
SHAPES = [(2, 2), (4, 2), (7, 1), (14, 2)]


def _table(size: int = SIZE) -> Tensor:
    angle = torch.arange(POSITIONS)[:, None] / 20.0 ** (torch.arange(size // 2) * 2 / size)
    return torch.cat([angle.cos(), angle.sin()], -1)


def _projection(rows: int, heads: int, groups: int) -> tuple[Tensor, Tensor]:
    positions_T = torch.randint(0, POSITIONS, (rows,), generator=torch.Generator().manual_seed(5))
    return draw(rows, (heads + 2 * groups) * SIZE, seed=1), positions_T


def _norms(has_norm: bool) -> list[Tensor]:
    return [draw(SIZE, seed=7), draw(SIZE, seed=8)] if has_norm else []


def test_a_quarter_turn_swaps_the_halves_by_hand() -> None:
    quarter = torch.tensor([[0.0, 1.0]])  # cosine 0, sine 1
    qkv = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])

    q, k, v = split_heads(qkv, head_spec(quarter, None, 1, 1))

    assert q.tolist() == [[[-2.0, 1.0]]]
    assert k.tolist() == [[[-4.0, 3.0]]]
    assert v.tolist() == [[[5.0, 6.0]]]


def test_twin_multiplies_by_complex_units_after_the_norm() -> None:
    (qkv_TX, positions_T), (q_norm_D, k_norm_D) = _projection(5, 4, 2), _norms(True)

    spec = head_spec(_table(), positions_T, 4, 2, q_norm_D, k_norm_D)
    q_TND, k_TGD, v_TGD = split_heads(qkv_TX, spec)

    heads = qkv_TX.view(5, 8, SIZE)
    unit = heads / (heads.pow(2).mean(-1, keepdim=True) + EPS).sqrt()
    for found, parts in ((q_TND, unit[:, :4] * q_norm_D), (k_TGD, unit[:, 4:6] * k_norm_D)):
        cos, sin = _table()[positions_T].chunk(2, -1)
        exact = torch.complex(*parts.chunk(2, -1)) * torch.complex(cos, sin)[:, None]
        torch.testing.assert_close(found, torch.cat([exact.real, exact.imag], -1))
    assert torch.equal(v_TGD, heads[:, 6:])


@pytest.mark.parametrize("has_norm", [True, False])
def test_twin_has_the_gradients_of_the_formula(has_norm: bool) -> None:
    qkv_TX, positions_T = _projection(5, 4, 2)
    inputs = leaves(qkv_TX, *_norms(has_norm))

    spec = head_spec(_table(), positions_T, 4, 2, *inputs[1:])
    found = grads_of(split_heads(inputs[0], spec), inputs)

    heads = inputs[0].view(5, 8, SIZE)
    turning = [heads[:, :4], heads[:, 4:6]]
    if has_norm:
        roots = [(x.pow(2).mean(-1, keepdim=True) + EPS).sqrt() for x in turning]
        turning = [
            x / root * weight for x, root, weight in zip(turning, roots, inputs[1:], strict=True)
        ]
    q_TND, k_TGD = (rotate(x, _table()[positions_T]) for x in turning)
    torch.testing.assert_close(found, grads_of((q_TND, k_TGD, heads[:, 6:]), inputs))


def test_low_precision_rotates_in_float32_and_rounds_once() -> None:
    qkv_TX, positions_T = _projection(5, 4, 2)

    spec = head_spec(_table(), positions_T, 4, 2)
    q_TND, _, _ = split_heads(qkv_TX.bfloat16(), spec)

    exact_TND, _, _ = split_heads(qkv_TX.bfloat16().float(), spec)
    assert torch.equal(q_TND, exact_TND.bfloat16())


@pytest.mark.parametrize("has_norm", [True, False])
def test_rows_are_filed_in_their_cells_and_nowhere_else(has_norm: bool) -> None:
    heads, groups, page = 4, 2, 8
    qkv_BX, positions_B = _projection(4, heads, groups)
    spec = head_spec(_table(), positions_B, heads, groups, *_norms(has_norm))
    keys, values = (
        torch.full((3, groups, page, SIZE), 9.0),
        torch.full((3, groups, page, SIZE), 9.0),
    )
    cell_B = torch.tensor([17, -1, 0, 15])

    q_BND = split_heads_into(qkv_BX, spec, keys, values, cell_B)

    exact_BND, k_BGD, v_BGD = split_heads(qkv_BX, spec)
    assert torch.equal(q_BND, exact_BND)
    for pages, rows in ((keys, k_BGD), (values, v_BGD)):
        for row, (at, place) in {0: (2, 1), 2: (0, 0), 3: (1, 7)}.items():
            assert torch.equal(pages[at, :, place], rows[row])
            pages[at, :, place] = 9.0
        assert (pages == 9.0).all()


@interpreted
@pytest.mark.parametrize(("heads", "groups"), SHAPES)
@pytest.mark.parametrize("has_norm", [True, False])
def test_triton_values_equal_the_twin(heads: int, groups: int, has_norm: bool) -> None:
    qkv_TX, positions_T = _projection(6, heads, groups)
    spec = head_spec(_table(), positions_T, heads, groups, *_norms(has_norm))

    found = split_heads(qkv_TX, spec)

    torch.testing.assert_close(found, torch_split_heads(qkv_TX, spec))
    assert all(x.is_contiguous() for x in found)


@interpreted
@pytest.mark.parametrize(("heads", "groups"), SHAPES)
@pytest.mark.parametrize("has_norm", [True, False])
def test_triton_gradients_equal_those_of_the_twin(heads: int, groups: int, has_norm: bool) -> None:
    qkv_TX, positions_T = _projection(9, heads, groups)
    inputs = leaves(qkv_TX, *_norms(has_norm))
    spec = head_spec(_table(), positions_T, heads, groups, *inputs[1:])

    found = grads_of(split_heads(inputs[0], spec), inputs)

    exact = grads_of(torch_split_heads(inputs[0], spec), inputs)
    torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-5)


@interpreted
@pytest.mark.parametrize("has_norm", [True, False])
def test_triton_files_the_very_bits_that_the_packed_form_returns(has_norm: bool) -> None:
    test_rows_are_filed_in_their_cells_and_nowhere_else(has_norm)


@interpreted
def test_triton_without_positions_takes_a_table_row_a_token() -> None:
    qkv_TX, positions_T = _projection(6, 4, 2)

    found = split_heads(qkv_TX, head_spec(_table()[positions_T], None, 4, 2))

    expected = split_heads(qkv_TX, head_spec(_table(), positions_T, 4, 2))
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.equal(mine, theirs)
