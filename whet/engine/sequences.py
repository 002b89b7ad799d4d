"""What the host knows of each request, from its admission to its completion.

The device is ahead of the host. `count_S` is the number of tokens read back so far, `bound_S` the
number there must be once all that was asked for has run, unless a stop token came first.

Shapes: S sequences, W longest completion, B rows of a report.
"""

from dataclasses import dataclass

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
    tokens_BX: Tokens
    logprobs_BX: Floats


class Sequences:
    """Requests and their tokens so far; a preempted request stays here without a row."""

    def __init__(self, sequences: int, width: int) -> None:
        self.request_S: list[Request | None] = [None] * sequences
        self.start_S, self.limit_S, self.count_S, self.bound_S, self.number_S = np.zeros(
            (5, sequences), dtype=np.int64
        )
        self.has_cuts_S, self.has_stops_S = np.zeros((2, sequences), dtype=bool)
        # Memory that is never written is never taken, so rows may be as long as the context.
        self.tokens_SW = np.zeros((sequences, width), dtype=np.int32)
        self.logprobs_SW = np.zeros((sequences, width), dtype=np.float32)
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
        self.count_S[sequence] = 0
        self.bound_S[sequence] = 0
        self.limit_S[sequence] = min(request.sampling.max_tokens, context - len(request.prompt))
        self.number_S[sequence] = self._next_number
        self.has_cuts_S[sequence] = request.sampling.has_cuts
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
        return self.tokens_SW[sequence, : self.count_S[sequence]]

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
        row_M, column_M = np.nonzero(np.arange(new_B.max(initial=0)) < new_B[:, None])
        sequence_M = report.sequence_B[row_M]
        place_M = known_B[row_M] + column_M
        self.tokens_SW[sequence_M, place_M] = report.tokens_BX[row_M, column_M]
        self.logprobs_SW[sequence_M, place_M] = report.logprobs_BX[row_M, column_M]
        is_open_B = report.sequence_B >= 0
        self.count_S[report.sequence_B[is_open_B]] = report.count_B[is_open_B]
        ended: list[int] = report.sequence_B[is_open_B & report.is_done_B].tolist()
        return ended

    def output(self, sequence: int, length: int) -> tuple[Tokens, Floats]:
        """Copy the first tokens of a sequence, with their log-probabilities."""
        return self.tokens_SW[sequence, :length].copy(), self.logprobs_SW[sequence, :length].copy()
