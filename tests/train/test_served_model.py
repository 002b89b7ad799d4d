"""A teacher or a reference behind a server gives the log-probabilities that it gives here."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from whet.batching.examples import Example
from whet.errors import EngineError
from whet.models.transformer import Transformer
from whet.testing.fakes import example
from whet.testing.server import Asked, CannedReply, serve_replies
from whet.testing.tiny import tiny_model
from whet.train.learner import compute_logprobs_locally
from whet.train.learner_factory import build_reference
from whet.train.served_model import ServedModel
from whet.train.settings import TrainConfig
from whet.types import Floats


def ask(url: str, examples: list[Example]) -> list[Floats]:
    model = ServedModel(url.removesuffix("/v1"), setting="teacher_url", wait=10.0)
    return model.compute_logprobs(examples)


def serve_model(model: Transformer) -> Callable[[Asked], CannedReply]:
    """Answer as a vLLM server of the model does, with log-probabilities of prompts."""

    def answer(asked: Asked) -> CannedReply:
        tokens = np.array(asked.body["token_ids"], dtype=np.int32)
        whole = Example(tokens=tokens, response_start=1, group_id="", rollout_id="")
        (logprobs,) = compute_logprobs_locally(model, [whole], 4096)
        pairs = zip(tokens[1:].tolist(), logprobs.tolist(), strict=True)
        rows = [None, *({str(token): {"logprob": value}} for token, value in pairs)]
        return CannedReply(body=json.dumps({"prompt_logprobs": rows}).encode())

    return answer


EXAMPLES = [example(length=6 + seed, start=2 + seed % 3, seed=seed) for seed in range(4)]


def test_log_probabilities_of_responses_are_those_of_the_model() -> None:
    teacher = tiny_model().requires_grad_(False)

    with serve_replies(serve_model(teacher)) as server:
        found = ask(server.url, EXAMPLES)

    expected = compute_logprobs_locally(teacher, EXAMPLES, 4096)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


def test_a_server_without_log_probabilities_of_prompts_is_named() -> None:
    with (
        serve_replies(lambda asked: CannedReply(body=b'{"prompt_logprobs": [null]}')) as server,
        pytest.raises(EngineError, match=r"teacher_url = .* of 1 tokens of 6"),
    ):
        ask(server.url, EXAMPLES[:1])


def test_a_served_reference_gives_what_a_copy_gives() -> None:
    model = tiny_model()
    with serve_replies(serve_model(model)) as server:
        settings = TrainConfig(reference_url=server.url.removesuffix("/v1"))
        served = build_reference(model, settings).compute_logprobs(EXAMPLES)

    copied = build_reference(model, TrainConfig()).compute_logprobs(EXAMPLES)
    for ours, theirs in zip(served, copied, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


def test_a_served_model_refuses_another_temperature() -> None:
    warm = [replace(EXAMPLES[0], temperature=0.7)]
    with (
        serve_replies(serve_model(tiny_model())) as server,
        pytest.raises(EngineError, match=r"at temperature 0\.7, only at 1"),
    ):
        ask(server.url, warm)
