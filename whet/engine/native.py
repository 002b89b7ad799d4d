"""The embedded engine: continuous batching over the learner's own weights.

Its loop closes ended rows, admits what fits, decodes a window and reads its tokens. With a dense
cache the host looks at each window before the next. With pages it looks at the window before while
the present one runs, so the device never waits for the host; a row that a stop token ends is then
closed one window later. What has reached its length limit needs no look: it is closed at once, and
answered when its tokens arrive.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from whet.config import CONSTANT, Config
from whet.engine.base import Counts, Request
from whet.engine.cpu.compiled import build_cpu_cache
from whet.engine.paged_cache import build_paged_cache
from whet.engine.row_state import HostRows, HostTransfer, Rows
from whet.engine.runner import PREFILL_TOKENS, Build, KVCache, Runner
from whet.engine.scheduler import Report, Scheduler, Sequences
from whet.environment import keep_freed_memory
from whet.errors import EngineError
from whet.models.transformer import Transformer
from whet.types import Completion, Finish, Tokens

Detokenize = Callable[[Tokens], str]
Result = tuple[str, Completion]


class Loop:
    """Ties scheduler, sequences and runner together over one cache."""

    def __init__(
        self,
        model: Transformer,
        cache: KVCache,
        transfer: HostTransfer,
        *,
        slots: int,
        context: int,
        window: int,
        stops: frozenset[int],
        prefill_tokens: int,
        detokenize: Detokenize | None,
    ) -> None:
        self.cache = cache
        self.transfer = transfer
        self.window = window
        self.stops = stops
        self.detokenize = detokenize
        # Requests that have left their row may still wait for their last tokens, so there are more
        # sequences than rows.
        self.sequences = Sequences(2 * slots, context)
        is_stop_V = torch.zeros(model.cfg.vocab_size, dtype=torch.bool, device=model.device)
        is_stop_V[torch.tensor(sorted(stops), dtype=torch.int64)] = True
        kind = HostRows if transfer.device.type == "cpu" else Rows
        self.rows = kind(slots, window, transfer, is_stop_V)
        self.scheduler = Scheduler(
            cache.allocator, self.sequences, slots=slots, context=context, window=window
        )
        self.runner = Runner(model, cache, self.rows, transfer, prefill_tokens=prefill_tokens)
        self.version = 0
        self._ended: list[int] = []

    def serve(self, requests: Iterable[Request], version: int) -> Iterator[list[Result]]:
        """Serve every request; those that end together come together, stamped with a version."""
        self.scheduler.start(requests)
        self.rows.clear()
        self.cache.start()
        self.version = version
        self._ended = []
        return self._serve_ahead() if self.cache.has_lag else self._serve_in_step()

    def _serve_in_step(self) -> Iterator[list[Result]]:
        while True:
            self._begin()
            if not self.scheduler.num_rows:
                return
            yield self._harvest(self._post()())
            self._close(self._ended)
            self._decode()

    def _serve_ahead(self) -> Iterator[list[Result]]:
        while True:
            report = self._post() if self.scheduler.num_rows else None
            self._close([*self._ended, *self.scheduler.full()])
            self._close(self.scheduler.make_room())
            self._begin()
            if report is None and not self.scheduler.num_rows:
                return
            self._decode()
            if report is not None:
                yield self._harvest(report())

    def _begin(self) -> None:
        admission = self.scheduler.admit()
        if admission is not None:
            self.runner.begin(admission, self.sequences)
            self.transfer.counts.begun += len(admission.sequence_B)

    def _decode(self) -> None:
        """Enqueue a window, or less where no row has that far to go."""
        sequences, sequence_B = self.sequences, self.scheduler.running_B
        steps = min(
            self.window, int((sequences.limit_S - sequences.bound_S)[sequence_B].max(initial=0))
        )
        if steps:
            longest = self.scheduler.advance(steps)
            has_cuts = bool(sequences.has_cuts_S[sequence_B].any())
            self.runner.window(len(sequence_B), steps, longest=longest, has_cuts=has_cuts)

    def _post(self) -> Callable[[], Report]:
        sequence_B = self.scheduler.running_B.copy()
        sequence_B[self._ended] = -1
        return self.rows.post(sequence_B)

    def _close(self, rows: Sequence[int]) -> None:
        if rows:
            before = self.scheduler.num_rows
            source_M, target_M = self.scheduler.drop(rows)
            self.runner.drop(source_M, target_M, before=before, after=self.scheduler.num_rows)
        self._ended = []

    def _harvest(self, report: Report) -> list[Result]:
        """Read a report; answer what ended, and note the rows that this leaves idle."""
        ends = {
            sequence: int(self.sequences.count_S[sequence])
            for sequence in self.sequences.read(report)
        }
        by_text = self._ended_by_text(report)
        ends |= by_text
        answers = [
            self._result(sequence, length, sequence in by_text) for sequence, length in ends.items()
        ]
        for sequence in ends:
            self.scheduler.withdraw(sequence)
            self.sequences.close(sequence)
        self._ended = self.scheduler.rows_of(ends)
        self.transfer.counts.tokens += sum(ends.values())
        self.transfer.counts.preemptions = self.scheduler.num_preempted
        return answers

    def _result(self, sequence: int, length: int, is_stopped: bool) -> Result:
        tokens, logprobs = self.sequences.output(sequence, length)
        finish = Finish.STOP if is_stopped or int(tokens[-1]) in self.stops else Finish.LENGTH
        completion = Completion(
            tokens=tokens, logprobs=logprobs, finish=finish, version=self.version
        )
        return self.sequences.request(sequence).id, completion

    def _ended_by_text(self, report: Report) -> dict[int, int]:
        """Find sequences whose text holds a stop string, and how many tokens it takes."""
        open_B = report.sequence_B[report.sequence_B >= 0]
        ends = {
            sequence: self._text_end(sequence)
            for sequence in open_B[self.sequences.has_stops_S[open_B]].tolist()
        }
        return {sequence: end for sequence, end in ends.items() if end is not None}

    def _text_end(self, sequence: int) -> int | None:
        assert self.detokenize is not None, "stop strings need a tokenizer"
        tokens = self.sequences.tokens(sequence)
        words = self.sequences.request(sequence).sampling.stop
        for end in range(max(1, len(tokens) - self.window), len(tokens) + 1):
            text = self.detokenize(tokens[:end])
            if any(word in text for word in words):
                return end
        return None


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
        self._transfer = HostTransfer(device)
        self._loop: Loop | None = None
        self._is_running = False

    @property
    def counts(self) -> Counts:
        return self._transfer.counts

    def load_weights(self, named: Iterable[tuple[str, Tensor]], version: int) -> None:
        if self._is_running:
            raise EngineError("weights cannot change while requests run; read them to their end")
        self.model.copy_weights(named)
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
        self._transfer.counts = Counts()
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
                self._transfer,
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
