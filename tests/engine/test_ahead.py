"""The paged cache at work: memory runs short, the host is a window behind, and neither changes a
token."""

import gc

import numpy as np
import pytest
import torch
from engines import (
    all_requests,
    assert_same,
    counting_model,
    one_request,
    pool,
    random_prompts,
    small_engine,
)

from whet.engine.base import EngineStats, Request, SamplingParams
from whet.engine.native import NativeConfig, NativeEngine
from whet.errors import EngineError
from whet.testing.tiny import tiny_model
from whet.types import Tokens

LONG = 300


def _long_prompts() -> list[Tokens]:
    """Prompts of one to three pages, some ending with a page and some within one."""
    lengths = [1, 30, 63, 64, 65, 100, 128, 150]
    return [np.random.default_rng(n).integers(0, 50, n).astype(np.int32) for n in lengths]


@pytest.mark.parametrize(("slots", "window"), [(32, 1), (32, 5), (7, 16), (3, 4)])
@pytest.mark.parametrize("num_pages", [200, 12, 5])
def test_a_pool_that_runs_short_changes_no_token(slots: int, window: int, num_pages: int) -> None:
    model, sampling = tiny_model(positions=LONG), SamplingParams(max_tokens=70)
    requests = all_requests(_long_prompts(), 4, sampling)
    expected = dict(small_engine(model, slots=32).generate(requests))
    engine = small_engine(model, build=pool(num_pages), slots=slots, window=window)

    done = dict(engine.generate(requests))

    assert done.keys() == expected.keys()
    assert_same(done, expected)


def test_rows_that_give_way_often_still_give_the_same_tokens() -> None:
    # A request begins with one page and grows to four; twelve pages let six begin, and three of
    # them end together.
    model = tiny_model(positions=LONG)
    requests = all_requests(random_prompts(24, 1), 1, SamplingParams(max_tokens=250))
    expected = dict(small_engine(model, stops=frozenset()).generate(requests))
    engine = small_engine(model, build=pool(12), slots=24, window=3, stops=frozenset())

    done = dict(engine.generate(requests))

    assert engine.stats.preemptions >= 10
    assert_same(done, expected)


def wasted_row_steps(stats: EngineStats) -> int:
    """Row steps that gave no token: after the end of a row, or padding to a recorded size."""
    return stats.row_steps - (stats.tokens - stats.first_tokens)


def test_stops_found_a_window_late_leave_nothing_behind_in_memory() -> None:
    model = tiny_model(positions=LONG)
    engine = small_engine(model, build=pool(12), slots=8, window=5)

    for _ in range(3):
        assert (
            len(
                list(
                    engine.generate(all_requests(_long_prompts(), 3, SamplingParams(max_tokens=40)))
                )
            )
            == 24
        )
        assert wasted_row_steps(engine.stats) > 0


def test_a_request_longer_than_the_whole_pool_is_refused_in_a_sentence() -> None:
    engine = small_engine(tiny_model(positions=LONG), build=pool(2), slots=2)

    with pytest.raises(EngineError, match=r"p7.*129 tokens.*kv_cache_gb"):
        list(engine.generate([one_request([1], SamplingParams(max_tokens=128))]))
    assert len(list(engine.generate([one_request([1], SamplingParams(max_tokens=127))]))) == 1


@pytest.mark.parametrize("most", [1000, 100, 17])
def test_long_prompts_are_run_in_pieces(most: int) -> None:
    model, requests = (
        counting_model(LONG),
        all_requests(_long_prompts(), 2, SamplingParams(max_tokens=6)),
    )
    expected = dict(small_engine(tiny_model(positions=LONG)).generate(requests))
    cfg = NativeConfig(max_num_seqs=16, window=4)
    engine = NativeEngine(
        model, cfg, stop_tokens=frozenset({3, 17}), build_cache=pool(60), prefill_tokens=most
    )

    done = dict(engine.generate(requests))

    total = sum(len(prompt) for prompt in _long_prompts())
    assert (model.prefilled, model.passes) == (total, -(-total // most))
    assert engine.stats.prefill_tokens == total
    assert_same(done, expected)


@pytest.mark.parametrize("window", [1, 5, 16])
def test_the_host_looks_once_a_window_and_not_once_a_token(window: int) -> None:
    engine = small_engine(
        tiny_model(positions=LONG), build=pool(60), slots=8, window=window, stops=frozenset()
    )

    done = dict(engine.generate(all_requests(random_prompts(2), 4, SamplingParams(max_tokens=161))))

    stats = engine.stats
    assert sum(len(completion.tokens) for completion in done.values()) == stats.tokens == 8 * 161
    assert (stats.steps, stats.windows) == (160, 160 // window)
    assert stats.copies_to_host == stats.windows
    # One table a window; to begin with, two copies for the prompts, one for shared pages, two for
    # the rows.
    assert stats.copies_to_device <= stats.windows + 5
    assert wasted_row_steps(stats) == 0


def test_a_row_at_its_length_limit_is_replaced_without_a_look() -> None:
    model = counting_model()
    lengths = [20, *[2] * 9]
    requests = [
        Request(
            id=str(index),
            prompt=random_prompts(1)[0],
            sampling=SamplingParams(max_tokens=length),
            seed=index,
        )
        for index, length in enumerate(lengths)
    ]
    engine = small_engine(model, build=pool(20), slots=2, window=1, stops=frozenset())

    done = dict(engine.generate(requests))

    assert [len(done[str(index)].tokens) for index in range(10)] == lengths
    assert model.steps == 19


def test_long_runs_hold_no_more_than_short_ones() -> None:
    engine = small_engine(
        tiny_model(positions=LONG), build=pool(60), slots=8, window=5, stops=frozenset()
    )

    def held_after(max_tokens: int) -> int:
        """Count the tensors alive when the first of two waves of requests ends."""
        answers = engine.generate(
            all_requests(random_prompts(2), 8, SamplingParams(max_tokens=max_tokens))
        )
        next(iter(answers))
        gc.collect()
        held = sum(type(item) is torch.Tensor for item in gc.get_objects())
        list(answers)
        return held

    held_after(20)
    assert held_after(200) <= held_after(20)


def test_a_row_that_ended_far_out_does_not_trouble_shorter_ones() -> None:
    # The long row ends first; the table is then cut to the short rows, while the ended one still
    # counts as padding.
    model = tiny_model(positions=1300)
    prompts = [
        np.random.default_rng(1).integers(0, 50, n).astype(np.int32) for n in (3, 4, 5, 1200)
    ]
    lengths = [40, 40, 40, 1]
    requests = [
        Request(
            id=str(index), prompt=prompt, sampling=SamplingParams(max_tokens=length), seed=index
        )
        for index, (prompt, length) in enumerate(zip(prompts, lengths, strict=True))
    ]
    expected = dict(small_engine(model, stops=frozenset(), slots=4).generate(requests))
    engine = small_engine(model, build=pool(60), slots=4, window=4, stops=frozenset())

    assert_same(dict(engine.generate(requests)), expected)
