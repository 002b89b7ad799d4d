"""The embedded engine: continuous batching over the learner's own weights.

Its core loop frees ended rows, admits requests, decodes a window and reads its tokens. With a
dense cache, the host reads each window before it starts the next. With pages, it reads a window
while the next one runs, so the device never waits for the host, and a row that a stop token ends is
freed one window later. A row at its length limit is freed at once, and its completion is returned
when its tokens arrive.

Shapes: S sequences, R rows, B rows in use, T tokens of a prefill, H hidden, V vocabulary, Q a
selection: rows that move, chunks that end a context.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from whet.config import CONSTANT
from whet.engine.base import (
    Detokenize,
    EngineConfig,
    EngineStats,
    OpenRequests,
    Request,
    check_prompt_tokens,
)
from whet.engine.cpu.compiled_cache import build_cpu_cache
from whet.engine.input_batch import CpuInputBatch, HostTransfer, InputBatch
from whet.engine.kv_cache import BuildCache, KVCache
from whet.engine.paged_cache import FREE_MEMORY_FRACTION, PAGE, build_paged_cache
from whet.engine.scheduler import (
    CacheAllocator,
    PrefillPass,
    Scheduler,
    Sequences,
    WindowOutput,
    plan_prefill,
)
from whet.engine.stop_strings import StopStringSearch
from whet.environment import keep_freed_memory
from whet.errors import EngineError
from whet.models.transformer import Transformer
from whet.types import Completion, FinishReason, Tokens

EngineResult = tuple[str, Completion]

PREFILL_TOKENS = 16_384
"""Most tokens of one prefill: enough to fill a GPU, few enough that activations stay small."""


class NativeConfig(EngineConfig):
    """The embedded engine: how many requests run at once, and how long they may get."""

    kind: Literal["native"] = "native"

    window: int | None = Field(default=None, ge=1, le=4096, json_schema_extra=CONSTANT)
    """Tokens decoded between two checks for ended rows; None takes 1 on a CPU, 16 on a GPU."""
    kv_cache_gb: float | None = Field(default=None, gt=0)
    """KV cache on a GPU in GiB; none is enough for full slots, up to 90 % of free memory."""

    def build(
        self,
        model: Transformer,
        *,
        stop_tokens: frozenset[int],
        detokenize: Detokenize | None = None,
    ) -> "NativeEngine":
        return NativeEngine(model, self, stop_tokens=stop_tokens, detokenize=detokenize)

    def cache_bytes(self, token_bytes: int, *, context: int, free: float) -> float:
        full = (self.max_num_seqs + 1) * math.ceil(context / PAGE) * PAGE * float(token_bytes)
        most = (self.kv_cache_gb or math.inf) * 2**30
        return min(full, FREE_MEMORY_FRACTION * max(free, 0.0), most)


class NativeEngine:
    """Samples from a Transformer, which a learner may share; then new weights need no copy.

    `build_cache` replaces the default cache of the device; `prefill_tokens` limits one forward pass
    over prompts.
    """

    def __init__(
        self,
        model: Transformer,
        cfg: NativeConfig,
        *,
        stop_tokens: frozenset[int],
        detokenize: Detokenize | None = None,
        build_cache: BuildCache | None = None,
        prefill_tokens: int = PREFILL_TOKENS,
    ) -> None:
        self.model = model
        self.cfg = cfg
        self.stop_tokens = stop_tokens
        self.detokenize = detokenize
        self.version = 0
        self.prefill_tokens = prefill_tokens
        self.max_model_len = min(
            cfg.max_model_len or model.cfg.max_positions, model.cfg.max_positions
        )
        device = model.device
        is_cpu = device.type == "cpu"
        if is_cpu:
            keep_freed_memory()
        self.window = cfg.window or (1 if is_cpu else 16)
        self._build_cache: BuildCache = build_cache or (
            build_cpu_cache if is_cpu else partial(build_paged_cache, kv_cache_gb=cfg.kv_cache_gb)
        )
        self._transfer = HostTransfer(device)
        self._core: EngineCore | None = None
        self._is_running = False
        self._is_between_windows = False
        self._checked_prompt: Tokens | None = None

    @property
    def stats(self) -> EngineStats:
        return self._transfer.stats

    def load_weights(self, named: Iterable[tuple[str, Tensor]], version: int) -> None:
        if self._is_running and not self._is_between_windows:
            raise EngineError(
                "weights cannot change while requests run; finish reading these first"
            )
        self.model.copy_weights(named)
        self.version = version
        if self._is_running and self._core is not None:
            self._core.change_weights(version)

    def sleep(self) -> None:
        """Free the cache and graphs; the next request allocates and captures them again."""
        if self._core is None:
            return
        self._core = None
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()

    def close(self) -> None:
        self.sleep()

    def generate(self, requests: Iterable[Request]) -> Iterator[EngineResult]:
        """Sample every request; yield each completion when it ends, with its id, in any order."""
        if self._is_running:
            raise EngineError(
                "an earlier call of this engine is still running; finish reading or close it first"
            )
        self._is_running = True
        self._transfer.stats = EngineStats()
        try:
            for results in self._serve(requests):
                yield from results
                if isinstance(requests, OpenRequests):
                    self._is_between_windows = True
                    requests.end_window()
                    self._is_between_windows = False
        finally:
            self._is_between_windows = False
            self._is_running = False

    @torch.no_grad()
    def _serve(self, requests: Iterable[Request]) -> Iterator[list[EngineResult]]:
        if self._core is None:
            self._core = EngineCore(
                self.model,
                self._build_cache(
                    self.model, slots=self.cfg.max_num_seqs, context=self.max_model_len
                ),
                self._transfer,
                slots=self.cfg.max_num_seqs,
                context=self.max_model_len,
                window=self.window,
                stop_tokens=self.stop_tokens,
                prefill_tokens=self.prefill_tokens,
                detokenize=self.detokenize,
            )
        # Unlike a generator, `map` asks again after a StopIteration, which open requests need.
        checked = map(partial(self._check_request, self._core.cache.allocator), requests)
        is_ordered = isinstance(requests, OpenRequests)
        yield from self._core.serve(checked, self.version, is_ordered=is_ordered)

    def _check_request(self, allocator: CacheAllocator, request: Request) -> Request:
        if request.prompt is not self._checked_prompt:
            check_prompt_tokens(request, self.max_model_len, self.model.cfg.vocab_size)
            self._checked_prompt = request.prompt
        if request.sampling.stop and self.detokenize is None:
            raise EngineError(
                f"request {request.id} has stop strings, but this engine was built without a "
                "tokenizer"
            )
        longest = min(len(request.prompt) + request.sampling.max_tokens, self.max_model_len)
        if not allocator.can_hold(longest):
            raise EngineError(
                f"request {request.id} may grow to {longest} tokens, more than the whole cache "
                "holds; lower sampling.max_tokens or raise engine.kv_cache_gb"
            )
        return request


class EngineCore:
    """Schedules requests and runs the model for them over one cache."""

    def __init__(
        self,
        model: Transformer,
        cache: KVCache,
        transfer: HostTransfer,
        *,
        slots: int,
        context: int,
        window: int,
        stop_tokens: frozenset[int],
        prefill_tokens: int,
        detokenize: Detokenize | None,
    ) -> None:
        self.model = model
        self.cache = cache
        self.transfer = transfer
        self.window = window
        self.stop_tokens = stop_tokens
        self.prefill_tokens = prefill_tokens
        self.detokenize = detokenize
        # Requests that have left their row may still wait for their last tokens, so there are more
        # sequences than rows.
        self.sequences = Sequences(2 * slots, context)
        is_stop_V = torch.zeros(model.cfg.vocab_size, dtype=torch.bool, device=model.device)
        is_stop_V[torch.tensor(sorted(stop_tokens), dtype=torch.int64)] = True
        batch_class = CpuInputBatch if transfer.device.type == "cpu" else InputBatch
        self.batch = batch_class(slots, window, transfer, is_stop_V)
        self.scheduler = Scheduler(
            cache.allocator, self.sequences, slots=slots, context=context, window=window
        )
        # The hidden state of the last token of each context; the spare row's serves later samples.
        shape = slots + 1, model.cfg.hidden_size
        self.last_hidden_RH = torch.zeros(shape, dtype=model.dtype, device=model.device)
        self.version = 0
        self._ended_rows: list[int] = []
        self._searches: dict[int, StopStringSearch] = {}

    def serve(
        self, requests: Iterable[Request], version: int, *, is_ordered: bool = False
    ) -> Iterator[list[EngineResult]]:
        """Serve every request; completions that end in the same window are yielded together."""
        self.scheduler.start(requests, is_ordered=is_ordered)
        self.batch.clear()
        self.cache.refresh_weights()
        self.version = version
        self._ended_rows = []
        self._searches = {}
        return self._serve_async() if self.cache.is_async else self._serve_sync()

    def change_weights(self, version: int) -> None:
        """Continue with new weights; running requests keep their cached keys and values."""
        self.cache.refresh_weights()
        self.scheduler.free_cached_prompt()
        self.version = version

    def _serve_sync(self) -> Iterator[list[EngineResult]]:
        while True:
            self._admit()
            if not self.scheduler.num_rows:
                return
            yield self._process_output(self._fetch_output()())
            self._free_rows(self._ended_rows)
            self._decode()

    def _serve_async(self) -> Iterator[list[EngineResult]]:
        while True:
            output = self._fetch_output() if self.scheduler.num_rows else None
            self._free_rows([*self._ended_rows, *self.scheduler.rows_at_limit()])
            self._free_rows(self.scheduler.preempt_rows())
            self._admit()
            if output is None and not self.scheduler.num_rows:
                return
            self._decode()
            if output is not None:
                yield self._process_output(output())

    def _admit(self) -> None:
        """Prefill the contexts of new rows, each once, and sample the first token of every row."""
        admission = self.scheduler.admit()
        if admission is None:
            return
        sequences, sequence_B, rows = self.sequences, admission.sequence_B, admission.rows
        sequences.version_S[sequence_B[sequences.count_S[sequence_B] == 0]] = self.version
        contexts = {
            row: sequences.context(int(sequence_B[row - rows.start]))
            for row in admission.to_prefill
        }
        for chunks in plan_prefill(contexts, self.prefill_tokens, self.cache.chunked):
            self._prefill(chunks)
        self.cache.copy_shared_pages(self.transfer)
        self.batch.add_requests(
            rows,
            [sequences.request(sequence) for sequence in sequence_B.tolist()],
            sequences.count_S[sequence_B],
            sequences.limit_S[sequence_B],
        )
        (source_B,) = self.transfer.to_device(admission.source_B)
        logits_BV = self.model.logits(self.last_hidden_RH[source_B])
        if admission.cached_row is not None:
            self.last_hidden_RH[-1] = self.last_hidden_RH[admission.cached_row]
        self.batch.draw_uniforms(rows)
        is_truncated = bool(sequences.is_truncated_S[sequence_B].any())
        self.batch.append_tokens(rows, *self.batch.sample(rows, logits_BV, is_truncated))
        self.transfer.stats.first_tokens += len(sequence_B)

    def _prefill(self, chunks: PrefillPass) -> None:
        self.transfer.stats.prefill_tokens += len(chunks.tokens_T)
        attend = self.cache.prefill(chunks, self.transfer)
        tokens_T, positions_T, end_Q, row_Q = self.transfer.to_device(
            chunks.tokens_T, chunks.positions_T, chunks.end_Q, chunks.row_Q
        )
        hidden_TH = self.model(tokens_T, positions_T, attend)
        self.last_hidden_RH[row_Q] = hidden_TH[end_Q]

    def _decode(self) -> None:
        """Enqueue a window, or fewer steps if all rows end before."""
        sequences, sequence_B = self.sequences, self.scheduler.running_B
        steps = min(
            self.window, int((sequences.limit_S - sequences.scheduled_S)[sequence_B].max(initial=0))
        )
        if not steps:
            return
        longest = self.scheduler.advance(steps)
        is_truncated = bool(sequences.is_truncated_S[sequence_B].any())
        size = self.cache.decode_window(
            self.batch, len(sequence_B), steps=steps, longest=longest, is_truncated=is_truncated
        )
        stats = self.transfer.stats
        stats.windows += 1
        stats.steps += steps
        stats.row_steps += steps * size

    def _fetch_output(self) -> Callable[[], WindowOutput]:
        sequence_B = self.scheduler.running_B.copy()
        sequence_B[self._ended_rows] = -1
        return self.batch.fetch_output(sequence_B)

    def _free_rows(self, rows: Sequence[int]) -> None:
        """Free rows, and move others into the gaps."""
        if rows:
            before = self.scheduler.num_rows
            source_Q, target_Q = self.scheduler.remove_rows(rows)
            if len(source_Q):
                self.batch.move(source_Q, target_Q)
                self.cache.move(source_Q, target_Q)
            self.batch.deactivate(slice(self.scheduler.num_rows, before))
        self._ended_rows = []

    def _process_output(self, output: WindowOutput) -> list[EngineResult]:
        """Store new tokens; return the completions that ended, and note their rows."""
        ends = {
            sequence: int(self.sequences.count_S[sequence])
            for sequence in self.sequences.append_output(output)
        }
        stopped = self._find_stop_strings(output)
        ends |= stopped
        results = [
            self._finish(sequence, length, sequence in stopped) for sequence, length in ends.items()
        ]
        for sequence in ends:
            self.scheduler.drop_waiting(sequence)
            self.sequences.remove(sequence)
            self._searches.pop(sequence, None)
        self._ended_rows = self.scheduler.rows_of(ends)
        self.transfer.stats.tokens += sum(ends.values())
        self.transfer.stats.preemptions = self.scheduler.num_preempted
        return results

    def _finish(self, sequence: int, length: int, is_stopped: bool) -> EngineResult:
        tokens = self.sequences.tokens_SC[sequence, :length].copy()
        logprobs = self.sequences.logprobs_SC[sequence, :length].copy()
        is_stopped = is_stopped or int(tokens[-1]) in self.stop_tokens
        completion = Completion(
            tokens=tokens,
            logprobs=logprobs,
            finish_reason=FinishReason.STOP if is_stopped else FinishReason.LENGTH,
            policy_version=int(self.sequences.version_S[sequence]),
        )
        return self.sequences.request(sequence).id, completion

    def _find_stop_strings(self, output: WindowOutput) -> dict[int, int]:
        """Find sequences with a stop string, and their number of tokens up to its end."""
        ends: dict[int, int] = {}
        open_B = output.sequence_B[output.sequence_B >= 0]
        for sequence in open_B[self.sequences.has_stops_S[open_B]].tolist():
            assert self.detokenize is not None, "stop strings need a tokenizer"
            if sequence not in self._searches:
                stop_strings = self.sequences.request(sequence).sampling.stop
                self._searches[sequence] = StopStringSearch(stop_strings, self.detokenize)
            end = self._searches[sequence].find_end(self.sequences.tokens(sequence))
            if end is not None:
                ends[sequence] = end
        return ends
