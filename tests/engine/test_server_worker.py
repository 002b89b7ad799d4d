"""Servers as workers: vLLM's and SGLang's calls over HTTP, and each fault of a server named."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from engines import all_requests, assert_same, random_prompts, small_engine

from whet.engine.base import Request, SamplingParams
from whet.engine.fleet import Fleet
from whet.engine.fleet_config import VllmConfig
from whet.engine.server_calls import DIALECTS, Dialect
from whet.engine.server_worker import ServerWorker
from whet.engine.worker import WorkerError
from whet.errors import EngineError
from whet.models.transformer import Transformer
from whet.testing.contracts import check_engine
from whet.testing.server import Asked, InferenceServer, no_fault, serve_inference, serve_replies
from whet.testing.tiny import tiny_model, tiny_tokenizer
from whet.types import Completion

STOPS = frozenset({3, 17})
SAMPLING = SamplingParams(max_tokens=10)
REQUESTS = all_requests(random_prompts(8), 3, SAMPLING)


@pytest.fixture
def model() -> Transformer:
    return tiny_model(tied=True)


def connect(model: Transformer, *urls: str, wait: float = 20.0) -> Fleet:
    fleet = VllmConfig(urls=urls, max_num_seqs=4, wait=wait).build(model, stop_tokens=STOPS)
    fleet.load_weights(model.named_weights(), 0)
    return fleet


def expected(model: Transformer) -> dict[str, Completion]:
    return dict(small_engine(model, stops=STOPS).generate(REQUESTS))


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close every fleet that a test built, so that its threads end."""
    built: list[Fleet] = []
    build = VllmConfig.build

    def remember(self: VllmConfig, *args: object, **named: object) -> Fleet:
        built.append(build(self, *args, **named))  # type: ignore[arg-type]
        return built[-1]

    monkeypatch.setattr(VllmConfig, "build", remember)
    yield
    for fleet in built:
        fleet.close()


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_a_server_keeps_the_contract_of_engines_whatever_its_calls(dialect: Dialect) -> None:
    decode = tiny_tokenizer().decode
    model = tiny_model(vocab_size=tiny_tokenizer().vocab_size)
    prompts = [np.array([1, 2, 3], dtype=np.int32), np.array([7], dtype=np.int32)]
    with serve_inference(model, dialect, stops=frozenset({3})) as place:
        cfg = VllmConfig(urls=(place.url,), max_num_seqs=4, wait=20.0)
        engine = cfg.build(model, stop_tokens=frozenset({3}), detokenize=decode)
        check_engine(engine, prompts, weights=model.named_weights(), detokenize=decode)
        assert engine.faults == []


def test_weights_are_pushed_while_the_server_is_paused_with_the_head_of_a_tied_model(
    model: Transformer,
) -> None:
    with serve_inference(model, stops=STOPS) as place:
        fleet = connect(model, place.url)
        move(model)
        place.server.calls.clear()
        fleet.load_weights(model.named_weights(), 1)
        assert place.server.calls[:5] == [
            "/pause",
            "/collective_rpc",
            "/reset_prefix_cache",
            "/update_weight_version",
            "/resume",
        ]
        assert fleet.canary_gap < 1e-5
        assert_same(dict(fleet.generate(REQUESTS)), expected(model))


def move(model: Transformer) -> None:
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.05 * torch.randn(weight.shape, generator=torch.manual_seed(5))


def once(kind: str, path: str, number: int = 1):  # type: ignore[no-untyped-def]
    """Let the n-th call of a path go wrong."""
    left = [number]

    def fault(server: InferenceServer, asked: Asked) -> str | None:
        if not asked.target.startswith(path):
            return None
        left[0] -= 1
        return kind if left[0] == 0 else None

    return fault


GENERATE = "/inference/v1/generate"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("hang", "has not answered for 3 s"),
        ("error", f"answers {GENERATE} with 500: out of memory"),
        ("middle", "changed its weights in the middle of a response: versions 0, 99"),
    ],
)
def test_a_server_that_fails_in_a_batch_is_named_and_another_answers(
    model: Transformer, kind: str, words: str
) -> None:
    # Two probes and the canary come before the batch.
    with (
        serve_inference(model, stops=STOPS, fault=once(kind, GENERATE, 6)) as bad,
        serve_inference(model, stops=STOPS) as good,
    ):
        fleet = connect(model, bad.url, good.url, wait=3.0 if kind == "hang" else 20.0)
        assert_same(dict(fleet.generate(REQUESTS)), expected(model))
        assert fleet.faults[0].startswith(f"server {bad.url} {words}")
        assert "requests go to others" in fleet.faults[0]


def test_a_server_that_dies_is_named_and_the_last_one_gone_ends_the_call_in_a_sentence(
    model: Transformer,
) -> None:
    with serve_inference(model, stops=STOPS) as good:
        with serve_inference(model, stops=STOPS) as bad:
            fleet = connect(model, bad.url, good.url, wait=1.0)
        assert_same(dict(fleet.generate(REQUESTS)), expected(model))
        assert fleet.faults[0].startswith(f"server {bad.url} cannot be reached")
    with pytest.raises(EngineError, match="no worker of the fleet is left: server"):
        list(fleet.generate(REQUESTS))


def test_stale_weights_and_an_old_version_are_named_and_pushed_again(
    model: Transformer, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        serve_inference(model, stops=STOPS, fault=once("stale", "/collective_rpc", 2)) as stale,
        serve_inference(model, stops=STOPS, fault=once("version", "/update_weight", 2)) as old,
    ):
        fleet = connect(model, stale.url, old.url)
        move(model)
        fleet.load_weights(model.named_weights(), 1)
        said = capsys.readouterr().err
        assert f"server {stale.url} has other weights than version 1" in said
        assert fleet.faults == [f"server {old.url} answered with weights of version 0, not 1"]
        assert_same(dict(fleet.generate(REQUESTS)), expected(model))


def test_a_server_that_lacks_endpoints_or_context_is_refused_in_a_sentence(
    model: Transformer,
) -> None:
    with serve_replies(
        lambda asked: None, {"/openapi.json": b'{"paths": {"/v1/completions": {}}}'}
    ) as bare:  # type: ignore[arg-type, return-value]
        url = bare.url.removesuffix("/v1")
        with pytest.raises(EngineError, match=r"lacks the endpoints.*/collective_rpc.*--enable-sc"):
            connect(model, url, wait=0.5)
    with (
        serve_inference(tiny_model(positions=32), fault=no_fault) as short,
        pytest.raises(EngineError, match=r"has a context of 32 tokens: set engine.max_model_len"),
    ):
        connect(model, short.url, wait=0.5)


def test_a_server_whose_logprobs_are_not_the_learners_refuses_the_setting(
    model: Transformer,
) -> None:
    def at_one(server: InferenceServer, asked: Asked) -> str | None:
        params = asked.body.get("sampling_params")
        if isinstance(params, dict) and params.get("top_k") == 1:
            params |= {"temperature": 0.0, "top_k": 0}
        return None

    with serve_inference(model, stops=STOPS, fault=at_one) as place:
        fleet = connect(model, place.url)
        cool = Request(
            id="a",
            prompt=random_prompts(1)[0],
            sampling=SamplingParams(temperature=0.7, max_tokens=4),
            seed=1,
        )
        with pytest.raises(EngineError, match=r"temperature is 0.7.*processed_logprobs"):
            list(fleet.generate([cool]))
        assert len(list(fleet.generate(REQUESTS))) == 24


def test_a_worker_that_is_closed_while_its_server_is_silent_ends_its_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as thread:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        worker = ServerWorker(
            url, num_slots=1, context=8, wait=60.0, stop_tokens=STOPS, detokenize=None, sleeps=False
        )
        start = thread.submit(worker.start, lambda report: None)
        connection, _ = silent.accept()
        connection.recv(1)  # the worker waits for an answer now
        worker.close()
        with connection, pytest.raises(WorkerError, match="was closed"):
            start.result(timeout=10)
