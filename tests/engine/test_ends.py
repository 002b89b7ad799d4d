"""Every way to end: stop tokens, stop strings, length limits, refusals, and callers that go
away."""

from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest
from engines import (
    STOPS,
    all_requests,
    assert_same,
    letters,
    one_request,
    pool,
    random_prompts,
    small_engine,
)

from whet.engine.base import LOOK_AHEAD, Request, SamplingParams
from whet.engine.kv_cache import BuildCache
from whet.errors import EngineError
from whet.testing.tiny import tiny_model
from whet.types import FinishReason, Tokens


def test_a_stop_token_ends_a_completion_and_is_its_last(build: BuildCache) -> None:
    done = dict(
        small_engine(build=build, window=4).generate(
            all_requests(random_prompts(10), 4, SamplingParams(max_tokens=30))
        )
    )

    ended = [
        completion for completion in done.values() if completion.finish_reason == FinishReason.STOP
    ]
    cut = [
        completion
        for completion in done.values()
        if completion.finish_reason == FinishReason.LENGTH
    ]
    assert len(ended) > 10 and len(cut) > 2
    for completion in ended:
        assert np.isin(completion.tokens, list(STOPS)).nonzero()[0].tolist() == [
            len(completion.tokens) - 1
        ]
    for completion in cut:
        assert len(completion.tokens) == 30 and not np.isin(completion.tokens, list(STOPS)).any()


@pytest.mark.parametrize("window", [1, 4])
def test_without_stop_tokens_the_length_limit_ends_every_completion(
    build: BuildCache, window: int
) -> None:
    requests = all_requests(random_prompts(3), 2, SamplingParams(max_tokens=7))

    done = dict(small_engine(build=build, stops=frozenset(), window=window).generate(requests))

    assert [(len(c.tokens), c.finish_reason) for c in done.values()] == [
        (7, FinishReason.LENGTH)
    ] * 6


@pytest.mark.parametrize("window", [1, 6])
def test_prompt_and_completion_together_stay_within_the_context(
    build: BuildCache, window: int
) -> None:
    prompts = [np.arange(length, dtype=np.int32) for length in (1, 8, 15)]
    engine = small_engine(build=build, context=16, stops=frozenset(), window=window)

    done = dict(engine.generate(all_requests(prompts, 1, SamplingParams(max_tokens=500))))

    assert [len(done[f"{index}/0"].tokens) for index in range(3)] == [15, 8, 1]
    assert {completion.finish_reason for completion in done.values()} == {FinishReason.LENGTH}


def test_a_limit_beyond_the_context_asks_no_more_of_the_cache_than_the_context() -> None:
    """One page holds the 16 tokens of the context, but not the 500 of the limit."""
    engine = small_engine(build=pool(1), context=16, stops=frozenset())

    ((_, completion),) = engine.generate([one_request([5, 6], SamplingParams(max_tokens=500))])

    assert len(completion.tokens) == 14


def test_the_context_is_never_longer_than_the_models_own() -> None:
    assert small_engine(context=500).max_model_len == 64
    assert small_engine().max_model_len == 64


@pytest.mark.parametrize(
    ("prompt", "sampling", "words"),
    [
        ([], SamplingParams(), ["p7", "empty"]),
        ([1] * 16, SamplingParams(), ["p7", "16 tokens", "context of 16"]),
        ([1, 50], SamplingParams(), ["p7", "token 50", "50 tokens"]),
        ([1, -2], SamplingParams(), ["p7", "token -2"]),
        ([1], SamplingParams(stop=("x",)), ["p7", "stop strings", "tokenizer"]),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_in_a_sentence(
    build: BuildCache, prompt: list[int], sampling: SamplingParams, words: list[str]
) -> None:
    with pytest.raises(EngineError) as raised:
        list(small_engine(build=build, context=16).generate([one_request(prompt, sampling)]))

    assert all(word in str(raised.value) for word in words)


@pytest.mark.parametrize("window", [1, 3, 8])
def test_a_stop_string_ends_the_completion_where_it_is_complete(
    build: BuildCache, window: int
) -> None:
    model, words = tiny_model(), ("ab", "e", "xyz")
    free = dict(
        small_engine(model, build=build).generate(
            all_requests(random_prompts(10), 4, SamplingParams(max_tokens=25))
        )
    )
    engine = small_engine(model, build=build, slots=7, window=window, detokenize=letters)

    done = dict(
        engine.generate(
            all_requests(random_prompts(10), 4, SamplingParams(max_tokens=25, stop=words))
        )
    )

    num_stopped = 0
    for id, completion in done.items():
        text = letters(free[id].tokens)
        ends = [text.find(word) + len(word) for word in words if word in text]
        length = min([*ends, len(text)])
        np.testing.assert_array_equal(completion.tokens, free[id].tokens[:length])
        assert len(completion.logprobs) == length
        assert completion.finish_reason == (FinishReason.STOP if ends else free[id].finish_reason)
        num_stopped += bool(ends)
    assert 5 < num_stopped < 40


def test_a_stop_string_complete_at_the_length_limit_counts_as_a_stop(build: BuildCache) -> None:
    model, prompt = tiny_model(), random_prompts(1)[0]
    [(_, free)] = small_engine(model, build=build, stops=frozenset()).generate(
        [one_request(list(prompt), SamplingParams(max_tokens=4))]
    )
    word = letters(free.tokens)[2:]

    [(_, completion)] = small_engine(
        model, build=build, stops=frozenset(), detokenize=letters
    ).generate([one_request(list(prompt), SamplingParams(max_tokens=4, stop=(word,)))])

    assert (len(completion.tokens), completion.finish_reason) == (4, FinishReason.STOP)


@pytest.mark.parametrize("window", [1, 5])
def test_a_long_response_is_not_decoded_again_for_each_token(
    build: BuildCache, window: int
) -> None:
    """Of 200 tokens all prefixes are 20,100, and one tail of up to 32 for each token is 6,400."""
    counted = list[int]()

    def detokenize(tokens: Tokens) -> str:
        counted.append(len(tokens))
        return letters(tokens)

    engine = small_engine(
        tiny_model(positions=256),
        build=build,
        window=window,
        stops=frozenset(),
        detokenize=detokenize,
    )
    sampling = SamplingParams(max_tokens=200, stop=("1",))

    [(_, completion)] = engine.generate([one_request([1, 2], sampling)])

    assert len(completion.tokens) == 200
    assert 200 <= sum(counted) <= 6_400


@pytest.mark.parametrize("window", [1, 4])
def test_a_closed_generator_leaves_nothing_behind(build: BuildCache, window: int) -> None:
    engine, requests = (
        small_engine(build=build, slots=6, window=window),
        all_requests(random_prompts(3), 3, SamplingParams(max_tokens=12)),
    )
    expected = dict(small_engine(build=build).generate(requests))
    pulled: list[str] = []

    def endless() -> Iterator[Request]:
        for number in count():
            pulled.append(str(number))
            yield Request(
                id=str(number),
                prompt=random_prompts(1)[0],
                sampling=SamplingParams(max_tokens=12),
                seed=number,
            )

    answers = engine.generate(endless())
    for _ in range(3):
        next(answers)
    assert isinstance(answers, Iterator)
    del answers

    assert len(pulled) <= 6 + 3 + 6 + LOOK_AHEAD * 6
    assert_same(dict(engine.generate(requests)), expected)


def test_a_second_call_while_the_first_still_runs_is_refused(build: BuildCache) -> None:
    engine = small_engine(build=build, slots=2)
    first = iter(engine.generate(all_requests(random_prompts(2), 3, SamplingParams(max_tokens=12))))
    next(first)

    with pytest.raises(EngineError, match="still"):
        list(engine.generate(all_requests(random_prompts(1), 1, SamplingParams(max_tokens=2))))

    assert len(list(first)) == 5
    assert (
        len(list(engine.generate(all_requests(random_prompts(1), 1, SamplingParams(max_tokens=2)))))
        == 1
    )
