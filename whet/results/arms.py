"""Runs to compare, grouped into arms: runs of an arm differ only in their seeds.

The settings are those in each run's config.toml. A model or file made by another run counts as that
run's settings, so that seeds of an arm may start from seeds of another stage. Other problems and
responses count as their content, and other paths in a run's own folder count from there.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.config import explain_settings, load_settings
from whet.errors import ConfigError, DataError
from whet.pipeline.pipeline_config import STAGE_KINDS
from whet.recipes.teach import TeachConfig
from whet.stages.stage import StageConfig
from whet.store.run import RunStore, find_run, stage_folders
from whet.toml import flatten, literal, read
from whet.types import Json

NOT_COMPARED = ("seed", *TeachConfig.ignored)
"""Settings that seeds of one arm may differ in."""
MAX_ORIGIN_DEPTH = 16
"""How many runs back the starting model of a run is followed."""
MAX_NAME = 32
"""Characters of an arm's name."""
_UNSET = "not set"
THERE = "there"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """A run as the user names it: a pipeline with its stages, or a single stage."""

    folder: Path
    stages: Mapping[str, RunStore]

    @property
    def is_pipeline(self) -> bool:
        return self.folder not in [run.folder for run in self.stages.values()]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of its stages, each once."""
        seeds = [read(run.config_file).get("seed") for run in self.stages.values()]
        return tuple(dict.fromkeys(seed for seed in seeds if isinstance(seed, int)))

    @property
    def seed(self) -> str:
        return "/".join(map(str, self.seeds)) or "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A setting that differs between arms, with its value in each."""

    key: str
    meaning: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Runs whose settings differ only in their seeds."""

    name: str
    runs: tuple[RunFolder, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Value:
    """A setting, both as it is shown and as it is compared."""

    shown: str
    compared: str


def view_run_folder(location: Path) -> RunFolder:
    """Open a run or a pipeline for reading."""
    if (location / "config.toml").is_file():
        run = RunStore.view(location)
        return RunFolder(folder=location, stages={str(read(run.config_file).get("kind")): run})
    folders = stage_folders(location)
    if not folders:
        raise DataError(f"{location} holds no run: neither a config.toml nor folders of stages")
    return RunFolder(
        folder=location,
        stages={folder.name.partition("-")[2]: RunStore.view(folder) for folder in folders},
    )


def load_stage(store: RunStore) -> StageConfig | None:
    """Load the settings of a stage; None if another version of whet wrote them."""
    try:
        kind = STAGE_KINDS[str(read(store.config_file).get("kind"))]
        return load_settings(kind, store.config_file, []).config
    except (ConfigError, KeyError):
        return None


def group_arms(locations: Sequence[Path]) -> tuple[list[Arm], list[Change], list[str]]:
    """Group runs into arms; list the settings that differ, and the runs left out as repeats.

    A run with the same settings and seeds as an earlier one is a repeat and adds nothing.
    """
    groups: dict[str, dict[tuple[int, ...], RunFolder]] = {}
    settings: dict[str, dict[str, _Value]] = {}
    repeats = []
    for location in locations:
        run = view_run_folder(location)
        values = _read_settings(run)
        digest = _digest(values)
        settings.setdefault(digest, values)
        seeds = groups.setdefault(digest, {})
        if run.seeds in seeds:
            before = seeds[run.seeds].folder
            repeats.append(
                f"{location} has the settings and the seed of {before} and is left out: running "
                "the same seed twice is not evidence"
            )
        seeds.setdefault(run.seeds, run)
    runs = [tuple(group.values()) for group in groups.values()]
    changes = _list_changes(list(settings.values()), [group[0] for group in runs])
    names = _name_arms(runs, changes)
    arms = [Arm(name=name, runs=group) for name, group in zip(names, runs, strict=True)]
    return arms, changes, repeats


def _read_settings(run: RunFolder, depth: int = 0) -> dict[str, _Value]:
    """Read the settings of all stages by dotted key, prefixed with the stage in a pipeline."""
    stage_names = {store.folder.resolve(): name for name, store in run.stages.items()}
    own_folder = _find_own_folder(run)
    tables = tuple(f"{name}." for name in TeachConfig.ignored)
    values = {}
    for name, store in run.stages.items():
        prefix = f"{name}." if run.is_pipeline else ""
        for key, item in flatten(read(store.config_file)).items():
            if key not in NOT_COMPARED and not key.startswith(tables):
                values[f"{prefix}{key}"] = _to_value(
                    key, item, store, own_folder, stage_names, depth
                )
    return values


def _find_own_folder(run: RunFolder) -> Path:
    """Return the folder of the pipeline, also for one of its stages; else of the run."""
    folder = run.folder.resolve()
    return folder.parent if folder in stage_folders(folder.parent) else folder


def _to_value(
    key: str,
    item: Json,
    store: RunStore,
    own_folder: Path,
    stage_names: Mapping[Path, str],
    depth: int,
) -> _Value:
    shown = literal(item)
    if not isinstance(item, str) or not (key.endswith(".path") or key in ("problems", "data")):
        return _Value(shown=shown, compared=shown)
    source = find_run(item)
    if source is None:
        path = Path(item).resolve()
        if path.is_relative_to(own_folder):
            shown = literal(str(path.relative_to(own_folder)))
        return _Value(shown=shown, compared=_hash_content(key, store) or shown)
    if source.resolve() in stage_names:
        reference = f"@{stage_names[source.resolve()]}"
        return _Value(shown=reference, compared=reference)
    if depth >= MAX_ORIGIN_DEPTH:
        return _Value(shown=shown, compared=shown)
    return _Value(shown=shown, compared=_digest(_read_settings(view_run_folder(source), depth + 1)))


def _hash_content(key: str, store: RunStore) -> str | None:
    """Combine the recorded hashes of an input's files; the name of a single one does not matter."""
    hashes = {name: sha for name, sha in store.inputs().items() if name.startswith(f"{key} ")}
    if len(hashes) < 2:
        return next(iter(hashes.values()), None)
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()


def _digest(values: Mapping[str, _Value]) -> str:
    text = json.dumps({key: values[key].compared for key in sorted(values)})
    return hashlib.sha256(text.encode()).hexdigest()


def _list_changes(
    settings: Sequence[Mapping[str, _Value]], runs: Sequence[RunFolder]
) -> list[Change]:
    keys = dict.fromkeys(key for values in settings for key in values)
    unset = _Value(shown=_UNSET, compared=_UNSET)
    changes = []
    meanings: dict[str, str] = {}
    for run in runs:
        meanings |= _explain(run)
    lacking = _list_stages_lacking(runs)
    changes += [Change(key=key, meaning="a stage", values=v) for key, v in lacking.items()]
    for key in keys:
        if key.partition(".")[0] in lacking:
            continue
        values = [table.get(key, unset) for table in settings]
        if len({value.compared for value in values}) > 1:
            changes.append(
                Change(key=key, meaning=meanings.get(key, ""), values=_show_values(values))
            )
    return changes


def _show_values(values: Sequence[_Value]) -> tuple[str, ...]:
    """Show values; files of other content under one path also by the start of their hash."""
    versions: dict[str, set[str]] = {}
    for value in values:
        versions.setdefault(value.shown, set()).add(value.compared)
    return tuple(
        value.shown if len(versions[value.shown]) == 1 else f"{value.shown} ({value.compared[:12]})"
        for value in values
    )


def _list_stages_lacking(runs: Sequence[RunFolder]) -> dict[str, tuple[str, ...]]:
    """List the stages that some pipelines lack."""
    if not all(run.is_pipeline for run in runs):
        return {}
    names = dict.fromkeys(name for run in runs for name in run.stages)
    stages = {name: tuple(THERE if name in r.stages else _UNSET for r in runs) for name in names}
    return {name: values for name, values in stages.items() if _UNSET in values}


def _explain(run: RunFolder) -> dict[str, str]:
    """Look up the meanings of settings; those of other versions of whet have none."""
    meanings: dict[str, str] = {}
    for name, store in run.stages.items():
        prefix = f"{name}." if run.is_pipeline else ""
        config = load_stage(store)
        texts = {} if config is None else explain_settings(config)
        meanings |= {f"{prefix}{key}": text for key, text in texts.items()}
    return meanings


def _name_arms(groups: Sequence[Sequence[RunFolder]], changes: Sequence[Change]) -> list[str]:
    """Name arms by their differences if there are one or two, else by their folders."""
    if 1 <= len(changes) <= 2:
        lasts = [change.key.rpartition(".")[2] for change in changes]
        keys = lasts if len(set(lasts)) == len(lasts) else [change.key for change in changes]
        names = [
            ", ".join(_name_value(key, c.values[i]) for key, c in zip(keys, changes, strict=True))
            for i in range(len(groups))
        ]
        if len(set(names)) == len(names):
            return names
    names = [_name_folders([run.folder for run in group]) for group in groups]
    counts = {name: names.count(name) for name in names}
    return [
        name if counts[name] == 1 else f"{name} {number}"
        for number, name in enumerate(names, start=1)
    ]


def _name_value(key: str, value: str) -> str:
    if value == _UNSET:
        return f"no {key}"
    text = value.strip('"')
    text = Path(text).name if key in ("path", "problems", "data") else text
    return text[:MAX_NAME] if key == "name" else f"{key} {text}"[:MAX_NAME]


def _name_folders(folders: Sequence[Path]) -> str:
    name = folders[0].resolve().name
    return re.sub(r"[-_.]*(seed)?[-_.]*\d*$", "", name)[:MAX_NAME] or name[:MAX_NAME]
