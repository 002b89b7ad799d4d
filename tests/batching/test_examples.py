"""Batches laid out by hand: what predicts what, and which example each number belongs to."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from whet.batching.examples import Example, to_batch

CPU = torch.device("cpu")


def _examples() -> list[Example]:
    return [
        Example(
            tokens=np.array([11, 12, 13, 14], dtype=np.int32),
            response_start=2,
            group_id="a",
            rollout_id="a0",
            temperature=0.5,
            sampling_logprob_M=np.array([-0.1, -0.2], dtype=np.float32),
            advantage=1.5,
            loss_weight=0.25,
        ),
        Example(
            tokens=np.array([21, 22, 23], dtype=np.int32),
            response_start=1,
            group_id="b",
            rollout_id="b0",
            sampling_logprob_M=np.array([-0.3, -0.4], dtype=np.float32),
            advantage=-2.0,
            loss_weight=0.75,
        ),
    ]


def test_a_batch_is_worked_by_hand() -> None:
    batch = to_batch(_examples(), CPU)

    assert batch.tokens_T.tolist() == [11, 12, 13, 14, 21, 22, 23]
    assert batch.positions_T.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert batch.lengths_S.tolist() == [4, 3]
    assert batch.predictor_M.tolist() == [1, 2, 4, 5]
    assert batch.label_M.tolist() == [13, 14, 22, 23]
    assert batch.segment_M.tolist() == [0, 0, 1, 1]
    assert batch.temperature_M.tolist() == [0.5, 0.5, 1.0, 1.0]
    assert batch.loss_weight_M.tolist() == [0.25, 0.25, 0.75, 0.75]
    assert batch.advantage_M.tolist() == [1.5, 1.5, -2.0, -2.0]
    torch.testing.assert_close(batch.sampling_logprob_M, torch.tensor([-0.1, -0.2, -0.3, -0.4]))
    assert batch.old_logprob_M is None and batch.ref_logprob_M is None


def test_old_and_reference_logprobs_are_laid_out_too() -> None:
    old, reference = (
        np.array([-1.0, -2.0], dtype=np.float32),
        np.array([-3.0, -4.0], dtype=np.float32),
    )
    examples = [
        replace(example, old_logprob_M=old, ref_logprob_M=reference) for example in _examples()
    ]

    batch = to_batch(examples, CPU)

    assert batch.old_logprob_M is not None and batch.old_logprob_M.tolist() == [
        -1.0,
        -2.0,
        -1.0,
        -2.0,
    ]
    assert batch.ref_logprob_M is not None and batch.ref_logprob_M.tolist() == [
        -3.0,
        -4.0,
        -3.0,
        -4.0,
    ]


def test_text_nobody_sampled_has_no_sampling_logprob() -> None:
    batch = to_batch([replace(example, sampling_logprob_M=None) for example in _examples()], CPU)

    assert batch.sampling_logprob_M is None


def test_a_field_that_only_some_examples_have_is_refused() -> None:
    first, second = _examples()

    with pytest.raises(AssertionError, match="all examples or for none"):
        to_batch([first, replace(second, sampling_logprob_M=None)], CPU)


def test_a_response_that_nothing_predicts_is_refused() -> None:
    with pytest.raises(AssertionError, match="predict"):
        to_batch([replace(_examples()[0], response_start=0)], CPU)


def test_targets_are_counted_from_the_start_of_the_response() -> None:
    assert [example.num_targets for example in _examples()] == [2, 2]


def test_no_examples_make_an_empty_batch() -> None:
    batch = to_batch([], torch.device("cpu"))

    assert (len(batch.tokens_T), len(batch.label_M), len(batch.loss_weight), batch.longest) == (
        0,
    ) * 4
    assert not any(batch.per_token().values())
