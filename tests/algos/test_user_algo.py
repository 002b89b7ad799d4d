"""Estimators and losses of the user's own, by file and name."""

import re
from pathlib import Path

import pytest
import torch

from whet import config
from whet.algos.algorithm import build_algorithm
from whet.algos.losses import TokenTerms
from whet.algos.settings import AlgoConfig, resolve_algorithm
from whet.errors import ConfigError

CODE = """
from statistics import fmean
import torch

def center(rewards, state):
    groups = [[reward - fmean(group) for reward in group] for group in rewards]
    return groups, {"steps": state.get("steps", 0.0) + 1}

def one_group(rewards, state):
    return rewards[:1], state

def clip(ratio_M, terms):
    bounded_M = ratio_M.clamp(0.8, 1.2)
    return -torch.minimum(ratio_M * terms.advantage_M, bounded_M * terms.advantage_M)

def mean(ratio_M, terms):
    return ratio_M.mean()

def one_argument(rewards):
    return rewards

def raises(rewards, state):
    return 1 / 0, state

def no_state(rewards, state):
    return 3

def too_deep(ratio_M, terms):
    return torch.cat([ratio_M, 5])

number = 3
"""
REWARDS = [[1.0, 0.25, 0.1], [0.3, 0.7]]


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "my_algo.py"
    path.write_text(CODE)
    return str(path)


def terms() -> TokenTerms:
    logprob_M = torch.tensor([-0.5, -1.0, -2.0, -0.1], requires_grad=True)
    return TokenTerms(
        logprob_M=logprob_M,
        entropy_M=torch.zeros(4),
        advantage_M=torch.tensor([1.0, -0.5, 0.25, 2.0]),
        sampling_logprob=torch.zeros(4),
        old_logprob=torch.tensor([-0.9, -1.0, -1.2, -0.2]),
        segment_M=torch.tensor([0, 0, 1, 1]),
    )


def test_a_users_centred_advantage_is_the_shipped_one_bit_for_bit(file: str) -> None:
    shipped = build_algorithm(AlgoConfig(advantage="center"), max_tokens=8).advantage
    own = build_algorithm(AlgoConfig(advantage=f"{file}:center"), max_tokens=8).advantage
    assert shipped is not None and own is not None

    assert own(REWARDS, {})[0] == shipped(REWARDS, {})[0]
    assert own(REWARDS, {"steps": 4.0})[1] == {"steps": 5.0}


def test_a_users_clip_is_the_shipped_loss_and_gradient_bit_for_bit(file: str) -> None:
    found = []
    for surrogate in ("clip", f"{file}:clip"):
        given = terms()
        cfg = AlgoConfig(surrogate=surrogate, minibatches=2)
        loss_M, _ = build_algorithm(cfg, max_tokens=8).objective.loss(given)
        loss_M.sum().backward()
        found.append((loss_M.tolist(), given.logprob_M.grad.tolist()))

    assert found[0] == found[1]
    assert any(found[0][1])


def test_a_function_of_the_users_changes_nothing_else_of_the_row(file: str) -> None:
    row = resolve_algorithm(AlgoConfig(name="dapo", advantage=f"{file}:center"))

    assert (row.clip_high, row.weights, row.surrogate) == (0.28, "token_mean", "clip")


def test_an_advantage_of_another_shape_is_refused(file: str) -> None:
    algo = build_algorithm(AlgoConfig(advantage=f"{file}:one_group"), max_tokens=8)
    assert algo.advantage is not None

    with pytest.raises(ConfigError, match="as many numbers as each group has rewards"):
        algo.advantage(REWARDS, {})


def test_a_loss_that_is_not_one_per_token_is_refused(file: str) -> None:
    objective = build_algorithm(AlgoConfig(surrogate=f"{file}:mean"), max_tokens=8).objective

    with pytest.raises(ConfigError, match="should return a loss per token"):
        objective.loss(terms())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("one_argument", "raised TypeError: one_argument() takes 1 positional argument"),
        ("raises", "raised ZeroDivisionError in line 23: division by zero"),
        ("no_state", "should return advantages, a list per group, and the next state"),
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

    with pytest.raises(ConfigError, match=r"my_algo.py:too_deep' raised TypeError in line 29: "):
        objective.loss(terms())


def test_what_is_no_function_or_not_there_is_named(file: str) -> None:
    with pytest.raises(ConfigError, match="should name a function"):
        build_algorithm(AlgoConfig(advantage=f"{file}:number"), max_tokens=8)
    with pytest.raises(ConfigError, match="has no median; it has center"):
        build_algorithm(AlgoConfig(advantage=f"{file}:median"), max_tokens=8)


def test_a_name_that_is_neither_shipped_nor_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "algo.toml").write_text('advantage = "median"')

    with pytest.raises(ConfigError, match=r'should be "zscore",.* or "gae" or a file and a name'):
        config.load_settings(AlgoConfig, tmp_path / "algo.toml", [])
