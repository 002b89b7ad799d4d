"""What a pipeline needs but this machine lacks, known before it starts: weights and memory."""

import math
import os
import re
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import torch
from huggingface_hub import constants, get_token, hf_hub_download, snapshot_download
from huggingface_hub.errors import HFValidationError

from whet.algos.algorithm import needs_critic
from whet.algos.settings import resolve_preset
from whet.errors import DataError
from whet.models.cost import GB, GPUS, Cost, state_bytes
from whet.models.load import CONFIG, DOWNLOADED, HUB_ID, read_shape
from whet.models.load import resolve as resolve_model
from whet.models.source import torch_device
from whet.stages.stage import StageConfig, Stages
from whet.store.run import model_folder

_CARD = "h100"
"""The card in which missing memory is counted."""


def find_missing_memory(stages: Stages, ranks: int = 1) -> tuple[str, str] | None:
    """Name the stage that needs the most memory, if a rank has less; activations and caches are not
    counted."""
    width = 4 if torch_device().type == "cpu" else 2
    # Ranks on the CPU share its memory.
    have = device_bytes() / (ranks if width == 4 else 1)
    needs = {name: _bytes(stages, stage, width, ranks) for name, stage in stages.items()}
    name = max(needs, key=lambda name: needs[name])
    if needs[name] <= have:
        return None
    cards = math.ceil(needs[name] / GPUS[_CARD].memory)
    hint = f"{cards} × {_CARD.upper()} at least" if ranks == 1 else "on each rank"
    device = "the one device that whet uses here" if ranks == 1 else f"each of {ranks} ranks"
    return name, (
        f"it holds about {needs[name] / GB:,.0f} GB of weights, gradients and optimizer ({hint}), "
        f"and {device} has {have / GB:,.0f} GB: take a smaller model, model.lora or more GPUs"
    )


def _bytes(stages: Stages, stage: StageConfig, width: int, ranks: int) -> float:
    """Count the bytes of a stage's models on a rank.

    A rank has whole weights and shards of the rest, with the gradients of one model at a time. A
    model of unknown size counts as nothing.
    """
    total = 0.0
    gradients = 0.0
    works = stage.list_work()
    held_models = [(work.source, work.train, work.algo) for work in works]
    held_models += [(work.teacher, None, None) for work in works if work.teacher is not None]
    for source, train, algo in held_models:
        origin = _origin(stages, source.path)
        count = num_parameters(str(model_folder(origin))) or 0.0 if origin else 0.0
        is_trained = train is not None and source.lora is None
        is_served = train is not None and train.reference_url is not None
        has_reference = is_trained and algo is not None and algo.kl_coef > 0 and not is_served
        has_critic = algo is not None and needs_critic(resolve_preset(algo))
        # A CPU has no other memory to offload to.
        is_offloaded = width < 4 and train is not None and train.offload_optimizer
        trained = count if is_trained and not is_offloaded else 0.0
        held = state_bytes(count, width, trained=trained, reference=has_reference)
        critic = held["weights"] + held["optimizer"] if has_critic else 0.0
        shared = sum(held.values()) - held["weights"] + critic
        total += held["weights"] + shared / ranks
        gradients = max(gradients, 4 * count * is_trained)
    return total + gradients / ranks


def _origin(stages: Stages, path: str | None) -> str | None:
    """Follow a model through the stages that made it, to the model they started from."""
    while path is not None and path.startswith("@"):
        earlier = stages.get(path[1:])
        path = None if earlier is None else earlier.inputs.get("model.path")
    return path


PATIENCE_SECONDS = 3.0
"""How long the hub may take to answer."""
REFUSALS = (HFValidationError, OSError, DataError)
"""Errors that say why a model cannot be fetched; the hub's other errors are OSErrors."""
_BILLIONS = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)B(?![a-z])", re.IGNORECASE)


def explain_missing(model: str) -> str | None:
    """Say within seconds why a model cannot be loaded; None if it can."""
    if Path(model).expanduser().is_dir():
        return None
    if not HUB_ID.fullmatch(model):
        return "is neither a folder nor a hub id"
    patterns = list(DOWNLOADED)
    try:
        resolve_model(snapshot_download(model, allow_patterns=patterns, local_files_only=True))
    except REFUSALS:
        if reason := _refusal(model):
            return f"is not in the cache and could not be downloaded from the hub ({reason})"
    return None


def num_parameters(model: str) -> float | None:
    """Count the weights of a local model; for others take the number in the name, or None.

    >>> num_parameters("nobody/Model-1.5B"), num_parameters("nobody/Model")
    (1500000000.0, None)
    """
    try:
        folder = model
        if not Path(model).is_dir():
            folder = str(Path(hf_hub_download(model, CONFIG, local_files_only=True)).parent)
        return float(Cost(cfg=read_shape(folder)).parameters)
    except REFUSALS:
        match = _BILLIONS.search(model)
        return float(match[1]) * 1e9 if match else None


def device_bytes() -> float:
    """Return the memory of the GPU, or of the machine if it has none."""
    if torch.cuda.is_available():
        return float(torch.cuda.mem_get_info()[1])
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _refusal(model: str) -> str | None:
    """Ask the hub once for a model's smallest file, with a short timeout; return its refusal."""
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    address = f"{constants.ENDPOINT}/{model}/resolve/main/{CONFIG}"
    request = Request(address, method="HEAD")  # noqa: S310 - the hub's own address
    if token := get_token():
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        urlopen(request, timeout=PATIENCE_SECONDS).close()  # noqa: S310 - the hub's own address
    except HTTPError as error:
        return f"it answers {error.code}, {error.reason}"
    except OSError as error:
        return str(error.reason if isinstance(error, URLError) else error)
    return None
