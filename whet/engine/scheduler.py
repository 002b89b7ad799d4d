"""Which request runs in which row, waits, or is preempted, and what the host knows of it. No torch.

Rows are dense from row 0. When pages run short the youngest rows are preempted: their tokens stay
in their sequences, they wait before all others, and later go on where they were. One more row, the
spare, keeps the newest prompt for samples of it that are still to come.

The device is ahead of the host. `count_S` is the number of tokens read back so far, `bound_S` the
number there must be once all that was asked for has run, unless a stop token came first.

Shapes: S sequences, or chunks of them in a prefill; C positions, T tokens of a prefill, R rows, B
rows in use, W tokens of a window, Q a selection: rows that grow or move, chunks that end a context.
"""

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from whet.engine.base import Request
from whet.types import Floats, Tokens

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Report:
    """What some rows did since the last report; the n-th new token of a row is in column n."""

    sequence_B: Indices
    """The request of each row; -1 for one that has been answered."""
    is_done_B: NDArray[np.bool_]
    count_B: Indices
    tokens_BW: Tokens
    logprobs_BW: Floats


class Sequences:
    """Requests and their tokens so far; a preempted request stays here without a row."""

    def __init__(self, sequences: int, width: int) -> None:
        self.request_S: list[Request | None] = [None] * sequences
        self.start_S, self.limit_S, self.count_S, self.bound_S, self.number_S = np.zeros(
            (5, sequences), dtype=np.int64
        )
        self.is_truncated_S, self.has_stops_S = np.zeros((2, sequences), dtype=bool)
        # Memory that is never written is never taken, so rows may be as long as the context.
        self.tokens_SC = np.zeros((sequences, width), dtype=np.int32)
        self.logprobs_SC = np.zeros((sequences, width), dtype=np.float32)
        self._free = list(range(sequences))[::-1]
        self._next_number = 0

    @property
    def has_room(self) -> bool:
        return bool(self._free)

    def open(self, request: Request, context: int) -> int:
        """Open a request; sequences are numbered in the order of arrival."""
        sequence = self._free.pop()
        self.request_S[sequence] = request
        self.start_S[sequence] = len(request.prompt)
        self.count_S[sequence] = self.bound_S[sequence] = 0
        self.limit_S[sequence] = min(request.sampling.max_tokens, context - len(request.prompt))
        self.number_S[sequence] = self._next_number
        self.is_truncated_S[sequence] = request.sampling.is_truncated
        self.has_stops_S[sequence] = bool(request.sampling.stop)
        self._next_number += 1
        return sequence

    def close(self, sequence: int) -> None:
        self.request_S[sequence] = None
        self._free.append(sequence)

    def clear(self) -> None:
        for sequence, request in enumerate(self.request_S):
            if request is not None:
                self.close(sequence)

    def request(self, sequence: int) -> Request:
        request = self.request_S[sequence]
        assert request is not None, "an empty sequence has no request"
        return request

    def tokens(self, sequence: int) -> Tokens:
        """Give the tokens read back so far."""
        return self.tokens_SC[sequence, : self.count_S[sequence]]

    def context(self, sequence: int) -> Tokens:
        """Lay out what has to be run to go on sampling: the prompt and the tokens so far."""
        prompt = np.asarray(self.request(sequence).prompt, dtype=np.int32)
        return np.concatenate([prompt, self.tokens(sequence)]) if self.count_S[sequence] else prompt

    def cache_lengths(self, sequence_B: Indices, more: int) -> Indices:
        """Count tokens cached after `more` steps: all but the newest, which no step has read."""
        newest_B = np.minimum(self.bound_S[sequence_B] + more, self.limit_S[sequence_B])
        return self.start_S[sequence_B] + newest_B - 1

    def read(self, report: Report) -> list[int]:
        """File the new tokens of a report; returns the sequences that it shows to have ended."""
        known_B = np.where(report.sequence_B >= 0, self.count_S[report.sequence_B], report.count_B)
        new_B = report.count_B - known_B
        row_Q, column_Q = np.nonzero(np.arange(new_B.max(initial=0)) < new_B[:, None])
        target = report.sequence_B[row_Q], known_B[row_Q] + column_Q
        self.tokens_SC[target] = report.tokens_BW[row_Q, column_Q]
        self.logprobs_SC[target] = report.logprobs_BW[row_Q, column_Q]
        is_open_B = report.sequence_B >= 0
        self.count_S[report.sequence_B[is_open_B]] = report.count_B[is_open_B]
        ended: list[int] = report.sequence_B[is_open_B & report.is_done_B].tolist()
        return ended


LOOK_AHEAD = 4
"""Requests that are looked at before they begin, in multiples of the rows."""


class BlockAllocator(Protocol):
    """Cache memory as the scheduler sees it; `whet/engine/paged_cache.py` explains each call."""

    def holds(self, tokens: int) -> bool: ...
    def place(
        self, row: int, *, tokens: int, ahead: int, most: int, source: int | None
    ) -> bool: ...
    def grow(self, row_Q: Indices, tokens_Q: Indices) -> bool: ...
    def release(self, row_Q: Indices) -> None: ...
    def move(self, source_Q: Indices, target_Q: Indices) -> None: ...
    def clear(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Admission:
    """Rows that begin now, one after the other behind those in use."""

    rows: slice
    sequence_B: Indices
    source_B: Indices
    """The row whose context each of them continues: its own, that of a sibling, or the spare."""
    fresh: list[int]
    """The rows whose context has to be run, in order."""
    kept: int | None
    """The row whose context the spare takes over."""


class Scheduler:
    """Decides before each window. `window` is the number of tokens that rows need room for."""

    def __init__(
        self,
        allocator: BlockAllocator,
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
        self._kept: bytes | None = None

    def start(self, requests: Iterable[Request]) -> None:
        """Forget all that went before. Weights may have changed, so the kept prompt goes too."""
        self.allocator.clear()
        self.sequences.clear()
        self._waiting.clear()
        self.num_rows = 0
        self.num_preempted = 0
        self._kept = None
        self._source = longest_first(requests, ahead=LOOK_AHEAD * self.slots)

    @property
    def running_B(self) -> Indices:
        """The sequences of the rows in use."""
        return self.sequence_R[: self.num_rows]

    def make_room(self) -> list[int]:
        """Find room for the next window; returns the rows that have to give way for it."""
        row_Q = np.arange(self.num_rows)
        tokens_Q = self.sequences.cache_lengths(self.running_B, self.window)
        given: list[int] = []
        while not self.allocator.grow(row_Q, tokens_Q):
            if self._forget():
                continue
            assert len(row_Q) > 1, "a request that has all memory to itself fits"
            youngest = int(np.argmax(self.sequences.number_S[self.sequence_R[row_Q]]))
            given.append(int(row_Q[youngest]))
            self.allocator.release(row_Q[youngest : youngest + 1])
            row_Q = np.delete(row_Q, youngest)
            tokens_Q = np.delete(tokens_Q, youngest)
        self._waiting.extendleft(self.sequence_R[given].tolist())
        self.num_preempted += len(given)
        return given

    def admit(self) -> Admission | None:
        """Admit what fits; new requests are pulled only once preempted ones are back."""
        sources = {} if self._kept is None else {self._kept: self.spare}
        first = self.num_rows
        fresh = list[int]()
        source_B = list[int]()
        while self.num_rows < self.slots and (sequence := self._next()) is not None:
            row = self.num_rows
            key = self.sequences.context(sequence).tobytes()
            if not self._place(row, sequence, sources.get(key)):
                if row > 0:
                    self._waiting.appendleft(sequence)
                    break
                # The kept prompt is all that can stand in the way of a request that runs alone.
                self._forget()
                sources.clear()
                is_placed = self._place(0, sequence, None)
                assert is_placed, "a request that has all memory to itself fits"
            if key not in sources:
                sources[key] = row
                fresh.append(row)
            source_B.append(sources[key])
            self.sequence_R[row] = sequence
            self.sequences.bound_S[sequence] += 1
            self.num_rows += 1
        if not source_B:
            return None
        rows = slice(first, self.num_rows)
        kept = self._keep(fresh)
        sequence_B = self.sequence_R[rows].copy()
        source = np.array(source_B)
        return Admission(rows=rows, sequence_B=sequence_B, source_B=source, fresh=fresh, kept=kept)

    def advance(self, steps: int) -> int:
        """Advance all rows by `steps` tokens; returns the most that one will have cached."""
        running_B = self.running_B
        cached_B = self.sequences.cache_lengths(self.running_B, steps)
        self.sequences.bound_S[running_B] = cached_B + 1 - self.sequences.start_S[running_B]
        return int(cached_B.max())

    def full(self) -> list[int]:
        """List the rows that must have reached their length limit by now, whatever they sampled."""
        running_B = self.running_B
        rows: list[int] = np.nonzero(
            self.sequences.bound_S[running_B] >= self.sequences.limit_S[running_B]
        )[0].tolist()
        return rows

    def drop(self, rows: Sequence[int]) -> tuple[Indices, Indices]:
        """Close rows and fill the gaps from the end; returns the moves, source and target."""
        is_gone_B = np.zeros(self.num_rows, dtype=bool)
        is_gone_B[rows] = True
        left = self.num_rows - int(is_gone_B.sum())
        source_Q = left + np.nonzero(~is_gone_B[left:])[0]
        target_Q = np.nonzero(is_gone_B[:left])[0]
        self.allocator.release(np.nonzero(is_gone_B)[0])
        self.allocator.move(source_Q, target_Q)
        self.sequence_R[target_Q] = self.sequence_R[source_Q]
        self.num_rows = left
        return source_Q, target_Q

    def rows_of(self, sequences: Collection[int]) -> list[int]:
        """Find the rows that serve these sequences."""
        is_asked_S = np.zeros(len(self.sequences.request_S), dtype=bool)
        is_asked_S[list(sequences)] = True
        rows: list[int] = np.nonzero(is_asked_S[self.running_B])[0].tolist()
        return rows

    def withdraw(self, sequence: int) -> None:
        """Take a sequence that has ended out of those that wait, if it is among them."""
        if sequence in self._waiting:
            self._waiting.remove(sequence)

    def _next(self) -> int | None:
        """Take the next sequence; one whose tokens are still on the device holds up the others."""
        if self._waiting:
            sequence = self._waiting[0]
            is_read = self.sequences.bound_S[sequence] == self.sequences.count_S[sequence]
            return self._waiting.popleft() if is_read else None
        request = next(self._source, None) if self.sequences.has_room else None
        return None if request is None else self.sequences.open(request, self.context)

    def _place(self, row: int, sequence: int, source: int | None) -> bool:
        start = int(self.sequences.start_S[sequence])
        count = int(self.sequences.count_S[sequence])
        most = start + int(self.sequences.limit_S[sequence]) - 1
        ahead = min(start + count + self.window, most)
        return self.allocator.place(
            row, tokens=start + count, ahead=ahead, most=most, source=source
        )

    def _keep(self, fresh: list[int]) -> int | None:
        """Keep the last prompt that was run; only its samples can still be to come."""
        prompts = [row for row in fresh if self.sequences.count_S[self.sequence_R[row]] == 0]
        if not prompts:
            return None
        self._forget()
        sequence = int(self.sequence_R[prompts[-1]])
        tokens = int(self.sequences.start_S[sequence])
        if not self.allocator.place(
            self.spare, tokens=tokens, ahead=tokens, most=tokens, source=prompts[-1]
        ):
            return None
        self._kept = self.sequences.context(sequence).tobytes()
        return prompts[-1]

    def _forget(self) -> bool:
        """Give the kept prompt up; says whether there was one."""
        had_one = self._kept is not None
        self._kept = None
        self.allocator.release(np.array([self.spare]))
        return had_one


def longest_first(requests: Iterable[Request], *, ahead: int) -> Iterator[Request]:
    """Order requests by length limit, `ahead` of them at a time; equal limits keep their order.

    Requests of one prompt that come one after the other stay together, since they share it.
    """
    heap: list[tuple[int, int, list[Request]]] = []
    waiting = 0
    for number, group in enumerate(_groups(requests, most=ahead)):
        longest = max(request.sampling.max_tokens for request in group)
        heapq.heappush(heap, (-longest, number, group))
        waiting += len(group)
        while waiting >= ahead:
            first = heapq.heappop(heap)[2]
            waiting -= len(first)
            yield from first
    while heap:
        yield from heapq.heappop(heap)[2]


def _groups(requests: Iterable[Request], *, most: int) -> Iterator[list[Request]]:
    """Gather consecutive requests of one prompt, at most so many: the stream may never end."""
    for _, same in groupby(requests, key=lambda request: request.prompt.tobytes()):
        while group := list(islice(same, most)):
            yield group


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrefillPass:
    """One forward pass over chunks of contexts, laid end to end."""

    tokens_T: Indices
    positions_T: Indices
    row_T: Indices
    row_S: Indices
    before_S: Indices
    """Tokens of its context that stand before each chunk."""
    starts_S1: Indices
    """Where each chunk starts, and where the last one ends."""
    end_Q: Indices
    """Where contexts that end in this pass have their last token."""
    row_Q: Indices


def plan_prefill(contexts: dict[int, Tokens], *, most: int, splits: bool) -> list[PrefillPass]:
    """Spread the contexts of rows over passes of at most `most` tokens.

    Without `splits` a context stays whole, even one that is longer.
    """
    passes: list[list[tuple[int, int, int]]] = [[]]
    room = most
    for row, context in contexts.items():
        start = 0
        while start < len(context):
            if passes[-1] and (room <= 0 or (not splits and len(context) > room)):
                passes.append([])
                room = most
            end = min(start + room, len(context)) if splits else len(context)
            passes[-1].append((row, start, end))
            room -= end - start
            start = end
    return [_lay_out(contexts, chunks) for chunks in passes if chunks]


def _lay_out(contexts: dict[int, Tokens], chunks: list[tuple[int, int, int]]) -> PrefillPass:
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
