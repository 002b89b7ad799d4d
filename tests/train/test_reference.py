"""A reference has the log-probabilities of the model it was made of, wherever its weights wait."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from whet.batching.examples import Example
from whet.models.lora import LoraConfig, LoraTransformer
from whet.testing.fakes import example
from whet.testing.tiny import tiny_model
from whet.train.learner import FrozenModel, compute_logprobs_locally
from whet.train.learner_factory import build_reference
from whet.train.settings import TrainConfig

EXAMPLES = [example(length=length, seed=length) for length in (12, 20, 9)]


@pytest.mark.parametrize("offload", [False, True])
def test_a_reference_says_what_its_model_said_at_the_start(offload: bool) -> None:
    model = tiny_model()
    expected = np.concatenate(compute_logprobs_locally(model, EXAMPLES, 64))
    reference = build_reference(
        model, TrainConfig(micro_batch_tokens=64, offload_reference=offload)
    )
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.3)

    for _ in range(2):
        assert np.array_equal(np.concatenate(reference.compute_logprobs(EXAMPLES)), expected)
    assert not any(weight.requires_grad for weight in reference.model.parameters())
    assert all(weight.requires_grad for weight in model.parameters())


def test_far_weights_are_elsewhere_during_a_pass_and_at_home_after_it() -> None:
    reference = build_reference(
        tiny_model(), TrainConfig(micro_batch_tokens=64, offload_reference=True)
    )
    homes = [weight.data_ptr() for weight in reference.offloaded.weights]
    seen = list[bool]()
    reference.model.layers[0].register_forward_pre_hook(
        lambda *_: seen.append(
            all(
                w.data_ptr() != home
                for w, home in zip(reference.offloaded.weights, homes, strict=True)
            )
        )
    )

    reference.compute_logprobs(EXAMPLES)

    assert seen == [True] * len(seen) and seen
    assert [weight.data_ptr() for weight in reference.offloaded.weights] == homes


def test_weights_come_home_from_a_pass_that_failed() -> None:
    reference = build_reference(
        tiny_model(), TrainConfig(micro_batch_tokens=64, offload_reference=True)
    )
    homes = [weight.data_ptr() for weight in reference.offloaded.weights]

    with pytest.raises(IndexError):
        reference.compute_logprobs([_unknown()])

    assert [weight.data_ptr() for weight in reference.offloaded.weights] == homes


def _unknown() -> Example:
    item = example(length=6)
    return replace(item, tokens=item.tokens + 1000)


def test_only_what_is_its_own_is_sent_away() -> None:
    model = LoraTransformer(tiny_model(), LoraConfig(rank=4), base="", seed=1)
    reference = build_reference(model, TrainConfig(micro_batch_tokens=64, offload_reference=True))

    assert reference.model.embed.weight is model.embed.weight
    assert {id(weight) for weight in reference.offloaded.weights}.isdisjoint(
        id(weight) for weight in model.parameters()
    )
    assert len(reference.offloaded.weights) == sum(
        weight.requires_grad for weight in model.parameters()
    )


def test_a_model_as_it_is_can_be_a_reference() -> None:
    model = tiny_model()
    found = FrozenModel(model, 64).compute_logprobs(EXAMPLES)
    assert np.array_equal(
        np.concatenate(found), np.concatenate(compute_logprobs_locally(model, EXAMPLES, 64))
    )
