"""Co-training of a generator and a verifier (RL-Tango): RL steps of each, in turns.

In its turn, the generator learns from the outcome and from the verifier's verdicts on steps. The
verifier judges one solution per problem several times, and learns to agree with the truth.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from whet.algos.agreement import Agreement, BalanceRule, verifier_metrics
from whet.algos.algorithm import needs_critic
from whet.algos.settings import AlgoConfig, resolve_preset
from whet.data.problem_sampler import ProblemSampler
from whet.engine.base import SamplingParams
from whet.engine.registry import DEFAULT_ENGINE, AnyEngineConfig
from whet.errors import ConfigError
from whet.grading.check_task import precheck
from whet.models.source import ModelSource
from whet.recipes.verifier import Verifier, open_verifier
from whet.rewards.spec import RewardSpec
from whet.rng import derive
from whet.rollout.collect import sample_and_grade
from whet.rollout.verification import with_steps
from whet.stages.checkpoint_manager import CheckpointedValue, Stateful
from whet.stages.held_out import load_training_problems
from whet.stages.stage import (
    NEEDS_TRAINED_MODEL,
    ModelWork,
    OnPolicyConfig,
    check_served_reference,
    unused_reference_settings,
)
from whet.stages.training import (
    EmptyStepLimit,
    Session,
    check_exactness,
    finish_training,
    open_loop,
    open_session,
    vary_problems,
)
from whet.store.run import RunStore
from whet.tasks.base import Task
from whet.tasks.task_config import build_task
from whet.tasks.verify import Verify, VerifyConfig
from whet.track.metrics import measure_rollouts
from whet.track.progress import say
from whet.train.policy import Policy
from whet.train.rl_step import RLTrainer, StepResult
from whet.train.settings import TrainConfig
from whet.train.training_state import read_numbers
from whet.types import Group, Json, Metrics

COLUMNS = {
    "reward/mean": "reward",
    "score/correct": "correct",
    "verifier_reward/mean": "verifier",
    "verifier/balanced_accuracy": "balanced",
    "verifier/says_correct": "says yes",
    "verifier/step_f1": "step F1",
    "steps/alpha": "alpha",
}


class Side(StrEnum):
    """Which of the two a step trains."""

    GENERATOR = "generator"
    VERIFIER = "verifier"


class TangoConfig(OnPolicyConfig):
    """Who solves, who verifies, and how they take turns. A setting with a counterpart prefixed
    `verifier_` is the generator's."""

    needs_verdicts = True
    smoke_limits: ClassVar[Mapping[str, int]] = {
        "warmup": 1,
        "generator_turns": 1,
        "verifier_turns": 1,
        "verifier_group_size": 2,
        "judgements": 1,
        "verifier_sampling.max_tokens": 16,
        "verifier_train.warmup_steps": 1,
        "verifier_engine.max_num_seqs": 8,
    }

    kind: Literal["tango"] = "tango"
    steps: int = Field(default=440, ge=1)
    """Steps of both sides together."""
    warmup: int = Field(default=40, ge=0)
    """First steps, which train only the verifier."""
    generator_turns: int = Field(default=3, ge=1)
    """Steps of the generator in a row, after the warm-up."""
    verifier_turns: int = Field(default=1, ge=0)
    """Steps of the verifier in a row, after the generator's."""
    group_size: int = Field(default=5, ge=2)
    """Solutions of each problem in a generator's step; a verifier's step has one."""
    judgements: int = Field(default=1, ge=1)
    """Verifications of each solution in a generator's step, averaged."""
    verifier_group_size: int = Field(default=5, ge=2)
    """Verifications of each solution in a verifier's step."""
    verify: VerifyConfig = VerifyConfig()
    """How verifications are requested and parsed."""
    verifier: ModelSource
    """The verifier's model; its vocabulary may differ."""
    verifier_sampling: SamplingParams = SamplingParams()
    """How verifications are sampled."""
    reward: RewardSpec = RewardSpec()
    """How scores of solutions become rewards."""
    verifier_reward: RewardSpec = RewardSpec(weights={"correct": 1.0, "format": 0.8})
    """How scores of verifications become rewards."""
    algo: AlgoConfig = AlgoConfig(name="tango_grpo")
    """How rewards become gradients."""
    verifier_algo: AlgoConfig = AlgoConfig(name="grpo", loss_weights="token_mean")
    """How the verifier's rewards become gradients."""
    balance: BalanceRule = "inverse"
    """How a verifier's step weighs right and wrong solutions by how rare they are: inverse gives
    both kinds the same total, sqrt_inverse (RL-Tango's) leaves the frequent one ahead."""
    verifier_train: TrainConfig = TrainConfig()
    """The verifier's optimizer and its memory."""
    verifier_engine: AnyEngineConfig = DEFAULT_ENGINE
    """The engine that samples verifications: its kind, slots and memory."""

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> "TangoConfig":
        if self.warmup >= self.steps:
            raise ValueError(
                f"warmup = {self.warmup} leaves the generator no step: steps = {self.steps} "
                "should be more"
            )
        for key, algo in (("algo", self.algo), ("verifier_algo", self.verifier_algo)):
            if needs_critic(resolve_preset(algo)):
                raise ValueError(
                    f'{key}.name = "{algo.name}" needs a critic, which this recipe does not train'
                )
        if resolve_preset(self.verifier_algo).step_rule is not None:
            raise ValueError(
                f'verifier_algo.name = "{self.verifier_algo.name}" is for the generator: '
                "use grpo or rloo"
            )
        check_served_reference("train", self.train, self.sampling.temperature)
        check_served_reference(
            "verifier_train", self.verifier_train, self.verifier_sampling.temperature
        )
        return self

    def run_in(self, run: RunStore) -> None:
        tango(self, run)

    @property
    def responses_per_problem(self) -> int:
        return self.group_size

    @property
    def reward_specs(self) -> dict[str, tuple[RewardSpec, Task | None]]:
        judge = Verify(self.verify)
        return {"reward": (self.reward, None), "verifier_reward": (self.verifier_reward, judge)}

    def smoke_changes(self) -> dict[str, Json]:
        return {"verifier_engine.max_model_len": None}

    def list_work(self) -> list[ModelWork]:
        solve = replace(
            super().list_work()[0],
            algo=self.algo,
            steps=num_steps(self, Side.GENERATOR, self.steps),
            name=Side.GENERATOR,
        )
        verify = ModelWork(
            source=self.verifier,
            sampling=self.verifier_sampling,
            train=self.verifier_train,
            engine=self.verifier_engine,
            algo=self.verifier_algo,
            problems=self.problems_per_step,
            samples=self.verifier_group_size,
            steps=num_steps(self, Side.VERIFIER, self.steps),
            name=Side.VERIFIER,
            reads_responses=True,
        )
        return [solve, verify]

    @property
    def is_deterministic(self) -> bool:
        return self.train.deterministic or self.verifier_train.deterministic

    def without_effect(self) -> dict[str, str]:
        unused = super().without_effect() | {"verifier.new": NEEDS_TRAINED_MODEL}
        return unused | unused_reference_settings(
            "verifier_train", self.verifier_train, is_needed=self.verifier_algo.kl_coef > 0
        )

    @property
    def has_reference(self) -> bool:
        return self.algo.kl_coef > 0


def tango(cfg: TangoConfig, run: RunStore) -> None:
    """Train both: each step trains one side, on new solutions or on verifications of them."""
    pair = open_pair(cfg, run)
    session, generator, verifier = pair.session, pair.generator, pair.verifier
    empty_limits = {side: EmptyStepLimit() for side in Side}
    stateful: dict[str, Stateful] = {
        "feed": pair.problem_sampler,  # the key in stored checkpoints
        "baseline": generator.baseline,
        "verifier_baseline": verifier.trainer.baseline,
        "counts": verifier.class_counts,
        "is_guarded": pair.is_step_credit_off,  # the key in stored checkpoints
    }
    stateful |= {f"{side}_empty_steps": limit for side, limit in empty_limits.items()}
    other_policies = {"verifier": (verifier.trainer.policy, verifier.trainer.learner)}
    manager = session.build_checkpoint_manager(
        generator.learner, other_policies=other_policies, stateful=stateful
    )
    with session.grader, open_loop(session, manager, COLUMNS) as loop:
        for step in loop:
            generator.policy.publish(step)
            verifier.trainer.policy.publish(step)
            side = side_at(cfg, step)
            train = train_generator if side is Side.GENERATOR else train_verifier
            turn = train(pair, step)
            run.write_rollouts("train", step + 1, turn.groups)
            loop.log(step, turn.metrics)
            empty_limits[side].check(turn.is_stuck)
            loop.end_step(step)
    model = str(manager.result()[1].relative_to(run.folder))
    finish_training(run, manager, verifier=f"{model}/others/verifier")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The result of one side's step, with the rollouts of both."""

    groups: list[Group]
    metrics: Metrics
    is_stuck: bool
    """Whether nothing was learned; too many such turns in a row end the run."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TangoPair:
    """A generator and its verifier, with their session and problems."""

    session: Session[TangoConfig]
    problem_sampler: ProblemSampler
    generator: RLTrainer[Policy]
    verifier: Verifier
    is_step_credit_off: CheckpointedValue
    """Whether step credit was switched off in the generator's last step."""

    def solve(self, step: int, samples: int) -> list[Group]:
        """Sample solutions of the next problems."""
        cfg = self.session.cfg
        taken = self.problem_sampler.take(cfg.problems_per_step, step)
        return sample_and_grade(
            self.generator.policy.chat_engine,
            self.session.grader,
            vary_problems(self.session, taken, step),
            cfg.sampling,
            samples=samples,
            seed=derive(cfg.seed, "rollout", step),
            clock=self.session.clock,
        )


def open_pair(cfg: TangoConfig, run: RunStore) -> TangoPair:
    """Check the problems before any weights are loaded, then open both models on one device."""
    task = build_task(cfg.task)
    verifier_task = Verify(cfg.verify)
    if task.name == verifier_task.name:
        raise ConfigError(
            f"the task is named {task.name!r}, as the verifier's own is: give it another name"
        )
    problems = load_training_problems(cfg, task)
    precheck(task, problems, cfg.grading)
    session = open_session(cfg, run, task=task, verifier_task=verifier_task)
    problem_sampler = ProblemSampler(
        session.filter_trainable(problems),
        seed=derive(cfg.seed, "feed"),  # another name would draw other problems
    )
    generator = RLTrainer(
        session.policy,
        check_exactness(cfg.algo, session.policy, run),
        cfg.train,
        max_tokens=cfg.sampling.max_tokens,
        steps=num_steps(cfg, Side.GENERATOR, cfg.steps),
    )
    return TangoPair(
        session=session,
        problem_sampler=problem_sampler,
        generator=generator,
        verifier=open_verifier(session, cfg.list_work()[1], verifier_task),
        is_step_credit_off=CheckpointedValue(False),
    )


def train_generator(pair: TangoPair, step: int) -> Turn:
    """Credit outcome and judged steps; no steps while the verifier's verdict is always the same."""
    cfg = pair.session.cfg
    solved = pair.solve(step, cfg.group_size)
    judged = pair.verifier.judge(step, solved, cfg.judgements)
    solved = cfg.reward.apply(
        with_steps(solved, judged, pair.verifier.task, pair.generator.policy.chat)
    )
    outcome, steps = pair.verifier.measure_agreement(solved, judged)
    if outcome.is_one_sided and not pair.is_step_credit_off.value:
        say(
            f"step {step + 1}: the verifier always says the same, so its verdicts on steps do not "
            "count until they differ"
        )
    pair.is_step_credit_off.value = outcome.is_one_sided
    run_fraction = num_steps(cfg, Side.GENERATOR, step) / num_steps(cfg, Side.GENERATOR, cfg.steps)
    result = pair.generator.step(
        solved,
        temperature=cfg.sampling.temperature,
        run_fraction=run_fraction,
        has_step_credit=not outcome.is_one_sided,
        seed=derive(cfg.seed, "update", step),
        clock=pair.session.clock,
    )
    fraction = pair.generator.algo.step_credit_fraction(run_fraction)
    num_judged = [len(rollout.judged_steps) for group in solved for rollout in group]
    step_metrics = {
        "steps/alpha": 0.0 if outcome.is_one_sided else fraction,
        "steps/guarded": float(outcome.is_one_sided),
        "steps/judged": fmean(num > 0 for num in num_judged),
        "steps/count": fmean(num_judged),
    }
    metrics = (
        measure_rollouts(solved) | result.metrics | step_metrics | verifier_metrics(outcome, steps)
    )
    return Turn(groups=[*solved, *judged], metrics=metrics, is_stuck=result.is_empty)


def train_verifier(pair: TangoPair, step: int) -> Turn:
    """Reward agreement with the truth and the format; solutions of the rarer kind weigh more."""
    cfg, verifier = pair.session.cfg, pair.verifier
    solved = pair.solve(step, 1)
    judged = verifier.judge(step, solved, cfg.verifier_group_size)
    judged = cfg.verifier_reward.apply(judged)
    if not judged:
        return Turn(groups=solved, metrics={"step/empty": 1.0}, is_stuck=True)
    result = verifier.trainer.step(
        judged,
        temperature=cfg.verifier_sampling.temperature,
        advantage_factors=verifier.weigh_groups(judged, cfg.balance),
        seed=derive(cfg.seed, "update", step),
        clock=pair.session.clock,
    )
    outcome, steps = verifier.measure_agreement(solved, judged)
    counts = read_numbers(verifier.class_counts.value)
    figures = measure_rollouts(judged) | result.metrics
    metrics = {f"verifier_{name}": value for name, value in figures.items()}
    metrics |= verifier_metrics(outcome, steps) | {
        "verifier/count_correct": counts["correct"],
        "verifier/count_wrong": counts["wrong"],
        "step/empty": result.metrics["step/empty"],
    }
    return Turn(groups=[*solved, *judged], metrics=metrics, is_stuck=is_stuck(result, outcome))


def is_stuck(result: StepResult, outcome: Agreement) -> bool:
    """Whether a verifier learned nothing and is right no more than half of the time."""
    return result.is_empty and outcome.accuracy <= 0.5


def side_at(cfg: TangoConfig, step: int) -> Side:
    """Return whose step it is: the verifier's during warm-up, then both in turns.

    >>> models = dict.fromkeys(("model", "verifier"), ModelSource(path="m"))
    >>> cfg = TangoConfig(task="game24", warmup=2, generator_turns=2, **models)
    >>> "".join(side_at(cfg, step)[0] for step in range(8))
    'vvggvggv'
    """
    turn = (step - cfg.warmup) % (cfg.generator_turns + cfg.verifier_turns)
    return Side.GENERATOR if step >= cfg.warmup and turn < cfg.generator_turns else Side.VERIFIER


def num_steps(cfg: TangoConfig, side: Side, before: int) -> int:
    """Count the steps of one side before a step."""
    return sum(side_at(cfg, step) is side for step in range(before))
