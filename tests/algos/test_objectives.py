"""The rows of the catalogue: each name is the bundle its paper says, and penalties are on where
they are set."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from whet import toml
from whet.algos.advantages import ADVANTAGES, AdvantageName
from whet.algos.algorithm import build_algorithm
from whet.algos.losses import (
    RATIOS,
    SURROGATES,
    EarlyStopConfig,
    ImportanceCorrectionConfig,
    LossInputs,
    RatioBounds,
    RatioName,
    SurrogateName,
)
from whet.algos.objectives import policy_objective, sft_objective
from whet.algos.presets import PRESETS, AlgoName
from whet.algos.settings import AlgoConfig, resolve_preset
from whet.algos.step_credit import StepCreditConfig
from whet.config import Config, load_settings
from whet.errors import ConfigError
from whet.types import Json

REWARDS = [[1.0, 0.0, 0.0, 1.0]]


def _inputs(
    logprob: list[float],
    *,
    advantage: list[float],
    old: list[float] | None = None,
    reference: list[float] | None = None,
    entropy: list[float] | None = None,
    segments: list[int] | None = None,
) -> LossInputs:
    zeros = torch.zeros(len(logprob))
    return LossInputs(
        logprob_M=torch.tensor(logprob, requires_grad=True),
        entropy_M=zeros if entropy is None else torch.tensor(entropy),
        advantage_M=torch.tensor(advantage),
        sampling_logprob_M=zeros - 1.0,
        old_logprob_M=None if old is None else torch.tensor(old),
        ref_logprob_M=None if reference is None else torch.tensor(reference),
        segment_M=zeros.long() if segments is None else torch.tensor(segments),
    )


def _loss(cfg: AlgoConfig, inputs: LossInputs) -> Tensor:
    return policy_objective(cfg).loss(inputs)[0].detach()


MEAN, SUM, TOKENS, CONSTANT = [1 / 2, 1 / 6], [1 / 2, 1 / 2], [1 / 4, 1 / 4], [1 / 20, 1 / 20]


@pytest.mark.parametrize(
    ("name", "advantage", "weights"),
    [
        ("grpo", 0.8660, MEAN),
        ("dr_grpo", 0.5, CONSTANT),
        ("dapo", 0.8660, TOKENS),
        ("rloo", 0.6667, SUM),
        ("reinforce_pp_baseline", 0.5, TOKENS),
        ("gspo", 0.8660, MEAN),
        ("cispo", 0.8660, TOKENS),
        ("game24", 0.9998, MEAN),
        ("rlinf", 0.8660, TOKENS),
        ("tango_grpo", 0.8660, TOKENS),
        ("tango_rloo", 0.6667, TOKENS),
    ],
)
def test_each_name_is_its_row(name: AlgoName, advantage: float, weights: list[float]) -> None:
    algo = build_algorithm(AlgoConfig(name=name), max_tokens=10)

    assert algo.advantage is not None and algo.token_advantage is None
    found, _ = algo.advantage(REWARDS, {})
    assert found[0] == pytest.approx([advantage, -advantage, -advantage, advantage], abs=1e-4)
    assert algo.loss_weights([1, 3]) == pytest.approx(weights)
    assert (algo.needs_reference, algo.trains_on_zero_advantage, algo.num_minibatches) == (
        False,
        False,
        1,
    )
    assert algo.whitens == (name in ("reinforce_pp_baseline", "rlinf"))


@pytest.mark.parametrize("name", ["reinforce_pp", "tango_reinforce_pp", "ppo"])
def test_algorithms_that_credit_tokens_spread_the_reward(name: AlgoName) -> None:
    algo = build_algorithm(AlgoConfig(name=name, gamma=0.5, gae_lambda=0.0), max_tokens=10)

    assert algo.advantage is None and algo.token_advantage is not None and algo.whitens
    assert algo.needs_values == (name == "ppo")
    advantage, target = algo.token_advantage(np.array([0.0, 1.0]), np.array([0.25, 0.5]))
    # To go: ½ and 1. One step of the critic: .5 × .5 - .25 = 0 and 1 - .5.
    assert advantage.tolist() == ([0.0, 0.5] if name == "ppo" else [0.5, 1.0])
    assert (target is None) == (name != "ppo")
    assert algo.loss_weights([1, 3]) == TOKENS


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("grpo", 0.2, 0.2),
        ("dapo", 0.2, 0.28),
        ("gspo", 3e-4, 4e-4),
        ("ppo", 0.2, 0.2),
        ("rlinf", 0.2, 0.2),
    ],
)
def test_each_name_clips_at_the_bounds_of_its_row(name: AlgoName, low: float, high: float) -> None:
    inputs = _inputs([0.5, -0.5], advantage=[1.0, -1.0], old=[0.0, 0.0], segments=[0, 1])

    torch.testing.assert_close(
        _loss(AlgoConfig(name=name), inputs), torch.tensor([-1 - high, 1 - low])
    )


@pytest.mark.parametrize(
    ("name", "share"), [("tango_grpo", 0.1), ("tango_rloo", 0.1), ("tango_reinforce_pp", 0.5)]
)
def test_tango_blends_steps_by_a_share_that_falls(name: AlgoName, share: float) -> None:
    algo = build_algorithm(AlgoConfig(name=name), max_tokens=10)
    other = build_algorithm(
        AlgoConfig(name=name, step_credit=StepCreditConfig(alpha=0.3, decay="none")), max_tokens=10
    )

    assert algo.step_credit is not None
    assert [algo.step_credit_fraction(0.0), algo.step_credit_fraction(1.0)] == pytest.approx(
        [share, 1e-3]
    )
    assert [other.step_credit_fraction(0.0), other.step_credit_fraction(1.0)] == [0.3, 0.3]
    assert build_algorithm(AlgoConfig(), max_tokens=10).step_credit is None


def test_what_a_config_sets_replaces_what_the_row_says() -> None:
    cfg = AlgoConfig(
        name="grpo",
        advantage="center",
        whiten=True,
        ratio="sequence",
        loss_weights="token_mean",
        clip_low=0.0,
        clip_high=0.5,
        kl_in="reward",
        kl_coef=0.1,
    )
    algo = build_algorithm(cfg, max_tokens=10)

    assert algo.advantage is not None and algo.advantage(REWARDS, {})[0] == [[0.5, -0.5, -0.5, 0.5]]
    assert algo.whitens and algo.loss_weights([1, 3]) == TOKENS
    assert (algo.kl_in_reward, algo.kl_estimator) == (0.1, "k1")
    # Log-ratios .1 and .7 of one sequence: e^.4 = 1.4918 for both, within 1.5; and .9 and .7,
    # beyond it.
    inputs = _inputs(
        [0.1, 0.7, 0.9, 0.7], advantage=[1.0] * 4, old=[0.0] * 4, segments=[0, 0, 1, 1]
    )
    torch.testing.assert_close(
        _loss(cfg, inputs), torch.tensor([-1.4918, -1.4918, -1.5, -1.5]), atol=1e-4, rtol=0
    )


def test_ddof_is_a_setting() -> None:
    algo = build_algorithm(AlgoConfig(ddof=0), max_tokens=10)

    assert algo.advantage is not None
    assert algo.advantage(REWARDS, {})[0][0] == pytest.approx([1.0, -1.0, -1.0, 1.0], abs=1e-4)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"ratio": "off"}, 'surrogate = "clip" needs a ratio to bound'),
        ({"name": "rloo", "surrogate": "cispo"}, 'surrogate = "cispo" needs a ratio to bound'),
        ({"name": "cispo", "dual_clip": 9.0}, 'dual_clip = 9.0 needs surrogate = "clip"'),
        ({"name": "dapo", "dual_clip": 1.2}, "a bound above 1 \\+ clip_high"),
        ({"step_credit": {"alpha": 0.1}}, "step_credit.alpha = 0.1 is for the tango algorithms"),
        (
            {"old_logprobs": "engine", "importance_correction": {"rule": "mask"}},
            "importance_correction corrects the gap between engine and learner",
        ),
        (
            {"importance_correction": {"low": 3.0}},
            "importance_correction.low = 3.0 should be below importance_correction.high = 2.0",
        ),
        ({"early_stop": {"limit": 5.0}}, "early_stop needs num_minibatches above 1"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_in_one_sentence(
    settings: dict[str, Json], sentence: str, tmp_path: Path
) -> None:
    file = tmp_path / "algo.toml"
    file.write_text(toml.write({"algo": settings}))

    with pytest.raises(ConfigError, match=sentence) as refused:
        load_settings(_Holder, file, [])
    assert str(refused.value).startswith("algo: ")
    assert "\n" not in str(refused.value)


class _Holder(Config):
    algo: AlgoConfig = AlgoConfig()


def test_a_name_given_over_the_default_brings_its_own_bounds() -> None:
    cfg = _Holder.model_validate({"algo": {"name": "dapo"}})

    assert resolve_preset(cfg.algo).clip_high == 0.28


def test_every_row_names_its_paper() -> None:
    assert all(row.paper for row in PRESETS.values())


@pytest.mark.parametrize(
    ("cfg", "needs_reference", "trains_on_zero"),
    [
        (AlgoConfig(kl_coef=0.1), True, True),
        (AlgoConfig(kl_coef=0.1, kl_in="reward"), True, False),
        (AlgoConfig(name="rloo", kl_coef=0.1), True, False),
        (AlgoConfig(entropy_coef=0.01), False, True),
        (AlgoConfig(entropy_coef=-0.01), False, True),
        (AlgoConfig(), False, False),
    ],
)
def test_only_penalties_give_a_gradient_to_zero_advantage(
    cfg: AlgoConfig, needs_reference: bool, trains_on_zero: bool
) -> None:
    algo = build_algorithm(cfg, max_tokens=10)

    assert (algo.needs_reference, algo.trains_on_zero_advantage) == (
        needs_reference,
        trains_on_zero,
    )
    assert algo.objective.needs_entropy_gradient == (cfg.entropy_coef != 0)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "game24"])
def test_clipped_algorithms_stop_paying_at_their_bounds(name: AlgoName) -> None:
    half = math.log(0.5)
    inputs = _inputs(
        [half + math.log(1.5), half + math.log(0.5)], advantage=[1.0, -1.0], old=[half, half]
    )

    loss = _loss(AlgoConfig(name=name, clip_low=0.3, clip_high=0.28), inputs)

    torch.testing.assert_close(loss, torch.tensor([-1.28, 0.7]))


@pytest.mark.parametrize(
    ("names", "table"),
    [(SurrogateName, SURROGATES), (RatioName, RATIOS), (AdvantageName, ADVANTAGES)],
    ids=["surrogates", "ratios", "advantages"],
)
def test_the_names_of_settings_are_those_of_the_table(
    names: object, table: Mapping[str, object]
) -> None:
    assert get_args(names) == tuple(table)


def test_the_bounds_of_surrogates_are_settings_of_algorithms() -> None:
    bounds = {bound for spec in SURROGATES.values() for bound in spec.bounds}
    assert bounds == set(RatioBounds._fields) <= set(AlgoConfig.model_fields)


def test_rloo_is_the_plain_policy_gradient() -> None:
    inputs = _inputs([-2.0, -0.5], advantage=[1.0, -3.0], old=[-1.0, -9.0])

    torch.testing.assert_close(_loss(AlgoConfig(name="rloo"), inputs), torch.tensor([2.0, -1.5]))


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("gradient", ["exact", "direct"])
def test_the_kl_enters_by_its_weight_and_is_logged_as_k3(estimator: str, gradient: str) -> None:
    penalty = {"k1": math.log(2), "k2": 0.5 * math.log(2) ** 2, "k3": 0.5 - 1 + math.log(2)}
    cfg = AlgoConfig.model_validate(
        {"kl_coef": 0.1, "kl_estimator": estimator, "kl_gradient": gradient}
    )
    inputs = _inputs([math.log(0.5)], advantage=[2.0], reference=[math.log(0.25)])

    loss_M, metrics, _ = policy_objective(cfg).loss(inputs)

    torch.testing.assert_close(loss_M.detach(), torch.tensor([-2.0 + 0.1 * penalty[estimator]]))
    torch.testing.assert_close(metrics["policy/kl"].detach(), torch.tensor([penalty["k3"]]))


def test_the_entropy_bonus_lowers_the_loss_by_its_weight() -> None:
    inputs = _inputs([-1.0], advantage=[2.0], entropy=[1.5])

    torch.testing.assert_close(_loss(AlgoConfig(entropy_coef=0.1), inputs), torch.tensor([-2.15]))
    torch.testing.assert_close(_loss(AlgoConfig(), inputs), torch.tensor([-2.0]))


def test_a_kl_in_the_reward_is_not_in_the_loss_again() -> None:
    inputs = _inputs([math.log(0.5)], advantage=[2.0], reference=[math.log(0.25)])

    loss_M, metrics, _ = policy_objective(AlgoConfig(kl_coef=0.1, kl_in="reward")).loss(inputs)

    torch.testing.assert_close(loss_M.detach(), torch.tensor([-2.0]))
    assert metrics["policy/kl"].tolist() == pytest.approx([0.1931], abs=1e-4)


@pytest.mark.parametrize(
    ("settings", "slope"),
    [
        # d = log 2 throughout, the ratio 2. Direct: 1; d; 1 - exp(-d) = .5.
        ({"kl_estimator": "k1", "kl_gradient": "direct"}, 1.0),
        ({"kl_estimator": "k2", "kl_gradient": "direct"}, 0.6931),
        ({"kl_estimator": "k3", "kl_gradient": "direct"}, 0.5),
        # Exact: 2 × d for k1 and k2; 2 × (.5 + .1931) for k3.
        ({"kl_estimator": "k1"}, 1.3863),
        ({"kl_estimator": "k2"}, 1.3863),
        ({"kl_estimator": "k3"}, 1.3863),
        ({}, 1.3863),
    ],
)
def test_the_kl_has_the_gradient_that_is_asked_for(settings: dict[str, Json], slope: float) -> None:
    cfg = AlgoConfig.model_validate({"kl_coef": 1.0, **settings})
    old, reference = [math.log(0.25)], [math.log(0.25)]
    inputs = _inputs([math.log(0.5)], advantage=[0.0], old=old, reference=reference)

    policy_objective(cfg).loss(inputs)[0].sum().backward()

    torch.testing.assert_close(inputs.logprob_M.grad, torch.tensor([slope]), atol=1e-4, rtol=0)


def test_metrics_say_entropy_ratio_clipped_share_and_the_gap_to_the_engine() -> None:
    old = [-2.0] * 4
    inputs = _inputs(
        [-2.0, -1.0, -3.0, -1.9], advantage=[1.0] * 4, old=old, entropy=[0.5, 1.0, 1.5, 2.0]
    )

    _, metrics, _ = policy_objective(AlgoConfig()).loss(inputs)

    names = {"entropy", "clip_fraction", "engine_gap", "ratio", "step_kl"}
    assert set(metrics) == {f"policy/{name}" for name in names}
    assert metrics["policy/entropy"].tolist() == [0.5, 1.0, 1.5, 2.0]
    # Ratios 1, e, 1/e and e^0.1 = 1.105.
    assert metrics["policy/clip_fraction"].tolist() == [0.0, 1.0, 1.0, 0.0]
    torch.testing.assert_close(
        metrics["policy/engine_gap"].detach(), torch.tensor([1.0, 0.0, 2.0, 0.9])
    )
    ratios = torch.tensor([1.0, math.e, 1 / math.e, math.exp(0.1)])
    torch.testing.assert_close(metrics["policy/ratio"].detach(), ratios)
    torch.testing.assert_close(metrics["policy/step_kl"].detach(), ratios - 1 - ratios.log())


@pytest.mark.parametrize(
    ("name", "ratios"), [("rloo", [1.0, math.e]), ("gspo", [math.exp(0.5)] * 2)]
)
def test_the_kl_of_a_step_is_that_of_its_tokens_whatever_the_ratio(
    name: AlgoName, ratios: list[float]
) -> None:
    inputs = _inputs([-2.0, -1.0], advantage=[1.0] * 2, old=[-2.0] * 2)

    _, metrics, _ = policy_objective(AlgoConfig(name=name)).loss(inputs)

    torch.testing.assert_close(metrics["policy/ratio"].detach(), torch.tensor(ratios))
    torch.testing.assert_close(metrics["policy/step_kl"].detach(), torch.tensor([0.0, math.e - 2]))
    assert ("policy/clip_fraction" in metrics) == (name == "gspo")


def test_dual_clip_is_a_setting_of_the_clipped_loss() -> None:
    inputs = _inputs([math.log(5.0)], advantage=[-2.0], old=[0.0])

    torch.testing.assert_close(_loss(AlgoConfig(dual_clip=3.0), inputs), torch.tensor([6.0]))
    torch.testing.assert_close(_loss(AlgoConfig(), inputs), torch.tensor([10.0]))


def test_cispo_counts_only_ratios_above_its_cap() -> None:
    inputs = _inputs([0.0, 2.0, -2.0], advantage=[1.0] * 3, old=[0.0] * 3)

    _, metrics, _ = policy_objective(AlgoConfig(name="cispo")).loss(inputs)

    assert metrics["policy/clip_fraction"].tolist() == [0.0, 1.0, 0.0]


def test_the_correction_multiplies_the_policy_loss_and_not_the_penalties() -> None:
    # The learner gives the token e times what the engine gave it; the factor stops at 2.
    cfg = AlgoConfig(
        importance_correction=ImportanceCorrectionConfig(rule="truncate"),
        kl_coef=1.0,
        kl_gradient="direct",
        kl_estimator="k1",
    )
    inputs = _inputs([0.0], advantage=[3.0], reference=[-0.25])

    loss_M, metrics, _ = policy_objective(cfg).loss(inputs)

    torch.testing.assert_close(loss_M.detach(), torch.tensor([-6.0 + 0.25]))
    assert (float(metrics["policy/correction"]), float(metrics["policy/corrected"])) == (2.0, 1.0)


def test_ratios_may_compare_with_what_the_engine_sampled_at() -> None:
    # The engine's log-probability is -1, so the ratio is e^.1 whatever the start of the step was.
    cfg = AlgoConfig(old_logprobs="engine", num_minibatches=2)

    torch.testing.assert_close(
        _loss(cfg, _inputs([-0.9], advantage=[1.0], old=[-5.0])), torch.tensor([-math.exp(0.1)])
    )
    assert not build_algorithm(cfg, max_tokens=10).needs_old_logprobs
    assert build_algorithm(AlgoConfig(num_minibatches=2), max_tokens=10).needs_old_logprobs


@pytest.mark.parametrize(("limit", "zeroed"), [(1.3, 1.0), (1.4, 0.0)])
def test_the_early_stop_of_a_micro_batch_zeroes_its_loss(limit: float, zeroed: float) -> None:
    # Ratios 1 and e^.5: their mean is 1.3244.
    stop = EarlyStopConfig(limit=limit, scope="micro_batch", action="zero")
    cfg = AlgoConfig(num_minibatches=2, clip_high=1.0, early_stop=stop)
    inputs = _inputs([-2.0, -1.5], advantage=[1.0, 1.0], old=[-2.0, -2.0])

    loss_M, metrics, _ = policy_objective(cfg).loss(inputs)
    loss_M.sum().backward()

    assert metrics["policy/zeroed"].tolist() == [zeroed] * 2
    assert float(metrics["policy/stop_signal"].mean()) == pytest.approx(1.3244, abs=1e-4)
    assert inputs.logprob_M.grad is not None
    assert (inputs.logprob_M.grad == 0).all() == bool(zeroed)


def test_a_micro_batch_whose_ratio_is_not_a_number_has_no_gradient() -> None:
    stop = EarlyStopConfig(limit=5.0, scope="micro_batch", action="zero")
    cfg = AlgoConfig(num_minibatches=2, early_stop=stop)
    inputs = _inputs([-2.0], advantage=[1.0], old=[math.nan])

    loss_M, _, _ = policy_objective(cfg).loss(inputs)
    loss_M.sum().backward()

    assert loss_M.tolist() == [0.0]
    assert inputs.logprob_M.grad is not None
    assert inputs.logprob_M.grad.tolist() == [0.0]


def test_the_kl_of_an_early_stop_is_that_of_tokens_also_where_ratios_are_of_sequences() -> None:
    # Two tokens of one sequence move by +.5 and -.5: the sequence's ratio is 1, its KL would be 0.
    stop = EarlyStopConfig(limit=5.0, statistic="kl", scope="micro_batch", action="zero")
    cfg = AlgoConfig(name="gspo", num_minibatches=2, early_stop=stop)
    inputs = _inputs([-1.5, -2.5], advantage=[1.0, 1.0], old=[-2.0, -2.0])

    _, metrics, _ = policy_objective(cfg).loss(inputs)

    expected = (math.exp(0.5) - 1.5 + math.exp(-0.5) - 0.5) / 2
    assert float(metrics["policy/stop_signal"].mean()) == pytest.approx(expected, abs=1e-6)


def test_sft_is_the_likelihood_and_counts_tokens_above_one_half() -> None:
    inputs = _inputs([-0.1, -2.0, math.log(0.51)], advantage=[0.0] * 3)

    loss_M, metrics, _ = sft_objective().loss(inputs)

    torch.testing.assert_close(loss_M.detach(), torch.tensor([0.1, 2.0, -math.log(0.51)]))
    assert metrics["sft/likely_tokens"].tolist() == [1.0, 0.0, 1.0]
