"""Reinforcement learning on verifiable problems: sample, score, reward, credit, update, publish."""

import copy
from typing import Literal

from pydantic import Field

from whet.algos.catalog import AlgoConfig, Algorithm
from whet.algos.catalog import build as build_algorithm
from whet.config import Config
from whet.data.feed import Feed
from whet.data.problems import problems_of
from whet.engine.base import Sampling
from whet.engine.native import EngineConfig
from whet.errors import ConfigError, TrainError
from whet.evals.run import ExamConfig, Examiner
from whet.recipes.check import check_first
from whet.recipes.sft import finish
from whet.recipes.training import Keeper, SaveConfig
from whet.rng import derive
from whet.rollout.collect import collect
from whet.store.run import RunStore
from whet.tasks.base import solvable
from whet.tasks.game24.task import Game24Config
from whet.tasks.limits import Limits
from whet.tasks.pool import Grader
from whet.tasks.registry import TaskConfig, build
from whet.tasks.reward import RewardSpec
from whet.track.progress import bar, screen
from whet.track.rollup import rollup
from whet.track.sinks import TrackConfig, open_trackers
from whet.train.credit import credit, flatten
from whet.train.determinism import settle
from whet.train.optim import TrainConfig
from whet.train.policy import ModelSource, Policy, open_model, torch_dtype
from whet.train.update import update, with_reference
from whet.types import Group, Json

COLUMNS = {
    "reward/mean": "reward",
    "score/correct": "correct",
    "length/mean": "tokens",
    "length/unfinished": "unfinished",
    "policy/entropy": "entropy",
    "policy/kl": "kl",
    "groups/equal": "equal groups",
}
MAX_EMPTY_STEPS = 10
"""Steps in a row that may teach nothing; then the run stops, since waiting longer rarely helps."""


class RLConfig(Config):
    """Which policy learns what, how, and for how long."""

    kind: Literal["rl"] = "rl"
    seed: int = 0
    steps: int = Field(default=100, ge=1)
    problems_per_step: int = Field(default=32, ge=1)
    group_size: int = Field(default=8, ge=2)
    """Answers to each problem."""
    task: TaskConfig = Game24Config()
    problems: str | None = None
    """Folder of problems; None takes the task's own."""
    model: ModelSource
    sampling: Sampling = Sampling()
    final_temperature: float | None = Field(default=None, gt=0.0)
    """Where the temperature goes, along an exponential path over the steps; None keeps it."""
    reward: RewardSpec = RewardSpec()
    algo: AlgoConfig = AlgoConfig()
    grading: Limits = Limits()
    train: TrainConfig = TrainConfig()
    engine: EngineConfig = EngineConfig()
    exam: ExamConfig = ExamConfig()
    save: SaveConfig = SaveConfig()
    track: TrackConfig = TrackConfig()


def rl(cfg: RLConfig, run: RunStore) -> None:
    """Improve one policy: each step samples groups of answers, and moves towards those better than their siblings."""
    settle(cfg.train.deterministic)
    task, algo = build(cfg.task), build_algorithm(cfg.algo, max_tokens=cfg.sampling.max_tokens)
    _check_algorithm(cfg.algo.name, algo)
    feed = Feed(solvable(problems_of(task, cfg.problems, "rl")), seed=derive(cfg.seed, "feed"))
    check_first(task, feed.problems)
    model, tokenizer = open_model(cfg.model, dtype=torch_dtype(cfg.train.dtype), texts=[], seed=cfg.seed)
    reference = copy.deepcopy(model).requires_grad_(False) if algo.needs_reference else None
    policy = Policy(model, tokenizer, engine=cfg.engine, name=run.folder.name)
    learner = policy.learner(cfg.train, steps=cfg.steps * algo.minibatches)
    grader = Grader(task, cfg.grading)
    exam = problems_of(task, cfg.problems, cfg.exam.split)
    examiner = Examiner(cfg.exam, grader, exam, cfg.sampling, seed=cfg.seed)
    keeper = Keeper(cfg.save, run, policy, learner, examiner)
    start, state = keeper.resume()
    feed.position, baseline = start * cfg.problems_per_step, _numbers(state.get("baseline"))
    num_empty = int(str(state.get("num_empty", 0)))

    def sample(step: int, temperature: float) -> list[Group]:
        problems = [
            task.vary(problem, derive(cfg.seed, "vary", step, index))
            for index, problem in enumerate(feed.take(cfg.problems_per_step))
        ]
        sampling = cfg.sampling.model_copy(update={"temperature": temperature})
        seed = derive(cfg.seed, "rollout", step)
        return collect(policy.player, grader, problems, sampling, samples=cfg.group_size, seed=seed)

    with (
        grader,
        open_trackers(cfg.track, run, COLUMNS, console=screen()) as tracker,
        bar("rl", cfg.steps, done=start) as advance,
    ):
        for step in range(start, cfg.steps):
            temperature = temperature_at(cfg, step)
            policy.publish(step)
            groups = cfg.reward.apply(sample(step, temperature))
            examples = flatten(groups, algo, temperature=temperature)
            examples = with_reference(examples, reference, cfg.train.micro_tokens)
            examples, baseline = credit(groups, examples, algo, baseline, progress=step / cfg.steps)
            metrics = update(learner, examples, algo, seed=derive(cfg.seed, "update", step))
            run.write_rollouts("train", step + 1, groups)
            tracker.log(step + 1, rollup(groups) | metrics | {"sampling/temperature": temperature})
            advance(1)
            num_empty = num_empty + 1 if metrics["step/empty"] else 0
            _check_signal(num_empty)
            keeper.after(step + 1, cfg.steps, {"baseline": dict(baseline), "num_empty": num_empty})
    finish(run, keeper)


def temperature_at(cfg: RLConfig, step: int) -> float:
    """The sampling temperature of a step: from the first to the final one, by a constant factor a step.

    >>> cfg = RLConfig(model=ModelSource(path="m"), steps=3, sampling=Sampling(temperature=1.0), final_temperature=0.25)
    >>> [temperature_at(cfg, step) for step in range(3)]
    [1.0, 0.5, 0.25]
    """
    first, last = cfg.sampling.temperature, cfg.final_temperature
    if last is None or cfg.steps == 1:
        return first
    return float(first * (last / first) ** (step / (cfg.steps - 1)))


def _check_algorithm(name: str, algo: Algorithm) -> None:
    if algo.needs_values:
        raise ConfigError(f"algo.name = {name!r} needs a critic, which this recipe does not train; use grpo or rloo")
    if algo.step_credit is not None:
        raise ConfigError(f"algo.name = {name!r} credits judged steps, and this recipe has no judge; use grpo or rloo")


def _check_signal(num_empty: int) -> None:
    if num_empty >= MAX_EMPTY_STEPS:
        raise TrainError(
            f"{num_empty} steps in a row had no group with answers of different reward, so nothing is learned: "
            "start from a better model, or change reward.weights, group_size or sampling.temperature"
        )


def _numbers(value: Json) -> dict[str, float]:
    return {key: float(str(number)) for key, number in value.items()} if isinstance(value, dict) else {}
