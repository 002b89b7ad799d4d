"""The embedded engine: same numbers as the learner, same tokens whatever runs beside, and every way to end."""

import gc
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from whet.data.examples import Example
from whet.engine.base import Request, Sampling
from whet.engine.cache import Cache, Prefill
from whet.engine.native import Detokenize, EngineConfig, NativeEngine
from whet.errors import EngineError
from whet.models.attention import PackedAttention
from whet.models.load import load_model, save_model
from whet.models.transformer import Attend, Transformer
from whet.rng import numpy_stream
from whet.testing.contracts import check_engine
from whet.testing.tiny import tiny_model
from whet.train.learner import score_examples
from whet.types import Completion, Finish, Tokens

STOPS = frozenset({3, 17})
FAMILIES = [("qwen2", True), ("qwen3", False), ("llama", False)]


class CountingTransformer(Transformer):
    """Counts the tokens it is given, prompts and decoded ones apart."""

    prefilled = 0
    decoded = 0
    steps = 0

    def forward(self, tokens_T: Tensor, positions_T: Tensor, attend: Attend) -> Tensor:
        if isinstance(attend, Prefill):
            self.prefilled += len(tokens_T)
        else:
            self.decoded += len(tokens_T)
            self.steps += 1
        return super().forward(tokens_T, positions_T, attend)


def _prompts(number: int, longest: int = 12) -> list[Tokens]:
    source = numpy_stream(1, "prompts")
    return [source.integers(0, 50, 1 + source.integers(longest)).astype(np.int32) for _ in range(number)]


def _requests(prompts: list[Tokens], samples: int, sampling: Sampling) -> list[Request]:
    return [
        Request(id=f"{index}/{number}", prompt=prompt, sampling=sampling, seed=1000 * index + number)
        for index, prompt in enumerate(prompts)
        for number in range(samples)
    ]


def _engine(
    model: Transformer | None = None,
    *,
    slots: int = 64,
    window: int = 1,
    context: int | None = None,
    stops: frozenset[int] = STOPS,
    detokenize: Detokenize | None = None,
) -> NativeEngine:
    cfg = EngineConfig(slots=slots, window=window, context=context)
    return NativeEngine(model or tiny_model(), cfg, stop_tokens=stops, detokenize=detokenize)


def _letters(tokens: Tokens) -> str:
    return "".join(chr(97 + int(token) % 26) for token in tokens)


def _assert_same(found: dict[str, Completion], expected: dict[str, Completion]) -> None:
    for id, completion in found.items():
        np.testing.assert_array_equal(completion.tokens, expected[id].tokens)
        np.testing.assert_allclose(completion.logprobs, expected[id].logprobs, atol=1e-5)
        assert completion.finish == expected[id].finish


@pytest.mark.parametrize(("family", "tied"), FAMILIES)
@pytest.mark.parametrize("window", [1, 5])
def test_engine_and_learner_agree_on_a_thousand_sequences(family: str, tied: bool, window: int) -> None:
    model = tiny_model(family=family, tied=tied)
    settings = [Sampling(max_tokens=24), Sampling(temperature=0.7, max_tokens=50), Sampling(temperature=1.4, top_p=0.9)]
    requests = [
        Request(id=f"{kind}:{request.id}", prompt=request.prompt, sampling=sampling, seed=request.seed + kind)
        for kind, sampling in enumerate(settings)
        for request in _requests(_prompts(42), 8, sampling)
    ]

    done = dict(_engine(model, slots=100, window=window).generate(requests))

    assert len(done) == len(requests) == 1008
    assert {completion.finish for completion in done.values()} == {Finish.STOP, Finish.LENGTH}
    assert len({len(completion.tokens) for completion in done.values()}) > 20
    examples = [
        Example(
            tokens=np.concatenate([request.prompt, done[request.id].tokens]),
            start=len(request.prompt),
            group="",
            rollout=request.id,
            temperature=request.sampling.temperature,
        )
        for request in requests
    ]
    scored = score_examples(model, examples, 4096)
    gaps = [np.abs(done[r.id].logprobs - found).max() for r, found in zip(requests, scored, strict=True)]
    assert max(gaps) <= 1e-4


def test_a_request_does_not_depend_on_its_neighbours() -> None:
    model, sampling = tiny_model(), Sampling(max_tokens=20, top_k=30)
    requests = _requests(_prompts(8), 4, sampling)
    crowd = dict(_engine(model).generate(requests))

    for request in requests[::5]:
        _assert_same(dict(_engine(model).generate([request])), {request.id: crowd[request.id]})
    for slots, window in [(3, 1), (7, 5), (64, 9)]:
        _assert_same(dict(_engine(model, slots=slots, window=window).generate(requests)), crowd)
    _assert_same(dict(_engine(model, slots=5).generate(requests[::-1])), crowd)


def test_requests_with_other_settings_beside_change_nothing() -> None:
    model = tiny_model()
    plain = _requests(_prompts(4), 3, Sampling(max_tokens=15))
    others = [
        Request(id=f"other{index}", prompt=request.prompt, sampling=sampling, seed=index)
        for index, request in enumerate(plain)
        for sampling in [Sampling(temperature=0.3 * (index % 4), top_k=index % 3, top_p=0.8, max_tokens=1 + index)]
    ]
    mixed = [request for pair in zip(plain, others, strict=True) for request in pair]

    done = dict(_engine(model, slots=6).generate(mixed))

    _assert_same(dict(_engine(model).generate(plain)), done)


def test_samples_of_one_prompt_differ_by_their_seed() -> None:
    done = dict(_engine().generate(_requests(_prompts(1), 16, Sampling(max_tokens=12))))

    assert len({completion.tokens.tobytes() for completion in done.values()}) == 16


@pytest.mark.parametrize(("slots", "window"), [(64, 1), (5, 1), (5, 3), (1, 1)])
def test_each_distinct_prompt_is_run_once(slots: int, window: int) -> None:
    model = tiny_model(kind=CountingTransformer)
    assert isinstance(model, CountingTransformer)
    prompts = _prompts(6)

    list(_engine(model, slots=slots, window=window).generate(_requests(prompts, 8, Sampling(max_tokens=9))))

    assert model.prefilled == sum(len(prompt) for prompt in prompts)


def test_with_a_window_of_one_no_token_is_decoded_in_vain() -> None:
    model = tiny_model(kind=CountingTransformer)
    assert isinstance(model, CountingTransformer)

    done = dict(_engine(model, slots=5).generate(_requests(_prompts(6), 4, Sampling(max_tokens=9))))

    assert model.decoded == sum(len(completion.tokens) - 1 for completion in done.values())


def test_a_free_slot_is_filled_while_others_still_run() -> None:
    model = tiny_model(kind=CountingTransformer)
    assert isinstance(model, CountingTransformer)
    lengths = [20, *[2] * 9]
    requests = [
        Request(id=str(index), prompt=_prompts(1)[0], sampling=Sampling(max_tokens=length), seed=index)
        for index, length in enumerate(lengths)
    ]

    done = dict(_engine(model, slots=2, stops=frozenset()).generate(requests))

    # The long one takes 19 steps after its prefill; the nine short ones all pass through the other slot meanwhile.
    assert [len(done[str(index)].tokens) for index in range(10)] == lengths
    assert model.steps == 19


def test_weights_moved_between_calls_are_used_at_once() -> None:
    model = tiny_model()
    engine, requests = _engine(model, slots=2), _requests(_prompts(1), 5, Sampling(max_tokens=10))
    before = dict(engine.generate(requests))
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.3)

    after = dict(engine.generate(requests))

    _assert_same(after, dict(_engine(model).generate(requests)))
    assert any(after[id].tokens.tobytes() != before[id].tokens.tobytes() for id in after)


def test_a_stop_token_ends_a_completion_and_is_its_last() -> None:
    done = dict(_engine(window=4).generate(_requests(_prompts(10), 4, Sampling(max_tokens=30))))

    ended = [completion for completion in done.values() if completion.finish == Finish.STOP]
    cut = [completion for completion in done.values() if completion.finish == Finish.LENGTH]
    assert len(ended) > 10 and len(cut) > 2
    for completion in ended:
        assert np.isin(completion.tokens, list(STOPS)).nonzero()[0].tolist() == [len(completion.tokens) - 1]
    for completion in cut:
        assert len(completion.tokens) == 30 and not np.isin(completion.tokens, list(STOPS)).any()


@pytest.mark.parametrize("window", [1, 4])
def test_without_stop_tokens_the_length_limit_ends_every_completion(window: int) -> None:
    requests = _requests(_prompts(3), 2, Sampling(max_tokens=7))

    done = dict(_engine(stops=frozenset(), window=window).generate(requests))

    assert [(len(c.tokens), c.finish) for c in done.values()] == [(7, Finish.LENGTH)] * 6


@pytest.mark.parametrize("window", [1, 6])
def test_prompt_and_completion_together_stay_within_the_context(window: int) -> None:
    prompts = [np.arange(length, dtype=np.int32) for length in (1, 8, 15)]
    engine = _engine(context=16, stops=frozenset(), window=window)

    done = dict(engine.generate(_requests(prompts, 1, Sampling(max_tokens=500))))

    assert [len(done[f"{index}/0"].tokens) for index in range(3)] == [15, 8, 1]
    assert {completion.finish for completion in done.values()} == {Finish.LENGTH}


def test_the_context_is_never_longer_than_the_models_own() -> None:
    assert _engine(context=500).context == 64
    assert _engine().context == 64


def _request(prompt: list[int], sampling: Sampling) -> Request:
    return Request(id="p7", prompt=np.array(prompt, dtype=np.int32), sampling=sampling, seed=0)


@pytest.mark.parametrize(
    ("prompt", "sampling", "words"),
    [
        ([], Sampling(), ["p7", "empty"]),
        ([1] * 16, Sampling(), ["p7", "16 tokens", "context of 16"]),
        ([1, 50], Sampling(), ["p7", "token 50", "50 tokens"]),
        ([1, -2], Sampling(), ["p7", "token -2"]),
        ([1], Sampling(stop=("x",)), ["p7", "stop strings", "tokenizer"]),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_in_a_sentence(
    prompt: list[int], sampling: Sampling, words: list[str]
) -> None:
    with pytest.raises(EngineError) as raised:
        list(_engine(context=16).generate([_request(prompt, sampling)]))

    assert all(word in str(raised.value) for word in words)


@pytest.mark.parametrize("window", [1, 3, 8])
def test_a_stop_string_ends_the_completion_where_it_is_complete(window: int) -> None:
    model, words = tiny_model(), ("ab", "e", "xyz")
    free = dict(_engine(model).generate(_requests(_prompts(10), 4, Sampling(max_tokens=25))))
    engine = _engine(model, slots=7, window=window, detokenize=_letters)

    done = dict(engine.generate(_requests(_prompts(10), 4, Sampling(max_tokens=25, stop=words))))

    num_stopped = 0
    for id, completion in done.items():
        text = _letters(free[id].tokens)
        ends = [text.find(word) + len(word) for word in words if word in text]
        length = min([*ends, len(text)])
        np.testing.assert_array_equal(completion.tokens, free[id].tokens[:length])
        assert len(completion.logprobs) == length
        assert completion.finish == (Finish.STOP if ends else free[id].finish)
        num_stopped += bool(ends)
    assert 5 < num_stopped < 40


def test_a_stop_string_complete_at_the_length_limit_counts_as_a_stop() -> None:
    model, prompt = tiny_model(), _prompts(1)[0]
    [(_, free)] = _engine(model, stops=frozenset()).generate([_request(list(prompt), Sampling(max_tokens=4))])
    word = _letters(free.tokens)[2:]

    [(_, completion)] = _engine(model, stops=frozenset(), detokenize=_letters).generate(
        [_request(list(prompt), Sampling(max_tokens=4, stop=(word,)))]
    )

    assert (len(completion.tokens), completion.finish) == (4, Finish.STOP)


@pytest.mark.parametrize("window", [1, 4])
def test_a_closed_generator_leaves_nothing_behind(window: int) -> None:
    engine, requests = _engine(slots=6, window=window), _requests(_prompts(3), 3, Sampling(max_tokens=12))
    expected = dict(_engine().generate(requests))
    pulled: list[str] = []

    def endless() -> Iterator[Request]:
        for number in count():
            pulled.append(str(number))
            yield Request(id=str(number), prompt=_prompts(1)[0], sampling=Sampling(max_tokens=12), seed=number)

    answers = engine.generate(endless())
    for _ in range(3):
        next(answers)
    assert isinstance(answers, Iterator)
    del answers

    assert len(pulled) <= 6 + 3 + 6
    _assert_same(dict(engine.generate(requests)), expected)


def test_a_second_call_while_the_first_still_runs_is_refused() -> None:
    engine = _engine(slots=2)
    first = iter(engine.generate(_requests(_prompts(2), 3, Sampling(max_tokens=12))))
    next(first)

    with pytest.raises(EngineError, match="still"):
        list(engine.generate(_requests(_prompts(1), 1, Sampling(max_tokens=2))))

    assert len(list(first)) == 5
    assert len(list(engine.generate(_requests(_prompts(1), 1, Sampling(max_tokens=2))))) == 1


def test_sleep_gives_the_cache_back_and_the_next_call_works_the_same() -> None:
    engine, requests = _engine(), _requests(_prompts(3), 2, Sampling(max_tokens=12))
    before = dict(engine.generate(requests))
    gc.collect()
    held = sum(type(item) is Cache for item in gc.get_objects())

    engine.sleep()

    gc.collect()
    assert sum(type(item) is Cache for item in gc.get_objects()) == held - 1
    _assert_same(dict(engine.generate(requests)), before)


def test_completions_carry_the_version_and_sampling_leaves_gradients_as_they_were() -> None:
    model = tiny_model()
    engine = _engine(model)
    engine.version = 7

    for _, completion in engine.generate(_requests(_prompts(2), 2, Sampling(max_tokens=3))):
        assert completion.version == 7
        assert torch.is_grad_enabled()

    assert all(weight.grad is None for weight in model.parameters())


@torch.no_grad()
def _greedy(model: Transformer, prompt: Tokens, max_tokens: int) -> list[int]:
    """Decode with no cache: the whole sequence again for every token."""
    tokens = torch.from_numpy(prompt.astype(np.int64))
    for _ in range(max_tokens):
        attend = PackedAttention(torch.tensor([len(tokens)]))
        logits = model.logits(model(tokens, torch.arange(len(tokens)), attend))[-1]
        tokens = torch.cat([tokens, logits.argmax()[None]])
        if int(tokens[-1]) in STOPS:
            break
    return tokens[len(prompt) :].tolist()


@pytest.mark.parametrize(("family", "tied"), FAMILIES)
def test_greedy_takes_the_most_likely_token_every_time(family: str, tied: bool) -> None:
    model, prompts = tiny_model(family=family, tied=tied), _prompts(6)

    done = dict(_engine(model, slots=4).generate(_requests(prompts, 1, Sampling(temperature=0.0, max_tokens=20))))

    for index, prompt in enumerate(prompts):
        assert done[f"{index}/0"].tokens.tolist() == _greedy(model, prompt, 20)


def test_greedy_equals_the_generate_of_transformers(tmp_path: Path) -> None:
    save_model(tiny_model(), tmp_path, eos_tokens=STOPS)
    foreign = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    engine = _engine(load_model(tmp_path, dtype=torch.float32, device="cpu"), slots=3)

    done = dict(engine.generate(_requests(_prompts(6), 1, Sampling(temperature=0.0, max_tokens=24))))

    for index, prompt in enumerate(_prompts(6)):
        tokens = torch.from_numpy(prompt.astype(np.int64))[None]
        whole = foreign.generate(
            tokens, attention_mask=torch.ones_like(tokens), do_sample=False, max_new_tokens=24, pad_token_id=0
        )
        assert done[f"{index}/0"].tokens.tolist() == whole[0, len(prompt) :].tolist()


@pytest.mark.parametrize("window", [1, 3])
def test_native_engine_keeps_the_contract_of_engines(window: int) -> None:
    check_engine(_engine(slots=4, window=window), _prompts(5))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("window", [1, 8])
def test_on_a_gpu_engine_and_learner_agree_too(window: int) -> None:
    model = tiny_model().cuda()
    requests = _requests(_prompts(42), 8, Sampling(max_tokens=40))

    done = dict(_engine(model, slots=50, window=window).generate(requests))

    examples = [
        Example(
            tokens=np.concatenate([request.prompt, done[request.id].tokens]),
            start=len(request.prompt),
            group="",
            rollout=request.id,
        )
        for request in requests
    ]
    scored = score_examples(model, examples, 4096)
    assert max(np.abs(done[r.id].logprobs - found).max() for r, found in zip(requests, scored, strict=True)) <= 1e-4
