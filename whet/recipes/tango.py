"""Co-training of a generator and a verifier (RL-Tango): the RL step, twice, in turns.

A generator's turn samples groups of solutions, lets the verifier judge their steps, and learns from
outcome and steps. A verifier's turn samples one solution a problem and several verifications of it,
and learns to agree with the truth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import partial
from statistics import fmean
from typing import Literal

from pydantic import Field, model_validator

from whet.algos.advantages import State
from whet.algos.catalog import AlgoConfig, resolve
from whet.algos.verifier import Agreement, BalanceRule, agreement, class_weights, verifier_metrics
from whet.data.feed import Feed
from whet.data.problems import problems_of, some_problems_of
from whet.engine.base import Sampling
from whet.engine.build import EngineConfig
from whet.errors import ConfigError
from whet.evals.validation import Validator
from whet.grading.check_task import check_first
from whet.grading.grader import Grader
from whet.models.source import ModelSource, torch_device
from whet.recipes.checkpointing import Checkpointed, CheckpointManager, EmptyStepLimit, numbers
from whet.recipes.training import NEW_MODEL, TrainingConfig, check_exactness, finish
from whet.rewards.spec import RewardSpec
from whet.rng import derive
from whet.rollout.collect import collect
from whet.rollout.verification import (
    make_verifications,
    mark_verifier,
    outcome_pairs,
    step_pairs,
    with_steps,
)
from whet.store.run import RunStore
from whet.tasks.base import Task
from whet.tasks.registry import build_task
from whet.tasks.verify import WORDS, Verify, VerifyConfig
from whet.track.metrics import Clock, open_trackers, rollup
from whet.track.progress import bar, say, screen
from whet.train.learner import Metrics
from whet.train.memory import device_memory, peak_counter
from whet.train.optim import TrainConfig
from whet.train.policy import set_determinism
from whet.train.trainee import Trainee, open_trainee
from whet.types import Group, Json

COLUMNS = {
    "reward/mean": "reward",
    "score/correct": "correct",
    "verifier_reward/mean": "verifier's reward",
    "verifier/balanced_accuracy": "its balanced accuracy",
    "verifier/says_correct": "says correct",
    "verifier/step_f1": "F1 of steps",
    "steps/alpha": "alpha",
}


class Turn(StrEnum):
    """Whose step it is."""

    GENERATOR = "generator"
    VERIFIER = "verifier"


class TangoConfig(TrainingConfig):
    """Who solves, who verifies, and how they take turns. Settings without a name before them are
    the generator's."""

    kind: Literal["tango"] = "tango"
    steps: int = Field(default=440, ge=1)
    """Steps of both together."""
    warmup: int = Field(default=40, ge=0)
    """First steps, all the verifier's."""
    generator_turns: int = Field(default=3, ge=1)
    """Steps of the generator in a row, after the warm-up."""
    verifier_turns: int = Field(default=1, ge=0)
    """Steps of the verifier after those."""
    problems_per_step: int = Field(default=32, ge=1)
    """Problems asked in each step."""
    group_size: int = Field(default=5, ge=2)
    """Solutions of each problem in a generator's step; in a verifier's there is one."""
    judgements: int = Field(default=1, ge=1)
    """Verifications of each solution in a generator's step, averaged."""
    verifier_group_size: int = Field(default=5, ge=2)
    """Verifications of each solution in a verifier's step."""
    verify: VerifyConfig = VerifyConfig()
    """How a verification is asked for and read."""
    verifier: ModelSource
    """The verifier's model; its vocabulary may be another."""
    verifier_sampling: Sampling = Sampling()
    """How verifications are sampled."""
    reward: RewardSpec = RewardSpec()
    """How scores of solutions become rewards."""
    verifier_reward: RewardSpec = RewardSpec(weights={"correct": 1.0, "format": 0.8})
    """How scores of verifications become rewards."""
    algo: AlgoConfig = AlgoConfig(name="tango_grpo")
    """How rewards become gradients."""
    verifier_algo: AlgoConfig = AlgoConfig(name="grpo", weights="token_mean")
    """How the verifier's rewards become gradients."""
    balance: BalanceRule = "inverse"
    """How a verifier's step weighs right and wrong solutions by how rare they are: inverse gives
    both kinds the same total, sqrt_inverse (RL-Tango's) leaves the frequent one ahead."""
    verifier_train: TrainConfig = TrainConfig()
    """How the verifier's weights move."""
    verifier_engine: EngineConfig = EngineConfig()
    """How many verifications are sampled at once, in how much memory."""

    @model_validator(mode="after")
    def _fits(self) -> "TangoConfig":
        if self.warmup >= self.steps:
            raise ValueError(
                f"warmup = {self.warmup} leaves the generator no step: "
                f"steps = {self.steps} should be more"
            )
        for key, algo in (("algo", self.algo), ("verifier_algo", self.verifier_algo)):
            if resolve(algo).advantage == "gae":
                raise ValueError(
                    f'{key}.name = "{algo.name}" needs a critic, which this recipe does not train'
                )
        if resolve(self.verifier_algo).steps is not None:
            raise ValueError(
                f'verifier_algo.name = "{self.verifier_algo.name}" is for the generator: '
                "use grpo or rloo"
            )
        return self

    def without_effect(self) -> dict[str, str]:
        unused = super().without_effect() | {"verifier.new": NEW_MODEL}
        reason = unused.pop("train.offload_reference")
        for prefix, algo in (("", self.algo), ("verifier_", self.verifier_algo)):
            if algo.kl == 0:
                unused[f"{prefix}train.offload_reference"] = reason
        return unused


def tango(cfg: TangoConfig, run: RunStore) -> None:
    """Improve both: each step is one side's, on solutions of fresh problems and verifications of
    them."""
    set_determinism(cfg.train.deterministic or cfg.verifier_train.deterministic)
    pair = open_pair(cfg, run)
    problems = problems_of(pair.task, cfg.problems, cfg.validation.split)
    validator = Validator(cfg.validation, pair.grader, problems, cfg.sampling, seed=cfg.seed)
    generator, verifier = pair.generator, pair.verifier
    others = {"verifier": verifier.checkpointed_pair}
    patience = {turn: EmptyStepLimit() for turn in Turn}
    parts: dict[str, Checkpointed] = {"feed": pair.feed}
    parts |= {f"{turn}_patience": patience[turn] for turn in Turn}
    manager = CheckpointManager(
        cfg.save, run, generator.policy, generator.learner, validator, others, parts=parts
    )
    start, state = manager.resume()
    memory = Memory.from_json(state)
    with (
        pair.grader,
        open_trackers(cfg.track, run, COLUMNS, console=screen()) as tracker,
        bar("tango", cfg.steps, done=start) as advance,
    ):
        manager.before(start, {}, tracker)
        for step in range(start, cfg.steps):
            pair.clock.start()
            generator.policy.publish(step)
            verifier.policy.publish(step)
            turn = turn_at(cfg, step)
            result = TURNS[turn](pair, step, memory)
            run.write_rollouts("train", step + 1, result.groups)
            tracker.log(step + 1, result.metrics | pair.clock.lap())
            advance(1)
            patience[turn].after({"step/empty": float(result.is_stuck)})
            memory = result.memory
            manager.after(step + 1, cfg.steps, memory.to_json(), tracker)
    model = str(manager.result()[1].relative_to(run.folder))
    finish(run, manager, verifier=f"{model}/others/verifier")


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a step leaves for the next, in the checkpoint."""

    baseline: State = field(default_factory=dict)
    verifier_baseline: State = field(default_factory=dict)
    counts: State = field(default_factory=dict)
    """Running counts of right and wrong solutions that the verifier trained on."""
    is_guarded: bool = False
    """Whether steps counted for nothing when the generator last had its turn."""

    def to_json(self) -> dict[str, Json]:
        return asdict(self)

    @staticmethod
    def from_json(row: Mapping[str, Json]) -> "Memory":
        names = ("baseline", "verifier_baseline", "counts")
        states = {name: numbers(row.get(name)) for name in names}
        return Memory(**states, is_guarded=row.get("is_guarded") is True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TurnResult:
    """What a step gives: its rollouts, its metrics, and what it leaves for the next."""

    groups: list[Group]
    metrics: Metrics
    memory: Memory

    @property
    def is_stuck(self) -> bool:
        """Whether nothing was learned, for other reasons than that the verifier is right
        already."""
        return self.metrics["step/empty"] > 0 and not (
            "verifier_reward/mean" in self.metrics and self.metrics["verifier/accuracy"] > 0.5
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TangoPair:
    """Both sides, and what they work on."""

    cfg: TangoConfig
    task: Task
    judge: Verify
    feed: Feed
    generator: Trainee
    verifier: Trainee
    grader: Grader
    clock: Clock

    def solutions(self, step: int, samples: int) -> list[Group]:
        """Solve the next problems."""
        cfg = self.cfg
        problems = [
            self.task.vary(problem, derive(cfg.seed, "vary", step, index))
            for index, problem in enumerate(self.feed.take(cfg.problems_per_step, step))
        ]
        seed = derive(cfg.seed, "rollout", step)
        chat_engine, clock = self.generator.policy.chat_engine, self.clock
        return collect(
            chat_engine,
            self.grader,
            problems,
            cfg.sampling,
            samples=samples,
            seed=seed,
            clock=clock,
        )

    def verifications(self, step: int, solved: Sequence[Group], samples: int) -> list[Group]:
        """Verify every solution that can be judged."""
        cfg, policy = self.cfg, self.verifier.policy
        room = policy.engine.context - cfg.verifier_sampling.max_tokens
        problems = make_verifications(solved, self.judge, policy.chat_engine, room)
        seed = derive(cfg.seed, "verify", step)
        chat_engine, sampling, clock = policy.chat_engine, cfg.verifier_sampling, self.clock
        judged = collect(
            chat_engine, self.grader, problems, sampling, samples=samples, seed=seed, clock=clock
        )
        return mark_verifier(judged)


def open_pair(cfg: TangoConfig, run: RunStore) -> TangoPair:
    task = build_task(cfg.task)
    judge = Verify(cfg.verify)
    if task.name == judge.name:
        raise ConfigError(
            f"the task is named {task.name!r}, as the verifier's own is: give it another name"
        )
    feed = Feed(some_problems_of(task, cfg.problems, "rl"), seed=derive(cfg.seed, "feed"))
    check_first(task, feed.problems, cfg.grading)
    updates = {turn: num_turns(cfg, turn, cfg.steps) for turn in Turn}
    name = run.folder.name
    device = torch_device()
    prove = partial(check_exactness, run=run)
    open_one = partial(open_trainee, seed=cfg.seed, prove=prove, memory=device_memory(device))
    generator = open_one(
        cfg.model,
        cfg.algo,
        cfg.sampling,
        cfg.train,
        cfg.engine,
        updates=updates[Turn.GENERATOR],
        name=name,
    )
    verifier = open_one(
        cfg.verifier,
        cfg.verifier_algo,
        cfg.verifier_sampling,
        cfg.verifier_train,
        cfg.verifier_engine,
        updates=updates[Turn.VERIFIER],
        name=f"{name}-verifier",
    )
    if verifier.policy.engine.context <= cfg.verifier_sampling.max_tokens:
        raise ConfigError(
            f"verifier_sampling.max_tokens = {cfg.verifier_sampling.max_tokens} leaves no room for "
            f"a solution in the verifier's context of {verifier.policy.engine.context} tokens"
        )
    return TangoPair(
        cfg=cfg,
        task=task,
        judge=judge,
        feed=feed,
        generator=generator,
        verifier=verifier,
        grader=Grader([task, judge], cfg.grading),
        clock=Clock(peak_bytes=peak_counter(device)),
    )


def train_generator(pair: TangoPair, step: int, memory: Memory) -> TurnResult:
    """Credit outcome and judged steps; the steps count for nothing while the verifier says one
    thing always."""
    cfg = pair.cfg
    solved = pair.solutions(step, cfg.group_size)
    judged = pair.verifications(step, solved, cfg.judgements)
    solved = cfg.reward.apply(with_steps(solved, judged, pair.judge, pair.generator.policy.chat))
    outcome, steps = _agreements(pair, solved, judged)
    if outcome.is_one_sided and not memory.is_guarded:
        say(
            f"step {step + 1}: the verifier always says the same, so its verdicts on steps do not "
            "count until they differ"
        )
    progress = num_turns(cfg, Turn.GENERATOR, step) / num_turns(cfg, Turn.GENERATOR, cfg.steps)
    has_steps = not outcome.is_one_sided
    metrics, baseline = pair.generator.improve(
        solved,
        memory.baseline,
        seed=derive(cfg.seed, "update", step),
        progress=progress,
        has_steps=has_steps,
        clock=pair.clock,
    )
    counts = [len(rollout.steps) for group in solved for rollout in group]
    metrics |= {
        "steps/alpha": pair.generator.algo.alpha(progress) if has_steps else 0.0,
        "steps/guarded": float(outcome.is_one_sided),
        "steps/judged": fmean(count > 0 for count in counts),
        "steps/count": fmean(counts),
    }
    metrics = rollup(solved) | metrics | verifier_metrics(outcome, steps)
    memory = replace(memory, baseline=baseline, is_guarded=outcome.is_one_sided)
    return TurnResult(groups=[*solved, *judged], metrics=metrics, memory=memory)


def train_verifier(pair: TangoPair, step: int, memory: Memory) -> TurnResult:
    """Reward agreement with the truth and form; solutions of the rarer kind weigh more."""
    cfg = pair.cfg
    solved = pair.solutions(step, 1)
    judged = cfg.verifier_reward.apply(pair.verifications(step, solved, cfg.verifier_group_size))
    if not judged:
        return TurnResult(groups=solved, metrics={"step/empty": 1.0}, memory=memory)
    is_right = [group[0].problem.answer == WORDS[True] for group in judged]
    weights, counts = class_weights(is_right, memory.counts, rule=cfg.balance)
    update, baseline = pair.verifier.improve(
        judged,
        memory.verifier_baseline,
        seed=derive(cfg.seed, "update", step),
        weights={group[0].group: weight for group, weight in zip(judged, weights, strict=True)},
        clock=pair.clock,
    )
    metrics = {f"verifier_{name}": value for name, value in (rollup(judged) | update).items()}
    metrics |= verifier_metrics(*_agreements(pair, solved, judged)) | {
        "verifier/count_correct": counts["correct"],
        "verifier/count_wrong": counts["wrong"],
        "step/empty": update["step/empty"],
    }
    memory = replace(memory, verifier_baseline=baseline, counts=counts)
    return TurnResult(groups=[*solved, *judged], metrics=metrics, memory=memory)


TURNS = {Turn.GENERATOR: train_generator, Turn.VERIFIER: train_verifier}


def _agreements(
    pair: TangoPair, solved: Sequence[Group], judged: Sequence[Group]
) -> tuple[Agreement, Agreement]:
    """How final verdicts agree with the truth, and verdicts on steps with what the task knows of
    them."""
    steps = step_pairs(solved, judged, pair.judge, pair.task)
    return agreement(outcome_pairs(judged, pair.judge)), agreement(steps)


def turn_at(cfg: TangoConfig, step: int) -> Turn:
    """Whose step it is: the verifier's while it warms up, then some of the generator's, some of the
    verifier's, again.

    >>> model = ModelSource(path="m")
    >>> cfg = TangoConfig(
    ...     task="game24", model=model, verifier=model, warmup=1, generator_turns=2
    ... )
    >>> "".join(turn_at(cfg, step)[0] for step in range(8))
    'vggvggvg'
    """
    turn = (step - cfg.warmup) % (cfg.generator_turns + cfg.verifier_turns)
    return Turn.GENERATOR if step >= cfg.warmup and turn < cfg.generator_turns else Turn.VERIFIER


def num_turns(cfg: TangoConfig, turn: Turn, before: int) -> int:
    """How many steps before a step are one side's."""
    return sum(turn_at(cfg, step) is turn for step in range(before))
