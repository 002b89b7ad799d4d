"""One side of a co-training: class weights multiply advantages, and steps count only where they are
asked for."""

from dataclasses import replace
from pathlib import Path

import pytest

from whet.algos.settings import AlgoConfig
from whet.engine.base import Sampling
from whet.engine.build import EngineConfig
from whet.models.source import ModelSource
from whet.testing.fakes import rollout, sum_problem
from whet.testing.tiny import tiny_policy
from whet.train.optim import TrainConfig
from whet.train.policy import Policy
from whet.train.trainee import Trainee, open_trainee
from whet.types import Group, Step

ALGO = AlgoConfig(name="tango_grpo")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tiny_policy(seed=3).save(folder)
    return folder


def side(model: Path, algo: AlgoConfig = ALGO) -> Trainee:
    source, train = ModelSource(path=str(model)), TrainConfig(lr=1e-3)
    return open_trainee(
        source,
        algo,
        Sampling(max_tokens=8),
        train,
        EngineConfig(slots=4),
        updates=5,
        name="s",
        seed=0,
    )


def group(number: int, rewards: tuple[float, float]) -> Group:
    problem = sum_problem(number, 2)
    return tuple(
        rollout(reward=reward, number=index, problem=problem, tokens=(5 + number, 6 + index, 7))
        for index, reward in enumerate(rewards)
    )


GROUPS = [group(1, (1.0, 0.0)), group(2, (0.0, 1.0))]
NAMES = [groups[0].group for groups in GROUPS]


def norm(model: Path, weights: dict[str, float] | None) -> float:
    metrics, _ = side(model).improve(GROUPS, {}, seed=0, weights=weights)
    return metrics["train/grad_norm"]


def test_class_weights_scale_what_a_group_teaches(model: Path) -> None:
    plain = norm(model, None)

    assert norm(model, dict.fromkeys(NAMES, 1.0)) == pytest.approx(plain)
    assert norm(model, dict.fromkeys(NAMES, 2.0)) == pytest.approx(2 * plain, rel=1e-4)
    one, other = (norm(model, {NAMES[0]: weight, NAMES[1]: 1.0 - weight}) for weight in (1.0, 0.0))
    assert one != pytest.approx(other, rel=1e-3)
    metrics, _ = side(model).improve(GROUPS, {}, seed=0, weights=dict.fromkeys(NAMES, 0.0))
    assert metrics == {"step/empty": 1.0}


def test_weights_leave_the_kl_alone(model: Path) -> None:
    """At the start the KL is 0 and has no gradient, so that only its presence among the metrics
    shows it."""
    trained = side(model, AlgoConfig(name="tango_grpo", kl=0.1))
    metrics, _ = trained.improve(GROUPS, {}, seed=0, weights=dict.fromkeys(NAMES, 0.0))

    assert metrics["step/empty"] == 0.0 and metrics["policy/kl"] == pytest.approx(0.0, abs=1e-6)


def test_judged_steps_count_only_where_they_are_asked_for(model: Path) -> None:
    equal = [replace(each, reward=1.0) for each in GROUPS[0]]
    steps = [replace(equal[0], steps=(Step(start=0, end=2, reward=1.0),)),
             replace(equal[1], steps=(Step(start=0, end=2, reward=-1.0),))]  # fmt: skip

    without, _ = side(model).improve([tuple(steps)], {}, seed=0)
    counted, _ = side(model).improve([tuple(steps)], {}, seed=0, has_steps=True)

    assert without == {"step/empty": 1.0}, "all outcomes are the same"
    assert counted["step/empty"] == 0.0 and counted["train/grad_norm"] > 0


def test_a_reference_is_kept_only_for_a_kl(model: Path) -> None:
    assert side(model).reference is None
    assert side(model, AlgoConfig(name="tango_grpo", kl=0.1)).reference is not None


def test_what_is_proved_of_the_policy_decides_the_algorithm(model: Path) -> None:
    seen = list[str]()

    def prove(algo: AlgoConfig, policy: Policy) -> AlgoConfig:
        seen.append(policy.chat_engine.name)
        return algo.model_copy(update={"old": "engine"})

    source, algo = ModelSource(path=str(model)), AlgoConfig(name="tango_grpo", minibatches=2)
    found = open_trainee(
        source, algo, Sampling(max_tokens=8), TrainConfig(), EngineConfig(slots=4),
        updates=5, name="s", seed=0, prove=prove,
    )  # fmt: skip

    assert seen == ["s"] and not found.algo.needs_old
    assert side(model, algo).algo.needs_old
