"""What keeps a run from going on in vain: a guard against collapse, and an end to steps that teach
nothing."""

from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import Field

from whet.config import Config
from whet.errors import ConfigError, DataError, TrainError
from whet.evals.stats import Estimate
from whet.evals.summary import EvalSummary
from whet.evals.validation import ExamConfig
from whet.store.run import RunStore
from whet.track.progress import console
from whet.train.learner import Learner
from whet.types import Json

MAX_EMPTY_STEPS = 10
"""Steps in a row that may teach nothing; then the run stops, since waiting longer rarely helps."""


class GuardConfig(Config):
    """What to do when a policy collapses. The probe is the exam, which is also held before the
    first step."""

    restores: int = Field(default=0, ge=0)
    """How often a run may go back to its best exam; 0 is no guard."""
    lr_factor: float = Field(default=0.5, gt=0.0, lt=1.0)
    """What the learning rate is multiplied by each time."""


class Guard:
    """Compares every exam with the best. A fall is one whose 95 % interval lies below that of the
    best."""

    def __init__(
        self,
        cfg: GuardConfig,
        run: RunStore,
        learner: Learner,
        exam: ExamConfig,
        *,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Watch over a learner; `then` is called after going back."""
        self.cfg = cfg
        self.run = run
        self.learner = learner
        self.train = learner.cfg
        self.then = then
        self.num_restores = 0
        if self.is_on and exam.every == 0:
            raise ConfigError(
                f"guard.restores = {cfg.restores} needs exams to watch: set exam.every to a few steps"
            )

    @property
    def is_on(self) -> bool:
        return self.cfg.restores > 0

    def watch(
        self, step: int, now: Estimate, best: int, go_back: Callable[[], bool]
    ) -> dict[str, float]:
        """Look at the exam after `step`; where it has fallen, `go_back` takes the weights of step
        `best`."""
        if not self.is_on:
            return {}
        if (
            self.num_restores < self.cfg.restores
            and best >= 0
            and is_fall(self._exam(best), now)
            and go_back()
        ):
            self._slow_down(self.num_restores + 1)
            self.then()
            rate = self.learner.cfg.lr
            self.run.ledger(
                "restore",
                step=step,
                best=best,
                exam=now.mean,
                best_exam=self._exam(best).mean,
                lr=rate,
            )
            console.print(
                f"[bold]collapse[/] after step {step:,}: the exam fell from {100 * self._exam(best).mean:.1f} % to "
                f"{100 * now.mean:.1f} %, beyond its noise; back to the weights of step {best:,} at train.lr {rate:.3g}"
            )
        return {"guard/restores": float(self.num_restores)}

    def save(self, folder: Path) -> Json:
        return self.num_restores

    def load(self, folder: Path, state: Json) -> None:
        if not isinstance(state, int):
            raise DataError(
                f"checkpoint {folder} does not say how often the run went back: begin it again"
            )
        self._slow_down(state)

    def _exam(self, step: int) -> Estimate:
        return EvalSummary.from_json(self.run.evals()[step]).pass_at[1]

    def _slow_down(self, num_restores: int) -> None:
        self.num_restores = num_restores
        factor = self.cfg.lr_factor**num_restores
        rates = {"lr": self.train.lr * factor, "final_lr": self.train.final_lr * factor}
        self.learner.cfg = self.train.model_copy(update=rates)


class Patience:
    """Counts steps in a row without a gradient, and stops the run when there are too many."""

    def __init__(self) -> None:
        self.num_empty = 0

    def after(self, metrics: Mapping[str, float]) -> None:
        """Take note of a step."""
        self.num_empty = self.num_empty + 1 if metrics["step/empty"] else 0
        if self.num_empty >= MAX_EMPTY_STEPS:
            raise TrainError(
                f"{self.num_empty} steps in a row had no group with answers of different reward, so nothing is "
                "learned: start from a better model, or change reward.weights, group_size or sampling.temperature"
            )

    def save(self, folder: Path) -> Json:
        return self.num_empty

    def load(self, folder: Path, state: Json) -> None:
        if not isinstance(state, int):
            raise DataError(
                f"checkpoint {folder} does not say how many steps were empty: begin the run again"
            )
        self.num_empty = state


def is_fall(best: Estimate, now: Estimate) -> bool:
    """Whether two exams are further apart than their noise: their intervals do not meet.

    >>> best = Estimate(mean=0.5, low=0.4, high=0.6, count=100)
    >>> is_fall(best, Estimate(mean=0.3, low=0.2, high=0.41, count=100))
    False
    >>> is_fall(best, Estimate(mean=0.2, low=0.1, high=0.3, count=100))
    True
    """
    return now.high < best.low
