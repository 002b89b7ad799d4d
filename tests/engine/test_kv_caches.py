"""Both caches: what is filed is what is read, row by row, and a decoded token sees what the whole
sequence would."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from whet.engine.cpu.dense_cache import CACHE_BLOCK, DenseCache
from whet.engine.input_batch import HostTransfer, InputBatch
from whet.engine.kv_cache import BuildCache, KVCache
from whet.engine.paged_cache import PagedCache, build_paged_cache
from whet.engine.scheduler import plan_prefill
from whet.errors import EngineError
from whet.models.transformer import PackedAttention, Transformer
from whet.testing.rounding import rounding_bound, terms_of_pass
from whet.testing.tiny import tiny_model
from whet.types import Indices, Tokens

CPU, SLOTS, CONTEXT = torch.device("cpu"), 3, 200
BUILDS = [
    pytest.param(DenseCache, id="slots"),
    pytest.param(partial(PagedCache, num_pages=12), id="pages"),
]


def _sequence(length: int, seed: int = 0) -> Tokens:
    return np.random.default_rng(seed).integers(0, 50, length).astype(np.int32)


def _whole(model: Transformer, tokens: Tokens) -> Tensor:
    """Run a sequence with no cache."""
    length = torch.tensor([len(tokens)])
    return model(
        torch.from_numpy(tokens.astype(np.int64)),
        torch.arange(len(tokens)),
        PackedAttention(length),
    )


def _prefill(
    model: Transformer, cache: KVCache, contexts: dict[int, Tokens], *, most: int = 999
) -> dict[int, Tensor]:
    """Run contexts through a cache; returns what the model makes of the last token of each."""
    transfer = HostTransfer(CPU)
    ends: dict[int, Tensor] = {}
    for layout in plan_prefill(contexts, max_tokens=most, chunked=cache.chunked):
        tokens, positions = torch.from_numpy(layout.tokens_T), torch.from_numpy(layout.positions_T)
        hidden = model(tokens, positions, cache.prefill(layout, transfer))
        ends |= dict(zip(layout.row_Q.tolist(), hidden[layout.end_Q], strict=True))
    return ends


def _place(cache: KVCache, row: int, tokens: int, *, source: int | None = None) -> None:
    assert cache.allocator.allocate(
        row, tokens=tokens, reserve=tokens + 2, max_tokens=tokens + 2, source=source
    )


def _rows() -> InputBatch:
    return InputBatch(SLOTS, 1, HostTransfer(CPU), torch.zeros(50, dtype=torch.bool))


def _decode(model: Transformer, cache: KVCache, newest: list[Tokens]) -> Tensor:
    """Run the last token of each sequence, whose others are cached in rows 0, 1 and so on."""
    rows, transfer, used = _rows(), HostTransfer(CPU), slice(0, len(newest))
    rows.prompt_end_R[used] = torch.tensor([len(tokens) - 1 for tokens in newest])
    rows.live_R[used] = 1
    longest = max(len(tokens) for tokens in newest)
    if isinstance(cache, PagedCache):
        cache.copy_page_table(len(newest), longest, transfer)
    last = torch.tensor([int(tokens[-1]) for tokens in newest])
    return model(last, rows.position_of(used), cache.decode(rows, len(newest), longest))


def _assert_same(found_H: Tensor, expected_H: Tensor) -> None:
    bound = rounding_bound(terms_of_pass(tiny_model().cfg, CONTEXT))
    assert (found_H - expected_H).norm() <= bound * expected_H.norm()


def _indices(*values: int) -> Indices:
    return np.array(values, dtype=np.int64)


@torch.no_grad()
@pytest.mark.parametrize("build", BUILDS)
def test_a_decoded_token_sees_what_the_whole_sequence_would(build: BuildCache) -> None:
    model, sequences = (
        tiny_model(positions=CONTEXT),
        [_sequence(3), _sequence(65, 1), _sequence(130, 2)],
    )
    cache = build(model, slots=SLOTS, context=CONTEXT)
    contexts = {row: tokens[:-1] for row, tokens in enumerate(sequences)}
    for row, tokens in contexts.items():
        _place(cache, row, len(tokens))

    ends = _prefill(model, cache, contexts)
    out = _decode(model, cache, sequences)

    for row, tokens in enumerate(sequences):
        whole = _whole(model, tokens)
        _assert_same(ends[row], whole[-2])
        _assert_same(out[row], whole[-1])


@torch.no_grad()
@pytest.mark.parametrize("most", [1, 7, 64, 100])
def test_a_context_run_in_pieces_gives_the_same(most: int) -> None:
    model, contexts = tiny_model(positions=CONTEXT), {0: _sequence(90), 1: _sequence(131, 1)}
    cache = PagedCache(model, slots=SLOTS, context=CONTEXT, num_pages=12)
    for row, tokens in contexts.items():
        _place(cache, row, len(tokens))

    ends = _prefill(model, cache, contexts, most=most)

    for row, tokens in contexts.items():
        _assert_same(ends[row], _whole(model, tokens)[-1])


@torch.no_grad()
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("length", [5, 64, 100])
def test_rows_that_share_a_prompt_go_their_own_ways(build: BuildCache, length: int) -> None:
    model, prompt = tiny_model(positions=CONTEXT), _sequence(length)
    cache = build(model, slots=SLOTS, context=CONTEXT)
    _place(cache, 0, length)
    for row in (1, 2):
        _place(cache, row, length, source=0)
    _prefill(model, cache, {0: prompt})
    cache.copy_shared_pages(HostTransfer(CPU))
    sequences = [np.append(prompt, np.int32(token)) for token in (3, 4, 5)]

    first = _decode(model, cache, sequences)
    second = _decode(model, cache, [np.append(tokens, np.int32(6)) for tokens in sequences])

    for row, tokens in enumerate(sequences):
        _assert_same(first[row], _whole(model, tokens)[-1])
        _assert_same(second[row], _whole(model, np.append(tokens, np.int32(6)))[-1])


@torch.no_grad()
@pytest.mark.parametrize("build", BUILDS)
def test_a_row_that_moves_takes_its_tokens_along(build: BuildCache) -> None:
    model, sequences = tiny_model(positions=CONTEXT), [_sequence(20), _sequence(70, 1)]
    cache = build(model, slots=SLOTS, context=CONTEXT)
    for row, tokens in enumerate(sequences):
        _place(cache, row, len(tokens) - 1)
    _prefill(model, cache, {row: tokens[:-1] for row, tokens in enumerate(sequences)})

    cache.allocator.free(_indices(0))
    cache.allocator.move(_indices(1), _indices(0))
    cache.move(_indices(1), _indices(0))

    _assert_same(_decode(model, cache, [sequences[1]])[0], _whole(model, sequences[1])[-1])


@torch.no_grad()
def test_rows_of_several_blocks_and_prompts_keep_their_tokens_when_they_move() -> None:
    model, prompts = tiny_model(positions=CONTEXT), [_sequence(5), _sequence(20, 1)]
    cache = DenseCache(model, slots=SLOTS, context=CONTEXT)
    _place(cache, 0, 5)
    _place(cache, 1, 20)
    _place(cache, 2, 20, source=1)
    _prefill(model, cache, dict(enumerate(prompts)))
    ahead = [_sequence(CACHE_BLOCK + 9, seed) for seed in (3, 4, 5)]
    sequences = [np.concatenate([prompts[min(row, 1)], tokens]) for row, tokens in enumerate(ahead)]
    for left in range(CACHE_BLOCK + 8, 2, -1):
        _decode(model, cache, [tokens[:-left] for tokens in sequences])

    cache.allocator.free(_indices(0))
    cache.allocator.move(_indices(2), _indices(0))
    cache.move(_indices(2), _indices(0))

    for left in (2, 1):
        out = _decode(model, cache, [sequences[2][:-left], sequences[1][:-left]])
        for row, tokens in enumerate((sequences[2], sequences[1])):
            _assert_same(out[row], _whole(model, tokens[:-left])[-1])


@torch.no_grad()
def test_ended_rows_write_to_no_page() -> None:
    model, tokens = tiny_model(positions=CONTEXT), _sequence(10)
    cache = PagedCache(model, slots=SLOTS, context=CONTEXT, num_pages=4)
    _place(cache, 0, len(tokens))
    _prefill(model, cache, {0: tokens})
    rows, before = _rows(), cache.keys.clone()
    rows.prompt_end_R[:1] = len(tokens)
    cache.copy_page_table(1, len(tokens) + 1, HostTransfer(CPU))

    out = model(
        torch.tensor([7]), torch.tensor([len(tokens)]), cache.decode(rows, 1, len(tokens) + 1)
    )

    assert torch.equal(cache.keys, before) and out.isfinite().all()


def test_a_pool_is_as_large_as_asked_but_not_larger_than_full_slots_need() -> None:
    model = tiny_model(positions=CONTEXT)
    page_bytes = (
        2 * 2 * 2 * 64 * 16 * 4
    )  # keys and values, layers, heads, tokens, head size, float32

    def pages(kv_cache_gb: float | None) -> int:
        return build_paged_cache(
            model, slots=SLOTS, context=CONTEXT, kv_cache_gb=kv_cache_gb
        ).allocator.num_pages

    assert pages(5.5 * page_bytes / 2**30) == 5
    assert pages(1.0) == pages(None) == 4 * 4
    with pytest.raises(EngineError, match="kv_cache_gb"):
        pages(0.5 * page_bytes / 2**30)
