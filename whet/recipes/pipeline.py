"""A pipeline: stages of one file in order, each in a run folder of its own, each skipped when its result is there.

`@name` in a stage's settings stands for what an earlier stage left: its folder, or its model where a model is wanted.
A stage is up to date when its settings and all that it was made from are unchanged.
"""

import hashlib
import json
import shutil
import time
from pathlib import Path
from typing import Literal

from pydantic import model_validator

from whet.config import Config, Loaded, to_table
from whet.errors import ConfigError
from whet.recipes.kinds import IGNORED, AnyStage, Stage, run_stage
from whet.recipes.story import last_words, write_story
from whet.store.files import read_json, write_json
from whet.store.lock import Lock
from whet.store.run import RunStore
from whet.tables import flat
from whet.track.progress import console
from whet.types import Json


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


def run_pipeline(loaded: Loaded[PipelineConfig], folder: Path, *, resume: bool) -> None:
    """Run every stage that is not up to date, then write summary.json and report.html."""
    cfg = loaded.config
    lock = Lock(folder)
    try:
        folders: dict[str, Path] = {}
        keys: dict[str, str] = {}
        for number, (name, stage) in enumerate(cfg.stages.items(), start=1):
            folders[name] = folder / f"{number:02d}-{name}"
            keys[name] = _key(stage, keys)
            _check_references(name, stage, folders)
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
        console.print(
            f"[bold]{folder.name}[/]: its settings or inputs changed; the old result moves to {_retire(folder)}"
        )
        before = {}
    if before.get("seconds") is not None and (folder / "summary.json").is_file():
        console.print(f"[bold]{folder.name}[/]: done before, {before['seconds']:.0f} s")
        return
    console.print(f"[bold]{folder.name}[/]")
    began, spent = time.monotonic(), float(str(before.get("spent", 0.0)))
    with RunStore.open(
        folder, stage, _origins(stage, origin), resume=resume or not folder.exists(), ignore=IGNORED
    ) as run:
        write_json(key_file, {"key": key, "spent": spent})
        try:
            if not run.is_finished:
                run_stage(stage, run)
        finally:
            spent += time.monotonic() - began
            done: dict[str, Json] = {"key": key, "spent": spent}
            write_json(key_file, done | ({"seconds": spent} if run.is_finished else {}))


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


def _check_references(name: str, stage: Stage, folders: dict[str, Path]) -> None:
    for other in _references(to_table(stage)):
        if other not in folders or other == name:
            earlier = ", ".join(key for key in folders if key != name) or "none"
            raise ConfigError(f"stage {name!r} refers to @{other}, which is no earlier stage; earlier ones: {earlier}")


def _resolved(stage: Stage, folders: dict[str, Path]) -> Stage:
    """Replace `@name` by the folder of that stage; a model's path by the checkpoint it hands on."""

    def place(value: str | None) -> str | None:
        return str(folders[value[1:]]) if value is not None and value.startswith("@") else value

    changes: dict[str, object] = {}
    for key in ("problems", "data"):
        if key in type(stage).model_fields:
            changes[key] = place(getattr(stage, key))
    if "model" in type(stage).model_fields:
        model = stage.model  # type: ignore[union-attr]
        changes["model"] = model.model_copy(update={"path": place(model.path)})
    return stage.model_copy(update=changes)
