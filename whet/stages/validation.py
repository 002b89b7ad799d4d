"""Validation during training, on held-out problems, with the same random numbers every time."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from pydantic import Field

from whet.config import CONSTANT, Config
from whet.engine.base import SamplingParams
from whet.evals.summary import EvalSummary, pass_rates, summarise
from whet.grading.grader import Grader
from whet.rng import derive
from whet.rollout.collect import ChatEngine, sample_and_grade
from whet.tasks.base import keep_solvable
from whet.track.metrics import split_by_task_and_source
from whet.types import Group, Metrics, Problem, Split


class ValidationConfig(Config):
    """Validation during training, which selects the checkpoint that becomes the result."""

    every: int = Field(default=0, ge=0)
    """Steps between validations, the first before training; 0 validates after the last step
    only."""
    split: Split = Field(default="dev", json_schema_extra=CONSTANT)
    """The split to validate on, without problems that are known to have no solution."""
    samples: int = Field(default=4, ge=1)
    """Responses per problem; the result is their mean, with an interval over problems."""
    temperature: float = Field(default=1.0, ge=0.0)
    """Sampling temperature of validation, in place of `sampling.temperature`; 0 is greedy."""

    def is_due(self, step: int, steps: int) -> bool:
        """Whether to validate after a step, of 1 to `steps`."""
        return step == steps or (self.every > 0 and step % self.every == 0)


class Validator:
    """Validates a policy on held-out problems, with the same random numbers every time."""

    def __init__(
        self,
        cfg: ValidationConfig,
        grader: Grader,
        problems: Sequence[Problem],
        sampling: SamplingParams,
        *,
        seed: int,
    ) -> None:
        self.cfg = cfg
        self.grader = grader
        self.seed = derive(seed, "exam")  # another name would sample other responses
        self.sampling = sampling.model_copy(update={"temperature": cfg.temperature})
        self.problems = keep_solvable(problems)

    @property
    def is_due_first(self) -> bool:
        """Whether to validate before the first step; never without problems."""
        return bool(self.problems) and self.cfg.every > 0

    def steps_due(self, steps: int) -> frozenset[int]:
        """Return which of the steps 1 to `steps` to validate after; none without problems."""
        if not self.problems:
            return frozenset()
        return frozenset(step for step in range(1, steps + 1) if self.cfg.is_due(step, steps))

    def validate(self, chat_engine: ChatEngine) -> tuple[EvalSummary, list[Group]]:
        """Sample and grade responses to all problems; return the results and the responses."""
        groups = sample_and_grade(
            chat_engine,
            self.grader,
            self.problems,
            self.sampling,
            samples=self.cfg.samples,
            seed=self.seed,
            label="validate",
        )
        summary = summarise(groups, ks=(1, self.cfg.samples))
        return replace(summary, rates=pass_rates(groups)), groups


def metrics_by_task_and_source(groups: Sequence[Group]) -> Metrics:
    """Compute the results of a validation for each task and source, if there are several."""
    metrics = {}
    for label, subset in split_by_task_and_source(groups).items():
        rates = pass_rates(subset)
        if rates:
            metrics[f"validation/pass@1/{label}"] = fmean(rates.values())
        lengths = [len(rollout.completion.tokens) for group in subset for rollout in group]
        metrics[f"validation/tokens/{label}"] = fmean(lengths)
    return metrics
