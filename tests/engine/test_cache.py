"""The cache: what is filed is what is read, row by row."""

import numpy as np
import pytest
import torch
from torch import Tensor

from whet.engine.base import Request, Sampling
from whet.engine.cache import Cache, Decode, Prefill
from whet.engine.prompts import key_of, lay_out, length_of, places_of
from whet.models.attention import PackedAttention
from whet.models.sizes import new_config

CFG = new_config("tiny", 11, 16)  # two layers, four query heads on two key heads of 16


def _cache(rows: int) -> Cache:
    return Cache(CFG, rows=rows, context=16, dtype=torch.float32, device=torch.device("cpu"))


def _qkv(tokens: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    source = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(tokens, heads, 16, generator=source) for heads in (4, 2, 2))
    return q, k, v


def _request(*prompt: int) -> Request:
    return Request(id="r", prompt=np.array(prompt, dtype=np.int32), sampling=Sampling(), seed=0)


@pytest.mark.parametrize("used", [7, 12])
def test_a_decoded_token_sees_what_the_whole_sequence_would(used: int) -> None:
    cache, lengths = _cache(3), torch.tensor([3, 7])
    parts = [_qkv(int(n), seed) for seed, n in enumerate(lengths)]
    for row, (_, k, v) in enumerate(parts):
        for step in range(len(k) - 1):
            cache.keys[1, row, :, step], cache.values[1, row, :, step] = k[step], v[step]
    last_q, last_k, last_v = (torch.stack([part[i][-1] for part in parts]) for i in range(3))

    out = Decode(cache, lengths - 1, used)(1, last_q, last_k, last_v)

    for row, (q, k, v) in enumerate(parts):
        whole = PackedAttention(torch.tensor([len(q)]))(1, q, k, v)
        torch.testing.assert_close(out[row], whole[-1])


def test_what_lies_beyond_the_position_is_not_seen() -> None:
    cache = _cache(1)
    q, k, v = _qkv(1, 0)
    clean = Decode(cache, torch.tensor([0]), 5)(0, q, k, v)
    cache.keys[:, :, :, 1:], cache.values[:, :, :, 1:] = 9.0, 9.0

    torch.testing.assert_close(Decode(cache, torch.tensor([0]), 5)(0, q, k, v), clean)


def test_prefill_files_each_prompt_under_all_its_rows() -> None:
    cache = _cache(4)
    requests = [_request(1, 2, 3), _request(4, 5), _request(1, 2, 3)]
    layout = lay_out(places_of(requests, 1))
    cells = (torch.from_numpy(x) for x in (layout.row_M, layout.column_M, layout.source_M))
    q, k, v = _qkv(5, 0)

    out = Prefill(cache, torch.from_numpy(layout.lengths_S), *cells)(0, q, k, v)

    torch.testing.assert_close(out, PackedAttention(torch.tensor([3, 2]))(0, q, k, v))
    torch.testing.assert_close(cache.keys[0, 1, :, :3].transpose(0, 1), k[:3])
    torch.testing.assert_close(cache.values[0, 2, :, :2].transpose(0, 1), v[3:])
    assert torch.equal(cache.keys[0, 3], cache.keys[0, 1])
    assert cache.keys[0, 0].abs().sum() == cache.keys[1].abs().sum() == 0


def test_the_layout_is_worked_by_hand() -> None:
    layout = lay_out(places_of([_request(7, 8), _request(9), _request(7, 8)], 4))

    assert layout.tokens_T.tolist() == [7, 8, 9]
    assert layout.positions_T.tolist() == [0, 1, 0]
    assert layout.lengths_S.tolist() == [2, 1]
    assert layout.row_B.tolist() == [4, 6, 5]
    assert layout.end_B.tolist() == [1, 1, 2]
    assert layout.row_M.tolist() == [4, 4, 6, 6, 5]
    assert layout.column_M.tolist() == [0, 1, 0, 1, 0]
    assert layout.source_M.tolist() == [0, 1, 0, 1, 2]


def test_a_prompt_is_named_by_its_tokens_whatever_their_type() -> None:
    assert key_of(np.array([1, 2], dtype=np.int64)) == key_of(np.array([1, 2], dtype=np.int32))
    assert length_of(key_of(np.array([1, 2, 3], dtype=np.int32))) == 3


def test_moved_rows_carry_what_was_used_and_no_more() -> None:
    cache = _cache(3)
    cache.keys[:, 2], cache.values[:, 2] = 5.0, 6.0

    cache.move(torch.tensor([2]), torch.tensor([0]), 4)

    assert (cache.keys[:, 0, :, :4] == 5.0).all() and (cache.values[:, 0, :, :4] == 6.0).all()
    assert (cache.keys[:, 0, :, 4:] == 0).all() and (cache.keys[:, 1] == 0).all()
