"""From credited examples to moved weights: what may be left out, mini-batches, and the passes
before."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from whet.algos.algorithm import Algorithm, build_algorithm
from whet.algos.losses import (
    EarlyStopConfig,
    ImportanceCorrectionConfig,
    LossInputs,
    sequence_mean,
    token_mean,
    token_ratio,
)
from whet.algos.objectives import LogprobObjective, LossSums, Objective, TokenLoss
from whet.algos.presets import PRESETS, AlgoName
from whet.algos.settings import AlgoConfig
from whet.batching.examples import Example
from whet.models.transformer import Transformer
from whet.testing.fakes import example
from whet.testing.rounding import UNIT, logprob_bound, rounding_bound, terms_of_gradient
from whet.testing.tiny import tiny_model
from whet.train.learner import (
    FrozenModel,
    LocalLearner,
    add_logprobs,
    compute_logprobs_locally,
    set_loss_weights,
)
from whet.train.rl_step import update_policy
from whet.train.settings import TrainConfig

CFG = TrainConfig(lr=1e-4, micro_batch_tokens=64)
ADVANTAGES = (1.0, 0.0, -0.5, 0.0, 2.0, 0.0)


def _examples(advantages: tuple[float, ...] = ADVANTAGES) -> list[Example]:
    return [
        example(length=6 + 5 * index, start=2, advantage=advantage, seed=index)
        for index, advantage in enumerate(advantages)
    ]


def _weights(model: Transformer) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


def _gradient_bound(examples: list[Example]) -> float:
    lengths = [len(item.tokens) for item in examples]
    return rounding_bound(terms_of_gradient(tiny_model().cfg, max(lengths), sum(lengths)))


def _updated(
    algo: Algorithm, examples: list[Example], learner: type[LocalLearner] = LocalLearner
) -> tuple[Tensor, dict[str, float]]:
    model = tiny_model()
    metrics = update_policy(learner(model, CFG, steps=1), examples, algo, seed=3).metrics
    return _weights(model), metrics


class Descent(LocalLearner):
    """Moves by a tenth of the gradient. Adam moves a weight by its learning rate however small the
    gradient, so the weights it leaves show how a sum near zero was rounded.
    """

    def optim_step(self) -> dict[str, float]:
        gradients = [weight.grad for weight in self.model.parameters() if weight.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(gradients))
        with torch.no_grad():
            for weight in self.model.parameters():
                if weight.grad is not None:
                    weight.sub_(0.1 * weight.grad)
                    weight.grad = None
        return {"train/grad_norm": norm}


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
@pytest.mark.parametrize("num_minibatches", [1, 2])
def test_leaving_out_zero_advantages_changes_no_weight(name: str, num_minibatches: int) -> None:
    algo = build_algorithm(
        AlgoConfig.model_validate({"name": name, "num_minibatches": num_minibatches}), max_tokens=32
    )

    without, some = _updated(algo, _examples(), Descent)
    with_all, every = _updated(replace(algo, trains_on_zero_advantage=True), _examples(), Descent)

    before = _weights(tiny_model())
    bound = num_minibatches * _gradient_bound(_examples())
    # A step rounds each weight too, by a unit of the weight.
    rounded = num_minibatches * UNIT * float(before.norm())
    moved = float((with_all - before).norm())
    assert rounded < bound * moved
    assert float((without - with_all).norm()) <= bound * moved + rounded
    assert some["loss"] == pytest.approx(every["loss"], rel=bound)
    assert some["train/grad_norm"] == pytest.approx(every["train/grad_norm"], rel=bound)


def test_zero_advantages_keep_their_share_of_the_divisor() -> None:
    seen: list[float] = []

    def loss(inputs: LossInputs) -> TokenLoss:
        return TokenLoss(-inputs.logprob_M, {})

    class Spy(LocalLearner):
        def accumulate(self, examples: object, objective: Objective) -> LossSums:
            assert isinstance(examples, list)
            seen.extend(item.loss_weight for item in examples)
            return super().accumulate(examples, objective)

    algo = replace(
        build_algorithm(AlgoConfig(), max_tokens=32),
        objective=LogprobObjective(loss=loss),
        loss_weights=sequence_mean,
    )
    update_policy(Spy(tiny_model(), CFG, steps=1), _examples(), algo, seed=3)

    # Six sequences divide, though only three are run: those with 4, 14 and 24 targets.
    assert seen == pytest.approx([1 / (6 * 4), 1 / (6 * 14), 1 / (6 * 24)])


def test_with_equal_rewards_everywhere_the_step_is_empty_and_nothing_moves() -> None:
    learner = LocalLearner(tiny_model(), CFG, steps=1)

    metrics = update_policy(
        learner, _examples((0.0,) * 4), build_algorithm(AlgoConfig(), max_tokens=32), seed=3
    ).metrics

    assert metrics == {"step/empty": 1.0}
    assert learner.num_optim_steps == 0
    assert torch.equal(_weights(learner.model), _weights(tiny_model()))


def test_no_example_at_all_is_an_empty_step() -> None:
    learner = LocalLearner(tiny_model(), CFG, steps=1)

    for cfg in (AlgoConfig(), AlgoConfig(kl_coef=0.1, num_minibatches=2)):
        assert update_policy(learner, [], build_algorithm(cfg, max_tokens=32), seed=3).metrics == {
            "step/empty": 1.0
        }


@pytest.mark.parametrize("cfg", [AlgoConfig(kl_coef=0.1), AlgoConfig(entropy_coef=0.1)])
def test_with_a_penalty_zero_advantages_are_trained_on(cfg: AlgoConfig) -> None:
    examples = add_logprobs(
        _examples((0.0,) * 4), "ref_logprob_M", FrozenModel(tiny_model(seed=9), 64)
    )

    weights, metrics = _updated(build_algorithm(cfg, max_tokens=32), examples)

    assert metrics["step/empty"] == 0.0
    assert (weights - _weights(tiny_model())).abs().max() > 5e-5


def _noting(seen: list[list[float]], weights: list[list[float]]) -> LogprobObjective:
    """A loss that notes which examples, told by their advantage, come in which forward pass."""

    def loss(inputs: LossInputs) -> TokenLoss:
        seen.append(inputs.advantage_M.tolist())
        weights.append(token_ratio(inputs).tolist())
        return TokenLoss(-inputs.logprob_M * inputs.advantage_M, {})

    return LogprobObjective(loss=loss)


def test_mini_batches_use_every_example_once_and_take_a_step_each() -> None:
    seen: list[list[float]] = []
    learner = LocalLearner(tiny_model(), TrainConfig(lr=1e-3, micro_batch_tokens=10**6), steps=9)
    algo = replace(
        build_algorithm(AlgoConfig(num_minibatches=3), max_tokens=32), objective=_noting(seen, [])
    )

    metrics = update_policy(
        learner, _examples((1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)), algo, seed=3
    ).metrics

    parts = [set(values) for values in seen]
    assert sorted(len(part) for part in parts) == [2, 2, 3]
    assert set.union(*parts) == {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0}
    assert learner.num_optim_steps == 3
    assert metrics["train/lr"] == pytest.approx(1e-3)


def test_mini_batches_are_weighed_each_for_itself() -> None:
    totals: list[float] = []

    class Spy(LocalLearner):
        def accumulate(self, examples: object, objective: Objective) -> LossSums:
            assert isinstance(examples, list)
            totals.append(sum(item.loss_weight * item.num_targets for item in examples))
            return super().accumulate(examples, objective)

    algo = replace(
        build_algorithm(AlgoConfig(num_minibatches=3), max_tokens=32), loss_weights=token_mean
    )
    update_policy(Spy(tiny_model(), CFG, steps=3), _examples((1.0,) * 6), algo, seed=3)

    assert totals == pytest.approx([1.0, 1.0, 1.0])


def test_more_mini_batches_than_examples_take_a_step_an_example() -> None:
    learner = LocalLearner(tiny_model(), CFG, steps=9)

    update_policy(
        learner,
        _examples((1.0, -1.0)),
        build_algorithm(AlgoConfig(num_minibatches=5), max_tokens=32),
        seed=3,
    )

    assert learner.num_optim_steps == 2


def test_the_ratio_of_one_mini_batch_is_1_whatever_old_log_probabilities_a_kl_needed() -> None:
    """At those of other weights it would be another."""
    examples = add_logprobs(_examples(), "old_logprob_M", FrozenModel(tiny_model(seed=9), 64))

    _, metrics = _updated(build_algorithm(AlgoConfig(), max_tokens=32), examples)

    assert metrics["policy/ratio"] == 1.0


def test_ratios_compare_with_the_weights_at_the_start_of_the_step() -> None:
    ratios: list[list[float]] = []
    learner = LocalLearner(tiny_model(), TrainConfig(lr=1e-2, micro_batch_tokens=10**6), steps=2)
    algo = replace(
        build_algorithm(AlgoConfig(num_minibatches=2), max_tokens=32), objective=_noting([], ratios)
    )

    update_policy(learner, _examples((1.0,) * 4), algo, seed=3)

    assert ratios[0] == pytest.approx([1.0] * len(ratios[0]), abs=1e-5)
    assert max(abs(ratio - 1) for ratio in ratios[1]) > 1e-2


def test_the_seed_decides_the_mini_batches() -> None:
    orders = []
    for seed in (3, 3, 4):
        seen: list[list[float]] = []
        algo = replace(
            build_algorithm(AlgoConfig(num_minibatches=3), max_tokens=32),
            objective=_noting(seen, []),
        )
        update_policy(
            LocalLearner(tiny_model(), CFG, steps=3),
            _examples((1.0, 2.0, 3.0, 4.0, 5.0, 6.0)),
            algo,
            seed=seed,
        )
        orders.append(seen)

    assert orders[0] == orders[1] != orders[2]


def test_reference_and_old_logprobs_are_those_of_their_models() -> None:
    examples, policy, reference = _examples(), tiny_model(), tiny_model(seed=9)
    expected = compute_logprobs_locally(reference, examples, 4096)

    noted = add_logprobs(examples, "ref_logprob_M", FrozenModel(reference, 64))
    noted = add_logprobs(noted, "old_logprob_M", LocalLearner(policy, CFG, steps=1))

    for item, theirs, own in zip(
        noted, expected, compute_logprobs_locally(policy, examples, 4096), strict=True
    ):
        assert item.ref_logprob_M is not None and item.old_logprob_M is not None
        np.testing.assert_allclose(
            item.ref_logprob_M, theirs, rtol=0, atol=logprob_bound(reference)
        )
        np.testing.assert_allclose(item.old_logprob_M, own, rtol=0, atol=logprob_bound(policy))


def test_metrics_of_mini_batches_are_averaged() -> None:
    _, metrics = _updated(
        build_algorithm(AlgoConfig(num_minibatches=2), max_tokens=32), _examples((1.0,) * 6)
    )

    assert metrics["step/empty"] == 0.0
    assert {"loss", "policy/entropy", "policy/clip_fraction", "train/grad_norm"} <= set(metrics)


def _stale(seed: int = 5) -> list[Example]:
    """Examples with an advantage for each token, and old, reference and engine log-probabilities
    near their own."""
    noise = np.random.default_rng(seed)
    examples = _examples()
    own = compute_logprobs_locally(tiny_model(), examples, 4096)

    def near(logprobs: np.ndarray) -> np.ndarray:
        return (logprobs + noise.normal(0, 0.2, len(logprobs))).astype(np.float32)

    return [
        replace(
            item,
            advantage=noise.normal(size=item.num_targets).astype(np.float32),
            sampling_logprob_M=near(logprobs),
            old_logprob_M=near(logprobs),
            ref_logprob_M=near(logprobs),
        )
        for item, logprobs in zip(examples, own, strict=True)
    ]


@pytest.mark.parametrize("name", PRESETS)
def test_every_algorithm_has_the_same_gradient_whatever_the_micro_batches(name: AlgoName) -> None:
    cfg = AlgoConfig(
        name=name,
        kl_coef=0.1,
        kl_in="loss",
        entropy_coef=0.01,
        importance_correction=ImportanceCorrectionConfig(rule="mask", level="sequence", high=0.9),
        clip_low=0.02,
    )
    algo = build_algorithm(cfg, max_tokens=32)
    gradients, logged = [], []
    for micro_batch_tokens in (40, 10**6):
        learner = LocalLearner(tiny_model(), _micro(micro_batch_tokens), steps=1)
        logged.append(
            learner.accumulate(set_loss_weights(_stale(), algo.loss_weights), algo.objective).means
        )
        gradients.append(
            torch.cat(
                [
                    weight.grad.flatten()
                    for weight in learner.model.parameters()
                    if weight.grad is not None
                ]
            )
        )

    assert (gradients[0] - gradients[1]).norm() <= _gradient_bound(_stale()) * gradients[1].norm()
    assert logged[0] == pytest.approx(logged[1], rel=1e-4, abs=1e-6)
    assert 0 < logged[0]["policy/corrected"] < 1


def _micro(micro_batch_tokens: int) -> TrainConfig:
    return CFG.model_copy(update={"micro_batch_tokens": micro_batch_tokens})


def _stopping(**settings: object) -> Algorithm:
    """Four mini-batches at a rate at which the first step moves the ratio's mean off 1."""
    stop = EarlyStopConfig.model_validate({"limit": 1e-9, "statistic": "kl", **settings})
    return build_algorithm(AlgoConfig(num_minibatches=4, early_stop=stop), max_tokens=32)


FAST = TrainConfig(lr=1e-2, micro_batch_tokens=10**6)
EIGHT = (1.0, -1.0, 2.0, 0.5, -0.7, 1.5, -2.0, 0.3)


@pytest.mark.parametrize(
    ("scope", "action", "num_optim_steps", "num_passes"),
    [("mini_batch", "skip", 1, 4), ("mini_batch", "zero", 4, 4), ("step", "stop", 1, 2)],
)
def test_an_early_stop_leaves_out_what_its_scope_and_action_say(
    scope: str, action: str, num_optim_steps: int, num_passes: int
) -> None:
    passes: list[int] = []

    class Spy(LocalLearner):
        def accumulate(self, examples: object, objective: Objective) -> LossSums:
            assert isinstance(examples, list)
            passes.append(len(examples))
            return super().accumulate(examples, objective)

    learner = Spy(tiny_model(), FAST, steps=4)
    metrics = update_policy(
        learner, _examples(EIGHT), _stopping(scope=scope, action=action), seed=3
    ).metrics

    # The first mini-batch has ratio 1; after its step the others are too far.
    assert (learner.num_optim_steps, len(passes)) == (num_optim_steps, num_passes)
    assert metrics["step/skipped"] == 3.0
    assert metrics["policy/stop_signal"] > 1e-9


def test_a_skipped_mini_batch_leaves_no_gradient_behind() -> None:
    stopped, alone = (LocalLearner(tiny_model(), FAST, steps=4) for _ in range(2))

    update_policy(stopped, _examples(EIGHT), _stopping(), seed=3)
    update_policy(alone, _examples(EIGHT), _stopping(scope="step", action="stop"), seed=3)

    assert torch.equal(_weights(stopped.model), _weights(alone.model))
    assert all(
        not weight.grad.any() for weight in stopped.model.parameters() if weight.grad is not None
    )


def test_an_early_stop_that_is_never_reached_changes_nothing() -> None:
    plain, guarded = (LocalLearner(tiny_model(), FAST, steps=4) for _ in range(2))

    without = update_policy(
        plain,
        _examples(EIGHT),
        build_algorithm(AlgoConfig(num_minibatches=4), max_tokens=32),
        seed=3,
    ).metrics
    metrics = update_policy(guarded, _examples(EIGHT), _stopping(limit=1e9), seed=3).metrics

    assert torch.equal(_weights(plain.model), _weights(guarded.model))
    assert metrics["step/skipped"] == 0.0
    assert "step/skipped" not in without


def test_zeroed_micro_batches_are_counted() -> None:
    learner = LocalLearner(tiny_model(), FAST, steps=4)

    metrics = update_policy(
        learner, _examples(EIGHT), _stopping(scope="micro_batch", action="zero"), seed=3
    ).metrics

    assert learner.num_optim_steps == 4
    assert metrics["policy/zeroed"] == pytest.approx(0.75)
    assert metrics["step/skipped"] == 0.0


def test_an_advantage_of_zero_for_every_token_is_not_run() -> None:
    learner = LocalLearner(tiny_model(), CFG, steps=1)
    still = [
        replace(item, advantage=np.zeros(item.num_targets, np.float32)) for item in _examples()
    ]

    assert update_policy(
        learner, still, build_algorithm(AlgoConfig(), max_tokens=32), seed=3
    ).metrics == {"step/empty": 1.0}
    moving = replace(still[0], advantage=np.eye(1, still[0].num_targets, dtype=np.float32)[0])
    assert (
        update_policy(
            learner, [moving], build_algorithm(AlgoConfig(), max_tokens=32), seed=3
        ).metrics["step/empty"]
        == 0.0
    )
