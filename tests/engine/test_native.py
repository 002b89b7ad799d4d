"""The embedded engine: same numbers as the learner, and the same tokens whatever runs beside."""

import copy
from weakref import ReferenceType, ref

import numpy as np
import pytest
import torch
from engines import (
    FAMILIES,
    all_requests,
    assert_same,
    counting_model,
    letters,
    random_prompts,
    small_engine,
)

from whet.batching.examples import Example
from whet.engine.base import Request, SamplingParams
from whet.engine.kv_cache import BuildCache, KVCache
from whet.errors import DataError, EngineError
from whet.models.lora import LoraConfig, LoraTransformer
from whet.models.transformer import Transformer
from whet.testing.contracts import check_engine
from whet.testing.tiny import tiny_model
from whet.train.learner import compute_logprobs_locally
from whet.types import FinishReason


@pytest.mark.parametrize(
    ("family", "tied", "window"),
    [(*family, (1, 5)[index % 2]) for index, family in enumerate(FAMILIES)],
)
def test_engine_and_learner_agree_on_a_thousand_sequences(
    build: BuildCache, family: str, tied: bool, window: int
) -> None:
    model = tiny_model(family=family, tied=tied)
    settings = [
        SamplingParams(max_tokens=24),
        SamplingParams(temperature=0.7, max_tokens=50),
        SamplingParams(temperature=1.4, top_p=0.9),
    ]
    requests = [
        Request(
            id=f"{kind}:{request.id}",
            prompt=request.prompt,
            sampling=sampling,
            seed=request.seed + kind,
        )
        for kind, sampling in enumerate(settings)
        for request in all_requests(random_prompts(42), 8, sampling)
    ]

    done = dict(small_engine(model, build=build, slots=100, window=window).generate(requests))

    assert len(done) == len(requests) == 1008
    assert {completion.finish_reason for completion in done.values()} == {
        FinishReason.STOP,
        FinishReason.LENGTH,
    }
    assert len({len(completion.tokens) for completion in done.values()}) > 20
    examples = [
        Example(
            tokens=np.concatenate([request.prompt, done[request.id].tokens]),
            response_start=len(request.prompt),
            group_id="",
            rollout_id=request.id,
            temperature=request.sampling.temperature,
        )
        for request in requests
    ]
    logprobs = compute_logprobs_locally(model, examples, 4096)
    gaps = [
        np.abs(done[r.id].logprobs - found).max()
        for r, found in zip(requests, logprobs, strict=True)
    ]
    assert max(gaps) <= 1e-4


def test_a_request_does_not_depend_on_its_neighbours(build: BuildCache) -> None:
    model, sampling = tiny_model(), SamplingParams(max_tokens=20, top_k=30)
    requests = all_requests(random_prompts(8), 4, sampling)
    crowd = dict(small_engine(model, build=build).generate(requests))

    for request in requests[::5]:
        assert_same(
            dict(small_engine(model, build=build).generate([request])),
            {request.id: crowd[request.id]},
        )
    for slots, window in [(3, 1), (7, 5), (64, 9)]:
        assert_same(
            dict(small_engine(model, build=build, slots=slots, window=window).generate(requests)),
            crowd,
        )
    assert_same(dict(small_engine(model, build=build, slots=5).generate(requests[::-1])), crowd)


def test_requests_with_other_settings_beside_change_nothing(build: BuildCache) -> None:
    model = tiny_model()
    plain = all_requests(random_prompts(4), 3, SamplingParams(max_tokens=15))
    others = [
        Request(id=f"other{index}", prompt=request.prompt, sampling=sampling, seed=index)
        for index, request in enumerate(plain)
        for sampling in [
            SamplingParams(
                temperature=0.3 * (index % 4), top_k=index % 3, top_p=0.8, max_tokens=1 + index
            )
        ]
    ]
    mixed = [request for pair in zip(plain, others, strict=True) for request in pair]

    done = dict(small_engine(model, build=build, slots=6).generate(mixed))

    assert_same(dict(small_engine(model, build=build).generate(plain)), done)


def test_samples_of_one_prompt_differ_by_their_seed(build: BuildCache) -> None:
    done = dict(
        small_engine(build=build).generate(
            all_requests(random_prompts(1), 16, SamplingParams(max_tokens=12))
        )
    )

    assert len({completion.tokens.tobytes() for completion in done.values()}) == 16


@pytest.mark.parametrize(("slots", "window"), [(64, 1), (5, 1), (5, 3), (1, 1)])
def test_each_distinct_prompt_is_run_once(build: BuildCache, slots: int, window: int) -> None:
    model = counting_model()
    prompts = random_prompts(6)

    list(
        small_engine(model, build=build, slots=slots, window=window).generate(
            all_requests(prompts, 8, SamplingParams(max_tokens=9))
        )
    )

    assert model.prefilled == sum(len(prompt) for prompt in prompts)


def test_with_a_window_of_one_no_token_is_decoded_in_vain() -> None:
    model = counting_model()

    done = dict(
        small_engine(model, slots=5).generate(
            all_requests(random_prompts(6), 4, SamplingParams(max_tokens=9))
        )
    )

    assert model.decoded == sum(len(completion.tokens) - 1 for completion in done.values())


def test_a_free_slot_is_filled_while_others_still_run() -> None:
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

    done = dict(small_engine(model, slots=2, stops=frozenset()).generate(requests))

    # The long one takes 19 steps after its prefill; the nine short ones all pass through the other
    # slot meanwhile.
    assert [len(done[str(index)].tokens) for index in range(10)] == lengths
    assert model.steps == 19


def test_weights_moved_between_calls_are_used_at_once(build: BuildCache) -> None:
    model = tiny_model()
    engine, requests = (
        small_engine(model, build=build, slots=2),
        all_requests(random_prompts(1), 5, SamplingParams(max_tokens=10)),
    )
    before = dict(engine.generate(requests))
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.3)

    after = dict(engine.generate(requests))

    assert_same(after, dict(small_engine(model, build=build).generate(requests)))
    assert any(after[id].tokens.tobytes() != before[id].tokens.tobytes() for id in after)


def test_sleep_gives_the_cache_back_at_once_and_the_next_call_works_the_same(
    build: BuildCache,
) -> None:
    caches = list[ReferenceType[KVCache]]()

    def remembered(model: Transformer, *, slots: int, context: int) -> KVCache:
        cache = build(model, slots=slots, context=context)
        caches.append(ref(cache))
        return cache

    engine, requests = (
        small_engine(build=remembered),
        all_requests(random_prompts(3), 2, SamplingParams(max_tokens=12)),
    )
    before = dict(engine.generate(requests))
    assert caches[0]() is not None

    engine.sleep()

    assert caches[0]() is None
    assert_same(dict(engine.generate(requests)), before)
    assert len(caches) == 2


def test_completions_carry_the_version_and_sampling_leaves_gradients_as_they_were(
    build: BuildCache,
) -> None:
    model = tiny_model()
    engine = small_engine(model, build=build)
    engine.load_weights([], 7)

    for _, completion in engine.generate(
        all_requests(random_prompts(2), 2, SamplingParams(max_tokens=3))
    ):
        assert completion.policy_version == 7
        assert torch.is_grad_enabled()

    assert all(weight.grad is None for weight in model.parameters())


def test_new_weights_are_copied_into_an_engine_that_has_its_own(build: BuildCache) -> None:
    source = tiny_model(seed=1)
    engine = small_engine(tiny_model(seed=0), build=build)
    requests = all_requests(random_prompts(3), 2, SamplingParams(max_tokens=5))
    dict(engine.generate(requests))

    engine.load_weights(source.named_weights(), 3)

    found = dict(engine.generate(requests))
    assert_same(found, dict(small_engine(source, build=build).generate(requests)))
    assert {completion.policy_version for completion in found.values()} == {3}


def test_weights_that_the_engine_shares_are_not_even_walked() -> None:
    model = tiny_model()
    named = model.named_weights()

    small_engine(model).load_weights(named, 1)

    assert next(named)[0] == "model.layers.0.input_layernorm.weight"


def test_adapters_reach_an_engine_with_weights_of_its_own() -> None:
    base = tiny_model()
    adapted = LoraTransformer(copy.deepcopy(base), LoraConfig(rank=2), base="tiny", seed=0)
    for _, _, B_OR in adapted.adapters():
        B_OR.normal_(std=0.3, generator=torch.Generator().manual_seed(0))
    engine = small_engine(base)
    requests = all_requests(random_prompts(3), 2, SamplingParams(max_tokens=5))

    engine.load_weights(adapted.named_weights(), 1)

    found = dict(engine.generate(requests))
    for id, completion in small_engine(adapted).generate(requests):
        np.testing.assert_array_equal(found[id].tokens, completion.tokens)
        np.testing.assert_allclose(found[id].logprobs, completion.logprobs, atol=2e-4)


@pytest.mark.parametrize(
    ("name", "words"), [("lm_tail.weight", "has no weight"), ("model.norm.weight", "has shape")]
)
def test_weights_that_do_not_fit_are_refused(name: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        small_engine().load_weights([(name, torch.zeros(3))], 1)


def test_weights_do_not_change_under_running_requests() -> None:
    engine = small_engine(slots=2)
    running = engine.generate(all_requests(random_prompts(3), 2, SamplingParams(max_tokens=5)))
    next(running)

    with pytest.raises(EngineError, match="while requests run"):
        engine.load_weights([], 1)


@pytest.mark.parametrize("window", [1, 3])
def test_native_engine_keeps_the_contract_of_engines(build: BuildCache, window: int) -> None:
    engine = small_engine(build=build, slots=4, window=window, detokenize=letters)
    check_engine(engine, random_prompts(5), detokenize=letters)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("window", [1, 8])
def test_on_a_gpu_engine_and_learner_agree_too(window: int) -> None:
    model = tiny_model().cuda()
    requests = all_requests(random_prompts(42), 8, SamplingParams(max_tokens=40))

    done = dict(small_engine(model, slots=50, window=window).generate(requests))

    examples = [
        Example(
            tokens=np.concatenate([request.prompt, done[request.id].tokens]),
            response_start=len(request.prompt),
            group_id="",
            rollout_id=request.id,
        )
        for request in requests
    ]
    logprobs = compute_logprobs_locally(model, examples, 4096)
    assert (
        max(
            np.abs(done[r.id].logprobs - found).max()
            for r, found in zip(requests, logprobs, strict=True)
        )
        <= 1e-4
    )
