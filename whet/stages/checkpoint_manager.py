"""Checkpoints of a training run: when they are written, what they hold, and which is the result."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import NoReturn, Protocol

from pydantic import Field

from whet.config import Config
from whet.errors import ConfigError
from whet.models.load import defer_writes
from whet.stages.guard import CollapseGuard
from whet.stages.validation import Validator, metrics_by_task_and_source
from whet.store.checkpoint_folders import Checkpoints
from whet.store.run import RunStore
from whet.track.metrics import Tracker
from whet.track.progress import console, on_stop, say
from whet.train.critic import Critic
from whet.train.learner import Learner
from whet.train.policy import Policy
from whet.train.training_state import (
    BackgroundWriter,
    OtherPolicies,
    load_training_state,
    save_training_state,
)
from whet.types import Json, read_integer, read_number
from whet.world import get_world

NUM_SHOWN = 16
"""Responses that the table of a validation shows, always to the same problems."""


class SaveConfig(Config):
    """When to write checkpoints."""

    every: int = Field(default=50, ge=1)
    """Steps between two checkpoints; validations and the last step write one too."""
    keep: int = Field(default=2, ge=2)
    """Newest checkpoints kept, besides the best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestValidation:
    """The best validation so far; the step is -1 before the first."""

    step: int = -1
    value: float = -1.0


class Stateful(Protocol):
    """A part of a run whose state is in its checkpoints: a JSON value, and its own files."""

    def save(self, folder: Path) -> Json: ...

    def load(self, folder: Path, state: Json) -> None: ...


class CheckpointedValue:
    """A JSON value that checkpoints keep."""

    def __init__(self, value: Json) -> None:
        self.value = value

    def save(self, folder: Path) -> Json:
        return self.value

    def load(self, folder: Path, state: Json) -> None:
        self.value = state


class CheckpointManager:
    """Resumes, validates, saves. A checkpoint holds everything that later steps depend on.

    `TrainingLoop` calls it after the steps in `validation_steps` and `save_steps`.
    `other_policies` are policies that train beside the first, with their learners; `stateful` is
    everything else with a state, by name. Guard and critic are among them; when the guard restores
    a policy, it restores the critic too.
    """

    def __init__(
        self,
        cfg: SaveConfig,
        run: RunStore,
        policy: Policy,
        learner: Learner,
        validator: Validator,
        *,
        steps: int,
        other_policies: OtherPolicies | None = None,
        stateful: Mapping[str, Stateful] | None = None,
        guard: CollapseGuard | None = None,
        critic: Critic | None = None,
        is_background: bool = False,
    ) -> None:
        self.cfg = cfg
        self.run = run
        self.policy = policy
        self.learner = learner
        self.validator = validator
        self.steps = steps
        self.validation_steps = validator.steps_due(steps)
        self.save_steps = self.validation_steps | {steps, *range(cfg.every, steps, cfg.every)}
        self.other_policies = other_policies or {}
        self.guard = guard
        self.critic = critic
        optional = {"guard": guard, "critic": critic}
        self.stateful = {**(stateful or {})}
        self.stateful |= {name: item for name, item in optional.items() if item is not None}
        self.checkpoints = Checkpoints(run.checkpoint_folder, keep_last=cfg.keep, warn=say)
        self.best = BestValidation()
        self.first: float | None = None
        """The validation before the first step, if there was one."""
        self.stop_signal = 0
        """The signal that asks to stop after the current step; 0 before one comes."""
        self.is_background = is_background
        self.writer = BackgroundWriter()
        if guard is not None and guard.is_on and not validator.problems:
            raise ConfigError(
                f"guard.restores = {guard.cfg.restores} needs validation to watch, and the split "
                f"{validator.cfg.split} has no problems to ask"
            )

    def resume(self) -> int:
        """Load the newest intact checkpoint; return the step to continue with, 0 without one."""
        latest = self.checkpoints.latest()
        if latest is None:
            if any(event["event"] == "resume" for event in self.run.events()):
                console.print("there is no checkpoint yet: starting from the first step")
            self.run.rewind(-1)
            return 0
        step, folder = latest
        state = load_training_state(folder, self.policy, self.learner, self.other_policies)
        best = state["best"]
        assert isinstance(best, list), "a checkpoint holds the best step and its value"
        self.best = BestValidation(step=read_integer(best[0]), value=read_number(best[1]))
        first = state.get("first")
        self.first = None if first is None else read_number(first)
        for name, item in self.stateful.items():
            item.load(folder, state.get(name))
        if self.best.step in self.checkpoints.steps():
            self.checkpoints.mark_best(self.best.step)
        self.checkpoints.delete_older(step)
        self.run.rewind(step)
        for loss in self.run.list_lost_results(step):
            say(f"lost since the run began, and not recreated: {loss}")
        # A run may be extended; this event records which steps had which schedule.
        self.run.log_event("continue", step=step, steps=self.steps)
        console.print(f"resuming from step {step:,}")
        return step

    @contextmanager
    def stop_on_signal(self) -> Iterator[None]:
        """Stop on a signal after the current step, with a checkpoint; on a second one, at once.

        In the middle of a step there is no state to resume from.
        """

        def stop(number: int) -> None:
            if self.stop_signal:
                raise KeyboardInterrupt(
                    "stopped; the same command with --resume continues from the last checkpoint",
                    number,
                )
            self.stop_signal = number
            say("stopping after this step, with a checkpoint; a second signal stops at once")

        with on_stop(stop):
            yield

    @contextmanager
    def close_engines(self) -> Iterator[None]:
        """Close the engines with the run: remote ones would keep running."""
        try:
            yield
        finally:
            for policy in (self.policy, *(policy for policy, _ in self.other_policies.values())):
                policy.engine.close()

    def validate_first(self, step: int, tracker: Tracker) -> None:
        """Validate before the first step, to show where training starts from.

        With a guard, a checkpoint is saved as well, to go back to.
        """
        if step > 0 or self.best.step >= 0 or not self.validator.is_due_first:
            return
        is_guarded = self.guard is not None and self.guard.is_on
        self._validate(0, tracker, can_be_best=is_guarded)
        if is_guarded:
            self.save(0)

    def validate(self, step: int, tracker: Tracker) -> None:
        """Validate after a step, with weights that are finite."""
        for policy in (self.policy, *(policy for policy, _ in self.other_policies.values())):
            policy.check_finite()
        self._validate(step, tracker)

    def _validate(self, step: int, tracker: Tracker, *, can_be_best: bool = True) -> None:
        """Validate the policy; with `can_be_best`, its checkpoint may become the result."""
        self.policy.publish(step)
        summary, groups = self.validator.validate(self.policy.chat_engine)
        value = summary.pass_at[1].mean
        # The guard reads it on every rank.
        write = partial(self.run.write_eval, step, summary.to_json())
        get_world().run_on_rank_zero(write, f"validation {step}")
        highest = max(self.best.value, -1.0 if self.first is None else self.first)
        is_above_all = 0 <= highest < value  # it is negative before the first validation
        mark = ", kept as best" if can_be_best and is_above_all else ""
        # On a tie the later checkpoint wins: it has trained longer.
        if can_be_best and value >= self.best.value:
            self.best = BestValidation(step=step, value=value)
        if step == 0:
            self.first = value
        console.print(
            f"[bold]validation[/] at step {step:,}: "
            f"{summary.pass_at[1].in_percent()} of {self.validator.cfg.split} solved{mark}"
        )
        metrics = {"validation/pass@1": value, "validation/tokens": summary.tokens.mean}
        metrics |= metrics_by_task_and_source(groups)
        if self.guard is not None:
            metrics |= self.guard.watch(
                step, summary.pass_at[1], self.best.step, self._restore_best
            )
        tracker.log(step, metrics)
        distance = ceil(len(groups) / NUM_SHOWN) or 1
        tracker.log_responses(step, [group[0] for group in groups[::distance]])

    def _restore_best(self) -> bool:
        """Restore weights and optimizers of the best validation, and continue the schedule.

        Returns False if that checkpoint is gone. A critic is restored too, with its warm-up, or it
        would value a policy that no longer exists.
        """
        self.writer.wait()
        best = self.checkpoints.best()
        if best is None:
            return False
        folder = best[1]
        learners = [self.learner, *(learner for _, learner in self.other_policies.values())]
        if self.critic is not None:
            learners.append(self.critic.learner)
        num_optim_steps = [learner.num_optim_steps for learner in learners]
        state = load_training_state(folder, self.policy, self.learner, self.other_policies)
        if self.critic is not None:
            self.critic.load(folder, state.get("critic"))
        for learner, num in zip(learners, num_optim_steps, strict=True):
            learner.num_optim_steps = num
        return True

    def save(self, step: int) -> None:
        """Write the checkpoint of a step; with `is_background`, while training continues."""

        def write(folder: Path) -> None:
            state: dict[str, Json] = {"best": [self.best.step, self.best.value]}
            state["first"] = self.first
            state |= {name: item.save(folder) for name, item in self.stateful.items()}
            save_training_state(folder, self.policy, self.learner, state, self.other_policies)

        is_best = self.best.step == step

        def complete() -> None:
            self.checkpoints.complete(step)
            if is_best:
                self.checkpoints.mark_best(step)

        self.writer.wait()
        with self.checkpoints.start(step) as new, defer_writes(self.is_background) as later:
            write(new)
        if self.is_background:
            self.writer.start(f"checkpoint {step}", partial(_run_all, later), finish=complete)
        else:
            complete()

    def stop(self, step: int, signal: int) -> NoReturn:
        """End the run after the signal that asked for it, once its checkpoint is on disk."""
        self.writer.wait()
        self.run.log_event("stop", step=step)
        raise KeyboardInterrupt(
            f"stopped after step {step:,} of {self.steps:,}, which has a checkpoint; the same "
            "command with --resume continues from there",
            signal,
        )

    def describe_loss(self) -> str | None:
        """Return a warning if the best validation is worse than the one before the first step."""
        if self.first is None or self.best.value >= self.first:
            return None
        return (
            f"the model ends worse than it began: {100 * self.best.value:.1f} % of "
            f"{self.validator.cfg.split} solved at its best validation, at step "
            f"{self.best.step:,}, and {100 * self.first:.1f} % before the first step; see "
            "docs/troubleshooting.md"
        )

    def result(self) -> tuple[int, Path]:
        """Return the step and folder of the best checkpoint by validation, or else the last."""
        self.writer.wait()
        checkpoint = self.checkpoints.best() or self.checkpoints.latest()
        assert checkpoint is not None, "a run that ended has a checkpoint"
        return checkpoint


def _run_all(acts: Sequence[Callable[[], None]]) -> None:
    for act in acts:
        act()
