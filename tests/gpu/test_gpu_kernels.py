"""The Triton kernels on a GPU against plain torch in float64, and against each other bit for bit."""

import pytest
import torch
from gpu_models import DEVICE, doubled, draw, grads_of, leaves
from torch import Tensor

from whet.kernels import AttentionOptions, AttentionSpec
from whet.kernels.attention import (
    packed_attention,
    paged_decode,
    paged_prefill,
    torch_packed_attention,
)
from whet.kernels.layer_ops import (
    add_norm,
    split_heads,
    split_heads_into,
    swiglu,
    torch_add_norm,
    torch_split_heads,
    torch_swiglu,
)
from whet.kernels.lm_head import head_logits, sample_rows, token_logprobs

LENGTHS = [1, 64, 65, 300, 1100]
WINDOWS = [None, 33, 600]
EPS = 1e-5
LIMITS = {torch.float32: 1e-5, torch.bfloat16: 5 * 2**-9}
"""Relative to the norm. Rounding to bfloat16 is off by up to 2^-9, and the longest chain here, the
gradient of attention, rounds five values that depend on each other: probabilities, output, their
product with the gradient, its difference from the row's mean, and the sum."""


def _close(found: list[Tensor], exact: list[Tensor], dtype: torch.dtype) -> None:
    for mine, other in zip(found, exact, strict=True):
        assert mine.shape == other.shape
        assert (mine.double() - other).norm() <= LIMITS[dtype] * other.norm()


def _packed(heads: int, groups: int, dtype: torch.dtype) -> tuple[list[Tensor], Tensor, int]:
    tokens = sum(LENGTHS)
    starts_S1 = torch.tensor([0, *LENGTHS], device=DEVICE).cumsum(0).int()
    counts = (heads, groups, groups)
    qkv = [draw(tokens, n, 64, seed=i, dtype=dtype) for i, n in enumerate(counts)]
    return qkv, starts_S1, max(LENGTHS)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_gives_what_torch_gives(dtype: torch.dtype, window: int | None) -> None:
    qkv, starts_S1, longest = _packed(4, 2, dtype)

    options = AttentionOptions(window=window)
    found = packed_attention(*qkv, starts_S1, longest, options=options)

    exact = torch_packed_attention(*doubled(*qkv), starts_S1, longest, options)
    _close([found], [exact], dtype)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_has_the_gradients_of_torch(dtype: torch.dtype, window: int | None) -> None:
    qkv, starts_S1, longest = _packed(4, 2, dtype)
    inputs, exact_inputs = leaves(*qkv), doubled(*qkv)

    options = AttentionOptions(window=window)
    found = grads_of((packed_attention(*inputs, starts_S1, longest, options=options),), inputs)

    exact_out = torch_packed_attention(*exact_inputs, starts_S1, longest, options)
    _close(found, grads_of((exact_out,), exact_inputs), dtype)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("heads", "groups"), [(2, 2), (14, 2), (32, 8)])
def test_packed_prefill_and_decode_attention_give_the_same_bits(
    heads: int, groups: int, window: int | None
) -> None:
    length, page = 1100, 64
    qkv = [draw(length, n, 64, seed=n, dtype=torch.bfloat16) for n in (heads, groups, groups)]
    starts_S1 = torch.tensor([0, length], device=DEVICE, dtype=torch.int32)
    width = -(-length // page)
    table_1A = torch.randperm(width, generator=torch.Generator().manual_seed(0)).int()[None]
    pages = []
    for x_TGD in qkv[1:]:
        whole = x_TGD.new_zeros(width * page, groups, 64)
        whole[:length] = x_TGD
        laid = whole.view(width, page, groups, 64).transpose(1, 2)
        pages.append(torch.empty_like(laid, memory_format=torch.contiguous_format))
        pages[-1][table_1A[0].long()] = laid.contiguous()
    table_1A = table_1A.to(DEVICE)

    options = AttentionOptions(window=window)
    packed_TND = packed_attention(*qkv, starts_S1, length, options=options)
    before_S = torch.tensor([500], device=DEVICE, dtype=torch.int32)
    rest_S1 = torch.tensor([0, 600], device=DEVICE, dtype=torch.int32)
    rest_TND = paged_prefill(qkv[0][500:], *pages, table_1A, rest_S1, before_S, options=options)
    length_B = torch.tensor([1, 33, 64, 65, 511, 512, 513, 1024, 1025, 1100], device=DEVICE)
    table_BA = table_1A.expand(len(length_B), -1)
    decoded_BND = paged_decode(qkv[0][length_B - 1], *pages, table_BA, length_B, options=options)

    assert torch.equal(rest_TND, packed_TND[500:])
    assert torch.equal(decoded_BND, packed_TND[length_B - 1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("has_residual", [True, False])
def test_norm_has_the_numbers_and_gradients_of_torch(
    dtype: torch.dtype, has_residual: bool
) -> None:
    given = [draw(77, 896, seed=1, dtype=dtype), draw(896, seed=2, dtype=dtype)]
    given += [draw(77, 896, seed=3, dtype=dtype)] if has_residual else []

    def run(inputs: list[Tensor], norm: object) -> list[Tensor]:
        x_TH, weight_H, *residual = inputs
        assert callable(norm)
        normed, total = norm(x_TH, residual[0] if residual else None, weight_H, EPS)
        outputs = (normed, total) if residual else (normed,)
        return [*outputs, *grads_of(outputs, inputs)]

    _close(run(leaves(*given), add_norm), run(doubled(*given), torch_add_norm), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gate_has_the_numbers_and_gradients_of_torch(dtype: torch.dtype) -> None:
    given = draw(77, 2 * 640, seed=1, dtype=dtype)
    inputs, exact_inputs = leaves(given), doubled(given)

    found = swiglu(inputs[0])
    exact = torch_swiglu(exact_inputs[0])

    _close([found], [exact], dtype)
    _close(grads_of((found,), inputs), grads_of((exact,), exact_inputs), dtype)


def _rope_inputs(dtype: torch.dtype, has_norm: bool) -> list[Tensor]:
    given = [draw(90, (4 + 2 + 2) * 64, seed=1, dtype=dtype)]
    return given + ([draw(64, seed=2, dtype=dtype), draw(64, seed=3, dtype=dtype)] * has_norm)


def _rope_table() -> Tensor:
    angle = draw(200, 32, seed=4)
    return torch.cat([angle.cos(), angle.sin()], 1)


def _head_spec(table_PD: Tensor, positions_T: Tensor, *norms: Tensor) -> AttentionSpec:
    q_norm_D, k_norm_D = norms or (None, None)
    return AttentionSpec(
        num_heads=4,
        num_kv_heads=2,
        head_dim=table_PD.shape[1],
        rope_CD=table_PD,
        positions_T=positions_T,
        q_norm_D=q_norm_D,
        k_norm_D=k_norm_D,
        eps=EPS,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("has_norm", [True, False])
def test_rope_has_the_numbers_and_gradients_of_torch(dtype: torch.dtype, has_norm: bool) -> None:
    given = _rope_inputs(dtype, has_norm)
    inputs, exact_inputs = leaves(*given), doubled(*given)
    table_PD = _rope_table()
    positions_T = torch.arange(90, device=DEVICE) * 2

    found = split_heads(inputs[0], _head_spec(table_PD, positions_T, *inputs[1:]))
    exact_spec = _head_spec(table_PD.double(), positions_T, *exact_inputs[1:])
    exact = torch_split_heads(exact_inputs[0], exact_spec)

    _close(list(found), list(exact), dtype)
    _close(grads_of(found, inputs), grads_of(exact, exact_inputs), dtype)


def test_rope_into_pages_writes_the_bits_of_rope() -> None:
    qkv_TX, q_norm_D, k_norm_D = _rope_inputs(torch.bfloat16, True)
    spec = _head_spec(_rope_table(), torch.arange(90, device=DEVICE), q_norm_D, k_norm_D)
    keys = torch.zeros(4, 2, 64, 64, device=DEVICE, dtype=torch.bfloat16)
    values = torch.zeros_like(keys)
    cell_T = torch.arange(90, device=DEVICE) + 70
    cell_T[5] = -1

    with torch.no_grad():
        q_TND, k_TGD, v_TGD = split_heads(qkv_TX, spec)
    also_q = split_heads_into(qkv_TX, spec, keys, values, cell_T)

    assert torch.equal(also_q, q_TND)
    for pages, x_TGD in ((keys, k_TGD), (values, v_TGD)):
        filed = pages.transpose(1, 2).flatten(0, 1)[70:160].clone()
        assert (filed[5] == 0).all()
        filed[5] = x_TGD[5]
        assert torch.equal(filed, x_TGD)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_and_entropies_have_the_numbers_and_gradients_of_torch(dtype: torch.dtype) -> None:
    hidden_MH = draw(130, 64, seed=1, dtype=dtype)
    weight_VH = draw(1003, 64, seed=2, dtype=dtype) / 8
    label_M = torch.arange(130, device=DEVICE) * 7 % 1003
    temperature_M = torch.full((130,), 0.7, device=DEVICE)
    inputs, exact_inputs = leaves(hidden_MH, weight_VH), doubled(hidden_MH, weight_VH)

    found = token_logprobs(*inputs, label_M, temperature_M, entropy=True)

    logprobs_MV = ((exact_inputs[0] @ exact_inputs[1].T) / 0.7).log_softmax(-1)
    exact = (
        logprobs_MV.gather(1, label_M[:, None])[:, 0],
        -(logprobs_MV.exp() * logprobs_MV).sum(-1),
    )
    _close(list(found), list(exact), dtype)
    _close(grads_of(found, inputs), grads_of(exact, exact_inputs), dtype)


@pytest.mark.parametrize("vocab", [1000, 1003])
def test_the_logits_of_a_row_do_not_depend_on_the_batch(vocab: int) -> None:
    hidden_MH = draw(300, 896, seed=1, dtype=torch.bfloat16)
    weight_VH = draw(vocab, 896, seed=2, dtype=torch.bfloat16)

    whole_MV = head_logits(hidden_MH, weight_VH)

    for rows in (1, 2, 16, 33, 128, 256):
        assert torch.equal(head_logits(hidden_MH[:rows], weight_VH), whole_MV[:rows]), rows


def test_tokens_are_drawn_as_often_as_they_are_likely_and_greedily_at_temperature_zero() -> None:
    count = 100_000
    logits_V = draw(11, seed=5)
    logits_BV = logits_V.expand(count, -1).contiguous()
    uniform_B = (torch.arange(count, device=DEVICE, dtype=torch.float64) + 0.5) / count

    token_B, logprob_B = sample_rows(logits_BV, uniform_B, torch.full((count,), 1.0, device=DEVICE))
    greedy_B, _ = sample_rows(logits_BV[:8], uniform_B[:8], torch.zeros(8, device=DEVICE))

    # Evenly spaced numbers hit each token as often as its share, up to one at each of its ends.
    shares_V = torch.bincount(token_B, minlength=11) / count
    torch.testing.assert_close(shares_V, logits_V.softmax(-1), atol=3 / count, rtol=1e-5)
    torch.testing.assert_close(logprob_B, logits_V.log_softmax(-1)[token_B], atol=1e-5, rtol=1e-5)
    assert (greedy_B == logits_V.argmax()).all()
