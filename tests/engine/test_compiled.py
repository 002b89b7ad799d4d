"""The C kernel against plain torch: the same tokens and log-probabilities, for every shape of model
that it takes."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from engines import CountingTransformer, all_requests, assert_same, random_prompts, small_engine
from torch import Tensor

from whet.engine.base import Request, SamplingParams
from whet.engine.cpu.compiled_cache import MIN_ROWS_PER_THREAD, CompiledCache, build_cpu_cache
from whet.engine.cpu.dense_cache import DenseCache
from whet.engine.input_batch import uniforms
from whet.engine.kv_cache import BuildCache
from whet.engine.native import EngineCore, NativeEngine
from whet.engine.paged_cache import PagedCache
from whet.kernels.c import library as c_library
from whet.models.config import ModelConfig
from whet.models.lora import LoraConfig, LoraTransformer
from whet.models.transformer import Transformer, init_weights
from whet.testing.tiny import tiny_model

pytestmark = pytest.mark.skipif(c_library.library() is None, reason="there is no C compiler")

USUAL = ModelConfig(
    family="llama",
    vocab_size=97,
    hidden_size=64,
    intermediate_size=96,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    max_positions=160,
    rope_theta=10000.0,
    norm_eps=1e-6,
    tied=True,
    qkv_bias=False,
    qk_norm=False,
)
SHAPES: dict[str, dict[str, Any]] = {
    "bias": {"family": "qwen2", "qkv_bias": True},
    "norms": {"family": "qwen3", "qk_norm": True},
    "short heads": {
        "family": "llama",
        "head_dim": 16,
        "num_heads": 4,
        "num_kv_heads": 4,
        "vocab_size": 17,
    },
    "long heads": {
        "family": "llama",
        "head_dim": 64,
        "num_heads": 3,
        "num_kv_heads": 1,
        "tied": False,
    },
    "odd panels": {
        "family": "qwen3",
        "hidden_size": 48,
        "intermediate_size": 80,
        "vocab_size": 131,
    },
}
"""What differs from the usual."""


def shaped(name: str) -> Transformer:
    model = Transformer(replace(USUAL, **SHAPES[name]))
    init_weights(model, 3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5).add_(
                torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)) * 0.05
            )
    return model


def requests_for(vocab: int) -> list[Request]:
    """Prompts of many lengths, some with several samples, and answers that fill up to eight
    blocks."""
    source = np.random.default_rng(5)
    settings = [
        SamplingParams(max_tokens=120),
        SamplingParams(temperature=0.0, max_tokens=40),
        SamplingParams(temperature=0.6),
    ]
    found = []
    for number in range(40):
        prompt = source.integers(0, vocab, size=1 + number % 37).astype(np.int32)
        for sample in range(1 + number % 3):
            sampling = settings[(number + sample) % 3].model_copy(
                update={"max_tokens": 3 + (7 * number) % 110}
            )
            found.append(
                Request(
                    id=f"{number}:{sample}",
                    prompt=prompt,
                    sampling=sampling,
                    seed=number * 8 + sample,
                )
            )
    return found


def engine_of(
    model: Transformer, build: BuildCache = build_cpu_cache, slots: int = 24
) -> NativeEngine:
    return small_engine(model, build=build, stops=frozenset({1}), slots=slots)


@pytest.mark.parametrize("name", SHAPES)
def test_it_gives_what_plain_torch_gives(name: str) -> None:
    model = shaped(name)
    requests = requests_for(model.cfg.vocab_size)

    found = dict(engine_of(model).generate(requests))
    wanted = dict(engine_of(model, DenseCache).generate(requests))

    # Two ways to add up may part where two tokens are equally likely, or a number falls between
    # two.
    same = [key for key in wanted if found[key].tokens.tobytes() == wanted[key].tokens.tobytes()]
    assert len(same) >= len(wanted) - 1
    # Both are off by up to 7e-5 from what float64 gives: these weights make large logits.
    assert max(np.abs(found[key].logprobs - wanted[key].logprobs).max() for key in same) < 1e-4
    assert {found[key].finish_reason for key in same} == {wanted[key].finish_reason for key in same}


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftcappedConfig(ModelConfig):
    """A family of tomorrow: a feature that nothing here computes."""

    attention_softcap: float | None = None


def test_a_model_with_a_feature_that_the_kernel_does_not_know_is_left_to_torch() -> None:
    known = shaped("norms")
    unknown = SoftcappedConfig(**asdict(known.cfg) | {"attention_softcap": 30.0})

    assert unknown.features - known.cfg.features == {"attention_softcap"}
    assert isinstance(build_cpu_cache(known, slots=2, context=8), CompiledCache)
    assert isinstance(build_cpu_cache(Transformer(unknown), slots=2, context=8), PagedCache)
    with pytest.raises(AssertionError, match=r"does not compute .*attention_softcap"):
        DenseCache(Transformer(unknown), slots=2, context=8)


def test_two_threads_give_what_one_gives() -> None:
    before = torch.get_num_threads()
    requests = all_requests(random_prompts(30), 5, SamplingParams(max_tokens=40))
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        engine = small_engine(slots=100)
        found.append(dict(engine.generate(requests)))
        assert engine.stats.row_steps > 30 * MIN_ROWS_PER_THREAD
    torch.set_num_threads(before)

    assert_same(found[1], found[0])


@pytest.fixture
def running() -> Iterator[EngineCore]:
    """An engine core with rows in the middle of their answers, some of which have moved."""
    engine = engine_of(shaped("norms"), slots=70)
    answers = engine.generate(requests_for(97))
    for _ in range(12):
        next(answers)
    assert engine._core is not None
    yield engine._core


def looked_at(core: EngineCore, size: int, threads: int = 1) -> list[Tensor]:
    """Tokens, log-probabilities and final states of a step that is not recorded."""
    assert isinstance(core.cache, CompiledCache)
    hidden_BH, before = torch.empty(size, 64), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        core.cache.step(core.batch, size, hidden_BH)
    finally:
        torch.set_num_threads(before)
    return [*core.batch.newest_tokens(slice(0, size)), hidden_BH]


def test_a_row_has_the_same_bits_whatever_runs_beside(running: EngineCore) -> None:
    rows = running.scheduler.num_rows
    wanted = looked_at(running, rows)

    assert rows >= 64
    for size in (1, 2, 5, 13, 50):
        assert all(
            torch.equal(a, b[:size]) for a, b in zip(looked_at(running, size), wanted, strict=True)
        )


def test_a_row_has_the_same_bits_on_any_number_of_threads(running: EngineCore) -> None:
    rows = running.scheduler.num_rows
    wanted = looked_at(running, rows)

    assert all(
        torch.equal(a, b) for a, b in zip(looked_at(running, rows, threads=2), wanted, strict=True)
    )


def test_it_records_what_torch_would(running: EngineCore) -> None:
    rows, used = running.batch, slice(0, running.scheduler.num_rows)
    rows.limit_R[used.stop // 2] = rows.count_R[used.stop // 2] + 1
    rows.live_R[3] = 0
    rows.is_stop_V[looked_at(running, used.stop)[0][5]] = True
    before = rows.ints.clone()
    rows.append_tokens(used, *rows.newest_tokens(used))
    wanted, report = rows.ints.clone(), rows.output_RW.clone()

    rows.ints.copy_(before)
    assert isinstance(running.cache, CompiledCache)
    running.cache.step(rows, used.stop)

    assert torch.equal(rows.ints, wanted) and torch.equal(rows.output_RW, report)
    assert (
        wanted[-1, [3, 5, used.stop // 2]].tolist() == [0, 0, 0]
        and wanted[-1, used].sum() > used.stop // 2
    )


def test_its_random_numbers_are_those_of_torch(running: EngineCore) -> None:
    """A head of zeros makes all tokens equally likely, so that a token tells its number."""
    seed_B = torch.tensor([0, 1, -1, 2**62, -(2**63), 12345])
    assert isinstance(running.cache, CompiledCache)
    running.batch.seed_R[: len(seed_B)] = seed_B
    running.batch.temperature_R.fill_(1.0)
    with torch.no_grad():
        running.cache.model.head_weight_VH.zero_()
    running.cache.refresh_weights()

    token_B = looked_at(running, len(seed_B))[0]

    uniform_B = uniforms(seed_B, running.batch.count_R[: len(seed_B)])
    assert token_B.tolist() == (uniform_B * 97).long().tolist()


def test_rows_that_move_keep_their_place(running: EngineCore) -> None:
    assert isinstance(running.cache, CompiledCache)
    slot_R = running.cache.slot_R

    assert sorted(slot_R.tolist()) == list(range(70))
    assert slot_R.tolist() != list(range(70))


def test_tokens_come_as_often_as_they_are_likely() -> None:
    model, count = tiny_model(), 6000
    requests = all_requests(random_prompts(1), count, SamplingParams(max_tokens=2))
    done = dict(engine_of(model, slots=512).generate(requests))
    # The first token is drawn by torch, the second by the kernel.
    pairs = [completion.tokens for completion in done.values() if len(completion.tokens) == 2]
    first = np.bincount([int(tokens[0]) for tokens in pairs]).argmax()
    second = [int(tokens[1]) for tokens in pairs if tokens[0] == first]
    likely: dict[int, float] = {}
    for completion in done.values():
        if len(completion.tokens) == 2 and completion.tokens[0] == first:
            likely[int(completion.tokens[1])] = float(np.exp(completion.logprobs[1]))

    share = np.bincount(second, minlength=max(likely) + 1) / len(second)
    assert len(second) > 150 and sum(likely.values()) > 0.8
    for token, probability in likely.items():
        assert abs(share[token] - probability) < 5 * (probability / len(second)) ** 0.5 + 1e-9


def test_a_token_that_cannot_come_never_does() -> None:
    """The head sees one number, 1, and gives every third token a logit of 0 and the others one far
    below."""
    model = shaped("long heads")
    assert model.head is not None
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("out.weight", "down.weight")):
                weight.zero_()
        model.embed.weight.zero_()
        model.embed.weight[:, 0] = 1.0
        model.norm.weight.zero_()
        model.norm.weight[0] = 1.0
        model.head.weight.fill_(-1e4)
        model.head.weight[::3] = 0.0

    done = dict(engine_of(model, slots=100).generate(requests_for(97)))

    tokens = np.concatenate([completion.tokens for completion in done.values()])
    assert len(tokens) > 2000 and set(tokens.tolist()) == set(range(0, 97, 3))


def test_what_it_cannot_compute_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = {
        "another model": CountingTransformer(shaped("norms").cfg),
        "half precision": shaped("norms").to(torch.bfloat16),
        "adapters": LoraTransformer(shaped("norms"), LoraConfig(rank=2), base=""),
        "odd sizes": Transformer(replace(shaped("norms").cfg, hidden_size=40)),
    }

    for why, model in refused.items():
        assert type(build_cpu_cache(model, slots=2, context=8)) is DenseCache, why
    assert type(build_cpu_cache(shaped("norms"), slots=2, context=8)) is CompiledCache
    monkeypatch.setattr("whet.engine.cpu.compiled_cache.MAX_BYTES", 1000)
    assert type(build_cpu_cache(shaped("norms"), slots=2, context=8)) is DenseCache
    monkeypatch.undo()
    monkeypatch.setattr(c_library, "library", lambda: None)
    assert type(build_cpu_cache(shaped("norms"), slots=2, context=8)) is DenseCache
