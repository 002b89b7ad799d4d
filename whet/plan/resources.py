"""What is there before anything is loaded: models, their sizes, memory."""

import os
import re
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import torch
from huggingface_hub import constants, get_token, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
)

from whet.errors import DataError
from whet.models.load import CONFIG, DOWNLOADED, HUB_ID, read_shape, resolve
from whet.plan.cost import Cost

PATIENCE_SECONDS = 3.0
"""How long the hub may take to answer."""
REFUSALS = (
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    OSError,
)
_BILLIONS = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)B(?![a-z])", re.IGNORECASE)


def hindrance(model: str) -> str | None:
    """Say why a model cannot be loaded, within seconds; None where it can."""
    if Path(model).expanduser().is_dir():
        return None
    if not HUB_ID.fullmatch(model):
        return "is neither a folder nor a hub id"
    try:
        resolve(snapshot_download(model, allow_patterns=list(DOWNLOADED), local_files_only=True))
    except (*REFUSALS, DataError):
        reason = _refusal(model)
        return (
            None
            if reason is None
            else f"is not in the cache and cannot be had from the hub ({reason})"
        )
    return None


def num_parameters(model: str) -> float | None:
    """Count the weights of a model that is here; of another take the number in its name, or None.

    >>> num_parameters("nobody/Model-1.5B"), num_parameters("nobody/Model")
    (1500000000.0, None)
    """
    try:
        is_here = Path(model).is_dir()
        file = (
            Path(model, CONFIG)
            if is_here
            else Path(hf_hub_download(model, CONFIG, local_files_only=True))
        )
        return float(Cost(cfg=read_shape(str(file.parent))).parameters)
    except (*REFUSALS, DataError):
        match = _BILLIONS.search(model)
        return float(match[1]) * 1e9 if match else None


def device_bytes() -> float:
    """The memory of the GPU, or of the machine where there is none."""
    if torch.cuda.is_available():
        return float(torch.cuda.mem_get_info()[1])
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _refusal(model: str) -> str | None:
    """Ask the hub for the smallest file of a model, once and briefly."""
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
    except URLError as error:
        return str(error.reason)
    except OSError as error:
        return str(error)
    return None
