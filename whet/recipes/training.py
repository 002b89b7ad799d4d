"""What recipes that train share around their steps: where to start, when to examine, what to keep,
how to end."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import Field

from whet.config import Config
from whet.errors import ConfigError
from whet.evals.summary import EvalSummary
from whet.evals.validation import Examiner
from whet.recipes.guard import Guard
from whet.store.checkpoints import Checkpoints
from whet.store.run import RunStore
from whet.track.progress import console, say
from whet.train.checkpoint import Trained, load_training, save_training
from whet.train.critic import Critic
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

    @property
    def shown(self) -> float | None:
        """Its value; None where there has been none."""
        return None if self.step < 0 else self.value


class Part(Protocol):
    """Something of a run whose state belongs to its checkpoints: files of its own, and what JSON
    can say."""

    def save(self, folder: Path) -> Json: ...

    def load(self, folder: Path, state: Json) -> None: ...


class Keeper:
    """Resumes, examines, saves. After `step` steps everything a later step depends on is in one
    checkpoint.

    `others` are models that train beside the policy, `parts` other things whose state is kept, by
    name. The guard is one of them.
    """

    def __init__(
        self,
        cfg: SaveConfig,
        run: RunStore,
        policy: Policy,
        learner: Learner,
        examiner: Examiner,
        others: Mapping[str, Trained] | None = None,
        *,
        parts: Mapping[str, Part] | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.cfg = cfg
        self.run = run
        self.policy = policy
        self.learner = learner
        self.examiner = examiner
        self.others = others
        self.guard = guard
        self.parts = {**(parts or {}), **({"guard": guard} if guard is not None else {})}
        self.checkpoints = Checkpoints(run.checkpoint_folder, keep_last=cfg.keep, warn=say)
        self.best = Best()
        if guard is not None and guard.is_on and not examiner.problems:
            raise ConfigError(
                f"guard.restores = {guard.cfg.restores} needs exams to watch, and the split {examiner.cfg.split} has "
                "no problems to ask"
            )

    def resume(self) -> tuple[int, dict[str, Json]]:
        """Take back the newest sound checkpoint; the step to go on with and its state, or 0 and
        nothing."""
        found = self.checkpoints.latest()
        if found is None:
            self.run.rewind(-1)
            return 0, {}
        step, folder = found
        state = load_training(folder, self.policy, self.learner, self.others)
        best = state["best"]
        assert isinstance(best, list), "a checkpoint holds the best step and its value"
        self.best = Best(int(str(best[0])), float(str(best[1])))
        for name, part in self.parts.items():
            part.load(folder, state.get(name))
        if self.best.step in self.checkpoints.steps():
            self.checkpoints.mark_best(self.best.step)
        self.run.rewind(step)
        console.print(f"going on from step {step:,}")
        return step, state

    def before(self, step: int, state: dict[str, Json]) -> None:
        """Before the first step: with a guard, examine and save, so that there is something to go
        back to."""
        if self.guard is not None and self.guard.is_on and self.best.step < 0 and step == 0:
            self._examine(0)
            self._save(0, state)

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
        mark = ""
        if value >= self.best.value:  # of equals the later has seen more
            self.best = Best(step, value)
            mark = ", the best so far"
        console.print(
            f"[bold]exam[/] after step {step:,}: {_percent(summary)} of dev problems solved{mark}"
        )
        found = {"exam/pass@1": value, "exam/tokens": summary.tokens.mean}
        if self.guard is not None:
            found |= self.guard.watch(step, summary.pass_at[1], self.best.step, self._go_back)
        self.run.log_metrics(step, found)

    def _go_back(self) -> bool:
        """Take weights and optimisers of the best exam, and go on with the schedule; False where
        they are gone.

        A critic goes back too, as it would else value a policy that is no more; one that was in its
        head start then has it again.
        """
        found = self.checkpoints.best()
        if found is None:
            return False
        folder = found[1]
        critics = {name: part for name, part in self.parts.items() if isinstance(part, Critic)}
        others = [other.learner for other in (self.others or {}).values()]
        learners: list[Learner | Critic] = [self.learner, *others, *critics.values()]
        counts = [learner.num_steps for learner in learners]
        state = load_training(folder, self.policy, self.learner, self.others)
        for name, critic in critics.items():
            critic.load(folder, state.get(name))
        for learner, count in zip(learners, counts, strict=True):
            learner.num_steps = count
        return True

    def _save(self, step: int, state: dict[str, Json]) -> None:
        whole: dict[str, Json] = {**state, "best": [self.best.step, self.best.value]}

        def write(folder: Path) -> None:
            parts = {name: part.save(folder) for name, part in self.parts.items()}
            save_training(folder, self.policy, self.learner, {**whole, **parts}, self.others)

        self.checkpoints.save(step, write)
        if self.best.step == step:
            self.checkpoints.mark_best(step)

    def result(self) -> tuple[int, Path]:
        """The checkpoint to hand on: the best by exam."""
        found = self.checkpoints.best() or self.checkpoints.latest()
        assert found is not None, "a run that ended has a checkpoint"
        return found


def numbers(value: Json) -> dict[str, float]:
    """Read numbers by name from the state of a checkpoint; none where nothing was kept."""
    return (
        {key: float(str(number)) for key, number in value.items()}
        if isinstance(value, dict)
        else {}
    )


def _percent(summary: EvalSummary) -> str:
    estimate = summary.pass_at[1]
    return f"{100 * estimate.mean:.1f} % [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"
