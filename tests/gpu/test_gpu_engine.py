"""The engine on a GPU: the learner's own bits, recorded steps, new weights, sleep."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gpu_models import DEVICE, FAMILIES, POSITIONS, move, native, requests, sampled, small_model

from whet.engine.cuda_graphs import graph_bytes
from whet.engine.native import NativeConfig, NativeEngine
from whet.engine.paged_cache import PagedCache
from whet.models.config import SlidingWindow
from whet.models.transformer import Transformer, init_weights
from whet.testing.contracts import check_engine
from whet.testing.tiny import tiny_model
from whet.train.learner import compute_logprobs_locally
from whet.types import Completion


def _assert_same_bits(found: dict[str, Completion], expected: dict[str, Completion]) -> None:
    assert found.keys() == expected.keys()
    for id, completion in expected.items():
        np.testing.assert_array_equal(found[id].tokens, completion.tokens)
        np.testing.assert_array_equal(found[id].logprobs, completion.logprobs)


def _assert_exact(model: Transformer, *, slots: int = 24) -> None:
    """Every log-probability of the engine is the learner's, bit for bit."""
    done, examples = sampled(native(model, slots=slots), requests())
    recomputed = compute_logprobs_locally(model, examples, 4096)
    for example, logprobs in zip(examples, recomputed, strict=True):
        np.testing.assert_array_equal(done[example.rollout_id].logprobs, logprobs)


def _pages(engine: NativeEngine) -> PagedCache:
    assert engine._core is not None and isinstance(engine._core.cache, PagedCache)
    return engine._core.cache


@pytest.mark.parametrize("family", FAMILIES)
def test_engine_and_learner_give_the_same_bits(family: str) -> None:
    _assert_exact(small_model(family))


@pytest.mark.parametrize("window", [64, 100, 600])
def test_engine_and_learner_give_the_same_bits_past_a_sliding_window(window: int) -> None:
    sliding = SlidingWindow(tokens=window, layers=(1,))
    cfg = replace(tiny_model(positions=POSITIONS).cfg, sliding_window=sliding)
    model = Transformer(cfg)
    init_weights(model, 0)
    _assert_exact(move(model))


def test_engine_and_learner_give_the_same_bits_with_few_slots() -> None:
    _assert_exact(small_model(), slots=5)


def test_recorded_steps_give_what_steps_give_that_are_not() -> None:
    model = small_model()
    asked = requests((5, 64, 130), samples=8, new=100)
    recorded = native(model)
    found = dict(recorded.generate(asked))
    again = dict(recorded.generate(asked))

    plain = native(model)
    list(plain.generate(asked[:1]))
    _pages(plain).graphs = None
    expected = dict(plain.generate(asked))

    assert recorded.stats.captured_graphs > 0 and graph_bytes() >= 0
    assert plain.stats.captured_graphs == 0
    _assert_same_bits(found, expected)
    _assert_same_bits(again, expected)


def test_sleep_gives_the_memory_back_and_changes_no_result() -> None:
    model = small_model()
    engine = native(model, slots=64)
    before = torch.cuda.memory_allocated()
    first = dict(engine.generate(requests()))
    awake = torch.cuda.memory_allocated()

    engine.sleep()

    assert awake - before > 2**20
    # cuBLAS keeps a workspace of eight buffers of 16 KiB for each stream that has run a product.
    assert torch.cuda.memory_allocated() <= before + 2 * 8 * 2**14
    assert graph_bytes() == 0
    _assert_same_bits(dict(engine.generate(requests())), first)


def test_new_weights_reach_recorded_steps_of_an_engine_that_has_its_own() -> None:
    engine = native(small_model(seed=0))
    list(engine.generate(requests()))
    source = small_model(seed=1)

    engine.load_weights(source.named_weights(), 4)

    found = dict(engine.generate(requests()))
    _assert_same_bits(
        {id: replace(completion, policy_version=0) for id, completion in found.items()},
        dict(native(source).generate(requests())),
    )
    assert {completion.policy_version for completion in found.values()} == {4}


def test_weights_on_the_host_are_copied_to_the_device() -> None:
    engine = native(small_model(seed=0))
    source = small_model(seed=1)

    engine.load_weights(((name, view.cpu()) for name, view in source.named_weights()), 1)

    for mine, other in zip(engine.model.parameters(), source.parameters(), strict=True):
        assert torch.equal(mine, other) and mine.device.type == DEVICE.type


def test_a_cache_that_runs_short_changes_no_bit() -> None:
    model = small_model()
    asked = requests((40, 50, 60), samples=6, new=300)
    page_bytes = 2 * 2 * 2 * 64 * 16 * 2  # keys and values, layers, heads, tokens, size, bytes
    short, ample = (
        NativeEngine(
            model, NativeConfig(max_num_seqs=24, kv_cache_gb=kv_cache_gb), stop_tokens=frozenset()
        )
        for kv_cache_gb in (40 * page_bytes / 2**30, None)
    )

    completions = dict(short.generate(asked))

    assert short.stats.preemptions > 0
    _assert_same_bits(completions, dict(ample.generate(asked)))


def test_a_request_does_not_depend_on_its_neighbours() -> None:
    engine = native(small_model())
    asked = requests()
    together = dict(engine.generate(asked))

    for request in asked[::7]:
        _assert_same_bits(dict(engine.generate([request])), {request.id: together[request.id]})


def test_the_engine_keeps_its_contract_on_a_gpu() -> None:
    prompts = [np.arange(1, 4, dtype=np.int32), np.arange(5, 25, dtype=np.int32)]
    check_engine(native(small_model(), slots=4), prompts)
