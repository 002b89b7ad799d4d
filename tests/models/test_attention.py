"""Packed attention against the definition, sequence by sequence."""

import math

import pytest
import torch
from torch import Tensor

from whet.kernels import AttentionSpec
from whet.models.transformer import PackedAttention, SharedPrefixAttention


def _qkv(tokens: int, groups: int) -> tuple[Tensor, Tensor, Tensor]:
    source = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(tokens, heads, 8, generator=source) for heads in (4, groups, groups))
    return q, k, v


def _plain(q_TND: Tensor, k_TGD: Tensor, v_TGD: Tensor) -> Tensor:
    """softmax(q k / sqrt(size)) v for each head, over the tokens up to and including its own."""
    out = torch.zeros_like(q_TND)
    share = q_TND.shape[1] // k_TGD.shape[1]
    for t in range(len(q_TND)):
        for n in range(q_TND.shape[1]):
            scores = k_TGD[: t + 1, n // share] @ q_TND[t, n] / math.sqrt(q_TND.shape[2])
            out[t, n] = torch.softmax(scores, 0) @ v_TGD[: t + 1, n // share]
    return out


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("lengths", [(1,), (6,), (4, 4), (5, 1, 3), (1, 7)])
def test_each_sequence_sees_itself_up_to_the_present_token(
    lengths: tuple[int, ...], groups: int
) -> None:
    q, k, v = _qkv(sum(lengths), groups)

    found = PackedAttention(torch.tensor(lengths)).attend(q, k, v)

    parts = [torch.split(x, lengths) for x in (q, k, v)]
    torch.testing.assert_close(
        found, torch.cat([_plain(*part) for part in zip(*parts, strict=True)])
    )


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_tokens_that_sequences_share_see_what_each_sequence_would(groups: int) -> None:
    q, k, v = _qkv(6, groups)
    # Tokens 0 and 1, then 2 and 3 in one sequence and 4 in another, which is padded, then 5 alone.
    grid = torch.tensor([[0, 1, 2, 3], [0, 1, 4, 4], [5, 5, 5, 5]])
    qkv = torch.cat([x.flatten(1) for x in (q, k, v)], 1)
    spec = AttentionSpec(
        num_heads=4, num_kv_heads=groups, head_dim=8, rope_CD=torch.tensor([[1.0] * 4 + [0.0] * 4] * 6), positions_T=None,
        q_norm_D=None, k_norm_D=None, eps=0.0,
    )  # fmt: skip

    found = SharedPrefixAttention(grid, torch.tensor([0, 5, 2, 3, 6, 8]))(0, qkv, spec)

    for tokens in ([0, 1, 2, 3], [0, 1, 4], [5]):
        torch.testing.assert_close(found[tokens], _plain(q[tokens], k[tokens], v[tokens]))


def test_no_gradient_flows_from_one_sequence_to_another() -> None:
    q, k, v = (x.requires_grad_() for x in _qkv(8, 2))

    PackedAttention(torch.tensor([5, 3])).attend(q, k, v)[5:].sum().backward()

    for x in (q, k, v):
        assert x.grad is not None
        assert x.grad[:5].abs().sum() == 0
    assert v.grad is not None and v.grad[5:].abs().sum() > 0
