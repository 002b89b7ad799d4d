"""Check that this machine suffices for a pipeline: memory for each stage, disk for its output."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from whet.errors import DataError
from whet.models.cost import GB, GPU, GPUS, optimizer_bytes
from whet.models.source import torch_device
from whet.plan.phases import cache_bytes, phases, suggest_change
from whet.plan.predict import list_stage_jobs
from whet.plan.requirements import device_bytes, find_missing_memory, num_parameters
from whet.preflight.findings import Findings, Level
from whet.preflight.inputs import follow_model
from whet.stages.stage import OnPolicyConfig, StageConfig, Stages, TrainingConfig
from whet.store.run import model_folder

TYPICAL_PROMPT = 256
"""Assumed tokens of a prompt for predicting memory."""
BYTES_PER_TOKEN = 8.0
"""Bytes of a sampled token in a rollout file: its log-probability, which hardly compresses, its id
and its text."""


def check_memory(findings: Findings, stages: Stages, *, is_pipeline: bool, ranks: int) -> None:
    """Compare the memory that each stage needs with that of this machine's device."""
    is_gpu = torch_device().type == "cuda"
    missing = find_missing_memory(stages, ranks)
    unfit = [missing] if missing else []
    if is_gpu and ranks == 1 and not missing:
        unfit = list(_list_unfit(stages, _this_card()))
    for name, reason in unfit:
        findings.add(name if is_pipeline else "", "memory", Level.WRONG, reason)
    if not unfit:
        device = f"the {device_bytes() / GB:,.0f} GB of the {'GPU' if is_gpu else 'machine'}"
        findings.add("", "memory", Level.PASSED, f"models and optimizers fit into {device}")


def _list_unfit(stages: Stages, card: GPU) -> Iterator[tuple[str, str]]:
    """Predict each phase as `whet plan` does, and list those that do not fit."""
    for name in stages:
        try:
            planned = list_stage_jobs(name, stages, TYPICAL_PROMPT, None)
        except DataError:  # another check reports a model without files
            continue
        for job in planned:
            if job.engine is not None and cache_bytes(job, card) is None:
                continue
            for phase in phases(job, card):
                if phase.peak > card.usable:
                    much = f"{phase.peak / GB:.1f} GB do not fit into {card.usable / GB:.1f}"
                    yield name, f"{phase.name}: {much}; {suggest_change(job, card)}"


def _this_card() -> GPU:
    """Return the GPU of this machine: a known one by its name, otherwise an A100 of its memory."""
    name = torch.cuda.get_device_name().lower().replace(" ", "")
    known = next((card for key, card in GPUS.items() if key in name), GPUS["a100"])
    return replace(known, memory=device_bytes())


def check_disk(findings: Findings, stages: Stages, folder: Path) -> None:
    """Compare the size of the stages' output with the free disk space of the run folder."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = float(shutil.disk_usage(there).free)
    trained = {name: stage for name, stage in stages.items() if isinstance(stage, TrainingConfig)}
    checkpoints = sum(checkpoint_bytes(stages, stage) for stage in trained.values())
    rollouts = sum(rollout_bytes(stage) for stage in stages.values())
    sizes = f"{checkpoints / GB:,.1f} GB of checkpoints"
    if checkpoints > free:
        findings.add(
            "",
            "disk",
            Level.WRONG,
            f"{sizes} do not fit into the {free / GB:,.1f} GB that are free in {there}: choose "
            "another --out, or lower save.keep",
        )
    elif checkpoints + rollouts > free:
        findings.add(
            "",
            "disk",
            Level.NOTE,
            f"{sizes} and {rollouts / GB:,.1f} GB of rollouts, if every response is as long as "
            f"sampling.max_tokens, do not fit into the {free / GB:,.1f} GB free in {there}",
        )
    else:
        findings.add("", "disk", Level.PASSED, f"{sizes}, {free / GB:,.1f} GB are free")


def checkpoint_bytes(stages: Stages, stage: TrainingConfig) -> float:
    """Count the bytes of the checkpoints that a stage keeps at once: the newest, the best, and one
    being written. A model of unknown size counts as 0."""
    width = 4 if torch_device().type == "cpu" or stage.train.dtype == "float32" else 2
    total = 0.0
    for key, source in stage.models.items():
        if key == "teacher":
            continue
        origin = follow_model(stages, source)
        if origin.new is not None:
            parameters = 0.0  # new models are small: below a hundred million
        else:
            parameters = num_parameters(str(model_folder(origin.path or ""))) or 0.0
        trained = parameters if source.lora is None else 0.0
        total += width * trained + optimizer_bytes(trained, width)
    saves = stage.steps // stage.save.every + 2
    return total * min(stage.save.keep + 2, saves)


def rollout_bytes(stage: StageConfig) -> float:
    """Count the bytes of a run's rollouts if all responses reach the limit."""
    if not isinstance(stage, OnPolicyConfig):
        return 0.0
    responses = stage.steps * stage.problems_per_step * stage.responses_per_problem
    return BYTES_PER_TOKEN * responses * stage.sampling.max_tokens
