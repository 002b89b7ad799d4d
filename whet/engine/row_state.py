"""What the device knows of each running request: one row each, dense from row 0.

A row's newest token has been sampled but not yet read by the model; its position is `first +
count`. Ended rows are not live: they go through the motions and change nothing.

Shapes: R rows, B rows in use, F fields, X columns of a report, V vocabulary.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from whet.engine.base import Request
from whet.engine.sampling import Cuts, sample, uniforms
from whet.engine.sequences import Indices, Report
from whet.engine.transfer import Link

_INTS, _FLOATS = 8, 3


class Rows:
    """Tensors for R rows, at addresses that stay, and a report of what rows did since the last.

    `is_stop_V` marks the tokens that end a row.
    """

    def __init__(self, rows: int, window: int, link: Link, is_stop_V: Tensor) -> None:
        self.link = link
        self.is_stop_V = is_stop_V
        self.columns = window + 2
        device = link.device
        self.ints_FR = torch.zeros(_INTS, rows, dtype=torch.int64, device=device)
        self.token_R, self.first_R, self.count_R, self.base_R = self.ints_FR[:4].unbind()
        self.limit_R, self.seed_R, self.top_k_R, self.live_R = self.ints_FR[4:].unbind()
        self.floats_FR = torch.ones(_FLOATS, rows, dtype=torch.float32, device=device)
        self.temperature_R, self.top_p_R, self.min_p_R = self.floats_FR.unbind()
        # A report shows whether a row is live, its count, and its tokens and log-probabilities
        # since `base`. The n-th one goes to column n; an ended row goes on writing behind its last
        # one, where nobody looks.
        self.report_RX = torch.zeros(rows, 2 + 2 * self.columns, dtype=torch.int32, device=device)
        self._tokens_RX = self.report_RX[:, 2 : 2 + self.columns]
        self._logprobs_RX = self.report_RX[:, 2 + self.columns :].view(torch.float32)
        self.uniform_RX = torch.zeros(rows, self.columns, dtype=torch.float64, device=device)
        self._ahead_X = torch.arange(self.columns, device=device)

    def clear(self) -> None:
        self.ints_FR.zero_()

    def open(
        self, rows: slice, requests: list[Request], count_B: Indices, limit_B: Indices
    ) -> None:
        """Begin rows that have `count_B` tokens already; the next one is still to be sampled."""
        settings = [request.sampling for request in requests]
        ints = np.zeros((_INTS, len(requests)), dtype=np.int64)
        ints[1] = [len(request.prompt) - 1 for request in requests]
        ints[2] = count_B
        ints[3] = count_B
        ints[4] = limit_B
        ints[5] = [request.seed for request in requests]
        ints[6] = [s.top_k for s in settings]
        ints[7] = 1
        floats = np.array(
            [[s.temperature, s.top_p, s.min_p] for s in settings], dtype=np.float32
        ).T.copy()
        self.ints_FR[:, rows], self.floats_FR[:, rows] = self.link.send(ints, floats)

    def position_of(self, rows: slice) -> Tensor:
        """Say where each row's newest token stands."""
        return self.first_R[rows] + self.count_R[rows]

    def cuts_of(self, rows: slice) -> Cuts:
        return Cuts(
            temperature_B=self.temperature_R[rows],
            top_k_B=self.top_k_R[rows],
            top_p_B=self.top_p_R[rows],
            min_p_B=self.min_p_R[rows],
        )

    def draw(self, rows: slice) -> None:
        """Draw random numbers for tokens until the next report, by each row's seed and count."""
        self.uniform_RX[rows] = uniforms(
            self.seed_R[rows, None], self.base_R[rows, None] + self._ahead_X
        )

    def column_of(self, rows: slice) -> Tensor:
        """Say which column of the report the next token of each row goes to."""
        return (self.count_R[rows] - self.base_R[rows])[:, None]

    def latest(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Give what stands in those columns: a token and its log-probability."""
        column_B1 = self.column_of(rows)
        token_B1, logprob_B1 = (
            filed_RX[rows].gather(1, column_B1) for filed_RX in (self._tokens_RX, self._logprobs_RX)
        )
        return token_B1[:, 0].long(), logprob_B1[:, 0]

    def choose(self, rows: slice, logits_BV: Tensor, has_cuts: bool) -> tuple[Tensor, Tensor]:
        """Choose the next token of each row by its own settings and random number."""
        uniform_B = self.uniform_RX[rows].gather(1, self.column_of(rows))[:, 0]
        return sample(logits_BV, uniform_B, self.cuts_of(rows), has_cuts=has_cuts)

    def record(self, rows: slice, token_B: Tensor, logprob_B: Tensor) -> None:
        """File the sampled tokens of live rows and end those that stop or are full."""
        column_B1 = self.column_of(rows)
        self._tokens_RX[rows].scatter_(1, column_B1, token_B[:, None].int())
        self._logprobs_RX[rows].scatter_(1, column_B1, logprob_B[:, None])
        self.token_R[rows] = token_B
        count_B = self.count_R[rows]
        live_B = self.live_R[rows]
        count_B += live_B
        live_B.masked_fill_(self.is_stop_V[token_B] | (count_B >= self.limit_R[rows]), 0)

    def post(self, sequence_B: Indices) -> Callable[[], Report]:
        """Ask for a report of the first rows, by sequence, and begin the next one."""
        used = slice(0, len(sequence_B))
        self.report_RX[used, 0] = self.live_R[used]
        self.report_RX[used, 1] = self.count_R[used]
        wait = self.link.fetch(self.report_RX[used])
        self.base_R[used] = self.count_R[used]

        def read() -> Report:
            report = wait().numpy()
            middle = 2 + self.columns
            tokens = report[:, 2:middle]
            logprobs = report[:, middle:].view(np.float32)
            is_done = report[:, 0] == 0
            count = report[:, 1].astype(np.int64)
            return Report(
                sequence_B=sequence_B,
                is_done_B=is_done,
                count_B=count,
                tokens_BX=tokens,
                logprobs_BX=logprobs,
            )

        return read

    def move(self, source_M: Indices, target_M: Indices) -> None:
        source, target = self.link.send(source_M, target_M)
        for fields in (self.ints_FR, self.floats_FR):
            fields[:, target] = fields[:, source]

    def end(self, rows: slice) -> None:
        self.live_R[rows] = 0


class HostRows(Rows):
    """Rows on a CPU, where numpy is faster than torch for arrays this small."""

    def __init__(self, rows: int, window: int, link: Link, is_stop_V: Tensor) -> None:
        super().__init__(rows, window, link, is_stop_V)
        self._fields = self.ints_FR.numpy(), self.floats_FR.numpy()
        self._live, self._count, self._base = (
            self.live_R.numpy(),
            self.count_R.numpy(),
            self.base_R.numpy(),
        )
        self._filed = self._tokens_RX.numpy(), self._logprobs_RX.numpy()

    def post(self, sequence_B: Indices) -> Callable[[], Report]:
        self.link.counts.fetches += 1
        used = slice(0, len(sequence_B))
        is_done_B = self._live[used] == 0
        count_B = self._count[used].copy()
        tokens_BX, logprobs_BX = (filed_RX[used].copy() for filed_RX in self._filed)
        report = Report(
            sequence_B=sequence_B,
            is_done_B=is_done_B,
            count_B=count_B,
            tokens_BX=tokens_BX,
            logprobs_BX=logprobs_BX,
        )
        self._base[used] = count_B
        return lambda: report

    def move(self, source_M: Indices, target_M: Indices) -> None:
        for fields in self._fields:
            fields[:, target_M] = fields[:, source_M]

    def end(self, rows: slice) -> None:
        self._live[rows] = 0
