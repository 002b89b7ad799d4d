"""The guard against collapse: a run whose validation falls goes back to its best weights."""

from collections.abc import Callable
from pathlib import Path

from pydantic import Field

from whet.config import Config
from whet.errors import DataError
from whet.evals.stats import Estimate
from whet.evals.summary import EvalSummary
from whet.stages.validation import ValidationConfig
from whet.store.run import RunStore
from whet.track.progress import console
from whet.train.learner import Learner
from whet.types import Json, Metrics


class GuardConfig(Config):
    """The response to a collapse of the policy, which validation shows."""

    restores: int = Field(default=0, ge=0)
    """How often a run may go back to its best validation; 0 disables the guard."""
    lr_factor: float = Field(default=0.5, gt=0.0, lt=1.0)
    """Multiplies the learning rate each time."""

    def without_effect(self) -> dict[str, str]:
        return {} if self.restores else {"lr_factor": "guard.restores is 0"}

    def refuse_without(self, validation: ValidationConfig) -> None:
        """Refuse a guard that has no validation to watch."""
        if self.restores > 0 and validation.every == 0:
            raise ValueError(
                f"guard.restores = {self.restores} needs validation to watch: "
                "set validation.every to a few steps"
            )


class CollapseGuard:
    """Compares every validation with the best. It is a collapse if its 95 % interval lies entirely
    below that of the best."""

    def __init__(
        self,
        cfg: GuardConfig,
        run: RunStore,
        learner: Learner,
        validation: ValidationConfig,
        *,
        on_restore: Callable[[], None] = lambda: None,
    ) -> None:
        """Lower the rate of `learner` after a restore, and call `on_restore`."""
        self.cfg = cfg
        self.run = run
        self.learner = learner
        self.on_restore = on_restore
        self.num_restores = 0
        cfg.refuse_without(validation)

    @property
    def is_on(self) -> bool:
        """Whether the settings allow any restore."""
        return self.cfg.restores > 0

    def watch(
        self, step: int, now: Estimate, best: int, restore_best: Callable[[], bool]
    ) -> Metrics:
        """Check the validation after `step`; after a collapse, go back to step `best`."""
        if not self.is_on:
            return {}
        if self.num_restores >= self.cfg.restores or best < 0:
            return self._metrics()
        before = EvalSummary.from_json(self.run.evals()[best]).pass_at[1]
        if is_collapse(before, now) and restore_best():
            rate = self._slow_down(self.num_restores + 1)
            self.on_restore()
            self.run.log_event(
                "restore",
                step=step,
                best=best,
                validation=now.mean,
                best_validation=before.mean,
                lr=rate,
            )
            console.print(
                f"[bold]collapse[/] after step {step:,}: validation fell from "
                f"{100 * before.mean:.1f} % to {100 * now.mean:.1f} %, beyond its "
                f"noise; back to the weights of step {best:,} at train.lr {rate:.3g}"
            )
        return self._metrics()

    def save(self, folder: Path) -> Json:
        return self.num_restores

    def load(self, folder: Path, state: Json) -> None:
        if not isinstance(state, int):
            raise DataError(
                f"checkpoint {folder} does not record how often the run went back: start it again"
            )
        self._slow_down(state)

    def _metrics(self) -> Metrics:
        return {"guard/restores": float(self.num_restores)}

    def _slow_down(self, num_restores: int) -> float:
        """Lower the learning rate; return the new peak."""
        self.num_restores = num_restores
        return self.learner.scale_lr(self.cfg.lr_factor**num_restores)


def is_collapse(best: Estimate, now: Estimate) -> bool:
    """Whether two validations differ by more than noise: their intervals do not overlap.

    >>> best = Estimate(mean=0.5, low=0.4, high=0.6, count=100)
    >>> is_collapse(best, Estimate(mean=0.3, low=0.2, high=0.41, count=100))
    False
    >>> is_collapse(best, Estimate(mean=0.2, low=0.1, high=0.3, count=100))
    True
    """
    return now.high < best.low
