"""Experiment files before a run: `whet init` writes a first one for a model and data, each setting
with its meaning above it; `whet check` prints its findings as a table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from textwrap import wrap

from pydantic import BaseModel

from whet.batching.rollout_datasets import read_data
from whet.config_errors import find_settings_classes
from whet.data.problems import problem_file
from whet.data.row_files import READERS, file_ending, iterate_rows
from whet.errors import ConfigError, DataError, SettingsError
from whet.models.source import ModelSource, read_tokenizer
from whet.pipeline.pipeline_config import (
    STAGE_KINDS,
    PipelineConfig,
    load_settings_file,
    load_stages,
)
from whet.preflight.findings import Finding, Level, print_findings
from whet.preflight.preflight import inspect
from whet.store.files import stream_rows, write_atomic
from whet.toml import literal
from whet.track.progress import printer
from whet.types import SPLITS, Json, Split

DEFAULT_TOKENS = 1024
NUM_READ = 100
"""How many rows of a problem file are read to find its task."""
Settings = Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class StarterData:
    """What is known of a user's data: a folder of problems or a file of responses, and the task."""

    task: Json = "game24"
    problems: str | None = None
    responses: str | None = None
    splits: tuple[Split, ...] = SPLITS


def write_experiment(out: Path, *, kind: str | None, model: str | None, data: Path | None) -> str:
    """Write a new file for a model and data; return its kind."""
    if out.exists():
        raise ConfigError(f"{out} already exists: choose another --out, or delete it")
    known = StarterData() if data is None else read_data_facts(data)
    default = (
        "run" if model is None and data is None else "rl" if known.responses is None else "sft"
    )
    chosen = kind or default
    writers = {"rl": _write_rl, "sft": _write_sft, "run": _write_run}
    if chosen not in writers:
        raise ConfigError(f"--kind is {chosen!r}, expected one of {', '.join(writers)}")
    if model is None and (chosen == "rl" or known.problems is not None):
        raise ConfigError(f"--kind {chosen} needs --model, a folder or hub id to start from")
    lines = [
        f'kind = "{chosen}"',
        f"# `whet check {out}` checks it, `whet {chosen} {out}` runs it, and",
        f"# `whet show {out} --explain` prints all settings with their defaults.",
        *writers[chosen](model, known),
    ]
    write_atomic(out, "\n".join(lines) + "\n")
    return chosen


def read_data_facts(data: Path) -> StarterData:
    """Find out whether a folder or file holds problems, or responses to imitate."""
    folder = data if data.is_dir() else data.parent
    files = {split: problem_file(folder, split) for split in SPLITS}
    there = tuple(split for split, file in files.items() if file.is_file())
    if there and (data.is_dir() or data in files.values()):
        tasks: dict[str, None] = {}
        for _, row in islice(
            stream_rows(files["rl"] if "rl" in there else files[there[0]]), NUM_READ
        ):
            tasks[str(row.get("task"))] = None
        names = list(tasks)
        task: Json = names[0] if len(names) == 1 else {"name": "mix", "tasks": [*names]}
        return StarterData(task=task, problems=str(folder), splits=there)
    if data.is_dir() or file_ending(data) == ".parquet":
        return StarterData(responses=str(data), task=_read_task(data))
    raise ConfigError(_ask_for_import(data))


def _read_task(data: Path) -> str:
    return read_data(str(data))[0].problem.task


def _ask_for_import(data: Path) -> str:
    if not data.exists() or file_ending(data) not in READERS:
        return f"--data {data} is neither a folder of problems nor a file of rows or responses"
    first = next(iterate_rows(data), None)
    if first is None:
        raise DataError(f"{data} has no rows")
    columns = list(first.fields)
    prompt = next((name for name in columns if name in ("question", "problem")), "QUESTION")
    answer = next((name for name in columns if name in ("gold", "solution", "answer")), "ANSWER")
    folder = Path("data") / data.stem
    return (
        f"{data} holds rows with the columns {', '.join(columns)}: turn them into problems with "
        f"`whet data import {data} --map prompt={prompt} --map answer={answer} --task math "
        f"--split rl --out {folder}/problems-rl.jsonl`, some with --split dev, then `whet init "
        f"--data {folder}`"
    )


def _write_rl(model: str | None, data: StarterData) -> Iterator[str]:
    yield from _write_settings(
        "rl",
        {
            **_source(data),
            **_start_from(model),
            "steps": 200,
            "problems_per_step": 32,
            "group_size": 8,
            "sampling.max_tokens": _choose_tokens(model),
            "reward.weights": {"correct": 1.0},
            "algo.name": "grpo",
            "train.lr": 1e-6,
            "validation.every": 50,
            "save.every": 50,
        },
    )


def _write_sft(model: str | None, data: StarterData) -> Iterator[str]:
    if data.responses is None:
        raise ConfigError("--kind sft needs --data, a file or run folder with responses to imitate")
    start = _start_from(model) if model else {"model.new": "tiny"}
    settings: Settings = {
        "task": data.task,
        "data": data.responses,
        **start,
        "steps": 1000,
        "batch_size": 32,
        "train.lr": 1e-5 if model else 2e-3,
        "train.warmup_steps": 20,
        "sampling.max_tokens": _choose_tokens(model) if model else 64,
        "save.every": 200,
    }
    yield from _write_settings("sft", settings)


def _write_run(model: str | None, data: StarterData) -> Iterator[str]:
    """Measure a model, train it, measure it again; without one, first make one for the 24 game."""
    if data.responses is not None:
        raise ConfigError("--kind run needs problems in --data; responses are for --kind sft")
    yield from ["", *_write_settings("rl", _source(data))]
    if model is None:
        yield from _write_stage("traces", "teach", {"per_problem": 8})
        sft: Settings = {
            "data": "@traces",
            "model": {"new": "tiny", "positions": 64},
            "steps": 200,
            "train.lr": 2e-3,
            "train.warmup_steps": 20,
        }
        yield from _write_stage("sft", "sft", sft)
    tokens = 40 if model is None else _choose_tokens(model)
    split = "test" if "test" in data.splits else "dev"
    measure: Settings = {"split": split, "samples": 4, "sampling.max_tokens": tokens}
    if model is not None:
        yield from _write_stage("before", "eval", {**_start_from(model), **measure})
    train: Settings = {
        **({"model.path": "@sft"} if model is None else _start_from(model)),
        "steps": 50 if model is None else 200,
        "sampling.max_tokens": tokens,
        "train.lr": 2e-4 if model is None else 1e-6,
        "validation.every": 50,
    }
    yield from _write_stage("rl", "rl", train)
    yield from _write_stage("after", "eval", {"model.path": "@rl", **measure})


def _source(data: StarterData) -> Settings:
    return {"task": data.task, **({"problems": data.problems} if data.problems else {})}


def _write_stage(name: str, kind: str, settings: Settings) -> Iterator[str]:
    yield from ["", f"[stages.{name}]", f'kind = "{kind}"', *_write_settings(kind, settings)]


def _write_settings(kind: str, settings: Settings) -> Iterator[str]:
    """Write settings, each below a comment with its meaning."""
    for key, value in settings.items():
        yield from (f"# {line}" for line in wrap(explain_setting(kind, key.split(".")), 96))
        yield f"{key} = {literal(value)}"


def explain_setting(kind: str, path: Sequence[str]) -> str:
    """Return the meaning of a stage's setting, from its docstring."""
    models: list[type[BaseModel]] = [STAGE_KINDS[kind]]
    meaning = ""
    for name in path:
        fields = [model.model_fields[name] for model in models if name in model.model_fields]
        meaning = " ".join((fields[0].description or "").split())
        models = [model for field in fields for model in find_settings_classes(field.annotation)]
    return meaning


def _start_from(model: str | None) -> Settings:
    """Name the model; base models, which lack a chat template, get one."""
    start: Settings = {"model.path": model}
    _, has_template = _read_model(model)
    return start if has_template else {**start, "model.chat_template": "plain"}


def _choose_tokens(model: str | None) -> int:
    """Return half of a model's context, as the limit of responses."""
    positions, _ = _read_model(model)
    return min(DEFAULT_TOKENS, positions // 2)


def _read_model(model: str | None) -> tuple[int, bool]:
    """Read the context of a model and whether it has a chat template; both are unknown if it is not
    on this machine."""
    try:
        shape, tokenizer = read_tokenizer(ModelSource(path=model))
    except DataError:
        return 2 * DEFAULT_TOKENS, True
    return shape.max_positions, tokenizer.chat_template is not None


def check(file: Path, overrides: Sequence[str], out: Path | None) -> bool:
    """Print the checks that passed, the notes and the errors; return whether there is no error."""
    findings = _inspect(file, overrides, out or Path("runs") / file.stem)
    print_findings(findings)
    wrong = sum(finding.level is Level.WRONG for finding in findings)
    notes = sum(finding.level is Level.NOTE for finding in findings)
    verdict = f"{wrong} to change before {file} can run" if wrong else f"{file} can run"
    printer.print(f"{verdict}{f', {notes} notes' if notes else ''}", markup=False, style="bold")
    return not wrong


def _inspect(file: Path, overrides: Sequence[str], folder: Path) -> list[Finding]:
    try:
        loaded = load_settings_file(file, overrides)
        stages = load_stages(file, overrides)
    except ConfigError as error:
        sentences = error.sentences if isinstance(error, SettingsError) else (str(error),)
        return [
            Finding(stage="", subject="settings", level=Level.WRONG, message=sentence)
            for sentence in sentences
        ]
    is_pipeline = isinstance(loaded.config, PipelineConfig)
    kinds = ", ".join(f"{name} ({stage.kind})" for name, stage in stages.items())
    passed = Finding(
        stage="", subject="settings", level=Level.PASSED, message=f"{len(loaded.origin)} of {kinds}"
    )
    findings = inspect(stages, folder, is_pipeline=is_pipeline, is_thorough=True)
    return [passed, *findings]
