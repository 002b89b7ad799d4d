"""Run a pipeline: stages in order, each in its own run folder; finished ones are skipped.

`@name` in a setting is the result of an earlier stage: its folder, or its model. A stage is up to
date if nothing has changed in its settings, the user code they name, and the stages it refers to.
"""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from rich.markup import escape

from whet.config import LoadedSettings, show_settings, to_table
from whet.errors import DataError, TrainError
from whet.pipeline.pipeline_config import (
    PipelineConfig,
    find_producing_stage,
    load_pipeline,
    load_smoke,
)
from whet.pipeline.report import describe_results, write_pipeline_results
from whet.pipeline.smoke import STAND_INS, write_smoke_inputs
from whet.pipeline.stage_keys import StageKey, check_same_prompt, hash_stages, list_earlier_stages
from whet.preflight.lengths import continues_new_model, note_before_stage
from whet.preflight.preflight import check_before_run
from whet.stages.stage import ModelStageConfig, StageConfig, TrainingConfig
from whet.store.files import find_damage, read_json, sha256, write_json
from whet.store.follow import one_writer, open_run
from whet.store.run import RunStore
from whet.toml import flatten
from whet.track.progress import console, say
from whet.types import Json
from whet.world import get_world

OUT_OF_HOST_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "Storage size calculation overflowed",
)
"""Phrases of torch's errors when host memory runs out."""


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
    """An attempt at a stage: whether it may start or continue without `--resume`, its start, and
    the seconds of earlier attempts."""

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
    origins = {setting: origin.get(setting, "default") for setting in flatten(to_table(stage))}
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
    """Plan an attempt at a stage, and move an outdated result aside; None if it is up to date.

    A stage continues if only its number of steps grew.
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
    """Run the recipe of a stage; running out of memory is reported in one sentence."""
    world = get_world()
    recipe = partial(cfg.run_in, run)
    world.run_on_rank_zero(
        lambda: check_same_prompt(cfg, partial(find_producing_stage, {})), "the prompt"
    )
    if run.steps_before is not None and isinstance(cfg, TrainingConfig):
        say(cfg.describe_more_steps(run.steps_before))
    world.run_on_rank_zero(lambda: run.pin_inputs(hash_inputs(cfg)), "the hashes of the inputs")
    is_gpu = cfg.ranks is not None and torch.cuda.is_available()
    device = torch.cuda.get_device_name() if is_gpu else "cpu"
    run.log_event("machine", device=device, processes=world.size)
    try:
        if cfg.ranks is not None:
            world.configure(cfg.ranks)
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
    """Compare the files that finished runs made with the hashes in their summaries, if any."""
    for folder in folders:
        hashes = RunStore.view(folder).summary().get("files")
        damage = find_damage(folder, hashes) if isinstance(hashes, dict) else None
        if damage is not None:
            raise DataError(
                f"{folder} is not as its stage made it ({damage}): put the file back, or set "
                "`problems` to a changed copy of the folder"
            )


def hash_inputs(stage: StageConfig) -> dict[str, str]:
    """Hash the problem and rollout files that a stage reads; checkpoints have their own hashes."""
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
    """Sum the seconds of earlier attempts; a killed one counts up to its last metrics."""
    earlier = before.get("spent")
    spent = earlier if isinstance(earlier, float) else 0.0
    began = before.get("began")
    if isinstance(began, float) and metrics.is_file():
        spent += max(0.0, metrics.stat().st_mtime - began)
    return spent


def _move_aside(folder: Path) -> Path:
    """Rename an outdated result; nothing expensive is deleted."""
    number = 1
    while (aside := folder.with_name(f".old-{folder.name}-{number}")).exists():
        number += 1
    shutil.move(folder, aside)
    return aside


def _resolve_references(stage: StageConfig, folders: Mapping[str, Path]) -> StageConfig:
    """Replace each `@name` with the folder of that stage, which also holds its model."""
    names = {key: name[1:] for key, name in stage.inputs.items() if name.startswith("@")}
    return stage.with_inputs({key: str(folders[name]) for key, name in names.items()})
