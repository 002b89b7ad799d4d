"""What SFT and RL share around their steps: where to start, when to examine, what to keep, how to end."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from whet.config import Config
from whet.evals.run import Examiner
from whet.evals.summary import EvalSummary
from whet.store.checkpoints import Checkpoints
from whet.store.run import RunStore
from whet.track.progress import console, say
from whet.train.checkpoint import load_training, save_training
from whet.train.learner import Learner
from whet.train.policy import Policy
from whet.types import Json


class SaveConfig(Config):
    """When to write checkpoints."""

    every: int = Field(default=50, ge=1)
    """Steps between two checkpoints; exams and the last step write one too."""
    keep: int = Field(default=2, ge=2)
    """Newest checkpoints kept, besides the best."""


@dataclass
class Best:
    """The best exam so far."""

    step: int = -1
    value: float = -1.0


class Keeper:
    """Resumes, examines, saves. After `step` steps everything a later step depends on is in one checkpoint."""

    def __init__(self, cfg: SaveConfig, run: RunStore, policy: Policy, learner: Learner, examiner: Examiner) -> None:
        self.cfg, self.run, self.policy, self.learner, self.examiner = cfg, run, policy, learner, examiner
        self.checkpoints = Checkpoints(run.checkpoint_folder, keep_last=cfg.keep, warn=say)
        self.best = Best()

    def resume(self) -> tuple[int, dict[str, Json]]:
        """Take back the newest sound checkpoint; the step to go on with and its state, or 0 and nothing."""
        found = self.checkpoints.latest()
        if found is None:
            self.run.rewind(0)
            return 0, {}
        step, folder = found
        state = load_training(folder, self.policy, self.learner)
        best = state["best"]
        assert isinstance(best, list), "a checkpoint holds the best step and its value"
        self.best = Best(int(str(best[0])), float(str(best[1])))
        if self.best.step in self.checkpoints.steps():
            self.checkpoints.mark_best(self.best.step)
        self.run.rewind(step)
        console.print(f"going on from step {step:,}")
        return step, state

    def after(self, step: int, steps: int, state: dict[str, Json]) -> None:
        """After `step` of `steps` are done: examine and save where due."""
        is_exam = self.examiner.is_due(step, steps)
        if is_exam:
            self._examine(step)
        if is_exam or step == steps or step % self.cfg.every == 0:
            self._save(step, state)

    def _examine(self, step: int) -> None:
        summary = self.examiner.examine(self.policy.player)
        value = summary.pass_at[1].mean
        self.run.write_eval(step, summary.to_json())
        self.run.log_metrics(step, {"exam/pass@1": value, "exam/tokens": summary.tokens.mean})
        mark = ""
        if value >= self.best.value:  # of equals the later has seen more
            self.best, mark = Best(step, value), ", the best so far"
        console.print(f"[bold]exam[/] after step {step:,}: {_percent(summary)} of dev problems solved{mark}")

    def _save(self, step: int, state: dict[str, Json]) -> None:
        whole: dict[str, Json] = {**state, "best": [self.best.step, self.best.value]}
        self.checkpoints.save(step, lambda folder: save_training(folder, self.policy, self.learner, whole))
        if self.best.step == step:
            self.checkpoints.mark_best(step)

    def result(self) -> tuple[int, Path]:
        """The checkpoint to hand on: the best by exam."""
        found = self.checkpoints.best() or self.checkpoints.latest()
        assert found is not None, "a run that ended has a checkpoint"
        return found


def _percent(summary: EvalSummary) -> str:
    estimate = summary.pass_at[1]
    return f"{100 * estimate.mean:.1f} % [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"
