"""The engine without a model."""

import numpy as np

from whet.engine.base import Request, SamplingParams
from whet.proofs.fixtures import ScriptedEngine
from whet.testing.contracts import check_engine
from whet.types import FinishReason, Tokens


def _twice(request: Request) -> Tokens:
    return np.concatenate([request.prompt, request.prompt])


def _request(max_tokens: int) -> Request:
    return Request(
        id="a",
        prompt=np.array([3, 4], np.int32),
        sampling=SamplingParams(max_tokens=max_tokens),
        seed=0,
    )


def test_scripted_engine_keeps_the_contract_of_engines() -> None:
    check_engine(ScriptedEngine(_twice), [np.array([1], np.int32), np.array([1, 2], np.int32)])


def test_an_answer_comes_whole_where_it_fits() -> None:
    [(id, completion)] = ScriptedEngine(_twice, version=3).generate([_request(4)])

    assert (
        id,
        completion.tokens.tolist(),
        completion.finish_reason,
        completion.policy_version,
    ) == (
        "a",
        [3, 4, 3, 4],
        FinishReason.STOP,
        3,
    )


def test_a_longer_answer_is_cut_and_says_so() -> None:
    [(_, completion)] = ScriptedEngine(_twice).generate([_request(3)])

    assert (completion.tokens.tolist(), completion.finish_reason) == (
        [3, 4, 3],
        FinishReason.LENGTH,
    )
