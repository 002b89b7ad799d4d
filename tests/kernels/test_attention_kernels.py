"""Attention over packed sequences and over pages: twins against the formula, kernels against twins
and each other."""

from dataclasses import dataclass

import pytest
import torch
from interpreted import draw, grads_of, interpreted, leaves
from torch import Tensor

from whet.kernels import AttentionOptions
from whet.kernels.attention import (
    packed_attention,
    paged_decode,
    paged_prefill,
    tile_table,
    torch_packed_attention,
    torch_paged_decode,
    torch_paged_prefill,
)

SIZE, PAGE = 16, 64
LENGTHS = [1, 64, 0, 65, 520]
HEADS = [(2, 2), (4, 2), (7, 1)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """Packed sequences, and the same keys and values in pages that lie in no order."""

    q_TND: Tensor
    k_TGD: Tensor
    v_TGD: Tensor
    starts_S1: Tensor
    keys_pages: Tensor
    values_pages: Tensor
    table_SA: Tensor

    @property
    def pages(self) -> tuple[Tensor, Tensor]:
        return self.keys_pages, self.values_pages


def _case(lengths: list[int], heads: int, groups: int, *, page: int = PAGE) -> Case:
    tokens, width = sum(lengths), -(-max(lengths) // page)
    q_TND, k_TGD = draw(tokens, heads, SIZE, seed=1), draw(tokens, groups, SIZE, seed=2)
    v_TGD = draw(tokens, groups, SIZE, seed=3)
    starts = torch.tensor([0, *lengths]).cumsum(0).int()
    order = torch.randperm(len(lengths) * width, generator=torch.Generator().manual_seed(4))
    table_SA = order.view(len(lengths), width).int()
    # Places that no token fills hold no numbers, to show that nobody looks at them.
    keys = torch.full((len(lengths) * width, groups, page, SIZE), float("nan"))
    values = keys.clone()
    for index, length in enumerate(lengths):
        for offset in range(length):
            at, place = table_SA[index, offset // page], offset % page
            keys[at, :, place] = k_TGD[starts[index] + offset]
            values[at, :, place] = v_TGD[starts[index] + offset]
    return Case(
        q_TND=q_TND, k_TGD=k_TGD, v_TGD=v_TGD, starts_S1=starts,
        keys_pages=keys, values_pages=values, table_SA=table_SA,
    )  # fmt: skip


def _by_formula(case: Case, window: int | None = None) -> Tensor:
    """Softmax of scaled products, head by head, in float64."""
    q, k, v = case.q_TND.double(), case.k_TGD.double(), case.v_TGD.double()
    each = q.shape[1] // k.shape[1]
    out = []
    for start, end in zip(case.starts_S1[:-1].tolist(), case.starts_S1[1:].tolist(), strict=True):
        scores = (
            torch.einsum("tnd,snd->nts", q[start:end], k[start:end].repeat_interleave(each, 1))
            / SIZE**0.5
        )
        hidden = torch.ones(end - start, end - start).triu(1).bool()
        if window is not None:
            hidden |= torch.ones(end - start, end - start).tril(-window).bool()
        shares = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        out.append(torch.einsum("nts,snd->tnd", shares, v[start:end].repeat_interleave(each, 1)))
    return torch.cat(out).float()


def _split(case: Case, before: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Leave out the first tokens of each sequence: rows of the packed tensor, new starts, how many
    came before."""
    starts = case.starts_S1.tolist()
    rows = [torch.arange(starts[i] + before[i], starts[i + 1]) for i in range(len(before))]
    lengths = torch.tensor([0, *[len(row) for row in rows]])
    return torch.cat(rows), lengths.cumsum(0).int(), torch.tensor(before, dtype=torch.int32)


def test_two_equal_keys_share_their_values_by_hand() -> None:
    one = torch.ones(2, 1, SIZE)
    values = torch.stack([torch.zeros(1, SIZE), torch.full((1, SIZE), 3.0)])

    out = packed_attention(one, one, values, torch.tensor([0, 2], dtype=torch.int32), 2)

    assert out[:, 0, 0].tolist() == [0.0, 1.5]


@pytest.mark.parametrize("window", [None, 1, 6, 70])
@pytest.mark.parametrize(("heads", "groups"), HEADS)
def test_twins_compute_the_formula(heads: int, groups: int, window: int | None) -> None:
    lengths = [1, 5, 0, 64, 70]
    case = _case(lengths, heads, groups)
    exact_TND = _by_formula(case, window)
    options = AttentionOptions(window=window)

    found_TND = torch_packed_attention(
        case.q_TND, case.k_TGD, case.v_TGD, case.starts_S1, 70, options
    )
    torch.testing.assert_close(found_TND, exact_TND, rtol=1e-4, atol=1e-5)

    rows_T, starts_S1, before_S = _split(case, [0, 3, 0, 63, 64])
    found_TND = torch_paged_prefill(
        case.q_TND[rows_T], *case.pages, case.table_SA, starts_S1, before_S, options
    )
    torch.testing.assert_close(found_TND, exact_TND[rows_T], rtol=1e-4, atol=1e-5)

    last_B = case.starts_S1[1:].long() - 1
    found_BND = torch_paged_decode(
        case.q_TND[last_B], *case.pages, case.table_SA, torch.tensor(lengths), options
    )
    exact_BND = exact_TND[last_B].where(torch.tensor(lengths)[:, None, None] > 0, 0)
    torch.testing.assert_close(found_BND, exact_BND, rtol=1e-4, atol=1e-5)


def test_a_full_grid_gives_what_a_padded_one_gives() -> None:
    case = _case([6, 6], 4, 2)

    full_TND = torch_packed_attention(case.q_TND, case.k_TGD, case.v_TGD, case.starts_S1, 6)

    torch.testing.assert_close(
        full_TND, torch_packed_attention(case.q_TND, case.k_TGD, case.v_TGD, case.starts_S1, 9)
    )


def test_tiles_cover_every_query_once_by_hand() -> None:
    tiles_K2 = tile_table(torch.tensor([0, 33, 33, 65], dtype=torch.int32), 65)

    assert tiles_K2[:3].tolist() == [[0, 0], [0, 32], [2, 0]]
    assert (tiles_K2[3:, 0] == -1).all() and tiles_K2.dtype == torch.int32


def test_tiles_of_a_later_chunk_begin_at_multiples_of_the_tile_by_hand() -> None:
    # 40 tokens came before, 30 are new: positions 40 to 69 lie in the tiles at 32 and 64.
    tiles_K2 = tile_table(torch.tensor([0, 30, 31]), 31, torch.tensor([40, 0]))

    assert tiles_K2[:3].tolist() == [[0, 32], [0, 64], [1, 0]]
    assert (tiles_K2[3:, 0] == -1).all()


@interpreted
@pytest.mark.parametrize(("heads", "groups"), HEADS)
def test_triton_packed_prefill_and_decode_give_the_same_bits_and_the_twin_s_numbers(
    heads: int, groups: int
) -> None:
    case = _case(LENGTHS, heads, groups)
    exact_TND = torch_packed_attention(
        case.q_TND, case.k_TGD, case.v_TGD, case.starts_S1, max(LENGTHS)
    )

    packed_TND = packed_attention(case.q_TND, case.k_TGD, case.v_TGD, case.starts_S1, max(LENGTHS))
    torch.testing.assert_close(packed_TND, exact_TND, rtol=1e-4, atol=1e-5)

    rows_T, starts_S1, before_S = _split(case, [0, 40, 0, 64, 90])
    prefilled_TND = paged_prefill(
        case.q_TND[rows_T], *case.pages, case.table_SA, starts_S1, before_S
    )
    assert torch.equal(prefilled_TND, packed_TND[rows_T])

    last_B = case.starts_S1[1:].long() - 1
    decoded_BND = paged_decode(
        case.q_TND[last_B], *case.pages, case.table_SA, torch.tensor(LENGTHS)
    )
    assert torch.equal(
        decoded_BND, packed_TND[last_B].where(torch.tensor(LENGTHS)[:, None, None] > 0, 0)
    )


@interpreted
def test_triton_decode_gives_the_packed_bits_at_every_length_around_the_borders() -> None:
    case = _case([580], 2, 1)
    packed_TND = packed_attention(case.q_TND, case.k_TGD, case.v_TGD, case.starts_S1, 580)
    length_B = torch.tensor(
        [1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 511, 512, 513, 575, 576, 577, 580]
    )

    table_BA = case.table_SA.expand(len(length_B), -1)
    decoded_BND = paged_decode(case.q_TND[length_B - 1], *case.pages, table_BA, length_B)

    assert torch.equal(decoded_BND, packed_TND[length_B - 1])


@interpreted
@pytest.mark.parametrize("window", [1, 40, 64, 515])
def test_triton_kernels_give_the_same_bits_within_a_window(window: int) -> None:
    case = _case([1, 64, 0, 600], 4, 2)
    packed = case.q_TND, case.k_TGD, case.v_TGD, case.starts_S1, 600
    options = AttentionOptions(window=window)
    exact_TND = torch_packed_attention(*packed, options)

    packed_TND = packed_attention(*packed, options=options)
    torch.testing.assert_close(packed_TND, exact_TND, rtol=1e-4, atol=1e-5)

    rows_T, starts_S1, before_S = _split(case, [0, 40, 0, 90])
    prefilled_TND = paged_prefill(
        case.q_TND[rows_T], *case.pages, case.table_SA, starts_S1, before_S, options=options
    )
    assert torch.equal(prefilled_TND, packed_TND[rows_T])

    length_B = torch.tensor([1, 2, 63, 64, 65, 511, 512, 513, 576, 577, 600])
    table_BA = case.table_SA[-1:].expand(len(length_B), -1)
    row_B = case.starts_S1[-2] + length_B - 1
    decoded_BND = paged_decode(case.q_TND[row_B], *case.pages, table_BA, length_B, options=options)
    assert torch.equal(decoded_BND, packed_TND[row_B])


@interpreted
@pytest.mark.parametrize("page", [64, 128])
def test_triton_pages_of_another_size_hold_the_same_bits(page: int) -> None:
    case = _case([200], 2, 2, page=page)

    found = paged_decode(case.q_TND[-1:], *case.pages, case.table_SA, torch.tensor([200]))

    assert torch.equal(
        found, packed_attention(case.q_TND, case.k_TGD, case.v_TGD, case.starts_S1, 200)[-1:]
    )


@interpreted
def test_triton_rows_without_a_context_are_zero_and_disturb_nobody() -> None:
    case = _case([70, 70], 4, 2)
    q_BND, length_B = case.q_TND[:3], torch.tensor([70, 0, 65])
    table_BA = case.table_SA[[0, 0, 1]]

    found_BND = paged_decode(q_BND, *case.pages, table_BA, length_B)

    torch.testing.assert_close(
        found_BND, torch_paged_decode(q_BND, *case.pages, table_BA, length_B)
    )
    assert (found_BND[1] == 0).all()


@interpreted
@pytest.mark.parametrize("window", [None, 9])
def test_triton_packed_attention_has_the_twin_s_gradients(window: int | None) -> None:
    case = _case([3, 40, 70], 4, 2)
    inputs = leaves(case.q_TND, case.k_TGD, case.v_TGD)

    options = AttentionOptions(window=window)
    found = grads_of((packed_attention(*inputs, case.starts_S1, 70, options=options),), inputs)

    exact = grads_of((torch_packed_attention(*inputs, case.starts_S1, 70, options),), inputs)
    torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-5)


@interpreted
def test_triton_log_sum_exp_is_that_of_the_scores() -> None:
    from whet.kernels import triton_attention

    case = _case([40, 600], 2, 1)
    lse_NT = torch.empty(2, 640)

    tiles_K2 = tile_table(case.starts_S1, 640)
    triton_attention.prefill(
        case.q_TND, case.k_TGD, case.v_TGD, case.starts_S1, tiles_K2, lse_NT=lse_NT
    )

    scores = torch.einsum("tnd,sd->nts", case.q_TND[40:], case.k_TGD[40:, 0]) / SIZE**0.5
    hidden = torch.ones(600, 600).triu(1).bool()
    torch.testing.assert_close(lse_NT[:, 40:], scores.masked_fill(hidden, -torch.inf).logsumexp(-1))


@interpreted
def test_triton_is_passed_over_for_a_model_with_unknown_features() -> None:
    case = _case([70, 5], 4, 2)
    packed = case.q_TND, case.k_TGD, case.v_TGD, case.starts_S1, 70
    unknown = AttentionOptions(has_kernels=False)

    assert torch.equal(packed_attention(*packed, options=unknown), torch_packed_attention(*packed))
    assert not torch.equal(packed_attention(*packed), torch_packed_attention(*packed))
