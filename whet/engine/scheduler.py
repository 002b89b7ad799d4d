"""The scheduler: which requests run, in which rows, which wait, and which are preempted. No torch.

Rows in use are contiguous from row 0. When the cache runs out of pages, the youngest requests are
preempted: they keep their tokens, go to the head of the queue, and resume with a prefill of all
their tokens. One extra row, the spare, caches the newest prompt for samples that start later.

The device runs ahead of the host. `count_S` counts the tokens read back so far,
`scheduled_S` those after all enqueued steps, unless a stop token comes first.

Shapes: S sequences, or chunks of them in a prefill; C positions, T tokens of a prefill, R rows, B
rows in use, W tokens of a window, Q a selection: rows that grow or move, chunks that end a context.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from whet.engine.base import LOOK_AHEAD, Request, longest_first
from whet.types import Floats, Indices, Tokens


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowOutput:
    """New tokens of some rows since the last fetch; a row's n-th is in column n."""

    sequence_B: Indices
    """The sequence of each row; -1 if its completion has been returned already."""
    is_done_B: NDArray[np.bool_]
    count_B: Indices
    tokens_BW: Tokens
    logprobs_BW: Floats


class Sequences:
    """Requests and their tokens so far; a preempted request stays here without a row."""

    def __init__(self, num_sequences: int, width: int) -> None:
        self.request_S: list[Request | None] = [None] * num_sequences
        self.prompt_length_S, self.limit_S, self.count_S, self.scheduled_S, self.arrival_S = (
            np.zeros((5, num_sequences), dtype=np.int64)
        )
        self.version_S = np.zeros(num_sequences, dtype=np.int64)
        """The version of the weights that sampled the first token."""
        self.is_truncated_S, self.has_stops_S = np.zeros((2, num_sequences), dtype=bool)
        # Zeros take no memory until they are written, so rows may be as long as the context.
        self.tokens_SC = np.zeros((num_sequences, width), dtype=np.int32)
        self.logprobs_SC = np.zeros((num_sequences, width), dtype=np.float32)
        self._free = list(range(num_sequences))[::-1]
        self._next_number = 0

    @property
    def has_free(self) -> bool:
        return bool(self._free)

    def add(self, request: Request, context: int) -> int:
        """Add a request; `arrival_S` is the order of arrival."""
        sequence = self._free.pop()
        self.request_S[sequence] = request
        self.prompt_length_S[sequence] = len(request.prompt)
        self.count_S[sequence] = self.scheduled_S[sequence] = 0
        self.limit_S[sequence] = min(request.sampling.max_tokens, context - len(request.prompt))
        self.arrival_S[sequence] = self._next_number
        self.is_truncated_S[sequence] = request.sampling.is_truncated
        self.has_stops_S[sequence] = bool(request.sampling.stop)
        self._next_number += 1
        return sequence

    def remove(self, sequence: int) -> None:
        self.request_S[sequence] = None
        self._free.append(sequence)

    def clear(self) -> None:
        for sequence, request in enumerate(self.request_S):
            if request is not None:
                self.remove(sequence)

    def request(self, sequence: int) -> Request:
        request = self.request_S[sequence]
        assert request is not None, "an empty sequence has no request"
        return request

    def tokens(self, sequence: int) -> Tokens:
        """Return the tokens read back so far."""
        return self.tokens_SC[sequence, : self.count_S[sequence]]

    def context(self, sequence: int) -> Tokens:
        """Return the tokens of a prefill: the prompt and the response so far."""
        prompt = np.asarray(self.request(sequence).prompt, dtype=np.int32)
        return np.concatenate([prompt, self.tokens(sequence)]) if self.count_S[sequence] else prompt

    def cache_lengths(self, sequence_B: Indices, steps: int) -> Indices:
        """Count the tokens cached after `steps` more steps: all but the newest."""
        newest_B = np.minimum(self.scheduled_S[sequence_B] + steps, self.limit_S[sequence_B])
        return self.prompt_length_S[sequence_B] + newest_B - 1

    def append_output(self, output: WindowOutput) -> list[int]:
        """Store new tokens; return the sequences that have ended."""
        is_open_B = output.sequence_B >= 0
        count_before_B = np.where(is_open_B, self.count_S[output.sequence_B], output.count_B)
        new_B = output.count_B - count_before_B
        row_Q, column_Q = np.nonzero(np.arange(new_B.max(initial=0)) < new_B[:, None])
        target = output.sequence_B[row_Q], count_before_B[row_Q] + column_Q
        self.tokens_SC[target] = output.tokens_BW[row_Q, column_Q]
        self.logprobs_SC[target] = output.logprobs_BW[row_Q, column_Q]
        self.count_S[output.sequence_B[is_open_B]] = output.count_B[is_open_B]
        ended: list[int] = output.sequence_B[is_open_B & output.is_done_B].tolist()
        return ended


class CacheAllocator(Protocol):
    """Memory of a KV cache, as the scheduler sees it; see `PageAllocator` for each method."""

    def can_hold(self, tokens: int) -> bool: ...
    def allocate(
        self, row: int, *, tokens: int, reserve: int, max_tokens: int, source: int | None
    ) -> bool: ...
    def grow(self, row_Q: Indices, tokens_Q: Indices) -> bool: ...
    def free(self, row_Q: Indices) -> None: ...
    def move(self, source_Q: Indices, target_Q: Indices) -> None: ...
    def clear(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Admission:
    """Rows that start now, right after those in use."""

    rows: slice
    sequence_B: Indices
    source_B: Indices
    """The row whose prefill each one uses: its own, a sibling's, or the spare."""
    to_prefill: list[int]
    """The rows whose context needs a prefill, in order."""
    cached_row: int | None
    """The row whose prompt the spare row caches from now on."""


class Scheduler:
    """Schedules the next window; every row needs room for `window` more tokens."""

    def __init__(
        self,
        allocator: CacheAllocator,
        sequences: Sequences,
        *,
        slots: int,
        context: int,
        window: int,
    ) -> None:
        self.allocator = allocator
        self.sequences = sequences
        self.slots = slots
        self.context = context
        self.window = window
        self.sequence_R = np.zeros(slots, dtype=np.int64)
        self.num_rows = 0
        self.spare = slots
        self.num_preempted = 0
        self._waiting: deque[int] = deque()
        self._source: Iterator[Request] = iter(())
        self._cached_prompt: bytes | None = None

    def start(self, requests: Iterable[Request], *, is_ordered: bool = False) -> None:
        """Drop all earlier state, the cached prompt too, since weights may have changed.

        Requests are sorted longest first unless `is_ordered`.
        """
        self.allocator.clear()
        self.sequences.clear()
        self._waiting.clear()
        self.num_rows = 0
        self.num_preempted = 0
        self._cached_prompt = None
        ahead = LOOK_AHEAD * self.slots
        self._source = iter(requests) if is_ordered else longest_first(requests, ahead=ahead)

    @property
    def running_B(self) -> Indices:
        """The sequences of the rows in use."""
        return self.sequence_R[: self.num_rows]

    def preempt_rows(self) -> list[int]:
        """Allocate memory for the next window; return the rows preempted for it."""
        row_Q = np.arange(self.num_rows)
        tokens_Q = self.sequences.cache_lengths(self.running_B, self.window)
        preempted: list[int] = []
        while not self.allocator.grow(row_Q, tokens_Q):
            if self.free_cached_prompt():
                continue
            assert len(row_Q) > 1, "a request that has all memory to itself fits"
            youngest = int(np.argmax(self.sequences.arrival_S[self.sequence_R[row_Q]]))
            preempted.append(int(row_Q[youngest]))
            self.allocator.free(row_Q[youngest : youngest + 1])
            row_Q = np.delete(row_Q, youngest)
            tokens_Q = np.delete(tokens_Q, youngest)
        self._waiting.extendleft(self.sequence_R[preempted].tolist())
        self.num_preempted += len(preempted)
        return preempted

    def admit(self) -> Admission | None:
        """Start the requests that fit; new ones only once all preempted ones are back."""
        sources = {} if self._cached_prompt is None else {self._cached_prompt: self.spare}
        first = self.num_rows
        to_prefill = list[int]()
        source_B = list[int]()
        while self.num_rows < self.slots and (sequence := self._next()) is not None:
            row = self.num_rows
            key = self.sequences.context(sequence).tobytes()
            if not self._allocate(row, sequence, sources.get(key)):
                if row > 0:
                    self._waiting.appendleft(sequence)
                    break
                # No other row runs, so only the cached prompt can hold the missing memory.
                self.free_cached_prompt()
                sources.clear()
                is_allocated = self._allocate(0, sequence, None)
                assert is_allocated, "a request that has all memory to itself fits"
            if key not in sources:
                sources[key] = row
                to_prefill.append(row)
            source_B.append(sources[key])
            self.sequence_R[row] = sequence
            self.sequences.scheduled_S[sequence] += 1
            self.num_rows += 1
        if not source_B:
            return None
        rows = slice(first, self.num_rows)
        return Admission(
            rows=rows,
            sequence_B=self.sequence_R[rows].copy(),
            source_B=np.array(source_B),
            to_prefill=to_prefill,
            cached_row=self._cache_prompt(to_prefill),
        )

    def advance(self, steps: int) -> int:
        """Advance all rows by `steps` tokens; return the longest cached length after them."""
        cached_B = self.sequences.cache_lengths(self.running_B, steps)
        prompt_B = self.sequences.prompt_length_S[self.running_B]
        self.sequences.scheduled_S[self.running_B] = cached_B + 1 - prompt_B
        return int(cached_B.max())

    def rows_at_limit(self) -> list[int]:
        """List the rows that are at their length limit after the steps enqueued so far."""
        running_B = self.running_B
        rows: list[int] = np.nonzero(
            self.sequences.scheduled_S[running_B] >= self.sequences.limit_S[running_B]
        )[0].tolist()
        return rows

    def remove_rows(self, rows: Sequence[int]) -> tuple[Indices, Indices]:
        """Free rows and fill the gaps from the end; return the moves as source and target."""
        is_gone_B = np.zeros(self.num_rows, dtype=bool)
        is_gone_B[rows] = True
        left = self.num_rows - int(is_gone_B.sum())
        source_Q = left + np.nonzero(~is_gone_B[left:])[0]
        target_Q = np.nonzero(is_gone_B[:left])[0]
        self.allocator.free(np.nonzero(is_gone_B)[0])
        self.allocator.move(source_Q, target_Q)
        self.sequence_R[target_Q] = self.sequence_R[source_Q]
        self.num_rows = left
        return source_Q, target_Q

    def rows_of(self, sequences: Collection[int]) -> list[int]:
        """Find the rows that run these sequences."""
        is_listed_S = np.zeros(len(self.sequences.request_S), dtype=bool)
        is_listed_S[list(sequences)] = True
        rows: list[int] = np.nonzero(is_listed_S[self.running_B])[0].tolist()
        return rows

    def drop_waiting(self, sequence: int) -> None:
        """Remove an ended sequence from the queue if it waits there."""
        if sequence in self._waiting:
            self._waiting.remove(sequence)

    def free_cached_prompt(self) -> bool:
        """Free the cached prompt; return whether there was one."""
        had_prompt = self._cached_prompt is not None
        self._cached_prompt = None
        self.allocator.free(np.array([self.spare]))
        return had_prompt

    def _next(self) -> int | None:
        """Take the next sequence; None if there is none, or its tokens are not on the host."""
        if self._waiting:
            sequence = self._waiting[0]
            is_read = self.sequences.scheduled_S[sequence] == self.sequences.count_S[sequence]
            return self._waiting.popleft() if is_read else None
        request = next(self._source, None) if self.sequences.has_free else None
        return None if request is None else self.sequences.add(request, self.context)

    def _allocate(self, row: int, sequence: int, source: int | None) -> bool:
        start = int(self.sequences.prompt_length_S[sequence])
        count = int(self.sequences.count_S[sequence])
        max_tokens = start + int(self.sequences.limit_S[sequence]) - 1
        reserve = min(start + count + self.window, max_tokens)
        return self.allocator.allocate(
            row, tokens=start + count, reserve=reserve, max_tokens=max_tokens, source=source
        )

    def _cache_prompt(self, to_prefill: list[int]) -> int | None:
        """Cache the last prompt of a prefill in the spare row, for samples that start later."""
        prompts = [row for row in to_prefill if self.sequences.count_S[self.sequence_R[row]] == 0]
        if not prompts:
            return None
        self.free_cached_prompt()
        sequence = int(self.sequence_R[prompts[-1]])
        tokens = int(self.sequences.prompt_length_S[sequence])
        if not self.allocator.allocate(
            self.spare, tokens=tokens, reserve=tokens, max_tokens=tokens, source=prompts[-1]
        ):
            return None
        self._cached_prompt = self.sequences.context(sequence).tobytes()
        return prompts[-1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrefillPass:
    """One forward pass over chunks of contexts, laid end to end."""

    tokens_T: Indices
    positions_T: Indices
    row_T: Indices
    row_S: Indices
    before_S: Indices
    """Tokens of the context before each chunk."""
    starts_S1: Indices
    """Where each chunk starts, and where the last one ends."""
    end_Q: Indices
    """The last token of each context that ends in this pass."""
    row_Q: Indices


def plan_prefill(contexts: dict[int, Tokens], max_tokens: int, chunked: bool) -> list[PrefillPass]:
    """Spread the contexts of rows over passes of at most `max_tokens`.

    Without `chunked`, contexts stay whole, even longer ones.
    """
    passes: list[list[tuple[int, int, int]]] = [[]]
    room = max_tokens
    for row, context in contexts.items():
        start = 0
        while start < len(context):
            if passes[-1] and (room <= 0 or (not chunked and len(context) > room)):
                passes.append([])
                room = max_tokens
            end = min(start + room, len(context)) if chunked else len(context)
            passes[-1].append((row, start, end))
            room -= end - start
            start = end
    return [_build_pass(contexts, chunks) for chunks in passes if chunks]


def _build_pass(contexts: dict[int, Tokens], chunks: list[tuple[int, int, int]]) -> PrefillPass:
    row_S, before_S, after_S = np.array(chunks, dtype=np.int64).T.copy()
    lengths_S = after_S - before_S
    starts_S1 = np.concatenate([[0], np.cumsum(lengths_S)])
    is_last_S = np.array([end == len(contexts[row]) for row, _, end in chunks])
    tokens_T = np.concatenate([contexts[row][start:end] for row, start, end in chunks])
    return PrefillPass(
        tokens_T=tokens_T.astype(np.int64),
        positions_T=np.arange(starts_S1[-1]) + np.repeat(before_S - starts_S1[:-1], lengths_S),
        row_T=np.repeat(row_S, lengths_S),
        row_S=row_S,
        before_S=before_S,
        starts_S1=starts_S1,
        end_Q=(starts_S1[1:] - 1)[is_last_S],
        row_Q=row_S[is_last_S],
    )
