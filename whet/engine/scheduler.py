"""Who runs in which row, who waits, and who gives way when memory is short: bookkeeping only, no
torch.

Rows are dense from row 0. When pages run short the youngest rows give way: their tokens stay in
their seats, they wait before all others, and later go on where they were. One row more, the spare,
keeps the newest prompt for samples of it that are still to come.

Shapes: R rows, B rows that are taken in together, M rows that move.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from whet.engine.base import Request
from whet.engine.queue import longest_first
from whet.engine.sequences import Indices, Seats

LOOK_AHEAD = 4
"""Requests that are looked at before they begin, in multiples of the rows."""


class Room(Protocol):
    """Memory for the tokens of rows, as the scheduler sees it; `whet.engine.blocks` says what each
    call means."""

    def place(
        self, row: int, *, tokens: int, ahead: int, most: int, source: int | None
    ) -> bool: ...
    def grow(self, row_M: Indices, tokens_M: Indices) -> bool: ...
    def release(self, row_M: Indices) -> None: ...
    def move(self, source_M: Indices, target_M: Indices) -> None: ...
    def clear(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Admission:
    """Rows that begin now, one after the other behind those in use."""

    rows: slice
    seat_B: Indices
    source_B: Indices
    """The row whose context each of them continues: its own, that of a sibling, or the spare."""
    fresh: list[int]
    """The rows whose context has to be run, in order."""
    kept: int | None
    """The row whose context the spare takes over."""


class Scheduler:
    """Decides before each window. `window` is the number of tokens that rows need room for."""

    def __init__(self, room: Room, seats: Seats, *, slots: int, context: int, window: int) -> None:
        self.room = room
        self.seats = seats
        self.slots = slots
        self.context = context
        self.window = window
        self.seat_R = np.zeros(slots, dtype=np.int64)
        self.num_rows = 0
        self.spare = slots
        self.num_preempted = 0
        self._waiting: deque[int] = deque()
        self._source: Iterator[Request] = iter(())
        self._kept: bytes | None = None

    def start(self, requests: Iterable[Request]) -> None:
        """Forget all that went before. Weights may have changed, so the kept prompt goes too."""
        self.room.clear()
        self.seats.clear()
        self._waiting.clear()
        self.num_rows = 0
        self.num_preempted = 0
        self._kept = None
        self._source = longest_first(requests, ahead=LOOK_AHEAD * self.slots)

    @property
    def running_B(self) -> Indices:
        """The seats of the rows in use."""
        return self.seat_R[: self.num_rows]

    def make_room(self) -> list[int]:
        """Find room for the next window; returns the rows that have to give way for it."""
        row_M = np.arange(self.num_rows)
        tokens_M = self.seats.cached(self.running_B, self.window)
        given: list[int] = []
        while not self.room.grow(row_M, tokens_M):
            if self._forget():
                continue
            assert len(row_M) > 1, "a request that has all memory to itself fits"
            youngest = int(np.argmax(self.seats.number_S[self.seat_R[row_M]]))
            given.append(int(row_M[youngest]))
            self.room.release(row_M[youngest : youngest + 1])
            row_M = np.delete(row_M, youngest)
            tokens_M = np.delete(tokens_M, youngest)
        self._waiting.extendleft(self.seat_R[given].tolist())
        self.num_preempted += len(given)
        return given

    def admit(self) -> Admission | None:
        """Take in what waits and fits, pulling new requests only when those that gave way are
        back."""
        sources = {} if self._kept is None else {self._kept: self.spare}
        first = self.num_rows
        fresh = list[int]()
        source_B = list[int]()
        while self.num_rows < self.slots and (seat := self._next()) is not None:
            row = self.num_rows
            key = self.seats.context(seat).tobytes()
            if not self._place(row, seat, sources.get(key)):
                if row > 0:
                    self._waiting.appendleft(seat)
                    break
                self._place_alone(seat)
                sources.clear()
            if key not in sources:
                sources[key] = row
                fresh.append(row)
            source_B.append(sources[key])
            self.seat_R[row] = seat
            self.seats.bound_S[seat] += 1
            self.num_rows += 1
        if not source_B:
            return None
        rows = slice(first, self.num_rows)
        kept = self._keep(fresh)
        seat_B = self.seat_R[rows].copy()
        source = np.array(source_B)
        return Admission(rows=rows, seat_B=seat_B, source_B=source, fresh=fresh, kept=kept)

    def advance(self, steps: int) -> int:
        """Note that all rows go `steps` tokens further; returns the most that one of them will then
        have cached."""
        running_B = self.running_B
        cached_B = self.seats.cached(self.running_B, steps)
        self.seats.bound_S[running_B] = cached_B + 1 - self.seats.start_S[running_B]
        return int(cached_B.max())

    def full(self) -> list[int]:
        """List the rows that must have reached their length limit by now, whatever they sampled."""
        running_B = self.running_B
        rows: list[int] = np.nonzero(
            self.seats.bound_S[running_B] >= self.seats.limit_S[running_B]
        )[0].tolist()
        return rows

    def drop(self, rows: Sequence[int]) -> tuple[Indices, Indices]:
        """Close rows: rows from the end move into their places. Returns the moves, source and
        target."""
        is_gone_B = np.zeros(self.num_rows, dtype=bool)
        is_gone_B[rows] = True
        left = self.num_rows - int(is_gone_B.sum())
        source_M = left + np.nonzero(~is_gone_B[left:])[0]
        target_M = np.nonzero(is_gone_B[:left])[0]
        self.room.release(np.nonzero(is_gone_B)[0])
        self.room.move(source_M, target_M)
        self.seat_R[target_M] = self.seat_R[source_M]
        self.num_rows = left
        return source_M, target_M

    def rows_of(self, seats: Collection[int]) -> list[int]:
        """Find the rows that serve these seats."""
        is_asked_S = np.zeros(len(self.seats.request_S), dtype=bool)
        is_asked_S[list(seats)] = True
        rows: list[int] = np.nonzero(is_asked_S[self.running_B])[0].tolist()
        return rows

    def withdraw(self, seat: int) -> None:
        """Take a seat that has ended out of those that wait, if it is among them."""
        if seat in self._waiting:
            self._waiting.remove(seat)

    def _next(self) -> int | None:
        """Name the seat that is first in line; one whose tokens are still on their way holds up the
        others."""
        if self._waiting:
            seat = self._waiting[0]
            return (
                self._waiting.popleft()
                if self.seats.bound_S[seat] == self.seats.count_S[seat]
                else None
            )
        request = next(self._source, None) if self.seats.has_room else None
        return None if request is None else self.seats.open(request, self.context)

    def _place(self, row: int, seat: int, source: int | None) -> bool:
        start = int(self.seats.start_S[seat])
        count = int(self.seats.count_S[seat])
        most = start + int(self.seats.limit_S[seat]) - 1
        ahead = min(start + count + self.window, most)
        return self.room.place(row, tokens=start + count, ahead=ahead, most=most, source=source)

    def _place_alone(self, seat: int) -> None:
        """Give up the kept prompt, the only thing that can stand in the way of a request that runs
        alone."""
        self._forget()
        is_placed = self._place(0, seat, None)
        assert is_placed, "a request that has all memory to itself fits"

    def _keep(self, fresh: list[int]) -> int | None:
        """Keep the last prompt that was run; only its samples can still be to come."""
        prompts = [row for row in fresh if self.seats.count_S[self.seat_R[row]] == 0]
        if not prompts:
            return None
        self._forget()
        seat = int(self.seat_R[prompts[-1]])
        tokens = int(self.seats.start_S[seat])
        if not self.room.place(
            self.spare, tokens=tokens, ahead=tokens, most=tokens, source=prompts[-1]
        ):
            return None
        self._kept = self.seats.context(seat).tobytes()
        return prompts[-1]

    def _forget(self) -> bool:
        """Give the kept prompt up; says whether there was one."""
        had_one = self._kept is not None
        self._kept = None
        self.room.release(np.array([self.spare]))
        return had_one
