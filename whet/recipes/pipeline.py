"""A pipeline: stages of one file in order, each in a run folder of its own, each skipped when its result is there.

`@name` in a stage's settings stands for what an earlier stage left: its folder, or its model where a model is wanted.
A stage is up to date when its settings and all that it was made from are unchanged.
"""

import hashlib
import json
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import field_validator, model_validator
from rich.markup import escape

from whet.config import Config, Loaded, kind_of, load, to_table
from whet.errors import ConfigError
from whet.recipes.kinds import IGNORED, KINDS, AnyStage, Stage, run_stage
from whet.recipes.story import last_words, write_story
from whet.store.files import read_json, write_json
from whet.store.lock import Lock
from whet.store.run import RunStore
from whet.tables import flat
from whet.track.progress import console
from whet.types import Json

PLACES = ("problems", "data", "model.path", "teacher.path", "verifier.path")
"""Settings that may refer to an earlier stage."""


class PipelineConfig(Config):
    """Stages by name, run in the order of the file."""

    kind: Literal["run"] = "run"
    seed: int = 0
    """The seed of every stage that names none."""
    stages: dict[str, AnyStage]

    @model_validator(mode="before")
    @classmethod
    def _pass_seed_on(cls, given: object) -> object:
        if not isinstance(given, dict) or not isinstance(given.get("stages"), dict):
            return given
        seed = given.get("seed", 0)
        stages = {name: {"seed": seed, **s} if isinstance(s, dict) else s for name, s in given["stages"].items()}
        return {**given, "stages": stages}

    @field_validator("stages")
    @classmethod
    def _check_names(cls, stages: dict[str, AnyStage]) -> dict[str, AnyStage]:
        """Keep names to what a folder can be called; a stage's is part of its folder's."""
        if not stages:
            raise ValueError('there should be a stage at least, such as [stages.problems] with kind = "make"')
        for name in stages:
            if not re.fullmatch(r"\w[\w-]*", name):
                raise ValueError(f"the stage name {name!r} should be of letters, digits, _ and - only")
        return stages


def load_pipeline(file: Path, overrides: Sequence[str]) -> Loaded[PipelineConfig]:
    """Read a pipeline; a seed that a stage took over from the pipeline says so."""
    loaded = load(PipelineConfig, file, overrides)
    inherited = {f"stages.{name}.seed" for name in loaded.config.stages}
    origin = {key: "seed" if key in inherited and at == "default" else at for key, at in loaded.origin.items()}
    return Loaded(config=loaded.config, origin=origin)


def load_stages(file: Path, overrides: Sequence[str]) -> dict[str, Stage]:
    """Read the stages of a pipeline, or the one stage that a file is."""
    kind = kind_of(file)
    if kind == "run":
        return dict(load_pipeline(file, overrides).config.stages)
    if kind not in KINDS:
        raise ConfigError(f"{file} says kind = {kind!r}; known kinds are run, {', '.join(KINDS)}")
    return {kind: load(KINDS[kind], file, overrides).config}


def run_pipeline(loaded: Loaded[PipelineConfig], folder: Path, *, resume: bool) -> None:
    """Run every stage that is not up to date, then write summary.json and report.html."""
    cfg = loaded.config
    _check_references(cfg.stages)
    folders = {name: folder / f"{number:02d}-{name}" for number, name in enumerate(cfg.stages, start=1)}
    keys: dict[str, str] = {}
    lock = Lock(folder)
    try:
        for name, stage in cfg.stages.items():
            keys[name] = _key(stage, keys)
            origin = {k.removeprefix(f"stages.{name}."): v for k, v in loaded.origin.items()}
            _run_one(name, _resolved(stage, folders), origin, folders[name], keys[name], resume=resume)
        write_story(cfg.seed, cfg.stages, folders, folder)
        console.print(last_words(folder))
    finally:
        lock.close()


def _run_one(name: str, stage: Stage, origin: dict[str, str], folder: Path, key: str, *, resume: bool) -> None:
    key_file = folder / "stage.json"
    known = read_json(key_file) if key_file.is_file() else None
    before = known if isinstance(known, dict) else {}
    if folder.exists() and before.get("key") not in (None, key):
        aside = escape(str(_retire(folder)))
        console.print(f"[bold]{folder.name}[/]: its settings or inputs changed; the old result moves to {aside}")
        before = {}
    if before.get("seconds") is not None and (folder / "summary.json").is_file():
        console.print(f"[bold]{folder.name}[/]: done before, {before['seconds']:.0f} s")
        return
    console.print(f"[bold]{folder.name}[/]")
    began, spent = time.time(), _spent(before, folder)
    # The key has seen the references; where they lead to may be written in another way, or have moved.
    ignore = (*IGNORED, *PLACES)
    with RunStore.open(
        folder, stage, _origins(stage, origin), resume=resume or not folder.exists(), ignore=ignore
    ) as run:
        write_json(key_file, {"key": key, "spent": spent, "began": began})
        try:
            if not run.is_finished:
                run_stage(stage, run)
        finally:
            spent += time.time() - began
            done: dict[str, Json] = {"key": key, "spent": spent}
            write_json(key_file, done | ({"seconds": spent} if run.is_finished else {}))


def _spent(before: Mapping[str, Json], folder: Path) -> float:
    """Add up the seconds of earlier tries; one that was killed lasted until its last written metric."""
    spent, began = float(str(before.get("spent", 0.0))), before.get("began")
    metrics = folder / "metrics.jsonl"
    if isinstance(began, float) and metrics.is_file():
        spent += max(0.0, metrics.stat().st_mtime - began)
    return spent


def _origins(stage: Stage, origin: dict[str, str]) -> dict[str, str]:
    return {key: origin.get(key, "default") for key in flat(to_table(stage))}


def _retire(folder: Path) -> Path:
    """Move an outdated result aside: nothing that took time to make is deleted unasked."""
    number = 1
    while (aside := folder.with_name(f".old-{folder.name}-{number}")).exists():
        number += 1
    shutil.move(folder, aside)
    return aside


def _key(stage: Stage, keys: dict[str, str]) -> str:
    """Hash a stage's settings with the keys of the stages it refers to."""
    table = {name: item for name, item in to_table(stage).items() if name not in IGNORED}
    used = {name: keys[name] for name in _references(table) if name in keys}
    text = json.dumps([table, used], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _references(value: Json) -> list[str]:
    if isinstance(value, str):
        return [value[1:]] if value.startswith("@") else []
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else []
    return [name for item in items for name in _references(item)]


def _check_references(stages: Mapping[str, Stage]) -> None:
    """Find a wrong reference before the first stage runs, not when its own turn comes."""
    earlier: list[str] = []
    for name, stage in stages.items():
        for other in _references(to_table(stage)):
            if other not in earlier:
                known = ", ".join(earlier) or "none"
                raise ConfigError(
                    f"stage {name!r} refers to @{other}, which is no earlier stage; earlier ones: {known}"
                )
        earlier.append(name)


def _resolved(stage: Stage, folders: dict[str, Path]) -> Stage:
    """Replace `@name` by the folder of that stage; a model's path by the checkpoint it hands on."""

    def place(value: str | None) -> str | None:
        return str(folders[value[1:]]) if value is not None and value.startswith("@") else value

    changes: dict[str, object] = {}
    for key in ("problems", "data"):
        if key in type(stage).model_fields:
            changes[key] = place(getattr(stage, key))
    for key in ("model", "teacher", "verifier"):
        if key in type(stage).model_fields:
            model = getattr(stage, key)
            changes[key] = model.model_copy(update={"path": place(model.path)})
    return stage.model_copy(update=changes)
