"""Rollouts as SFT examples: the prompt the engine would see, then the answer and its stop token."""

import numpy as np
import pytest

from whet.batching.rollout_datasets import list_texts, make_sft_examples
from whet.errors import DataError
from whet.testing.fakes import rollout, sum_problem
from whet.testing.tiny import tiny_tokenizer
from whet.text.chat import ChatFormat
from whet.types import Rollout


def _rollouts() -> list[Rollout]:
    return [
        rollout(problem=sum_problem(12, 30), text="42", number=1),
        rollout(problem=sum_problem(7, 8), text=" 15 15 15 15 15", number=2),
    ]


def test_an_example_is_prompt_then_answer_then_stop() -> None:
    chat = ChatFormat(tiny_tokenizer())

    view = make_sft_examples(_rollouts(), chat, max_tokens=64)

    assert view.num_too_long == 0
    for item, source in zip(view.examples, _rollouts(), strict=True):
        np.testing.assert_array_equal(
            item.tokens[: item.response_start], chat.encode_prompt(source.problem.prompt)
        )
        assert chat.tokenizer.decode(item.tokens[item.response_start : -1]) == source.text
        assert int(item.tokens[-1]) in chat.stop_tokens
        assert (item.rollout_id, item.group_id) == (source.id, source.group_id)


def test_a_number_is_one_target_and_the_stop_another() -> None:
    chat = ChatFormat(tiny_tokenizer())
    [item] = make_sft_examples(_rollouts()[:1], chat, max_tokens=64).examples

    assert item.num_targets == 2
    assert item.sampling_logprob_M is None


def test_examples_over_the_limit_are_left_out_whole_and_counted() -> None:
    chat = ChatFormat(tiny_tokenizer())
    lengths = [
        len(item.tokens) for item in make_sft_examples(_rollouts(), chat, max_tokens=64).examples
    ]
    assert lengths[0] < lengths[1]

    view = make_sft_examples(_rollouts(), chat, max_tokens=lengths[1] - 1)

    assert ([len(item.tokens) for item in view.examples], view.num_too_long) == ([lengths[0]], 1)
    assert make_sft_examples(_rollouts(), chat, max_tokens=lengths[1]).num_too_long == 0
    with pytest.raises(DataError, match="nothing to learn from"):
        make_sft_examples(_rollouts(), chat, max_tokens=lengths[0] - 1)


def test_texts_are_every_prompt_once_and_every_answer() -> None:
    assert list_texts([*_rollouts(), *_rollouts()]) == [
        "12 + 30",
        "7 + 8",
        *["42", " 15 15 15 15 15"] * 2,
    ]
