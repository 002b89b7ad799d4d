"""Weights on their way to workers: a safetensors file for each version, in memory or on a disk."""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import gettempdir, mkdtemp

from torch import Tensor

from whet.engine.canary import Canary, make_canary
from whet.errors import EngineError
from whet.models.load import write_tensors
from whet.models.transformer import Transformer

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - folders in it are made by mkdtemp
PREFIX = "whet-fleet-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """One version of the learner's weights, in a file, and what they say on the canary's prompt."""

    version: int
    file: Path
    canary: Canary


def make_scratch(folder: str | None) -> Path:
    """Make a folder for weights; None is this machine's memory, less what dead runs left there."""
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        scratch = Path(mkdtemp(prefix=PREFIX, dir=folder))
    else:
        memory = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else Path(gettempdir())
        for left in memory.glob(f"{PREFIX}*-*"):
            pid = left.name.removeprefix(PREFIX).partition("-")[0]
            if pid.isdecimal() and not Path("/proc", pid).exists():
                shutil.rmtree(left, ignore_errors=True)
        scratch = Path(mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=memory))
    scratch.chmod(0o755)  # servers may run as another user
    return scratch


def store_weights(
    named: Iterable[tuple[str, Tensor]],
    version: int,
    *,
    model: Transformer,
    context: int,
    before: Weights | None,
    scratch: Path,
) -> Weights:
    """Write the weights of `model` to a file; none are those of `before` under another version."""
    tensors = dict(named)
    if not tensors:
        if before is None:
            raise EngineError("the fleet has no weights yet: load some before the first version")
        return replace(before, version=version)
    if model.cfg.tied:
        # vLLM keeps the old head of a tied model after a reload, unless it is sent as well.
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    file = Path(mkdtemp(dir=scratch)) / "model.safetensors"
    file.parent.chmod(0o755)
    write_tensors(file, tensors)
    file.chmod(0o644)
    return Weights(version=version, file=file, canary=make_canary(model, context))
