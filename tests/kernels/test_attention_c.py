"""Attention in C against plain torch in float64: lines that share their start, of any length and
shape of heads."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from whet.errors import TrainError
from whet.kernels import AttentionOptions
from whet.kernels.attention import (
    GridAttention,
    grid_attention,
    packed_attention,
    torch_grid_attention,
    torch_packed_attention,
)
from whet.kernels.c import library as c_library

LIBRARY = c_library.library()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="there is no C compiler")


@dataclass
class Case:
    q_UND: Tensor
    k_UGD: Tensor
    v_UGD: Tensor
    node_SC: Tensor
    cell_U: Tensor
    d_out_UND: Tensor

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.q_UND, self.k_UGD, self.v_UGD


def case(
    lengths: list[int], shared: int, heads: int, groups: int, size: int, width: float = 1.0
) -> Case:
    """Lines of these lengths, all with the same first tokens; the first line answers for those."""
    longest = max(lengths) + 3
    node_SC, cell_U = torch.zeros(len(lengths), longest, dtype=torch.int64), list[int]()
    for line, length in enumerate(lengths):
        common = min(shared, length) if line else 0
        used = len(cell_U)
        nodes = [*range(common), *range(used, used + length - common)]
        cell_U += [line * longest + i for i in range(common, length)]
        node_SC[line] = torch.tensor([*nodes, *[nodes[-1]] * (longest - length)])
    source = torch.Generator().manual_seed(len(cell_U) + size)

    def drawn(many: int) -> Tensor:
        return torch.randn(len(cell_U), many, size, generator=source) * width

    return Case(
        drawn(heads), drawn(groups), drawn(groups), node_SC, torch.tensor(cell_U), drawn(heads)
    )


def plain(case: Case, q_UND: Tensor, k_UGD: Tensor, v_UGD: Tensor) -> Tensor:
    lines, longest = case.node_SC.shape

    def grid(x_UND: Tensor) -> Tensor:
        return x_UND[case.node_SC.flatten()].view(lines, longest, *x_UND.shape[1:]).transpose(1, 2)

    mixed = F.scaled_dot_product_attention(
        grid(q_UND), grid(k_UGD), grid(v_UGD), is_causal=True, enable_gqa=True
    )
    return mixed.transpose(1, 2).flatten(0, 1)[case.cell_U]


def exact(case: Case) -> list[Tensor]:
    inputs = [x.double().requires_grad_() for x in case.inputs]
    out = plain(case, *inputs)
    return [out, *torch.autograd.grad(out, inputs, case.d_out_UND.double())]


def found(case: Case) -> list[Tensor]:
    assert LIBRARY is not None
    inputs = [x.clone().requires_grad_() for x in case.inputs]
    out = grid_attention(*inputs, case.node_SC, case.cell_U)
    return [out, *torch.autograd.grad(out, inputs, case.d_out_UND)]


CASES = {
    "one token": ([1], 0, 4, 2, 32),
    "short heads": ([7, 12, 13, 25], 5, 4, 4, 16),
    "usual": ([33, 48, 20, 64, 31], 17, 8, 4, 32),
    "one group": ([50, 49, 97], 0, 3, 1, 64),
    "all shared": ([9, 9, 5], 9, 2, 2, 48),
    "long": ([301], 0, 2, 1, 128),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_plain_torch(name: str) -> None:
    given = case(*CASES[name])

    for ours, right in zip(found(given), exact(given), strict=True):
        assert (ours - right).abs().max() <= 3e-6 * right.abs().max().clamp(min=1)


def test_large_scores_stay_finite() -> None:
    given = case([40, 30], 10, 2, 2, 32, width=20.0)

    for ours, right in zip(found(given), exact(given), strict=True):
        assert torch.isfinite(ours).all()
        assert (ours - right).abs().max() <= 1e-4 * right.abs().max()


@pytest.mark.parametrize("name", CASES)
def test_no_bit_depends_on_the_number_of_threads(name: str) -> None:
    given, threads = case(*CASES[name]), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = found(given)
        torch.set_num_threads(3)
        together = found(given)
    finally:
        torch.set_num_threads(threads)

    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


def test_a_line_has_the_same_bits_alone_and_among_others() -> None:
    assert LIBRARY is not None
    given = case([33, 48, 21], 0, 4, 2, 32)
    among = grid_attention(*given.inputs, given.node_SC, given.cell_U)[33:81]
    node_SC = torch.arange(48)[None]
    alone = grid_attention(*(x[33:81] for x in given.inputs), node_SC, node_SC[0])

    assert torch.equal(among, alone)


def test_a_query_does_not_see_what_comes_after_it() -> None:
    given = case([30], 0, 2, 2, 32)
    before = found(given)[0]
    given.k_UGD[20:] += 1
    given.v_UGD[20:] -= 1

    assert torch.equal(found(given)[0][:20], before[:20])


def test_views_are_taken_as_they_are() -> None:
    given = case([20, 11], 4, 4, 2, 32)
    right = found(given)
    given.q_UND, given.k_UGD = (
        x.transpose(1, 2).contiguous().transpose(1, 2) for x in (given.q_UND, given.k_UGD)
    )

    assert all(torch.equal(one, other) for one, other in zip(found(given), right, strict=True))


@pytest.mark.parametrize("lengths", [[1], [3, 1, 40, 17], [5, 0, 9]])
def test_packed_sequences_see_themselves_alone(lengths: list[int]) -> None:
    source, tokens = torch.Generator().manual_seed(1), sum(lengths)
    inputs = [torch.randn(tokens, heads, 32, generator=source) for heads in (4, 2, 2)]
    starts_S1 = F.pad(torch.tensor(lengths).cumsum(0), (1, 0)).to(torch.int32)

    ours = packed_attention(*inputs, starts_S1, max(lengths))

    right = torch_packed_attention(*(x.double() for x in inputs), starts_S1, max(lengths))
    assert (ours - right).abs().max() <= 3e-6


def test_no_memory_is_one_sentence() -> None:
    class Full:
        def attention_forward(self, _: object) -> int:
            return 1

    given = case([4], 0, 2, 2, 32)
    with pytest.raises(TrainError, match="micro_batch_tokens"):
        GridAttention.apply(Full(), *given.inputs, given.node_SC, given.cell_U)


def test_other_dtypes_are_left_to_torch() -> None:
    q, k, v = (
        torch.randn(5, 2, 32, generator=torch.Generator().manual_seed(seed)) for seed in range(3)
    )
    starts_S1 = torch.tensor([0, 5], dtype=torch.int32)
    with pytest.raises(RuntimeError, match="same dtype"):
        packed_attention(q, k.double(), v.double(), starts_S1, 5)


def test_a_model_with_unknown_features_is_left_to_torch() -> None:
    given = case([20, 11], 4, 4, 2, 32)
    grid = *given.inputs, given.node_SC, given.cell_U
    unknown = AttentionOptions(has_kernels=False)

    assert torch.equal(grid_attention(*grid, unknown), torch_grid_attention(*grid))
    assert not torch.equal(grid_attention(*grid), torch_grid_attention(*grid))


def test_a_second_derivative_is_refused_not_wrong() -> None:
    given = case([6], 0, 2, 2, 32)
    inputs = [x.clone().requires_grad_() for x in given.inputs]
    out = grid_attention(*inputs, given.node_SC, given.cell_U)
    (slope,) = torch.autograd.grad(out.square().sum(), inputs[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()
