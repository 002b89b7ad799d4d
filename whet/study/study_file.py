"""A study's file: a pipeline, the factors by which its runs differ, and the rounds that compare
them.

A level of a factor is a table of settings that overrides the pipeline's. A round compares the
levels of one factor, or all combinations of several; the winner is kept for the next round.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from whet.config import Config, LoadedSettings, kind_of, load_layers, load_settings, read_layers
from whet.errors import ConfigError
from whet.pipeline.pipeline_config import PipelineConfig, check_stage_names
from whet.toml import Table, from_flags, literal
from whet.types import Json

Metric = Annotated[str, Field(pattern=r"^(pass@[1-9]\d*|greedy|[a-z_]+/[a-z0-9_@]+)$")]
Levels = dict[str, str]
"""The level of each factor, by its name."""


class BudgetConfig(Config):
    """When a study stops early; the same command with a larger budget continues it."""

    runs: int | None = Field(default=None, ge=1)
    """Runs in all; none sets no limit."""
    hours: float | None = Field(default=None, gt=0.0)
    """Hours of all stages together, also of those that ran side by side; none sets no limit."""


class RoundConfig(Config):
    """A comparison of runs; a factor's name alone stands for a round with only this factor."""

    factors: list[str] = Field(min_length=1)
    """The factors; with several, all combinations of their levels are compared."""
    measure: str | None = None
    """The stage that is compared; none takes the study's."""
    metric: Metric | None = None
    """What is compared there; none takes the study's."""


class StudyConfig(Config):
    """Runs of a pipeline that differ in factors and seeds, compared round after round."""

    kind: Literal["study"] = "study"
    """The purpose of the file."""
    base: str | dict[str, JsonValue]
    """The pipeline: a file beside this one, or settings, with `extends` if they build on one."""
    seeds: list[int] = Field(min_length=1)
    """Every combination of levels runs once with each seed."""
    measure: str | None = None
    """The stage that is compared; none takes the last evaluation."""
    metric: Metric = "pass@1"
    """What is compared: pass@k of an evaluation's sampled responses, greedy, or a fraction that
    training logs, such as verifier/step_f1."""
    if_unclear: Literal["first", "best"] = "first"
    """Which level is kept if the data cannot tell: the first listed, or the best mean."""
    budget: BudgetConfig = BudgetConfig()
    """When the study stops before its end."""
    rounds: list[RoundConfig] = Field(min_length=1)
    """The comparisons, in their order."""
    factors: dict[str, dict[str, dict[str, JsonValue]]]
    """Levels by name, each a table of settings, the simplest first; the first is used until its
    round is over. `extends` in a level names a file beside this one."""

    @classmethod
    def expand_table(cls, given: Mapping[str, Json]) -> Table:
        """Write out rounds that are given by the name of their factor."""
        table = dict(given)
        if isinstance(rounds := table.get("rounds"), list):
            table["rounds"] = [
                {"factors": [row]} if isinstance(row, str) else row for row in rounds
            ]
        return table

    @field_validator("seeds")
    @classmethod
    def _check_seeds(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("each seed should be listed once")
        return seeds

    @model_validator(mode="after")
    def _check_factors(self) -> Self:
        for factor, levels in self.factors.items():
            names = [factor, *levels]
            if wrong := [name for name in names if not re.fullmatch(r"\w[\w.-]*", name)]:
                raise ValueError(f"{wrong[0]!r} may contain only letters, digits, _, - and .")
            if len(levels) < 2:
                raise ValueError(f"the factor {factor!r} should have at least two levels")
        used = {factor for round_cfg in self.rounds for factor in round_cfg.factors}
        if unknown := sorted(used - self.factors.keys()):
            known = ", ".join(self.factors) or "none"
            raise ValueError(f"a round names {unknown[0]!r}; the factors are {known}")
        if unused := sorted(self.factors.keys() - used):
            raise ValueError(
                f"no round compares the factor {unused[0]!r}: add one, or leave it out"
            )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What a round compares: a metric of a stage."""

    stage: str
    metric: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study as read: its settings, its file, and flags for all of its pipelines."""

    config: StudyConfig
    file: Path
    flags: Sequence[str] = ()

    @property
    def first_levels(self) -> Levels:
        return {factor: next(iter(levels)) for factor, levels in self.config.factors.items()}

    def list_cells(self, round_cfg: RoundConfig, chosen: Levels) -> list[Levels]:
        """List the combinations that a round compares; earlier rounds chose the other levels."""
        names = [list(self.config.factors[factor]) for factor in round_cfg.factors]
        cells = [dict(zip(round_cfg.factors, levels, strict=True)) for levels in product(*names)]
        return [{**chosen, **cell} for cell in cells]

    def load_pipeline(self, levels: Levels, seed: int) -> LoadedSettings[PipelineConfig]:
        """Apply the levels to the base pipeline, in the order of the factors."""
        name = self.file.name
        layers = self._read_layers(f"{name}, base", self.config.base)
        for factor, tables in self.config.factors.items():
            level = levels[factor]
            layers += self._read_layers(f"{name}, {factor} = {level}", tables[level])
        loaded = load_layers(PipelineConfig, [*layers, (name, {"seed": seed})], self.flags)
        check_stage_names(loaded.config.stages)
        return loaded

    def find_measured(self, round_cfg: RoundConfig, pipeline: PipelineConfig) -> Measure:
        """Find the stage and metric that a round compares."""
        metric = round_cfg.metric or self.config.metric
        is_logged = "/" in metric
        words = "stage that trains" if is_logged else "stage of kind eval"
        known = [
            name
            for name, stage in pipeline.stages.items()
            if (stage.training_steps if is_logged else stage.measures_model)
        ]
        asked = round_cfg.measure or self.config.measure
        if not known or (asked is not None and asked not in known):
            raise ConfigError(
                f"{self.file}: measure = {asked!r} should be a {words} for metric = {metric!r}; "
                f"there are {', '.join(known) or 'none'}"
            )
        name = asked or known[-1]
        stage = pipeline.stages[name]
        metric_name, _, k = metric.partition("@")
        samples = stage.list_work()[0].samples if stage.measures_model else 0
        if metric_name == "pass" and stage.measures_model and int(k) > samples:
            raise ConfigError(
                f"{self.file}: metric = {metric!r} needs that many responses per problem, and "
                f"{name} has samples = {samples}"
            )
        return Measure(stage=name, metric=metric)

    def _read_layers(
        self, origin: str, given: str | Mapping[str, JsonValue]
    ) -> list[tuple[str, Table]]:
        """Read a base or level from its table or file, and the file that it extends."""
        table: Table = {"extends": given} if isinstance(given, str) else {**given}
        below = table.pop("extends", None)
        if below is None:
            return [(origin, table)]
        if not isinstance(below, str):
            raise ConfigError(f"{origin}: extends = {literal(below)} should be the name of a file")
        layers = read_layers(self.file.parent / below)
        kinds = {layer["kind"] for _, layer in layers if "kind" in layer}
        if kinds != {"run"}:
            raise ConfigError(f'{origin}: {below} should be a file of kind "run"')
        return [*layers, *([(origin, table)] if table else [])]


def load_study_settings(file: Path, overrides: Sequence[str]) -> LoadedSettings[StudyConfig]:
    """Read a study's own settings."""
    return load_settings(StudyConfig, file, _split_flags(overrides)[0])


def load_study(file: Path, overrides: Sequence[str]) -> Study:
    """Read a study, and check every combination that follows from its first levels.

    Flags that are not settings of a study, such as `--stages.rl.steps 5`, apply to all runs.
    """
    if (kind := kind_of(file)) != "study":
        raise ConfigError(
            f"{file} is of kind {kind!r}, but `whet study` runs files of kind 'study'"
        )
    flags, others = _split_flags(overrides)
    study = Study(config=load_settings(StudyConfig, file, flags).config, file=file, flags=others)
    for round_cfg in study.config.rounds:
        for cell in study.list_cells(round_cfg, study.first_levels):
            pipeline = study.load_pipeline(cell, study.config.seeds[0]).config
            study.find_measured(round_cfg, pipeline)
    return study


def _split_flags(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate flags for the study from those for its pipelines."""
    study_flags: list[str] = []
    others: list[str] = []
    for key, text in from_flags(overrides).items():
        flags = study_flags if key.split(".")[0] in StudyConfig.model_fields else others
        flags.append(f"--{key}={text}")
    return study_flags, others
