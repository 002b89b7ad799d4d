"""The embedded engine: continuous batching over the learner's own weights, so that publishing them
costs nothing."""

from collections.abc import Iterable, Iterator
from functools import partial

import torch
from pydantic import Field

from whet.config import CONSTANT, Config
from whet.engine.base import Request
from whet.engine.cpu.compiled import build_slots
from whet.engine.graphs import DecodeGraphs
from whet.engine.kv_cache import Build, Store
from whet.engine.loop import Answer, Detokenize, Loop
from whet.engine.paged_cache import build_pages
from whet.engine.prompts import PREFILL_TOKENS
from whet.engine.transfer import Counts, Link
from whet.environment import keep_freed_memory
from whet.errors import EngineError
from whet.models.transformer import Transformer


class EngineConfig(Config):
    """Room for running requests."""

    slots: int = Field(default=256, ge=1, le=65536)
    """Most requests that run at once."""
    context: int | None = Field(default=None, ge=2)
    """Longest prompt and completion together; None takes the model's own limit."""
    window: int | None = Field(default=None, ge=1, le=4096, json_schema_extra=CONSTANT)
    """Tokens decoded between two looks at what has ended; None takes 1 on a CPU, which wastes none,
    16 on a GPU."""
    kv_gb: float | None = Field(default=None, gt=0)
    """Memory of keys and values on a GPU, in GiB. None takes what full slots need, up to 90 % of
    what is free."""


class NativeEngine:
    """Samples from a Transformer that it does not own; `version` is stamped on what it returns.

    `counts` says what the latest call did. `build` makes another cache than the device's own, and
    `prefill_tokens` is the most that a forward pass over prompts takes.
    """

    def __init__(
        self,
        model: Transformer,
        cfg: EngineConfig,
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
        device = model.embed.weight.device
        is_cpu = device.type == "cpu"
        if is_cpu:
            keep_freed_memory()
        self.window = cfg.window or (1 if is_cpu else 16)
        self._build: Build = build or (
            build_slots if is_cpu else partial(build_pages, kv_gb=cfg.kv_gb)
        )
        self._link = Link(device)
        self._graphs = None if is_cpu else DecodeGraphs()
        self._loop: Loop | None = None
        self._is_running = False

    @property
    def counts(self) -> Counts:
        return self._link.counts

    @property
    def recorded_bytes(self) -> int:
        """What recorded steps hold of the device's memory besides tensors."""
        return 0 if self._graphs is None else self._graphs.num_bytes

    def sleep(self) -> None:
        """Give the memory of cache and graphs back; the next request takes it again, and records
        steps anew."""
        if self._loop is None:
            return
        self._loop = None
        if self._graphs is not None:
            self._graphs.forget()
            torch.cuda.empty_cache()

    def generate(self, requests: Iterable[Request]) -> Iterator[Answer]:
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
    def _serve(self, requests: Iterable[Request]) -> Iterator[list[Answer]]:
        loop = self._ready_loop()
        yield from loop.serve(self._checked(requests, loop.store), self.version)

    def _ready_loop(self) -> Loop:
        if self._loop is None:
            store = self._build(self.model, slots=self.cfg.slots, context=self.context)
            self._loop = Loop(
                self.model,
                store,
                self._link,
                slots=self.cfg.slots,
                context=self.context,
                window=self.window,
                stops=self.stop_tokens,
                prefill_tokens=self.prefill_tokens,
                graphs=self._graphs,
                detokenize=self.detokenize,
            )
        return self._loop

    def _checked(self, requests: Iterable[Request], store: Store) -> Iterator[Request]:
        prompt = None
        for request in requests:
            if request.prompt is not prompt:
                self._check_prompt(request)
                prompt = request.prompt
            self._check(request, store)
            yield request

    def _check_prompt(self, request: Request) -> None:
        length = len(request.prompt)
        if length == 0:
            raise EngineError(f"request {request.id} has an empty prompt; give at least one token")
        if length >= self.context:
            raise EngineError(
                f"request {request.id} has a prompt of {length} tokens, which leaves no room in a context of "
                f"{self.context}; shorten it or raise engine.context"
            )
        known = self.model.cfg.vocab_size
        for token in (int(request.prompt.min()), int(request.prompt.max())):
            if not 0 <= token < known:
                raise EngineError(
                    f"request {request.id} has token {token} in its prompt, but the model knows {known} tokens; "
                    "use the tokenizer that belongs to the model"
                )

    def _check(self, request: Request, store: Store) -> None:
        if request.sampling.stop and self.detokenize is None:
            raise EngineError(
                f"request {request.id} has stop strings, but this engine was built without a tokenizer"
            )
        longest = min(len(request.prompt) + request.sampling.max_tokens, self.context)
        if not store.holds(longest):
            raise EngineError(
                f"request {request.id} may grow to {longest} tokens, more than the whole cache holds; "
                "lower sampling.max_tokens or raise engine.kv_gb"
            )
