"""The embedded engine: continuous batching over the learner's own weights."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from whet.config import CONSTANT, Config
from whet.engine.base import Counts, Request
from whet.engine.cpu.compiled import build_cpu_cache
from whet.engine.kv_cache import Build, KVCache
from whet.engine.loop import Detokenize, Loop, Result
from whet.engine.paged_cache import build_paged_cache
from whet.engine.prefill import PREFILL_TOKENS
from whet.engine.transfer import Link
from whet.environment import keep_freed_memory
from whet.errors import EngineError
from whet.models.load import copy_weights
from whet.models.transformer import Transformer


class NativeConfig(Config):
    """The embedded engine: how many requests run at once, and how long they may get."""

    kind: Literal["native"] = "native"

    slots: int = Field(default=256, ge=1, le=65536)
    """Most requests that run at once."""
    context: int | None = Field(default=None, ge=2)
    """Longest prompt and completion together; None takes the model's own limit."""
    window: int | None = Field(default=None, ge=1, le=4096, json_schema_extra=CONSTANT)
    """Tokens decoded between two checks for ended rows; None takes 1 on a CPU, 16 on a GPU."""
    kv_gb: float | None = Field(default=None, gt=0)
    """KV cache on a GPU in GiB. None takes what full slots need, up to 90 % of what is free."""


class NativeEngine:
    """Samples from a Transformer, which a learner may share; then new weights need no copy.

    `build` makes another cache than the device's own, and
    `prefill_tokens` is the most that a forward pass over prompts takes.
    """

    def __init__(
        self,
        model: Transformer,
        cfg: NativeConfig,
        *,
        stop_tokens: frozenset[int],
        detokenize: Detokenize | None = None,
        build: Build | None = None,
        prefill_tokens: int = PREFILL_TOKENS,
    ) -> None:
        self.model = model
        self.cfg = cfg
        self.stop_tokens = stop_tokens
        self.detokenize = detokenize
        self.version = 0
        self.prefill_tokens = prefill_tokens
        self.context = min(cfg.context or model.cfg.max_positions, model.cfg.max_positions)
        device = model.device
        is_cpu = device.type == "cpu"
        if is_cpu:
            keep_freed_memory()
        self.window = cfg.window or (1 if is_cpu else 16)
        self._build: Build = build or (
            build_cpu_cache if is_cpu else partial(build_paged_cache, kv_gb=cfg.kv_gb)
        )
        self._link = Link(device)
        self._loop: Loop | None = None
        self._is_running = False

    @property
    def counts(self) -> Counts:
        return self._link.counts

    def load_weights(self, named: Iterable[tuple[str, Tensor]], version: int) -> None:
        if self._is_running:
            raise EngineError("weights cannot change while requests run; read them to their end")
        copy_weights(self.model, named)
        self.version = version

    def sleep(self) -> None:
        """Free cache and graphs; the next request allocates and records them again."""
        if self._loop is None:
            return
        self._loop = None
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()

    def close(self) -> None:
        self.sleep()

    def generate(self, requests: Iterable[Request]) -> Iterator[Result]:
        """Sample every request; yield each with its id when it ends, in no promised order."""
        if self._is_running:
            raise EngineError(
                "an earlier call of this engine still runs; read it to its end or close it first"
            )
        self._is_running = True
        self._link.counts = Counts()
        try:
            for answers in self._serve(requests):
                yield from answers
        finally:
            self._is_running = False

    @torch.no_grad()
    def _serve(self, requests: Iterable[Request]) -> Iterator[list[Result]]:
        loop = self._ready_loop()
        yield from loop.serve(self._check_requests(requests, loop.cache), self.version)

    def _ready_loop(self) -> Loop:
        if self._loop is None:
            cache = self._build(self.model, slots=self.cfg.slots, context=self.context)
            self._loop = Loop(
                self.model,
                cache,
                self._link,
                slots=self.cfg.slots,
                context=self.context,
                window=self.window,
                stops=self.stop_tokens,
                prefill_tokens=self.prefill_tokens,
                detokenize=self.detokenize,
            )
        return self._loop

    def _check_requests(self, requests: Iterable[Request], cache: KVCache) -> Iterator[Request]:
        prompt = None
        for request in requests:
            if request.prompt is not prompt:
                self._check_prompt(request)
                prompt = request.prompt
            self._check(request, cache)
            yield request

    def _check_prompt(self, request: Request) -> None:
        length = len(request.prompt)
        if length == 0:
            raise EngineError(f"request {request.id} has an empty prompt; give at least one token")
        if length >= self.context:
            raise EngineError(
                f"request {request.id} has a prompt of {length} tokens, which leaves no room in a "
                f"context of {self.context}; shorten it or raise engine.context"
            )
        known = self.model.cfg.vocab_size
        for token in (int(request.prompt.min()), int(request.prompt.max())):
            if not 0 <= token < known:
                raise EngineError(
                    f"request {request.id} has token {token} in its prompt, but the model knows "
                    f"{known} tokens; use the tokenizer that belongs to the model"
                )

    def _check(self, request: Request, cache: KVCache) -> None:
        if request.sampling.stop and self.detokenize is None:
            raise EngineError(
                f"request {request.id} has stop strings, but this engine was built without a "
                "tokenizer"
            )
        longest = min(len(request.prompt) + request.sampling.max_tokens, self.context)
        if not cache.holds(longest):
            raise EngineError(
                f"request {request.id} may grow to {longest} tokens, more than the whole cache "
                "holds; lower sampling.max_tokens or raise engine.kv_gb"
            )
