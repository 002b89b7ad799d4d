"""Run a pipeline: the stages of a file in order, each in its own run folder; finished ones are
skipped.

`@name` in a setting is the result of an earlier stage: its folder, or its model. A stage is up to
date if its settings, the user code that they name and the stages it refers to are unchanged.
"""

import pkgutil
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Union

import torch
from pydantic import Field, field_validator
from rich.markup import escape

from whet.config import Config, LoadedSettings, kind_of, load_settings, show_settings, to_table
from whet.errors import ConfigError, DataError, TrainError
from whet.pipeline.report import describe_results, write_pipeline_results
from whet.pipeline.smoke import STAND_INS, shrink, write_smoke_inputs
from whet.pipeline.stage_keys import StageKey, check_same_prompt, hash_stages, list_earlier_stages
from whet.preflight.lengths import continues_new_model, note_before_stage
from whet.preflight.preflight import check_before_run
from whet.recipes.registry import STAGES
from whet.recipes.stage import ModelStageConfig, StageConfig, TrainingConfig
from whet.store.files import find_damage, read_json, sha256, write_json
from whet.store.follow import one_writer, open_run
from whet.store.run import RunStore, find_run
from whet.toml import Table, flatten, merge
from whet.track.progress import console, say
from whet.types import Json
from whet.user_code import is_code_path, load_user_class, or_user_class
from whet.world import get_world

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
OUT_OF_HOST_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "Storage size calculation overflowed",
)
"""Phrases of torch's errors when host memory runs out."""
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
        """Refuse names that cannot be part of a folder name."""
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
    """Read a pipeline in its smoke form; settings given by flags are kept."""
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
    """Read the stages of a pipeline, or the one stage that a file is."""
    config = load_settings_file(file, overrides).config
    if isinstance(config, PipelineConfig):
        return dict(config.stages)
    stages = {config.kind: config}
    check_stage_names(stages)
    return stages


def load_settings_file(
    file: Path, overrides: Sequence[str]
) -> LoadedSettings[PipelineConfig | StageConfig]:
    """Read a file of any kind."""
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
    """Find the settings of a kind by its name, or by a file of the user's and a class in it."""
    if isinstance(name, str) and is_code_path(name):
        return load_user_class(name, "kind", StageConfig)  # type: ignore[type-abstract]
    return STAGE_KINDS.get(str(name))


def run_file(
    file: Path, overrides: Sequence[str], out: Path | None, *, resume: bool, smoke: bool
) -> None:
    """Run a file's pipeline, or its smoke form, in a folder named for it."""
    if not smoke:
        loaded = load_pipeline(file, overrides)
        folder = out or Path("runs") / file.stem
        check_before_run(loaded.config.stages, folder, is_pipeline=True)
        run_pipeline(loaded, folder, resume=resume, smoke=False)
        return
    folder = out or Path("runs") / f"{file.stem}-smoke"
    loaded = load_smoke(file, overrides, folder / STAND_INS)
    write = partial(write_smoke_inputs, loaded.config.stages, folder / STAND_INS)
    get_world().run_on_rank_zero(write, "the inputs of a smoke run")
    run_pipeline(loaded, folder, resume=resume, smoke=True)


def run_pipeline(
    loaded: LoadedSettings[PipelineConfig], folder: Path, *, resume: bool, smoke: bool
) -> None:
    """Run every stage that is not up to date, then write summary.json and report.html."""
    cfg = loaded.config
    folders = {
        name: folder / f"{number:02d}-{name}" for number, name in enumerate(cfg.stages, start=1)
    }
    keys = hash_stages(cfg.stages)
    settings = ""
    with one_writer(folder):
        for name, stage in cfg.stages.items():
            inputs = [folders[other] for other in list_earlier_stages(stage)]
            get_world().run_on_rank_zero(
                partial(_check_inputs_intact, inputs), f"the inputs of {name}"
            )
            origin = {k.removeprefix(f"stages.{name}."): v for k, v in loaded.origin.items()}
            resolved = _resolve_references(stage, folders)
            is_new = not smoke and continues_new_model(cfg.stages, stage)
            _run_or_skip(resolved, origin, folders[name], keys[name], resume=resume, is_new=is_new)
            settings += f"[{name}]\n{show_settings(LoadedSettings(config=stage, origin=origin))}\n"
        if get_world().is_rank_zero:
            write_pipeline_results(cfg.seed, cfg.stages, folders, folder, settings=settings)
            console.print(describe_results(cfg.stages, folders, folder))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """An attempt at a stage: whether it may start or continue without `--resume`, when it started,
    and the seconds of earlier attempts."""

    may_continue: bool
    began: float
    spent: float


def _run_or_skip(
    stage: StageConfig,
    origin: Mapping[str, str],
    folder: Path,
    stage_key: StageKey,
    *,
    resume: bool,
    is_new: bool,
) -> None:
    key = stage_key.now
    attempt = get_world().run_on_rank_zero(
        partial(_plan_attempt, folder, stage_key), f"the stage {folder.name}"
    )
    if attempt is None:
        return
    clock = time.monotonic()
    # The key covers what the stage reads; the folders may be written in another way, or have moved.
    ignore = (*stage.ignored, *stage.inputs)
    origins = {key: origin.get(key, "default") for key in flatten(to_table(stage))}
    with open_run(
        folder, stage, origins, resume=resume or attempt.may_continue, ignore=ignore
    ) as run:
        began: dict[str, Json] = {"key": key, "spent": attempt.spent, "began": attempt.began}
        _write_stage_file(run, began)
        # The first rank may finish a short stage before another rank checks.
        is_done = get_world().run_on_rank_zero(
            lambda: run.is_finished, f"whether {folder.name} is done"
        )
        try:
            if not is_done:
                if is_new and isinstance(stage, ModelStageConfig):
                    note_before_stage(stage, run)
                run_stage(stage, run)
        finally:
            spent = attempt.spent + time.monotonic() - clock
            done: dict[str, Json] = {"key": key, "spent": spent}
            _write_stage_file(run, done | ({"seconds": spent} if run.is_finished else {}))


def _write_stage_file(run: RunStore, facts: Mapping[str, Json]) -> None:
    if get_world().is_rank_zero:
        write_json(run.stage_file, dict(facts))


def _plan_attempt(folder: Path, key: StageKey) -> _Attempt | None:
    """Move an outdated result of a stage aside; None if there is one that is up to date.

    A stage whose only change is more steps continues.
    """
    earlier = RunStore(folder, lock=None)
    is_extended = False
    key_file = earlier.stage_file
    known = read_json(key_file) if key_file.is_file() else None
    before = known if isinstance(known, dict) else {}
    if folder.exists() and before.get("key") not in (None, key.now):
        is_extended = key.has_more_steps(earlier, before.get("key"))
    if folder.exists() and before.get("key") not in (None, key.now) and not is_extended:
        aside = escape(str(_move_aside(folder)))
        console.print(
            f"[bold]{folder.name}[/]: its settings or inputs changed; the old result moves to "
            f"{aside}"
        )
        before = {}
    is_finished = isinstance(before.get("seconds"), float) and earlier.is_finished
    if is_finished and not is_extended:
        console.print(f"[bold]{folder.name}[/]: done before, {before['seconds']:.0f} s")
        return None
    console.print(f"[bold]{folder.name}[/]")
    spent = _sum_earlier_seconds(before, earlier.metrics_file)
    may_continue = not folder.exists() or is_finished
    return _Attempt(may_continue=may_continue, began=time.time(), spent=spent)


def run_stage(cfg: StageConfig, run: RunStore) -> None:
    """Run the recipe that the settings belong to; running out of memory is one sentence."""
    world = get_world()
    recipe = partial(cfg.run_in, run)
    world.run_on_rank_zero(
        lambda: check_same_prompt(cfg, partial(_find_producing_stage, {})), "the prompt"
    )
    if run.steps_before is not None and isinstance(cfg, TrainingConfig):
        say(cfg.describe_more_steps(run.steps_before))
    world.run_on_rank_zero(lambda: run.pin_inputs(hash_inputs(cfg)), "the hashes of the inputs")
    is_gpu = isinstance(cfg, ModelStageConfig) and torch.cuda.is_available()
    device = torch.cuda.get_device_name() if is_gpu else "cpu"
    run.log_event("machine", device=device, processes=world.size)
    try:
        if isinstance(cfg, ModelStageConfig):
            world.configure(cfg.cluster)
            recipe()
        else:
            world.run_on_rank_zero(recipe, f"the stage {cfg.kind}")
    except torch.OutOfMemoryError as error:
        asked = str(error).partition(". ")[0]
        raise TrainError(
            f"the {cfg.kind} stage needs more memory than the GPU has ({asked}): lower "
            "train.micro_batch_tokens or engine.kv_cache_gb, or set train.offload_optimizer = "
            "true; `whet plan` says what fits"
        ) from None
    except (MemoryError, RuntimeError) as error:
        is_memory = isinstance(error, MemoryError)
        if not is_memory and not any(words in str(error) for words in OUT_OF_HOST_MEMORY):
            raise world.explain(error) or error from None
        raise TrainError(
            f"the {cfg.kind} stage needs more memory than this machine has: "
            "lower engine.max_num_seqs or train.micro_batch_tokens; `whet plan` says what fits"
        ) from None


def _check_inputs_intact(folders: Sequence[Path]) -> None:
    """Compare the files that finished runs made with the hashes in their summaries, if they have
    some."""
    for folder in folders:
        hashes = RunStore.view(folder).summary().get("files")
        damage = find_damage(folder, hashes) if isinstance(hashes, dict) else None
        if damage is not None:
            raise DataError(
                f"{folder} is not as its stage made it ({damage}): put the file back, or set "
                "`problems` to a changed copy of the folder"
            )


def hash_inputs(stage: StageConfig) -> dict[str, str]:
    """Hash the problems and rollouts that a stage reads; models have their own hashes."""
    hashes: dict[str, str] = {}
    for key in {"problems", "data"} & stage.inputs.keys():
        path = Path(stage.inputs[key])
        if path.is_file():
            files = [path]
        elif key == "problems":
            files = list(path.glob("problems-*.jsonl"))
        else:
            files = RunStore(path, lock=None).rollout_files("train")
        hashes |= {f"{key} {file.name}": sha256(file) for file in files}
    return hashes


def _sum_earlier_seconds(before: Mapping[str, Json], metrics: Path) -> float:
    """Sum the seconds of earlier attempts; a killed one lasted until its last written metric."""
    earlier = before.get("spent")
    spent = earlier if isinstance(earlier, float) else 0.0
    began = before.get("began")
    if isinstance(began, float) and metrics.is_file():
        spent += max(0.0, metrics.stat().st_mtime - began)
    return spent


def _move_aside(folder: Path) -> Path:
    """Rename an outdated result; nothing that took time to make is deleted."""
    number = 1
    while (aside := folder.with_name(f".old-{folder.name}-{number}")).exists():
        number += 1
    shutil.move(folder, aside)
    return aside


def check_stage_names(stages: Mapping[str, StageConfig]) -> None:
    """Find a wrong reference before the first stage runs."""
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
        check_same_prompt(stage, partial(_find_producing_stage, stages))


def _find_producing_stage(stages: Mapping[str, StageConfig], location: str) -> StageConfig | None:
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


def _resolve_references(stage: StageConfig, folders: Mapping[str, Path]) -> StageConfig:
    """Replace `@name` by the folder of that stage, which is also where its model is."""
    names = {key: name[1:] for key, name in stage.inputs.items() if name.startswith("@")}
    return stage.with_inputs({key: str(folders[name]) for key, name in names.items()})
