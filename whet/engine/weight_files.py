"""Weights on their way to workers: a safetensors file per version, and a canary to check them.

The canary is a fixed prompt with the learner's greedy completion. It detects an old tensor that
moves the log-probabilities of a few tokens by more than the tolerance, but not an embedding row
that the prompt does not use.
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from whet.engine.base import Request, SamplingParams
from whet.errors import EngineError
from whet.models.load import write_tensors
from whet.models.transformer import PackedAttention, Transformer
from whet.rng import make_numpy_rng
from whet.types import Completion, Floats, Tokens

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - folders in it are made by mkdtemp
PREFIX = "whet-fleet-"
PROMPT_TOKENS = 8
_NEW_TOKENS = 8
TOLERANCES: Mapping[torch.dtype, float] = MappingProxyType(
    {torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.02}
)
"""Largest gap in nats between engine and learner, by the type they compute in. Measured on a CPU in
float32: 3e-6 with the right weights, 1e-2 and more with an old head after one step."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Canary:
    """A request, and the learner's completion of it."""

    request: Request
    tokens: Tokens
    logprobs: Floats
    tolerance: float

    def gap(self, completion: Completion) -> float:
        """Return the largest gap of the log-probabilities, up to the first token that differs.

        If two tokens are about equally likely, either may be sampled, and later tokens differ.
        """
        length = min(len(self.tokens), len(completion.tokens))
        is_other = self.tokens[:length] != completion.tokens[:length]
        compared = int(np.argmax(is_other)) + 1 if is_other.any() else length
        gaps = np.abs(self.logprobs[:compared] - completion.logprobs[:compared])
        return float(gaps.max()) if compared and np.isfinite(gaps).all() else float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """One version of the learner's weights in a file, with its canary."""

    version: int
    file: Path
    canary: Canary


def make_scratch(folder: str | None) -> Path:
    """Make a folder for weights; None makes one in memory, and deletes those of dead runs."""
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
    """Write weights to a file; if `named` is empty, reuse those of `before` under the new
    version."""
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


@torch.no_grad()
def make_canary(model: Transformer, context: int) -> Canary:
    """Let the learner's model complete the prompt, which takes a few short forward passes."""
    num_prompt = max(1, min(PROMPT_TOKENS, context - _NEW_TOKENS))
    num_new = min(_NEW_TOKENS, context - num_prompt)
    prompt = make_numpy_rng(0, "canary").integers(0, model.cfg.vocab_size, num_prompt)
    sequence = prompt.tolist()
    logprobs = []
    for _ in range(num_new):
        tokens_T = torch.tensor(sequence, device=model.device)
        positions_T = torch.arange(len(sequence), device=model.device)
        lengths_S = torch.tensor([len(sequence)], device=model.device)
        hidden_TH = model(tokens_T, positions_T, PackedAttention(lengths_S))
        logprobs_V = model.logits(hidden_TH[-1:])[0].float().log_softmax(-1)
        token = int(logprobs_V.argmax())
        sequence.append(token)
        logprobs.append(float(logprobs_V[token]))
    sampling = SamplingParams(temperature=0.0, max_tokens=num_new)
    return Canary(
        request=Request(id="canary", prompt=prompt.astype(np.int32), sampling=sampling, seed=0),
        tokens=np.array(sequence[num_prompt:], dtype=np.int32),
        logprobs=np.array(logprobs, dtype=np.float32),
        tolerance=TOLERANCES[model.dtype],
    )
