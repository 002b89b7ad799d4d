"""Reinforcement learning on verifiable problems: sample, score, reward, credit, update, publish."""

from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import Field, model_validator

from whet.algos.catalog import AlgoConfig, resolved
from whet.algos.catalog import build as build_algorithm
from whet.config import Config
from whet.data.curriculum import CurriculumConfig, Mixed
from whet.data.examples import Example
from whet.data.feed import Feed
from whet.data.problems import problems_of, some_problems_of
from whet.engine.base import Sampling
from whet.engine.native import EngineConfig
from whet.evals.validation import ExamConfig, Examiner
from whet.grading.check_task import check_first
from whet.grading.grader import Grader
from whet.grading.limits import Limits
from whet.recipes.exactness import proved
from whet.recipes.guard import Guard, GuardConfig, Patience
from whet.recipes.sft import finish
from whet.recipes.training import Keeper, Part, SaveConfig, numbers
from whet.rewards.spec import RewardSpec
from whet.rng import derive
from whet.rollout.ahead import Ahead, Sample
from whet.rollout.collect import Ask, play
from whet.rollout.gather import GatherConfig, gather
from whet.store.run import RunStore
from whet.tasks.base import Task
from whet.tasks.game24.task import Game24Config
from whet.tasks.registry import TaskConfig, build
from whet.track.metrics import TrackConfig, open_trackers, rollup
from whet.track.progress import bar, screen
from whet.train.credit import credit, flatten
from whet.train.critic import CriticConfig, build_critic, kept, policy_steps, with_values
from whet.train.determinism import settle
from whet.train.optim import TrainConfig
from whet.train.policy import ModelSource, Policy, open_model, torch_dtype
from whet.train.reference import reference_of
from whet.train.update import update, with_reference
from whet.types import Group, Problem

COLUMNS = {
    "reward/mean": "reward",
    "score/correct": "correct",
    "length/mean": "tokens",
    "length/unfinished": "unfinished",
    "policy/entropy": "entropy",
    "policy/kl": "kl",
    "groups/equal": "equal groups",
}
Note = Callable[[Sequence[Example]], list[Example]]
"""Adds to examples what a model says of their tokens."""


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
    gather: GatherConfig = GatherConfig()
    curriculum: CurriculumConfig = Mixed()
    lag: int = Field(default=0, ge=0)
    """Steps between sampling and training on it; algo.staleness corrects for what moved in
    between."""
    reward: RewardSpec = RewardSpec()
    algo: AlgoConfig = AlgoConfig()
    grading: Limits = Limits()
    train: TrainConfig = TrainConfig()
    critic: CriticConfig = CriticConfig()
    """For algorithms that need values, such as ppo."""
    engine: EngineConfig = EngineConfig()
    exam: ExamConfig = ExamConfig()
    guard: GuardConfig = GuardConfig()
    save: SaveConfig = SaveConfig()
    track: TrackConfig = TrackConfig()

    @model_validator(mode="after")
    def _fits(self) -> "RLConfig":
        first, name = self.gather.first, self.algo.name
        if first is not None and first >= self.group_size:
            raise ValueError(
                f"gather.first = {first} should be below group_size = {self.group_size}"
            )
        if resolved(self.algo).steps is not None:
            raise ValueError(
                f'algo.name = "{name}" credits judged steps, and rl has no judge: use grpo or rloo'
            )
        return self


def rl(cfg: RLConfig, run: RunStore) -> None:
    """Improve one policy: each step samples groups of answers, and moves towards those better than
    their siblings."""
    settle(cfg.train.deterministic)
    task = build(cfg.task)
    problems = some_problems_of(task, cfg.problems, "rl")
    feed = Feed(
        problems,
        cfg.curriculum,
        seed=derive(cfg.seed, "feed"),
        steps=cfg.steps,
        per_step=cfg.problems_per_step,
    )
    check_first(task, feed.problems, cfg.grading)
    model, tokenizer = open_model(
        cfg.model, dtype=torch_dtype(cfg.train.dtype), texts=[], seed=cfg.seed
    )
    policy = Policy(model, tokenizer, engine=cfg.engine, name=run.folder.name)
    algo = build_algorithm(
        proved(cfg.algo, policy, run, lag=cfg.lag), max_tokens=cfg.sampling.max_tokens
    )
    reference = (
        reference_of(model, offload=cfg.train.offload_reference) if algo.needs_reference else None
    )
    critic = build_critic(algo, model, cfg.critic, cfg.train, steps=cfg.steps)
    notes: list[Note] = [
        lambda examples: with_reference(examples, reference, cfg.train.micro_tokens),
        lambda examples: with_values(examples, critic),
    ]
    learner = policy.learner(cfg.train, steps=policy_steps(algo, cfg.critic, cfg.steps))
    grader = Grader(task, cfg.grading)
    batches = Ahead(sampler(cfg, task, feed, policy, grader), steps=cfg.steps, lag=cfg.lag)
    guard = Guard(cfg.guard, run, learner, cfg.exam, then=batches.drop)
    patience = Patience()
    examiner = Examiner(
        cfg.exam,
        grader,
        problems_of(task, cfg.problems, cfg.exam.split),
        cfg.sampling,
        seed=cfg.seed,
    )
    parts: dict[str, Part] = {
        "feed": feed,
        "batches": batches,
        "patience": patience,
        **kept(critic),
    }
    keeper = Keeper(cfg.save, run, policy, learner, examiner, parts=parts, guard=guard)
    start, state = keeper.resume()
    baseline = numbers(state.get("baseline"))
    with (
        grader,
        open_trackers(cfg.track, run, COLUMNS, console=screen()) as tracker,
        bar("rl", cfg.steps, done=start) as advance,
    ):
        keeper.before(start, {})
        for step in range(start, cfg.steps):
            policy.publish(step)
            groups = batches.take(step)
            feed.observe(groups)
            trained = cfg.gather.trained(groups)
            temperature = temperature_at(cfg, step)
            examples = flatten(trained, algo, temperature=temperature)
            learner.make_room(examples)
            for note in notes:
                examples = note(examples)
            examples, baseline = credit(
                trained, examples, algo, baseline, progress=step / cfg.steps
            )
            hidden = cfg.gather.masked(trained)
            examples = [example for example in examples if example.rollout not in hidden]
            metrics = update(
                learner, examples, algo, seed=derive(cfg.seed, "update", step), critic=critic
            )
            run.write_rollouts("train", step + 1, groups)
            counts = cfg.gather.metrics(
                groups, step, problems=cfg.problems_per_step, samples=cfg.group_size
            )
            metrics = rollup(cfg.gather.even(groups)) | metrics | counts | feed.metrics(step)
            tracker.log(step + 1, metrics | {"sampling/temperature": temperature})
            advance(1)
            patience.after(metrics)
            keeper.after(step + 1, cfg.steps, {"baseline": dict(baseline)})
    finish(run, keeper)


def sampler(cfg: RLConfig, task: Task, feed: Feed, policy: Policy, grader: Grader) -> Sample:
    """Give the function that samples a step: problems taken and varied, answers scored and
    rewarded."""

    def sample(step: int) -> list[Group]:
        def new(first: int, count: int) -> list[Ask]:
            taken = enumerate(feed.take(count, step), start=first)
            return [_ask(cfg, task, step, index, problem) for index, problem in taken]

        def answer(asks: Sequence[Ask]) -> list[Group]:
            return cfg.reward.apply(
                play(policy.player, grader, asks, seed=derive(cfg.seed, "rollout", step))
            )

        return gather(cfg.gather, new, answer, problems=cfg.problems_per_step)

    return sample


def temperature_at(cfg: RLConfig, step: int) -> float:
    """The sampling temperature of a step."""
    return cfg.curriculum.temperature(
        step, cfg.steps, cfg.sampling.temperature, cfg.final_temperature
    )


def _ask(cfg: RLConfig, task: Task, step: int, index: int, problem: Problem) -> Ask:
    """How a problem is put to the policy in a step: in which words, at which temperature, with how
    many tokens."""
    limit = cfg.curriculum.max_tokens(problem, step, cfg.steps, cfg.sampling.max_tokens)
    sampling = cfg.sampling.model_copy(
        update={"temperature": temperature_at(cfg, step), "max_tokens": limit}
    )
    varied = task.vary(problem, derive(cfg.seed, "vary", step, index))
    return Ask(index=index, problem=varied, sampling=sampling, numbers=range(cfg.group_size))
