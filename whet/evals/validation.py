"""Evaluate a policy on a split of problems, once or every few steps of training."""

from collections.abc import Sequence

from pydantic import Field

from whet.config import CONSTANT, Config
from whet.engine.base import Sampling
from whet.evals.summary import EvalSummary, summarise
from whet.grading.grader import Grader
from whet.rng import derive
from whet.rollout.collect import ChatEngine, collect
from whet.tasks.base import solvable
from whet.track.progress import bar
from whet.types import Group, Problem, Split


class ValidationConfig(Config):
    """Validation during training, which picks the checkpoint that is kept as the result."""

    every: int = Field(default=0, ge=0)
    """Steps between validations, the first before training; 0: after the last step only."""
    split: Split = Field(default="dev", json_schema_extra=CONSTANT)
    """The split to validate on, without problems that are known to have no solution."""
    samples: int = Field(default=4, ge=1)
    """Answers per problem; the result is their mean, with an interval over problems."""
    temperature: float = Field(default=1.0, ge=0.0)
    """Sampling temperature of validation, in place of `sampling.temperature`; 0 is greedy."""


class Validator:
    """Validate a policy on held-out problems, with the same random numbers every time."""

    def __init__(
        self,
        cfg: ValidationConfig,
        grader: Grader,
        problems: Sequence[Problem],
        sampling: Sampling,
        *,
        seed: int,
    ) -> None:
        self.cfg = cfg
        self.grader = grader
        self.seed = derive(seed, "exam")
        self.sampling = sampling.model_copy(update={"temperature": cfg.temperature})
        self.problems = solvable(problems)

    def is_due(self, step: int, steps: int) -> bool:
        """Tell whether to validate after `step` of `steps`; never without problems."""
        return bool(self.problems) and (
            step == steps or (self.cfg.every > 0 and step % self.cfg.every == 0)
        )

    def validate(self, chat_engine: ChatEngine) -> tuple[EvalSummary, list[Group]]:
        """Sample and grade answers to all problems; return the figures and the answers."""
        groups = evaluate(
            chat_engine,
            self.grader,
            self.problems,
            self.sampling,
            samples=self.cfg.samples,
            seed=self.seed,
        )
        return summarise(groups, ks=(1, self.cfg.samples)), groups


def evaluate(
    chat_engine: ChatEngine,
    grader: Grader,
    problems: Sequence[Problem],
    sampling: Sampling,
    *,
    samples: int,
    seed: int,
) -> list[Group]:
    """Sample and score answers to every problem, with a progress bar."""
    with bar("evaluate", len(problems) * samples) as advance:
        return collect(
            chat_engine, grader, problems, sampling, samples=samples, seed=seed, progress=advance
        )
