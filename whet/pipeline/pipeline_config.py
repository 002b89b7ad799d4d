"""The settings of a pipeline: named stages, read from a file and flags, checked together."""

import pkgutil
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Union

from pydantic import Field, field_validator

from whet.config import Config, LoadedSettings, kind_of, load_settings, to_table
from whet.errors import ConfigError
from whet.pipeline.smoke import shrink
from whet.pipeline.stage_keys import check_same_prompt, list_earlier_stages
from whet.recipes.registry import STAGES
from whet.stages.stage import StageConfig
from whet.store.run import RunStore, find_run
from whet.toml import Table, flatten, merge
from whet.types import Json
from whet.user_code import is_code_path, load_user_class, or_user_class

STAGE_KINDS: Mapping[str, type[StageConfig]] = {
    name: pkgutil.resolve_name(kind.path) for name, kind in STAGES.items()
}
if TYPE_CHECKING:
    AnyStage = StageConfig
else:
    AnyStage = Annotated[
        Union[tuple(STAGE_KINDS.values())],  # noqa: UP007
        Field(discriminator="kind"),
        or_user_class(StageConfig, "kind"),
    ]
SHARED = {key for kind in STAGE_KINDS.values() for key in kind.model_fields} - {"kind"}
"""Settings of stages that a pipeline may also set for all of them."""


class PipelineConfig(Config):
    """Stages by name, run in the order of the file."""

    shared_with = "stages"

    kind: Literal["run"] = "run"
    """The purpose of the file."""
    seed: int = 0
    """The seed of every stage that names none."""
    stages: dict[str, AnyStage]
    """The stages, in their order."""

    @classmethod
    def expand_table(cls, given: Mapping[str, Json]) -> Table:
        """Give settings above the stages, such as `task`, to every stage that has them."""
        table = dict(given)
        stages = table.get("stages")
        if not isinstance(stages, dict):
            return table
        shared = {key: item for key, item in given.items() if key in SHARED}
        for name, stage in stages.items():
            kind = find_kind(stage.get("kind")) if isinstance(stage, dict) else None
            if isinstance(stage, dict) and kind is not None:
                known = {key: item for key, item in shared.items() if key in kind.model_fields}
                stages = {**stages, name: merge(known, stage)}
        above = {key: table[key] for key in table if key in cls.model_fields or key not in SHARED}
        return above | {"stages": stages}

    @field_validator("stages")
    @classmethod
    def _check_names(cls, stages: dict[str, AnyStage]) -> dict[str, AnyStage]:
        """Refuse names that cannot be part of a folder's name."""
        if not stages:
            raise ValueError(
                'there should be at least one stage, such as [stages.problems] with kind = "make"'
            )
        for name in stages:
            if not re.fullmatch(r"\w[\w-]*", name):
                raise ValueError(
                    f"the stage name {name!r} may contain only letters, digits, _ and -"
                )
        return stages


def load_pipeline(file: Path, overrides: Sequence[str]) -> LoadedSettings[PipelineConfig]:
    """Read a pipeline, and check the references of its stages."""
    loaded = load_settings(PipelineConfig, file, overrides)
    check_stage_names(loaded.config.stages)
    return loaded


def load_smoke(
    file: Path, overrides: Sequence[str], folder: Path
) -> LoadedSettings[PipelineConfig]:
    """Read a pipeline in its smoke form; settings given by flags keep their values."""
    full = load_pipeline(file, overrides)
    table = to_table(full.config)
    by_flag = {key for key, source in full.origin.items() if source == "cli"}
    small = {**table, "stages": shrink(full.config.stages, folder, by_flag)}
    loaded = load_settings(PipelineConfig, None, [], defaults=small)
    before = flatten(table)
    after = flatten(to_table(loaded.config))
    is_same = {key: key in before and before[key] == value for key, value in after.items()}
    origin = {key: full.origin[key] if same else "smoke" for key, same in is_same.items()}
    return LoadedSettings(config=loaded.config, origin=origin)


def load_stages(file: Path, overrides: Sequence[str]) -> dict[str, StageConfig]:
    """Read the stages of a pipeline, or the single stage of a stage file."""
    config = load_settings_file(file, overrides).config
    if isinstance(config, PipelineConfig):
        return dict(config.stages)
    stages = {config.kind: config}
    check_stage_names(stages)
    return stages


def load_settings_file(
    file: Path, overrides: Sequence[str]
) -> LoadedSettings[PipelineConfig | StageConfig]:
    """Read a settings file of any kind."""
    name = kind_of(file)
    if name == "run":
        return load_pipeline(file, overrides)
    if name == "study":
        raise ConfigError(f"{file} is a study: `whet study {file} --plan` checks it")
    kind = find_kind(name)
    if kind is None:
        raise ConfigError(
            f"{file} says kind = {name!r}; known kinds: run, {', '.join(STAGE_KINDS)}"
        )
    return load_settings(kind, file, overrides)


def find_kind(name: Json) -> type[StageConfig] | None:
    """Find the settings class of a kind, by its name or by a user's file and class."""
    if isinstance(name, str) and is_code_path(name):
        return load_user_class(name, "kind", StageConfig)  # type: ignore[type-abstract]
    return STAGE_KINDS.get(str(name))


def check_stage_names(stages: Mapping[str, StageConfig]) -> None:
    """Check all references to stages before the first one runs."""
    earlier: list[str] = []
    for name, stage in stages.items():
        for other in list_earlier_stages(stage):
            if other not in earlier:
                known = ", ".join(earlier) or "none"
                raise ConfigError(
                    f"stage {name!r} refers to @{other}, which is not an earlier stage; earlier "
                    f"ones: {known}"
                )
        earlier.append(name)
        check_same_prompt(stage, partial(find_producing_stage, stages))


def find_producing_stage(stages: Mapping[str, StageConfig], location: str) -> StageConfig | None:
    """Find the settings of the stage or run that made a model or responses; None if there is none,
    or if another version of whet wrote them."""
    if location.startswith("@"):
        return stages[location[1:]]
    folder = find_run(location)
    if folder is None:
        return None
    file = RunStore.view(folder).config_file
    try:
        kind = find_kind(kind_of(file))
        return None if kind is None else load_settings(kind, file, []).config
    except ConfigError:
        return None
