"""An RL run for its replay: settings, checkpoints, rollouts, and logged metrics.

Nothing is written, because another process may still be training the run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from whet.config import kind_of, load_settings
from whet.errors import ConfigError, DataError
from whet.recipes.rl import RLConfig
from whet.rollout.collect import group_rollouts
from whet.stages.training import EXACTNESS_EVENT
from whet.store.checkpoint_folders import check_checkpoint, list_checkpoints
from whet.store.run import RunStore, stage_folders
from whet.track.progress import say
from whet.train.selftest import Exactness
from whet.types import Group, Metrics, read_integer, read_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The state from which a replay applies updates: after `step` updates, stored in `folder`."""

    step: int
    folder: Path | None
    """None is the model that the run started from."""

    def __str__(self) -> str:
        return "the starting model" if self.folder is None else f"checkpoint {self.step}"


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredRun:
    """A run of kind rl on disk."""

    store: RunStore
    cfg: RLConfig

    @cached_property
    def steps(self) -> list[int]:
        """The steps whose rollouts are stored."""
        return self.store.rollout_steps("train")

    @cached_property
    def checkpoints(self) -> Mapping[int, Path]:
        return list_checkpoints(self.store.checkpoint_folder)

    @cached_property
    def restores(self) -> set[int]:
        """The steps after which the guard restored earlier weights."""
        events = self.store.events()
        return {read_integer(row["step"]) for row in events if row["event"] == "restore"}

    @cached_property
    def exactness(self) -> Exactness | None:
        """The exactness check of engine and learner when the run last started; None on a CPU."""
        rows = [row for row in self.store.events() if row["event"] == EXACTNESS_EVENT]
        if not rows:
            return None
        return Exactness(
            num_tokens=read_integer(rows[-1]["tokens"]),
            equal_fraction=read_number(rows[-1]["equal_share"]),
            largest_gap=read_number(rows[-1]["largest_gap"]),
        )

    def settings_at(self, step: int) -> RLConfig:
        """Return the settings of a step; `steps` may have grown later, and with it the
        schedules."""
        events = self.store.events()
        extensions = [row for row in events if row["event"] == "extend"]
        first = read_integer(extensions[0]["before"]) if extensions else self.cfg.steps
        # A step was last taken after the last event that began before it.
        starts = [(0, first)]
        for row in events:
            if row["event"] == "extend":
                starts.append((read_integer(row["before"]), read_integer(row["steps"])))
            elif row["event"] == "continue":
                starts.append((read_integer(row["step"]), read_integer(row["steps"])))
        steps = [steps for start, steps in starts if start < step][-1]
        return self.cfg.model_copy(update={"steps": steps})

    def groups(self, step: int) -> list[Group]:
        """Read the groups of a step, in their order."""
        return group_rollouts(self.store.rollouts("train", step))

    @cached_property
    def logged(self) -> Mapping[int, Metrics]:
        """The logged metrics of each step."""
        logged: dict[int, Metrics] = {}
        for row in self.store.metrics():
            logged.setdefault(int(row["step"]), {}).update(row)
        return logged

    def find_start(self, step: int) -> Start:
        """Find the newest intact checkpoint before a step, or else the starting model."""
        if step not in self.steps:
            raise DataError(
                f"{self.store.folder} has no rollouts of step {step}: {self._describe_replayable()}"
            )
        start = Start(step=0, folder=None)
        for number, folder in sorted(self.checkpoints.items(), reverse=True):
            if 0 < number < step:
                damage = check_checkpoint(folder)
                if damage is None:
                    start = Start(step=number, folder=folder)
                    break
                say(f"checkpoint {folder} is damaged ({damage}); the one before it is used")
        self._check_path(start, step)
        return start

    def _check_path(self, start: Start, step: int) -> None:
        """Refuse to replay up to a step across missing rollouts or a restore."""
        for number in range(start.step + 1, step):
            if number in self.restores:
                reason = f"after step {number} the guard restored an earlier one"
            elif number not in self.steps:
                reason = f"the rollouts of step {number} are missing"
            else:
                continue
            raise DataError(
                f"step {step} cannot be reached from {start}, since {reason} and there is no "
                f"checkpoint from {number} to {step - 1}: {self._describe_replayable()}"
            )

    def _describe_replayable(self) -> str:
        reachable: list[int] = []
        starts = {0, *self.checkpoints}
        for step in self.steps:
            follows = reachable and reachable[-1] == step - 1 and step - 1 not in self.restores
            if step - 1 in starts or follows:
                reachable.append(step)
        if not reachable:
            return "no step of it can be replayed"
        return f"steps that can be replayed are {format_ranges(reachable)}"


def load_stored_run(folder: Path) -> StoredRun:
    """Open the RL run in a folder, or the one RL stage of a pipeline's folder."""
    stages = [] if (folder / "config.toml").is_file() else stage_folders(folder)
    if stages:
        kinds = {stage: kind_of(stage / "config.toml") for stage in stages}
        runs = [stage for stage, kind in kinds.items() if kind == "rl"]
        if len(runs) != 1:
            names = ", ".join(stage.name for stage in runs) or "none"
            raise ConfigError(f"{folder} should have one stage of kind rl, and has {names}")
        folder = runs[0]
    store = RunStore.view(folder)
    kind = kind_of(store.config_file)
    if kind != "rl":
        raise ConfigError(
            f"{folder} is a run of kind {kind!r}, and only runs of kind 'rl' can be replayed"
        )
    return StoredRun(store=store, cfg=load_settings(RLConfig, store.config_file, []).config)


def format_ranges(steps: Iterable[int]) -> str:
    """Write increasing numbers as ranges.

    >>> format_ranges([1, 2, 3, 7, 9, 10])
    '1-3, 7, 9-10'
    """
    ranges: list[list[int]] = []
    for step in steps:
        if ranges and ranges[-1][-1] == step - 1:
            ranges[-1][1:] = [step]
        else:
            ranges.append([step])
    return ", ".join("-".join(map(str, ends)) for ends in ranges)
