"""Keys of stages, which tell whether a stored result belongs to the current settings; and the check
that a stage prompts as the stages and runs it starts from."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.config import to_table
from whet.errors import ConfigError
from whet.stages.stage import StageConfig
from whet.store.files import read_json
from whet.store.run import RunStore
from whet.toml import Table, read
from whet.types import Json
from whet.user_code import find_code_paths, hash_code

COMPARED = ("model.path", "data")
"""Inputs that depend on a prompt; a verifier and a teacher of log-probabilities read whatever they
are given."""
MAX_SHOWN = 300
"""Characters of a prompt that the sentence quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageKey:
    """A hash of all that a stage's result depends on: its settings and the stages it refers to."""

    stage: StageConfig
    of_others: Mapping[str, str]

    @property
    def now(self) -> str:
        """Return the key with the current number of steps."""
        return _hash_stage(self.stage, self.of_others)

    def has_more_steps(self, earlier: RunStore, key: Json) -> bool:
        """Whether an earlier key differs only in having fewer steps."""
        if not self.stage.training_steps or not earlier.config_file.is_file():
            return False
        steps = read(earlier.config_file).get("steps")
        if not isinstance(steps, int) or steps >= self.stage.training_steps:
            return False
        shorter = self.stage.model_copy(update={"steps": steps})
        return _hash_stage(shorter, self.of_others) == key


def hash_stages(stages: Mapping[str, StageConfig]) -> dict[str, StageKey]:
    """Return the keys of a pipeline's stages, in their order."""
    keys: dict[str, StageKey] = {}
    for name, stage in stages.items():
        keys[name] = StageKey(stage=stage, of_others={other: keys[other].now for other in keys})
    return keys


def read_seconds(folder: Path, key: str) -> float | None:
    """Read how long the stage with this key took; None if the folder holds no finished one."""
    run = RunStore(folder, lock=None)
    facts = read_json(run.stage_file) if run.stage_file.is_file() else None
    if not isinstance(facts, dict) or facts.get("key") != key or not run.is_finished:
        return None
    seconds = facts.get("seconds")
    return seconds if isinstance(seconds, float) else None


def _hash_stage(stage: StageConfig, keys: Mapping[str, str]) -> str:
    """Hash a stage's settings, the user's files named in them, and the stages it refers to."""
    table = _leave_out(to_table(stage), stage.ignored)
    used = {name: keys[name] for name in list_earlier_stages(stage)}
    files = {name: hash_code(name) for name in find_code_paths(table)}
    text = json.dumps([table, used, *([files] if files else [])], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _leave_out(table: Table, ignored: Sequence[str]) -> Table:
    kept: Table = {}
    for key, item in table.items():
        below = [name.partition(".")[2] for name in ignored if name.startswith(f"{key}.")]
        if key not in ignored:
            kept[key] = _leave_out(item, below) if below and isinstance(item, dict) else item
    return kept


def list_earlier_stages(stage: StageConfig) -> list[str]:
    """List the stages that a stage refers to with `@name`."""
    return [name[1:] for name in stage.inputs.values() if name.startswith("@")]


def check_same_prompt(stage: StageConfig, find_maker: Callable[[str], StageConfig | None]) -> None:
    """Compare a stage's prompt with the prompt that made its model and responses."""
    own_prompt = stage.response_prompt
    if own_prompt is None or own_prompt.differs:
        return
    for setting, location in stage.inputs.items():
        maker = find_maker(location) if setting in COMPARED else None
        other = None if maker is None else maker.response_prompt
        if other is not None and not other.is_same(own_prompt):
            own, others = (prompt.describe()[:MAX_SHOWN] for prompt in (own_prompt, other))
            raise ConfigError(
                f"{stage.kind} puts problems to the model with prompt = {own}, but its {setting} "
                f"= {location!r} was made with prompt = {others}: give both the same, or set "
                "prompt.differs = true"
            )
