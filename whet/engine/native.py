"""The embedded engine: continuous batching over the learner's own weights, so that publishing them costs nothing.

One turn of the loop admits what fits, prefills each distinct prompt once for all its samples, decodes a window of
tokens with no word to the host, then hands out what ended and closes the gaps. Samples of one prompt come one after
the other, so when slots run short only the last prompt can have siblings still to come: it alone is kept.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import torch
from pydantic import Field
from torch import Tensor

from whet.config import Config
from whet.engine.base import Request
from whet.engine.cache import Cache, Decode, Prefill
from whet.engine.graphs import COLUMNS, DecodeGraphs, rounded
from whet.engine.prompts import Indices, Layout, lay_out, length_of, places_of
from whet.engine.sampling import sample, uniforms
from whet.engine.state import Finished, Rows
from whet.errors import EngineError
from whet.models.transformer import Transformer
from whet.types import Completion, Finish, Tokens

Detokenize = Callable[[Tokens], str]


class EngineConfig(Config):
    """Room for running requests."""

    slots: int = Field(default=256, ge=1)
    """Most requests that run at once."""
    context: int | None = Field(default=None, ge=2)
    """Longest prompt and completion together; None takes the model's own limit."""
    window: int = Field(default=1, ge=1)
    """Tokens decoded between two looks at what has ended. 1 wastes none; a GPU wants 8 or more."""


class NativeEngine:
    """Samples from a Transformer that it does not own; `version` is stamped on what it returns."""

    def __init__(
        self,
        model: Transformer,
        cfg: EngineConfig,
        *,
        stop_tokens: frozenset[int],
        detokenize: Detokenize | None = None,
    ) -> None:
        self.model, self.cfg, self.stop_tokens, self.detokenize = model, cfg, stop_tokens, detokenize
        self.version = 0
        self.context = min(cfg.context or model.cfg.max_positions, model.cfg.max_positions)
        self.device = model.embed.weight.device
        self._stops_K = torch.tensor(sorted(stop_tokens), dtype=torch.int64, device=self.device)
        self._cache: Cache | None = None
        self._rows: Rows | None = None
        self._graphs: DecodeGraphs | None = None
        self._longest, self._is_running = 0, False

    def sleep(self) -> None:
        """Give the cache memory back; the next request takes it again."""
        self._cache = self._rows = self._graphs = None

    @torch.no_grad()
    def generate(self, requests: Iterable[Request]) -> Iterator[tuple[str, Completion]]:
        """Sample every request; yield each with its id when it ends, in no promised order."""
        if self._is_running:
            raise EngineError("an earlier call of this engine still runs; read it to its end or close it first")
        self._is_running = True
        try:
            yield from self._serve(iter(requests), self._ready_rows())
        finally:
            self._is_running = False

    def _serve(self, waiting: Iterator[Request], rows: Rows) -> Iterator[tuple[str, Completion]]:
        while True:
            admitted = list(islice(waiting, self.cfg.slots - len(rows)))
            if admitted:
                self._prefill(rows, admitted)
            if not len(rows):
                return
            yield from self._harvest(rows)
            for _ in range(self.cfg.window):
                if len(rows):
                    self._decode(rows)

    def _prefill(self, rows: Rows, requests: list[Request]) -> None:
        for request in requests:
            self._check(request)
        which = rows.admit(requests, self.context)
        places = places_of(requests, which.start)
        siblings = places.pop(rows.kept_prompt, [])
        if siblings:
            self._copy_kept(rows, siblings)
        if places:
            rows.kept_prompt = list(places)[-1]
            places[rows.kept_prompt].append(rows.spare)
            self._run_prompts(rows, lay_out(places))
        has_cuts = any(_has_cuts(request) for request in requests)
        self._sample(rows, which, self.model.logits(rows.end_RH[which]), has_cuts)

    def _run_prompts(self, rows: Rows, layout: Layout) -> None:
        """Run each prompt once for all its rows; the last one is kept in the spare row for siblings still to come."""

        def tensor(values: Indices) -> Tensor:
            return torch.from_numpy(values).to(self.device)

        cells = (tensor(values) for values in (layout.row_M, layout.column_M, layout.source_M))
        attend = Prefill(self._ready_cache(), tensor(layout.lengths_S), *cells)
        hidden_TH = self.model(tensor(layout.tokens_T), tensor(layout.positions_T), attend)
        rows.end_RH[tensor(layout.row_B)] = hidden_TH[tensor(layout.end_B)]

    def _copy_kept(self, rows: Rows, siblings: list[int]) -> None:
        target_M = torch.tensor(siblings, device=self.device)
        spare_M = torch.full_like(target_M, rows.spare)
        self._ready_cache().move(spare_M, target_M, length_of(rows.kept_prompt))
        rows.end_RH[target_M] = rows.end_RH[spare_M]

    def _decode(self, rows: Rows) -> None:
        has_cuts = any(_has_cuts(request) for request in rows.requests)
        size, columns = len(rows), min(self.context, self._longest + self.cfg.window)
        if self._graphs is None:
            self._step(rows, size, columns, has_cuts)
            return
        size, columns = rounded(size, self.cfg.slots), min(self.context, -(-columns // COLUMNS) * COLUMNS)
        self._graphs.run((size, columns, has_cuts), lambda: self._step(rows, size, columns, has_cuts))

    def _step(self, rows: Rows, size: int, columns: int, has_cuts: bool) -> None:
        """Decode one token of the first `size` rows, none of which has filled more than `columns` of its cache."""
        used = slice(0, size)
        position_B = rows.position_R[used].clamp(max=self.context - 1)
        attend = Decode(self._ready_cache(), position_B, columns)
        hidden_BH = self.model(rows.token_R[used], position_B, attend)
        self._sample(rows, used, self.model.logits(hidden_BH), has_cuts)

    def _sample(self, rows: Rows, which: slice, logits_BV: Tensor, has_cuts: bool) -> None:
        uniform_B = uniforms(rows.seed_R[which], rows.count_R[which])
        token_B, logprob_B = sample(logits_BV, uniform_B, rows.cuts_of(which), has_cuts=has_cuts)
        rows.record(which, token_B, logprob_B, self._stops_K)

    def _harvest(self, rows: Rows) -> list[tuple[str, Completion]]:
        is_done, counts = rows.outputs()
        self._longest = max(len(r.prompt) + n for r, n in zip(rows.requests, counts, strict=True))
        texts_end = self._ended_by_text(rows, counts)
        ended = [row for row, done in enumerate(is_done) if done or row in texts_end]
        if not ended:
            return []
        counts = [texts_end.get(row, count) for row, count in enumerate(counts)]
        finished = rows.take(ended, counts, self.stop_tokens)
        by_text = [row in texts_end for row in ended]
        source, target = rows.drop(ended)
        if len(source):
            self._ready_cache().move(source, target, self._longest)
        return [self._completion(item, stopped) for item, stopped in zip(finished, by_text, strict=True)]

    def _completion(self, item: Finished, stopped_by_text: bool) -> tuple[str, Completion]:
        finish = Finish.LENGTH if item.is_cut and not stopped_by_text else Finish.STOP
        out = Completion(tokens=item.tokens, logprobs=item.logprobs, finish=finish, version=self.version)
        return item.request.id, out

    def _ended_by_text(self, rows: Rows, counts: list[int]) -> dict[int, int]:
        """Find rows whose text holds a stop string, with the token count at which it is complete."""
        ends = {}
        for row, request in enumerate(rows.requests):
            if request.sampling.stop:
                tokens = rows.tokens_RW[row, : counts[row]].cpu().numpy()
                end = self._stop_end(tokens, request.sampling.stop)
                if end is not None:
                    ends[row] = end
        return ends

    def _stop_end(self, tokens: Tokens, stop: tuple[str, ...]) -> int | None:
        assert self.detokenize is not None, "stop strings need a tokenizer"
        first = max(1, len(tokens) - self.cfg.window)
        for end in range(first, len(tokens) + 1):
            text = self.detokenize(tokens[:end])
            if any(word in text for word in stop):
                return end
        return None

    def _ready_rows(self) -> Rows:
        if self._rows is None:
            self._rows = Rows(self.cfg.slots, self.context, self.model.embed.weight)
            self._graphs = DecodeGraphs() if self.device.type == "cuda" else None
        self._rows.clear()
        return self._rows

    def _ready_cache(self) -> Cache:
        if self._cache is None:
            dtype = self.model.embed.weight.dtype
            self._cache = Cache(
                self.model.cfg, rows=self.cfg.slots + 1, context=self.context, dtype=dtype, device=self.device
            )
        return self._cache

    def _check(self, request: Request) -> None:
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
        if request.sampling.stop and self.detokenize is None:
            raise EngineError(f"request {request.id} has stop strings, but this engine was built without a tokenizer")


def _has_cuts(request: Request) -> bool:
    sampling = request.sampling
    return sampling.top_k > 0 or sampling.top_p < 1 or sampling.min_p > 0
