"""Estimators and losses of the user's own, by file and name."""

import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch

from whet import config
from whet.algos.advantages import ADVANTAGES, AdvantageName
from whet.algos.algorithm import build_algorithm, compares_responses, needs_critic
from whet.algos.losses import LossInputs
from whet.algos.presets import PRESETS
from whet.algos.settings import AlgoConfig, resolve_preset
from whet.errors import ConfigError

CODE = """
from statistics import fmean
import torch
from whet.algos.advantages import per_token, uses_critic

def center(rewards, baseline):
    groups = [[reward - fmean(group) for reward in group] for group in rewards]
    return groups, {"steps": baseline.get("steps", 0.0) + 1}

def one_group(rewards, baseline):
    return rewards[:1], baseline

def clip(ratio_M, inputs):
    bounded_M = ratio_M.clamp(0.8, 1.2)
    return -torch.minimum(ratio_M * inputs.advantage_M, bounded_M * inputs.advantage_M)

def mean(ratio_M, inputs):
    return ratio_M.mean()

def one_argument(rewards):
    return rewards

def raises(rewards, baseline):
    return 1 / 0, baseline

def no_baseline(rewards, baseline):
    return 3

def too_deep(ratio_M, inputs):
    return torch.cat([ratio_M, 5])

number = 3

@per_token
def halves(rewards):
    return rewards / 2

@per_token
def too_few(rewards):
    return rewards[:1]

@uses_critic
def one_step(rewards, predictions):
    values = predictions
    targets = [reward + value for reward, value in zip(rewards, [*values[1:], 0.0])]
    return torch.tensor(targets) - torch.from_numpy(values), targets

@uses_critic
def no_targets(rewards, values):
    return rewards - values

@uses_critic
def short_targets(rewards, values):
    return rewards - values, rewards[1:]

def of_tensors(rewards, baseline):
    rows = [torch.tensor(group, dtype=torch.float64) for group in rewards]
    return [row - row.mean() for row in rows], {"steps": torch.tensor(2.0)}

def flat(rewards, baseline):
    return [reward for group in rewards for reward in group], baseline

def only_advantages(rewards, baseline):
    return torch.tensor([[1.0, 2.0]])

def strings(rewards, baseline):
    return [["high" for reward in group] for group in rewards], baseline

def nan(rewards, baseline):
    return [[float("nan") for reward in group] for group in rewards], baseline

def no_next_baseline(rewards, baseline):
    return rewards, None

def list_in_baseline(rewards, baseline):
    return rewards, {"past": [1.0, 2.0]}

def tensor_in_baseline(rewards, baseline):
    return rewards, {"past": torch.ones(3)}

def nan_in_baseline(rewards, baseline):
    return rewards, {"past": float("nan")}

def detached(ratio_M, inputs):
    return -(ratio_M * inputs.advantage_M).detach()

def nan_loss(ratio_M, inputs):
    return ratio_M * float("nan")

def with_metrics(ratio_M, inputs):
    return ratio_M, {"mine/above": (ratio_M > 1).float()}

def mean_metric(ratio_M, inputs):
    return ratio_M, {"mine/above": (ratio_M > 1).float().mean()}

def no_area(ratio_M, inputs):
    return ratio_M, {"loss": ratio_M}

def three(ratio_M, inputs):
    return ratio_M, {}, 1

def nan_gradient(ratio_M, inputs):
    return torch.where(ratio_M > 0, ratio_M, torch.sqrt(ratio_M - ratio_M))
"""
REWARDS = [[1.0, 0.25, 0.1], [0.3, 0.7]]


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "my_algo.py"
    path.write_text(CODE)
    return str(path)


def inputs() -> LossInputs:
    logprob_M = torch.tensor([-0.5, -1.0, -2.0, -0.1], requires_grad=True)
    return LossInputs(
        logprob_M=logprob_M,
        entropy_M=torch.zeros(4),
        advantage_M=torch.tensor([1.0, -0.5, 0.25, 2.0]),
        sampling_logprob_M=torch.zeros(4),
        old_logprob_M=torch.tensor([-0.9, -1.0, -1.2, -0.2]),
        segment_M=torch.tensor([0, 0, 1, 1]),
    )


def test_a_users_centred_advantage_is_the_shipped_one_bit_for_bit(file: str) -> None:
    shipped = build_algorithm(AlgoConfig(advantage="center"), max_tokens=8).advantage
    own = build_algorithm(AlgoConfig(advantage=f"{file}:center"), max_tokens=8).advantage
    assert shipped is not None and own is not None

    assert own(REWARDS, {})[0] == shipped(REWARDS, {})[0]
    assert own(REWARDS, {"steps": 4.0})[1] == {"steps": 5.0}


def test_a_users_advantage_that_uses_a_critic_is_of_tokens_and_has_one(file: str) -> None:
    cfg = AlgoConfig(name="ppo", whiten=False, advantage=f"{file}:one_step")
    algo = build_algorithm(cfg, max_tokens=8)
    assert algo.needs_values and algo.advantage is None and algo.token_advantage is not None

    advantage, target = algo.token_advantage(np.array([0.0, 1.0]), np.array([0.25, 0.5]))

    assert target is not None
    assert (advantage.tolist(), target.tolist()) == ([0.25, 0.5], [0.5, 1.0])


def test_a_users_advantage_per_token_compares_no_responses_and_has_no_critic(file: str) -> None:
    cfg = AlgoConfig(name="ppo", whiten=False, advantage=f"{file}:halves")
    algo = build_algorithm(cfg, max_tokens=8)
    assert not algo.needs_values and not algo.compares_responses and algo.advantage is None
    assert algo.token_advantage is not None

    advantage, target = algo.token_advantage(np.array([0.0, 1.0]), None)

    assert (advantage.tolist(), target) == ([0.0, 0.5], None)


def test_a_users_advantage_per_token_of_another_length_is_refused(file: str) -> None:
    algo = build_algorithm(AlgoConfig(advantage=f"{file}:too_few"), max_tokens=8)
    assert algo.token_advantage is not None
    with pytest.raises(ConfigError, match="for each of 2 tokens, not a list of 1"):
        algo.token_advantage(np.array([0.0, 1.0]), None)


def test_a_users_advantage_without_values_has_no_critic(file: str) -> None:
    algo = build_algorithm(AlgoConfig(name="ppo", advantage=f"{file}:center"), max_tokens=8)
    assert not algo.needs_values and algo.token_advantage is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_targets", "should return advantages and value targets, not the ndarray"),
        ("short_targets", "a finite number for each of 2 tokens, not a list of 1"),
    ],
)
def test_a_users_token_advantage_returns_advantages_and_targets(
    file: str, name: str, words: str
) -> None:
    algo = build_algorithm(AlgoConfig(advantage=f"{file}:{name}"), max_tokens=8)
    assert algo.token_advantage is not None
    with pytest.raises(ConfigError, match=words):
        algo.token_advantage(np.array([0.0, 1.0]), np.array([0.25, 0.5]))


def test_a_users_clip_is_the_shipped_loss_and_gradient_bit_for_bit(file: str) -> None:
    found = []
    for surrogate in ("clip", f"{file}:clip"):
        given = inputs()
        cfg = AlgoConfig(surrogate=surrogate, num_minibatches=2)
        loss_M, _, _ = build_algorithm(cfg, max_tokens=8).objective.loss(given)
        loss_M.sum().backward()
        found.append((loss_M.tolist(), given.logprob_M.grad.tolist()))

    assert found[0] == found[1]
    assert any(found[0][1])


def test_the_names_of_advantages_are_those_of_the_table() -> None:
    assert get_args(AdvantageName) == tuple(ADVANTAGES)


def test_the_settings_of_advantages_are_settings_of_algorithms() -> None:
    own = {key for spec in ADVANTAGES.values() for key in spec.settings}
    assert own and own <= set(AlgoConfig.model_fields)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_an_advantage_is_of_responses_or_of_tokens(name: str) -> None:
    algo = build_algorithm(AlgoConfig(advantage=name), max_tokens=8)
    assert (algo.advantage is None) is (algo.token_advantage is not None)
    assert algo.compares_responses is (algo.advantage is not None)


def test_a_users_advantage_whose_file_is_missing_counts_as_one_with_a_critic() -> None:
    preset = replace(PRESETS["grpo"], advantage="missing.py:advantage")
    assert needs_critic(preset) and not compares_responses(preset)


def test_which_presets_compare_responses_and_which_need_a_critic() -> None:
    alone = {name for name, preset in PRESETS.items() if not compares_responses(preset)}
    assert alone == {
        name for name, preset in PRESETS.items() if preset.advantage in ("to_go", "gae")
    }
    assert {name for name, preset in PRESETS.items() if needs_critic(preset)} == {"ppo"}


def test_a_function_of_the_users_changes_nothing_else_of_the_row(file: str) -> None:
    row = resolve_preset(AlgoConfig(name="dapo", advantage=f"{file}:center"))

    assert (row.clip_high, row.loss_weights, row.surrogate) == (0.28, "token_mean", "clip")


def test_an_advantage_of_another_shape_is_refused(file: str) -> None:
    algo = build_algorithm(AlgoConfig(advantage=f"{file}:one_group"), max_tokens=8)
    assert algo.advantage is not None

    with pytest.raises(
        ConfigError, match=r"one number per reward of each group, \[3, 2\], not \[3\]$"
    ):
        algo.advantage(REWARDS, {})


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("mean", "return a loss per token, a tensor [M] with M = 4, not a tensor []"),
        ("three", "return a loss per token, a tensor [M] with M = 4, not a tuple of 3"),
        (
            "mean_metric",
            "metrics by area/name, each a tensor [M] with M = 4, not 'mine/above': a t",
        ),
        ("no_area", "metrics by area/name, each a tensor [M] with M = 4, not 'loss': a tensor [4]"),
        ("detached", "should return a loss with a gradient, not a detached tensor"),
        ("nan_loss", "should return finite losses, not nan at a ratio of 1.492"),
        ("nan_gradient", "returned finite losses whose gradient is not finite"),
    ],
)
def test_a_loss_that_cannot_be_trained_on_is_one_sentence_with_what_came(
    file: str, name: str, sentence: str
) -> None:
    cfg = AlgoConfig(surrogate=f"{file}:{name}", num_minibatches=2)
    objective = build_algorithm(cfg, max_tokens=8).objective

    with pytest.raises(ConfigError, match=re.escape(sentence)) as error:
        objective.loss(inputs())[0].sum().backward()
    assert str(error.value).startswith(f"algo.surrogate = '{file}:{name}' ")


def test_metrics_beside_a_loss_are_logged_with_the_others(file: str) -> None:
    cfg = AlgoConfig(surrogate=f"{file}:with_metrics", num_minibatches=2)

    _, metrics, _ = build_algorithm(cfg, max_tokens=8).objective.loss(inputs())

    assert metrics["mine/above"].tolist() == [1.0, 0.0, 0.0, 1.0]
    assert "policy/entropy" in metrics


def test_tensors_stand_for_lists_and_numbers(file: str) -> None:
    own = build_algorithm(AlgoConfig(advantage=f"{file}:of_tensors"), max_tokens=8).advantage
    assert own is not None

    assert own([[1.0, 0.0], [3.0, 0.0, 0.0]], {}) == (
        [[0.5, -0.5], [2.0, -1.0, -1.0]],
        {"steps": 2.0},
    )


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("raises", "raised ZeroDivisionError in line 24: division by zero"),
        ("no_baseline", "should return advantages, a list per group, and the next baseline, not 3"),
        ("only_advantages", "a list per group, and the next baseline, not a tensor [1, 2]"),
        ("flat", "should return advantages as a list per group, not a list of 5"),
        ("strings", "should return finite numbers, not the str 'high'"),
        ("nan", "should return finite numbers, not nan"),
        ("no_next_baseline", "the next baseline as a dict from names to numbers, not None"),
        ("list_in_baseline", "a baseline of finite numbers by name, not 'past': a list of 2"),
        ("tensor_in_baseline", "a baseline of finite numbers by name, not 'past': a tensor [3]"),
        ("nan_in_baseline", "a baseline of finite numbers by name, not 'past': nan"),
    ],
)
def test_an_advantage_that_fails_is_one_sentence_with_its_name(
    file: str, name: str, sentence: str
) -> None:
    advantage = build_algorithm(AlgoConfig(advantage=f"{file}:{name}"), max_tokens=8).advantage
    assert advantage is not None

    with pytest.raises(ConfigError, match=re.escape(sentence)) as error:
        advantage(REWARDS, {})
    assert str(error.value).startswith(f"algo.advantage = '{file}:{name}' ")


def test_a_loss_that_raises_is_one_sentence_with_its_name_and_the_line_of_the_file(
    file: str,
) -> None:
    objective = build_algorithm(AlgoConfig(surrogate=f"{file}:too_deep"), max_tokens=8).objective

    with pytest.raises(ConfigError, match=r"my_algo.py:too_deep' raised TypeError in line 30: "):
        objective.loss(inputs())


def test_what_is_no_function_or_not_there_is_named(file: str) -> None:
    for name, sentence in (
        ("number", " should name a function, not 3"),
        ("one_argument", " should take (rewards, baseline), not (rewards)"),
        ("median", f": {file} has no median; it has center, one_group, "),
    ):
        label = f"algo.advantage = '{file}:{name}'"
        with pytest.raises(ConfigError, match=re.escape(label + sentence)):
            build_algorithm(AlgoConfig(advantage=f"{file}:{name}"), max_tokens=8)
    with pytest.raises(ConfigError, match=r"algo.surrogate = .*; did you mean clip\?$"):
        build_algorithm(AlgoConfig(surrogate=f"{file}:clp"), max_tokens=8)


def test_a_file_that_is_not_there_is_named_with_its_key_and_the_folder_searched() -> None:
    with pytest.raises(ConfigError) as error:
        build_algorithm(AlgoConfig(advantage="nofile.py:ema"), max_tokens=8)
    assert str(error.value) == (
        f"algo.advantage = 'nofile.py:ema': there is no file nofile.py in {Path.cwd()}"
    )


def test_a_name_that_is_neither_shipped_nor_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "algo.toml").write_text('advantage = "median"')

    with pytest.raises(ConfigError, match=r'should be "zscore",.* or "gae" or a file and a name'):
        config.load_settings(AlgoConfig, tmp_path / "algo.toml", [])
