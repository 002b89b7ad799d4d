"""Reinforcement learning on verifiable problems: sample, score, reward, credit, update, publish."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from whet.algos.algorithm import compares_responses, needs_critic
from whet.algos.settings import AlgoConfig, resolve_preset
from whet.data.problem_sampler import CurriculumConfig, MixedCurriculum, ProblemSampler
from whet.engine.base import SamplingParams
from whet.grading.check_task import precheck
from whet.rewards.spec import RewardSpec
from whet.rng import derive
from whet.rollout.collect import GroupRequest, collect_groups
from whet.rollout.step_groups import (
    DynamicSamplingConfig,
    GroupSource,
    OverlappedQueue,
    RolloutQueue,
    join_groups,
)
from whet.rollout.stream import StreamQueue
from whet.rollout.stream_plan import STREAM_EVENT, StreamPlan, read_stream
from whet.stages.guard import CollapseGuard, GuardConfig
from whet.stages.held_out import load_training_problems
from whet.stages.stage import ModelWork, OnPolicyConfig, check_served_reference
from whet.stages.training import (
    EmptyStepLimit,
    Session,
    check_exactness,
    finish_training,
    open_loop,
    open_session,
    vary_problem,
)
from whet.store.run import RunStore
from whet.tasks.base import Task
from whet.tasks.task_config import build_task
from whet.track.metrics import Clock, measure_rollouts
from whet.train.critic import CriticConfig
from whet.train.rl_step import RLTrainer
from whet.types import Group, Json, Metrics, Problem

COLUMNS = {
    "reward/mean": "reward",
    "score/correct": "correct",
    "length/mean": "tokens",
    "length/unfinished": "cut",
    "policy/entropy": "entropy",
    "policy/kl": "kl",
    "groups/equal": "equal",
}


class RLConfig(OnPolicyConfig):
    """Settings of RL: policy, problems, algorithm, steps."""

    needs_verdicts = True
    smoke_limits: ClassVar[Mapping[str, int]] = {
        "lag": 1,
        "dynamic_sampling.first_samples": 2,
        "dynamic_sampling.max_extra_problems": 2,
        "critic.warmup_steps": 1,
    }

    kind: Literal["rl"] = "rl"
    group_size: int = Field(default=8, ge=1)
    """Responses to each problem; 1 is for algorithms that do not compare responses, such as ppo."""
    final_temperature: float | None = Field(default=None, gt=0.0)
    """Temperature of the last step, reached along an exponential path; none keeps it constant."""
    dynamic_sampling: DynamicSamplingConfig = DynamicSamplingConfig()
    """Which responses a step samples, and which of them it trains on."""
    curriculum: CurriculumConfig = MixedCurriculum()
    """The order of the problems."""
    lag: int = Field(default=0, ge=0)
    """Steps between sampling a batch and training on it; algo.importance_correction
    corrects for the updates in between."""
    stream: bool = False
    """Train on groups as they finish, while weights change during sampling; a group whose oldest
    token is more than `lag` steps old is dropped, and its problem is sampled again."""
    reward: RewardSpec = RewardSpec()
    """How scores become rewards: a table, or the name or file of a spec."""
    algo: AlgoConfig = AlgoConfig()
    """How rewards become gradients."""
    critic: CriticConfig = CriticConfig()
    """How the critic learns, for algorithms that need one, such as ppo."""
    guard: GuardConfig = GuardConfig()
    """The response to a collapse of the policy."""

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> "RLConfig":
        first, name = self.dynamic_sampling.first_samples, self.algo.name
        if first is not None and first >= self.group_size:
            raise ValueError(
                f"dynamic_sampling.first_samples = {first} should be below group_size = "
                f"{self.group_size}"
            )
        is_compared = compares_responses(resolve_preset(self.algo))
        if self.group_size == 1 and (
            is_compared or self.dynamic_sampling.max_extra_problems is not None
        ):
            who = f'algo.name = "{name}"' if is_compared else "dynamic_sampling.max_extra_problems"
            raise ValueError(
                f"group_size = 1 leaves nothing to compare, and {who} compares the responses to a "
                "problem: set it to 2 or more"
            )
        self.guard.refuse_without(self.validation)
        for temperature in (self.sampling.temperature, self.final_temperature):
            if temperature is not None:
                check_served_reference("train", self.train, temperature)
        if self.sampling.temperature == 0:
            raise ValueError(
                "sampling.temperature = 0 gives all responses to a problem the same tokens, so "
                "there is nothing to compare: set it above 0"
            )
        if resolve_preset(self.algo).step_rule is not None:
            raise ValueError(
                f'algo.name = "{name}" credits judged steps, and rl has no judge: use grpo or rloo'
            )
        if self.stream:
            self._refuse_whole_step_settings()
        return self

    def _refuse_whole_step_settings(self) -> None:
        """Refuse settings that decide on a whole step: with `stream`, a step trains groups planned
        for several."""
        sampling = self.dynamic_sampling
        if sampling.max_extra_problems is not None or sampling.first_samples is not None:
            raise ValueError(
                "dynamic_sampling.max_extra_problems and dynamic_sampling.first_samples decide on "
                "a step as a whole, and stream = true trains on groups as they finish: leave them "
                "out"
            )
        steps = range(self.steps)
        first, last = self.sampling.temperature, self.final_temperature
        if len({self.curriculum.temperature(s, self.steps, first, last) for s in steps}) > 1:
            raise ValueError(
                "stream = true mixes groups of several steps in one, which need one temperature: "
                "leave out final_temperature and the temperature of curriculum.stages"
            )

    def run_in(self, run: RunStore) -> None:
        rl(self, run)

    @property
    def responses_per_problem(self) -> int:
        return self.group_size

    @property
    def reward_specs(self) -> dict[str, tuple[RewardSpec, Task | None]]:
        return {"reward": (self.reward, None)}

    @property
    def has_reference(self) -> bool:
        return self.algo.kl_coef > 0

    def list_work(self) -> list[ModelWork]:
        return [replace(super().list_work()[0], algo=self.algo, lag=self.lag)]

    @property
    def schedules(self) -> list[str]:
        more = {
            f"final_temperature = {self.final_temperature}": self.final_temperature is not None,
            'curriculum.kind = "staged"': self.curriculum.kind == "staged",
            f"lag = {self.lag}": self.lag > 0,
        }
        return [*super().schedules, *(name for name, is_set in more.items() if is_set)]

    def without_effect(self) -> dict[str, str]:
        unused = super().without_effect() | {
            "reward.step_weight": "rl has no verifier to judge steps; tango has",
            "critic": f'algo.name = "{self.algo.name}" needs no critic; ppo does',
        }
        if needs_critic(resolve_preset(self.algo)):
            del unused["critic"]
        if self.lag == 0:
            unused["stream"] = "lag = 0 trains only on responses of the current weights"
        elif not self.engine.can_overlap:
            unused["stream"] = (
                "the engine does not have its own weights and devices to sample with while the "
                'learner trains; engine.kind = "fleet" and "vllm" do, unless collocated'
            )
        if self.curriculum.sets_temperature:
            unused["final_temperature"] = "every stage of the curriculum has its own temperature"
        return unused


def rl(cfg: RLConfig, run: RunStore) -> None:
    """Improve one policy: sample groups, and make the better responses of each more likely."""
    task = build_task(cfg.task)
    problems = load_training_problems(cfg, task)
    precheck(task, problems, cfg.grading)
    session = open_session(cfg, run, task=task)
    problem_sampler = build_problem_sampler(cfg, session.filter_trainable(problems))
    policy = session.policy
    trainer = RLTrainer(
        policy,
        check_exactness(cfg.algo, policy, run, lag=cfg.lag),
        cfg.train,
        max_tokens=cfg.sampling.max_tokens,
        steps=cfg.steps,
        critic=cfg.critic,
    )
    queue = build_queue(session, problem_sampler)
    guard = CollapseGuard(cfg.guard, run, trainer.learner, cfg.validation, on_restore=queue.drop)
    empty_limit = EmptyStepLimit()
    manager = session.build_checkpoint_manager(
        trainer.learner,
        stateful={
            "feed": problem_sampler,  # the key in stored checkpoints
            "batches": queue,
            "empty_steps": empty_limit,
            "baseline": trainer.baseline,
        },
        guard=guard,
        critic=trainer.critic,
    )
    with session.grader, open_loop(session, manager, COLUMNS) as loop:
        for step in loop:
            policy.publish(step)
            groups = queue.take(step)
            result = trainer.step(
                groups,
                dynamic_sampling=cfg.dynamic_sampling,
                temperature=sampling_at(cfg, step).temperature,
                seed=derive(cfg.seed, "update", step),
                clock=session.clock,
            )
            run.write_rollouts("train", step + 1, groups)
            queue.join()
            problem_sampler.observe(groups)
            metrics = step_metrics(cfg, groups, step) | result.metrics | queue.metrics()
            loop.log(step, metrics | problem_sampler.metrics(step))
            empty_limit.check(result.is_empty)
            loop.end_step(step)
    finish_training(run, manager, **count_stream_groups(cfg, run))


def build_queue(session: Session[RLConfig], problem_sampler: ProblemSampler) -> GroupSource:
    """Build the queue of batches; with a lag, an engine with its own weights fills it while the
    learner trains, batch by batch or as a stream of groups."""
    cfg = session.cfg
    if cfg.stream:
        return build_stream_queue(session, problem_sampler)
    sampling_session = session
    if cfg.lag > 0 and cfg.engine.can_overlap:
        sampling_session = replace(session, clock=Clock())

    def sample(step: int) -> list[Group]:
        return sample_step(sampling_session, problem_sampler, step)

    if sampling_session is session:
        return RolloutQueue(sample, steps=cfg.steps, lag=cfg.lag)
    return OverlappedQueue(
        sample, steps=cfg.steps, lag=cfg.lag, clock=session.clock, background=sampling_session.clock
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamedRL:
    """The recipe of a stream for RL: the number of a group in the plan tells its step."""

    session: Session[RLConfig]
    problem_sampler: ProblemSampler

    def take_problems(self, step: int) -> list[Problem]:
        return self.problem_sampler.take(self.session.cfg.problems_per_step, step)

    def build_request(self, number: int, problem: Problem) -> GroupRequest:
        step = number // self.session.cfg.problems_per_step
        return build_request(self.session, step, number, problem)

    def reward(self, group: Group) -> Group:
        cfg = self.session.cfg
        return cfg.reward.apply([group])[0]

    def is_pause(self, step: int) -> bool:
        cfg = self.session.cfg
        return cfg.validation.is_due(step, cfg.steps)


def build_stream_queue(session: Session[RLConfig], problem_sampler: ProblemSampler) -> StreamQueue:
    """Build the stream of groups."""
    cfg = session.cfg
    plan = StreamPlan(
        recipe=StreamedRL(session=session, problem_sampler=problem_sampler),
        steps=cfg.steps,
        per_step=cfg.problems_per_step,
        lag=cfg.lag,
        seed=derive(cfg.seed, "rollout"),
        problems={problem.id: problem for problem in problem_sampler.problems},
    )
    return StreamQueue(
        plan,
        session.policy.chat_engine,
        session.grader,
        clock=session.clock,
        log=lambda row: session.run.log_event(STREAM_EVENT, **row.to_json()),
    )


def count_stream_groups(cfg: RLConfig, run: RunStore) -> dict[str, Json]:
    """Count the groups of a stream for the summary, by its ledger; nothing without a stream."""
    if not cfg.stream:
        return {}
    ledger = read_stream(run.events())
    return {
        "stream": {
            "planned": cfg.steps * cfg.problems_per_step,
            "trained": len(ledger.trained),
            "trained_twice": len(ledger.twice),
            "dropped": ledger.num_dropped,
        }
    }


def build_problem_sampler(cfg: RLConfig, problems: Sequence[Problem]) -> ProblemSampler:
    """Put the problems in the order of the curriculum."""
    return ProblemSampler(
        problems,
        cfg.curriculum,
        seed=derive(cfg.seed, "feed"),  # another name would draw other problems
        steps=cfg.steps,
        per_step=cfg.problems_per_step,
    )


def sample_step(
    session: Session[RLConfig], problem_sampler: ProblemSampler, step: int
) -> list[Group]:
    """Sample a step: take and vary problems, sample responses, score and reward them.

    `cfg.dynamic_sampling` says how many more problems to take, and which groups get more responses.
    """
    cfg = session.cfg
    groups: list[Group] = []
    while count := cfg.dynamic_sampling.num_problems_needed(groups, cfg.problems_per_step):
        requests = [
            build_request(session, step, index, problem)
            for index, problem in enumerate(problem_sampler.take(count, step), start=len(groups))
        ]
        first = sample_groups(session, step, cfg.dynamic_sampling.first_requests(requests))
        later = sample_groups(session, step, cfg.dynamic_sampling.later_requests(requests, first))
        groups += join_groups(first, later)
    return groups


def sample_groups(
    session: Session[RLConfig], step: int, requests: Sequence[GroupRequest]
) -> list[Group]:
    """Sample, score and reward the responses that are requested."""
    if not requests:
        return []
    groups = collect_groups(
        session.policy.chat_engine,
        session.grader,
        requests,
        seed=derive(session.cfg.seed, "rollout", step),
        clock=session.clock,
    )
    return session.cfg.reward.apply(groups)


def step_metrics(cfg: RLConfig, groups: list[Group], step: int) -> Metrics:
    """Measure the responses of a step, and how they were sampled."""
    gathered = cfg.dynamic_sampling.metrics(
        groups, step, problems=cfg.problems_per_step, samples=cfg.group_size
    )
    temperature = sampling_at(cfg, step).temperature
    measured = measure_rollouts(cfg.dynamic_sampling.first_responses(groups))
    return measured | gathered | {"sampling/temperature": temperature}


def sampling_at(cfg: RLConfig, step: int) -> SamplingParams:
    """Return the sampling settings of a step; its log-probabilities are at the same temperature."""
    temperature = cfg.curriculum.temperature(
        step, cfg.steps, cfg.sampling.temperature, cfg.final_temperature
    )
    return cfg.sampling.model_copy(update={"temperature": temperature})


def build_request(
    session: Session[RLConfig], step: int, index: int, problem: Problem
) -> GroupRequest:
    """Build the request for a problem: its wording, temperature and token limit."""
    cfg = session.cfg
    limit = cfg.curriculum.max_tokens(problem, step, cfg.steps, cfg.sampling.max_tokens)
    sampling = sampling_at(cfg, step).model_copy(update={"max_tokens": limit})
    varied = vary_problem(session, problem, derive(cfg.seed, "vary", step, index))
    return GroupRequest(
        index=index, problem=varied, sampling=sampling, sample_ids=range(cfg.group_size)
    )
