"""A teacher behind a server gives the log-probabilities that it gives here."""

import json

import numpy as np
import pytest

from whet.data.examples import Example
from whet.errors import EngineError
from whet.testing.fakes import example
from whet.testing.server import Answer, Asked, serve
from whet.testing.tiny import tiny_model
from whet.train.learner import compute_logprobs
from whet.train.served_model import ServedModel

EXAMPLES = [example(length=6 + seed, start=2 + seed % 3, seed=seed) for seed in range(4)]


def test_log_probabilities_of_responses_are_those_of_the_model() -> None:
    teacher = tiny_model().requires_grad_(False)

    def answer(asked: Asked) -> Answer:
        tokens = np.array(asked.body["token_ids"], dtype=np.int32)
        whole = Example(tokens=tokens, response_start=1, group_id="", rollout_id="")
        (logprobs,) = compute_logprobs(teacher, [whole], 4096)
        pairs = zip(tokens[1:].tolist(), logprobs.tolist(), strict=True)
        rows = [None, *({str(token): {"logprob": value}} for token, value in pairs)]
        return Answer(body=json.dumps({"prompt_logprobs": rows}).encode())

    with serve(answer) as server:
        found = ServedModel(server.url.removesuffix("/v1"), wait=10.0).compute_logprobs(EXAMPLES)

    expected = compute_logprobs(teacher, EXAMPLES, 4096)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


def test_a_server_without_log_probabilities_of_prompts_is_named() -> None:
    with (
        serve(lambda asked: Answer(body=b'{"prompt_logprobs": [null]}')) as server,
        pytest.raises(EngineError, match=r"teacher_url = .* of 1 tokens of 6"),
    ):
        ServedModel(server.url.removesuffix("/v1"), wait=10.0).compute_logprobs(EXAMPLES[:1])
