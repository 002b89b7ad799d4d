"""A summary of a run in a few words: its task, its model and size, its data, its steps."""

import sys
from collections.abc import Mapping
from pathlib import Path

from whet.data.problems import problem_file
from whet.errors import WhetError
from whet.models.cost import Cost
from whet.models.load import read_shape
from whet.models.source import ModelSource
from whet.stages.stage import StageConfig
from whet.store.rollouts import count_rows
from whet.store.run import RunStore, find_run, model_folder
from whet.tasks.base import Task, is_builtin
from whet.tasks.task_config import build_task
from whet.types import SPLITS

_MILLION = 1e6


def describe_run(stages: Mapping[str, StageConfig], folders: Mapping[str, Path]) -> dict[str, str]:
    """Describe the stages of a run together; unknown facts are left out."""
    tasks = dict.fromkeys(_describe_task(build_task(stage.task)) for stage in stages.values())
    models = dict.fromkeys(filter(None, (_describe_model(s, folders) for s in stages.values())))
    data = dict.fromkeys(line for s in stages.values() for line in _describe_data(s, folders))
    steps = [
        f"{stage.kind} {stage.training_steps:,} steps"
        for stage in stages.values()
        if stage.training_steps
    ]
    size = _describe_size(stages, folders)
    facts = {
        "Task": "; ".join(tasks),
        "Model": "; ".join([*models, *([size] if size else [])]),
        "Data": "; ".join(data),
        "Training": ", ".join(steps),
    }
    return {name: text for name, text in facts.items() if text}


def _describe_task(task: Task) -> str:
    """Take the first sentence of the task's module, or the name of a user's own."""
    docstring = sys.modules[type(task).__module__].__doc__ if is_builtin(task) else None
    sentence = " ".join((docstring or "").split("\n\n")[0].split())
    return f"{task.name} ({sentence.removesuffix('.')})" if sentence else task.name


def _describe_model(stage: StageConfig, folders: Mapping[str, Path]) -> str:
    """Name the source of the weights, unless it is an earlier stage, already named."""
    source = next((item for _, item in stage if isinstance(item, ModelSource)), None)
    if source is None or (source.path or "").startswith("@"):
        return ""
    if source.path is None:
        return f"new from random weights, of the size {source.new}"
    run = find_run(source.path)
    stage_folders = [folder.resolve() for folder in folders.values()]
    return "" if run is not None and run.resolve() in stage_folders else source.path


def _describe_size(stages: Mapping[str, StageConfig], folders: Mapping[str, Path]) -> str:
    """Describe the shape of the model of the last stage whose model is on this machine."""
    for name, stage in reversed([*stages.items()]):
        path = stage.inputs.get("model.path", "")
        places = [str(folders[name])] if stage.training_steps else []
        places.append(str(folders[path[1:]]) if path.startswith("@") else path)
        for place in places:
            try:
                folder = model_folder(place)
                # A hub id is not asked for over the network for a line of a report.
                shape = read_shape(str(folder)) if place and folder.is_dir() else None
            except WhetError:
                continue
            if shape is not None:
                parameters = f"{Cost(cfg=shape).parameters / _MILLION:,.3g} million parameters"
                return f"{parameters}, {shape.num_layers} layers of {shape.hidden_size}"
    return ""


def _describe_data(stage: StageConfig, folders: Mapping[str, Path]) -> list[str]:
    """Count the problems and responses that a stage reads, by file."""
    lines = []
    for key in ("problems", "data"):
        location = stage.inputs.get(key)
        if location is None:
            continue
        is_stage = location.startswith("@")
        folder = folders[location[1:]] if is_stage else Path(location)
        counted = _count_problems(folder) if key == "problems" else _count_responses(folder)
        lines.append(f"{location.removeprefix('@')}: {counted}" if counted else location)
    if not lines and (stage.measures_model or stage.training_steps):
        lines.append("problems of the task itself")
    return lines


def _count_problems(folder: Path) -> str:
    counts = []
    for split in SPLITS:
        file = problem_file(folder, split)
        if file.is_file():
            with file.open("rb") as rows:
                counts.append(f"{sum(1 for row in rows if row.strip()):,} {split}")
    return f"{', '.join(counts)} problems" if counts else ""


def _count_responses(folder: Path) -> str:
    run = RunStore(folder, lock=None)
    files = [folder] if folder.is_file() else run.rollout_files("train")
    try:
        return f"{sum(map(count_rows, files)):,} responses" if files else ""
    except WhetError:
        return ""
