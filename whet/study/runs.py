"""The runs of a study: each is an ordinary pipeline in its own folder, whose stages are links.

The stage folders themselves are in `stages/`, named by their keys. Runs with a common stage, such
as an SFT checkpoint, link to the same folder, so it is computed once.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from whet.config import load_settings, to_table, to_toml
from whet.errors import ConfigError
from whet.pipeline.pipeline_config import PipelineConfig
from whet.pipeline.smoke import STAND_INS, shrink, write_smoke_inputs
from whet.pipeline.stage_keys import hash_stages, read_seconds
from whet.store.files import write_atomic
from whet.store.run import RunStore
from whet.study.study_file import Levels, Measure, RoundConfig, Study
from whet.toml import Table, flatten
from whet.types import content_id

STAGES_KEY = "stages"
SMOKE_SEEDS = 2
"""Seeds of a smoke form; two are enough for every branch of a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stage of a run: its name, its key, and the folder shared by all runs with this key."""

    name: str
    key: str
    folder: Path

    @property
    def seconds(self) -> float | None:
        """How long it took; None while it is not finished."""
        return read_seconds(self.folder, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRun:
    """A combination of levels and a seed, as a pipeline."""

    levels: Levels
    seed: int
    folder: Path
    pipeline: PipelineConfig
    stages: tuple[Stage, ...]
    measured: Measure

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def file(self) -> Path:
        return self.folder / "pipeline.toml"

    @property
    def log(self) -> Path:
        return self.folder / "run.log"

    @property
    def links(self) -> dict[Path, Stage]:
        """The stage folders that the pipeline sees, and their targets."""
        return {
            self.folder / f"{number:02d}-{stage.name}": stage
            for number, stage in enumerate(self.stages, start=1)
        }

    def list_unfinished(self) -> list[Stage]:
        """List the stages without a finished result."""
        return [stage for stage in self.stages if stage.seconds is None]

    @property
    def is_done(self) -> bool:
        has_results = RunStore(self.folder, lock=None).summary_file.is_file()
        is_linked = all(_leads_to(link, stage.folder) for link, stage in self.links.items())
        return has_results and is_linked and not self.list_unfinished()

    def prepare(self) -> None:
        """Write the pipeline's file and the links to its stages; remove results of other stages."""
        links = self.links
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.glob("[0-9][0-9]-*"):
            if not path.is_symlink():
                raise ConfigError(f"{path} is not a folder of this study: choose another --out")
            if path not in links or not _leads_to(path, links[path].folder):
                path.unlink()
                RunStore(self.folder, lock=None).summary_file.unlink(missing_ok=True)
        for link, stage in links.items():
            stage.folder.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(Path("..") / STAGES_KEY / stage.folder.name)
        write_atomic(self.file, to_toml(self.pipeline))


@dataclass(frozen=True, kw_only=True)
class RunPlanner:
    """Makes the runs of a study's rounds, below one folder."""

    study: Study
    folder: Path
    is_smoke: bool = False

    @cached_property
    def seeds(self) -> list[int]:
        seeds = self.study.config.seeds
        return seeds[:SMOKE_SEEDS] if self.is_smoke else seeds

    def list_runs(self, round_cfg: RoundConfig, chosen: Levels) -> list[StudyRun]:
        """List the runs of a round: all levels of a seed, then those of the next."""
        cells = self.study.list_cells(round_cfg, chosen)
        return [self._make_run(round_cfg, cell, seed) for seed in self.seeds for cell in cells]

    def _make_run(self, round_cfg: RoundConfig, levels: Levels, seed: int) -> StudyRun:
        pipeline = self.study.load_pipeline(levels, seed).config
        if self.is_smoke:
            pipeline = self._shrink(pipeline)
        stages = tuple(
            Stage(name=name, key=key.now, folder=self.folder / STAGES_KEY / f"{name}-{key.now}")
            for name, key in hash_stages(pipeline.stages).items()
        )
        return StudyRun(
            levels=levels,
            seed=seed,
            folder=self.folder / "+".join([*levels.values(), f"seed{seed}"]),
            pipeline=pipeline,
            stages=stages,
            measured=self.study.find_measured(round_cfg, pipeline),
        )

    def _shrink(self, pipeline: PipelineConfig) -> PipelineConfig:
        """Shrink a pipeline; equal stages share their generated inputs."""
        small: Table = {}
        for name, stage in pipeline.stages.items():
            table = to_table(stage)
            of_stage = {key: item for key, item in table.items() if key != "seed"}
            folder = self.folder / STAND_INS / content_id(name, of_stage).replace("/", "-")
            small |= shrink({name: stage}, folder)
        given: Table = {"seed": pipeline.seed, "stages": small}
        return load_settings(PipelineConfig, None, [], defaults=given).config

    def write_stand_ins(self, runs: Iterable[StudyRun]) -> None:
        """Write the generated inputs of smoke runs; they are the same every time."""
        root = self.folder / STAND_INS
        stages = [(name, stage) for run in runs for name, stage in run.pipeline.stages.items()]
        by_folder = {
            root / Path(text).relative_to(root).parts[0]: (name, stage)
            for name, stage in stages
            for text in map(str, flatten(to_table(stage)).values())
            if text.startswith(f"{root}/")
        }
        for folder, (name, stage) in by_folder.items():
            write_smoke_inputs({name: stage}, folder)


def _leads_to(link: Path, folder: Path) -> bool:
    return link.is_symlink() and link.resolve() == folder.resolve()
