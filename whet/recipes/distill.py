"""On-policy distillation: the policy answers, and a teacher gives tokens log-probabilities."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from whet.algos.losses import token_mean
from whet.algos.objectives import distill_objective
from whet.data.problem_sampler import EpochSampler
from whet.endpoints.client import check_url
from whet.models.source import ModelSource
from whet.reports.report_data import Unit
from whet.rng import derive
from whet.rollout.collect import sample_and_grade
from whet.stages.held_out import load_training_problems
from whet.stages.stage import NEEDS_TRAINED_MODEL, ModelWork, OnPolicyConfig
from whet.stages.training import Session, finish_training, open_loop, open_session, vary_problems
from whet.store.run import RunStore
from whet.track.metrics import measure_rollouts
from whet.train.frozen_models import load_teacher
from whet.train.learner import add_logprobs, set_loss_weights
from whet.train.rl_step import to_example
from whet.types import Group, Metrics, Problem

COLUMNS = {
    "distill/kl": "kl",
    "score/correct": "correct",
    "length/mean": "tokens",
    "length/unfinished": "cut",
    "policy/entropy": "entropy",
    "train/grad_norm": "gradient",
}


class DistillConfig(OnPolicyConfig):
    """Which policy learns from which teacher, on which problems."""

    curves: ClassVar[Mapping[str, tuple[str, Unit]]] = {
        "distill/kl": ("KL to the teacher", Unit.NUMBER)
    }

    kind: Literal["distill"] = "distill"
    samples: int = Field(default=4, ge=1)
    """Responses to each problem."""
    teacher: ModelSource
    """A model with the same tokenizer, which is not trained."""
    teacher_url: str | None = None
    """A vLLM server of the teacher, such as `http://localhost:8000`, which then computes its
    log-probabilities; only the tokenizer of `teacher` is then read; none loads the teacher here."""

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> "DistillConfig":
        if self.teacher_url is not None:
            check_url(self.teacher_url)
            if self.sampling.temperature != 1:
                raise ValueError(
                    "teacher_url gives log-probabilities at temperature 1: set "
                    f"sampling.temperature = {self.sampling.temperature:g} to 1, or load the "
                    "teacher here"
                )
        return self

    def run_in(self, run: RunStore) -> None:
        distill(self, run)

    @property
    def responses_per_problem(self) -> int:
        return self.samples

    def list_work(self) -> list[ModelWork]:
        return [replace(super().list_work()[0], teacher=self.teacher)]

    def without_effect(self) -> dict[str, str]:
        return {
            "model.new": NEEDS_TRAINED_MODEL,
            "teacher.new": NEEDS_TRAINED_MODEL,
            "teacher.lora": "the teacher is not trained",
            "train.reference_url": "distill has no reference; teacher_url names a served teacher",
        }


def distill(cfg: DistillConfig, run: RunStore) -> None:
    """Move a policy towards its teacher on the policy's own responses: sample, logprobs, update."""
    session = open_session(cfg, run)
    policy, clock = session.policy, session.clock
    teacher = load_teacher(cfg.teacher, policy, cfg.train, url=cfg.teacher_url)
    learner = policy.build_learner(cfg.train, steps=cfg.steps)
    problems = session.filter_trainable(load_training_problems(cfg, session.task))
    # Other names would draw other problems.
    sampler = EpochSampler(problems, derive(cfg.seed, "feed"), name="sft")
    objective = distill_objective()
    manager = session.build_checkpoint_manager(learner)
    with session.grader, open_loop(session, manager, COLUMNS) as loop:
        for step in loop:
            policy.publish(step)
            groups = sample_responses(session, sampler, step)
            rollouts = [rollout for group in groups for rollout in group]
            examples = [to_example(rollout, cfg.sampling.temperature) for rollout in rollouts]
            learner.reserve_memory(examples)
            with clock.measure("logprobs"):
                examples = add_logprobs(examples, "ref_logprob_M", teacher)
            with clock.measure("update"):
                metrics = learner.update(set_loss_weights(examples, token_mean), objective)
            run.write_rollouts("train", step + 1, groups)
            loop.log(step, measure_unrewarded(groups) | metrics)
            loop.end_step(step)
    finish_training(run, manager)


def sample_responses(
    session: Session[DistillConfig], sampler: EpochSampler[Problem], step: int
) -> list[Group]:
    """Take and vary the problems of a step, and sample responses of the policy."""
    cfg = session.cfg
    return sample_and_grade(
        session.policy.chat_engine,
        session.grader,
        vary_problems(session, sampler.batch_at(step, cfg.problems_per_step), step),
        cfg.sampling,
        samples=cfg.samples,
        seed=derive(cfg.seed, "rollout", step),
        clock=session.clock,
    )


def measure_unrewarded(groups: list[Group]) -> Metrics:
    """Measure responses that have no reward."""
    metrics = measure_rollouts(groups)
    return {name: metrics[name] for name in metrics if name.startswith(("score/", "length/"))}
