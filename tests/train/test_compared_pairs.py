"""Preferences through the learner: one gradient for any split and order of pairs, equal to the
textbook's."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from whet.algos.preferences import PreferenceConfig, preference_objective
from whet.batching.examples import Example, PreferencePair, pack, to_batch
from whet.models.transformer import Transformer
from whet.testing.fakes import example
from whet.testing.tiny import tiny_model
from whet.train.frozen_models import add_pair_ref_logprobs, set_pair_loss_weights
from whet.train.learner import FrozenModel, LocalLearner, compute_logprobs_locally, forward_logprobs
from whet.train.settings import TrainConfig

CPU = torch.device("cpu")
SHAPES = [
    ((9, 3), (30, 3)),
    ((17, 16), (18, 16)),
    ((24, 4), (6, 4)),
    ((5, 2), (5, 2)),
    ((40, 1), (12, 1)),
]
LOSSES = [
    PreferenceConfig(beta=0.5),
    PreferenceConfig(smoothing=0.1),
    PreferenceConfig(name="ipo", beta=0.2),
    PreferenceConfig(name="ipo", beta=2.0, per_token=True),
]


def _pairs() -> list[PreferencePair]:
    pairs = [
        PreferencePair(
            chosen=example(length=better[0], start=better[1], seed=2 * index),
            rejected=example(length=worse[0], start=worse[1], seed=2 * index + 1),
        )
        for index, (better, worse) in enumerate(SHAPES)
    ]
    return add_pair_ref_logprobs(pairs, FrozenModel(tiny_model(seed=1), 10**6))


def _gradient(
    model: Transformer, groups: list[list[Example]], cfg: PreferenceConfig
) -> tuple[dict[str, Tensor], float]:
    learner = LocalLearner(model, TrainConfig(), steps=1)
    model.zero_grad()
    objective = preference_objective(cfg)
    loss = sum(
        float(learner.forward_backward(to_batch(group, CPU), objective).loss) for group in groups
    )
    return _gradients(model), loss


def _gradients(model: Transformer) -> dict[str, Tensor]:
    return {
        name: weight.grad.clone()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }


def _assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name in expected:
        assert float((found[name] - expected[name]).norm()) <= 1e-5 * float(
            expected[name].norm()
        ), name


@pytest.mark.parametrize("cfg", LOSSES, ids=str)
@pytest.mark.parametrize("budget", [80, 100, 150])
@pytest.mark.parametrize("is_padded", [True, False])
def test_the_gradient_is_the_same_for_any_micro_batch_and_order(
    cfg: PreferenceConfig, budget: int, is_padded: bool
) -> None:
    model, examples = tiny_model(), set_pair_loss_weights(_pairs())
    expected, expected_loss = _gradient(model, [examples], cfg)

    order = np.random.default_rng(budget).permutation(len(examples))
    shuffled = [examples[index] for index in order]
    groups = [
        [shuffled[index] for index in group]
        for group in pack(shuffled, budget, is_padded=is_padded)
    ]
    found, loss = _gradient(model, groups, cfg)

    assert len(groups) > 1
    _assert_equal(found, expected)
    assert loss == pytest.approx(expected_loss, rel=1e-5)


@pytest.mark.parametrize("name", ["dpo", "ipo"])
def test_the_loss_is_that_of_the_textbook(name: str) -> None:
    model, pairs = tiny_model(), _pairs()
    losses = []
    for pair in pairs:
        sums = [
            forward_logprobs(model, to_batch([item], CPU))[0].sum()
            for item in (pair.chosen, pair.rejected)
        ]
        references = [float(item.ref_logprob_M.sum()) for item in (pair.chosen, pair.rejected)]  # type: ignore[union-attr]
        margin = (sums[0] - references[0]) - (sums[1] - references[1])
        losses.append(
            torch.log1p(torch.exp(-0.3 * margin)) if name == "dpo" else (margin - 1 / 0.6) ** 2
        )
    torch.stack(losses).mean().backward()  # type: ignore[no-untyped-call]
    expected = _gradients(model)

    weighed = set_pair_loss_weights(pairs)
    found, loss = _gradient(
        model,
        [[weighed[index] for index in group] for group in pack(weighed, 100)],
        PreferenceConfig.model_validate({"name": name, "beta": 0.3}),
    )

    _assert_equal(found, expected)
    assert loss == pytest.approx(float(torch.stack(losses).mean().detach()), rel=1e-5)


def test_metrics_are_means_over_pairs_whatever_their_length() -> None:
    model, pairs = tiny_model(), _pairs()
    margins = []
    for pair in pairs:
        now = [
            float(logprobs.sum())
            for logprobs in compute_logprobs_locally(model, [pair.chosen, pair.rejected], 10**6)
        ]
        before = [float(item.ref_logprob_M.sum()) for item in (pair.chosen, pair.rejected)]  # type: ignore[union-attr]
        margins.append((now[0] - before[0]) - (now[1] - before[1]))

    learner = LocalLearner(model, TrainConfig(micro_batch_tokens=90), steps=1)
    metrics = learner.update(
        set_pair_loss_weights(pairs), preference_objective(PreferenceConfig(beta=0.5))
    )

    assert metrics["preference/margin"] == pytest.approx(0.5 * np.mean(margins), rel=1e-4)
    assert metrics["preference/accuracy"] == pytest.approx(
        np.mean([margin > 0 for margin in margins])
    )
    assert metrics["preference/chosen"] - metrics["preference/rejected"] == pytest.approx(
        metrics["preference/margin"]
    )


def test_at_the_start_the_margin_is_nothing_and_the_loss_is_log_2() -> None:
    model = tiny_model(seed=1)
    metrics = LocalLearner(model, TrainConfig(micro_batch_tokens=90), steps=1).update(
        set_pair_loss_weights(_pairs()), preference_objective(PreferenceConfig())
    )
    assert metrics["loss"] == pytest.approx(np.log(2), rel=1e-5)
    assert metrics["preference/margin"] == pytest.approx(0.0, abs=1e-5)


def test_updates_raise_the_margin_until_every_pair_is_told_apart() -> None:
    learner = LocalLearner(tiny_model(seed=1), TrainConfig(lr=1e-3), steps=20)
    examples, objective = set_pair_loss_weights(_pairs()), preference_objective(PreferenceConfig())

    history = [learner.update(examples, objective) for _ in range(20)]

    assert history[-1]["preference/accuracy"] == 1.0
    assert history[-1]["preference/margin"] > 0.5
    assert history[-1]["loss"] < 0.7 * history[0]["loss"]


def test_an_answer_of_several_pairs_is_scored_once_and_the_same_for_all() -> None:
    shared, model = example(length=9, start=2), tiny_model()
    others = [example(length=length, start=2, seed=length) for length in (5, 12)]

    pairs = add_pair_ref_logprobs(
        [PreferencePair(chosen=shared, rejected=other) for other in others],
        FrozenModel(model, 100),
    )

    assert pairs[0].chosen is pairs[1].chosen
    [expected] = compute_logprobs_locally(model, [shared], 100)
    assert pairs[0].chosen.ref_logprob_M is not None
    assert pairs[0].chosen.ref_logprob_M.tolist() == pytest.approx(expected.tolist(), abs=1e-5)


def test_half_a_pair_is_refused() -> None:
    [chosen, _, other, _] = set_pair_loss_weights(_pairs()[:2])
    with pytest.raises(AssertionError, match="both responses of a pair"):
        to_batch([chosen, other], CPU)
    with pytest.raises(AssertionError, match="both responses of a pair"):
        to_batch([*set_pair_loss_weights(_pairs()[:1]), replace(chosen, pair=None)], CPU)
