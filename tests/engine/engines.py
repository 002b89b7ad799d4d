"""Small engines, requests and checks for the tests of this folder."""

from functools import partial

import numpy as np
import pytest
from torch import Tensor

from whet.engine import paged_cache
from whet.engine.base import Request, SamplingParams
from whet.engine.cpu import compiled_cache, dense_cache
from whet.engine.kv_cache import BuildCache
from whet.engine.native import Detokenize, NativeConfig, NativeEngine
from whet.models.transformer import Attend, Transformer
from whet.rng import make_numpy_rng
from whet.testing.rounding import logprob_bound
from whet.testing.tiny import tiny_model
from whet.types import Completion, Tokens

STOPS = frozenset({3, 17})
LOGPROB_BOUND = logprob_bound(tiny_model())
FAMILIES = [("qwen2", True), ("qwen3", False), ("llama", False), ("mistral", False)]
BUILDS: dict[str, BuildCache] = {
    "slots": dense_cache.DenseCache,
    "compiled": compiled_cache.build_cpu_cache,
    "pages": paged_cache.build_paged_cache,
}
"""`compiled` is `slots` again on a machine without a compiler."""


class CountingTransformer(Transformer):
    """Counts the tokens it is given, prompts and decoded ones apart."""

    prefilled = 0
    passes = 0
    decoded = 0
    steps = 0

    def forward(self, tokens_T: Tensor, positions_T: Tensor, attend: Attend) -> Tensor:
        if isinstance(attend, dense_cache.DensePrefill | paged_cache.PagedPrefill):
            self.prefilled += len(tokens_T)
            self.passes += 1
        else:
            self.decoded += len(tokens_T)
            self.steps += 1
        return super().forward(tokens_T, positions_T, attend)


def counting_model(positions: int = 64) -> CountingTransformer:
    model = tiny_model(cls=CountingTransformer, positions=positions)
    assert isinstance(model, CountingTransformer)
    return model


def pool(num_pages: int) -> BuildCache:
    """Make a cache of so many pages."""
    return partial(paged_cache.PagedCache, num_pages=num_pages)


def random_prompts(number: int, longest: int = 12) -> list[Tokens]:
    source = make_numpy_rng(1, "prompts")
    return [
        source.integers(0, 50, 1 + source.integers(longest)).astype(np.int32) for _ in range(number)
    ]


def all_requests(prompts: list[Tokens], samples: int, sampling: SamplingParams) -> list[Request]:
    return [
        Request(
            id=f"{index}/{number}", prompt=prompt, sampling=sampling, seed=1000 * index + number
        )
        for index, prompt in enumerate(prompts)
        for number in range(samples)
    ]


def one_request(prompt: list[int], sampling: SamplingParams) -> Request:
    return Request(id="p7", prompt=np.array(prompt, dtype=np.int32), sampling=sampling, seed=0)


def small_engine(
    model: Transformer | None = None,
    *,
    build: BuildCache | None = None,
    slots: int = 64,
    window: int | None = None,
    context: int | None = None,
    stops: frozenset[int] = STOPS,
    detokenize: Detokenize | None = None,
) -> NativeEngine:
    """Build an engine; a test is skipped where its dense cache does not know the model."""
    model = model or tiny_model()
    if build is dense_cache.DenseCache and not model.cfg.features <= dense_cache.FEATURES:
        pytest.skip("the dense cache does not compute every feature of the model")
    cfg = NativeConfig(max_num_seqs=slots, window=window, max_model_len=context)
    return NativeEngine(model, cfg, stop_tokens=stops, detokenize=detokenize, build_cache=build)


def letters(tokens: Tokens) -> str:
    return "".join(chr(97 + int(token) % 26) for token in tokens)


def assert_same(found: dict[str, Completion], expected: dict[str, Completion]) -> None:
    for id, completion in found.items():
        np.testing.assert_array_equal(completion.tokens, expected[id].tokens)
        np.testing.assert_allclose(
            completion.logprobs, expected[id].logprobs, rtol=0, atol=LOGPROB_BOUND
        )
        assert completion.finish_reason == expected[id].finish_reason
