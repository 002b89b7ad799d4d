"""What runs on the device: contexts cut into passes, windows of decode steps, and rows that move.

It only enqueues. Keys and values are left to a cache: dense rows on a CPU, pages on a GPU.

Shapes: S pieces of context in one pass, T their tokens laid end to end, R rows, B rows in use, H
hidden, E contexts that end in a pass, M rows that move.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from whet.engine.row_state import HostTransfer, Rows
from whet.engine.scheduler import Admission, BlockAllocator, Indices, Sequences
from whet.models.transformer import Attend, Transformer
from whet.types import Tokens

PREFILL_TOKENS = 16_384
"""Most tokens of one pass: enough to fill a GPU, few enough that activations stay small."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Piece:
    """Some neighbouring tokens of the context of a row."""

    row: int
    before: int
    """Tokens of the context that stand before."""
    tokens: Tokens
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """One forward pass: pieces laid end to end."""

    tokens_T: Indices
    positions_T: Indices
    row_T: Indices
    row_S: Indices
    before_S: Indices
    starts_S1: Indices
    """Where each piece starts, and where the last one ends."""
    end_E: Indices
    """The last tokens of contexts that end in this pass."""
    row_E: Indices


def plan_passes(contexts: dict[int, Tokens], *, most: int, splits: bool) -> list[Layout]:
    """Spread the contexts of rows over passes of at most `most` tokens.

    Without `splits` a context stays whole, even one that is longer.
    """
    done: list[list[Piece]] = []
    now: list[Piece] = []
    used = 0
    for row, context in contexts.items():
        start = 0
        while start < len(context):
            room = most - used if splits else len(context)
            if used and (room == 0 or (not splits and used + len(context) > most)):
                done.append(now)
                now = []
                used = 0
                continue
            end = min(start + room, len(context))
            now.append(
                Piece(row=row, before=start, tokens=context[start:end], is_last=end == len(context))
            )
            used += end - start
            start = end
    return [lay_out(pieces) for pieces in (*done, now) if pieces]


def lay_out(pieces: list[Piece]) -> Layout:
    """Lay pieces end to end and say where each token belongs."""
    lengths_S = np.array([len(piece.tokens) for piece in pieces])
    row_S = np.array([piece.row for piece in pieces])
    before_S = np.array([piece.before for piece in pieces])
    starts_S1 = np.concatenate([[0], np.cumsum(lengths_S)])
    is_last_S = np.array([piece.is_last for piece in pieces])
    return Layout(
        tokens_T=np.concatenate([piece.tokens for piece in pieces]).astype(np.int64),
        positions_T=np.arange(starts_S1[-1]) + np.repeat(before_S - starts_S1[:-1], lengths_S),
        row_T=np.repeat(row_S, lengths_S),
        row_S=row_S,
        before_S=before_S,
        starts_S1=starts_S1,
        end_E=(starts_S1[1:] - 1)[is_last_S],
        row_E=row_S[is_last_S],
    )


class KVCache(Protocol):
    """Keys and values of all layers for the rows that `room` keeps the books of."""

    has_lag: bool
    """The host looks at a window while the next one runs."""
    splits: bool
    """A long context can be run in pieces."""

    @property
    def allocator(self) -> BlockAllocator: ...

    def start(self) -> None:
        """Begin a call of the engine: weights may have moved since the last one."""
        ...

    def holds(self, tokens: int) -> bool:
        """Say whether a request of so many tokens can ever run."""
        ...

    def prefill(self, layout: Layout, transfer: HostTransfer) -> Attend:
        """Attend within pieces of context and to what is cached of them, and cache the pieces."""
        ...

    def copy(self, longest: int, transfer: HostTransfer) -> None:
        """Copy what rows that begin now share with others, once it has been filed."""
        ...

    def move(self, source_M: Indices, target_M: Indices) -> None:
        """Follow rows that move to close gaps."""
        ...

    def window(
        self,
        model: Transformer,
        rows: Rows,
        num_rows: int,
        *,
        steps: int,
        longest: int,
        has_cuts: bool,
        transfer: HostTransfer,
    ) -> int:
        """Decode `steps` tokens of the first rows, which will have cached `longest` at most.

        Returns how many rows each step computed, padding included.
        """
        ...


class Build(Protocol):
    """Makes a cache for a model; called on first use, and again after sleep."""

    def __call__(self, model: Transformer, *, slots: int, context: int) -> KVCache: ...


def decode_step(
    model: Transformer, rows: Rows, used: slice, attend: Attend, *, has_cuts: bool
) -> None:
    """Run the newest token of some rows through the model, and sample the next."""
    hidden_BH = model(rows.token_R[used], rows.position_of(used), attend)
    rows.record(used, *rows.choose(used, model.logits(hidden_BH), has_cuts))


class Runner:
    """A model, a cache and the state of its rows."""

    def __init__(
        self,
        model: Transformer,
        cache: KVCache,
        rows: Rows,
        transfer: HostTransfer,
        *,
        prefill_tokens: int,
    ) -> None:
        self.model = model
        self.cache = cache
        self.rows = rows
        self.transfer = transfer
        self.prefill_tokens = prefill_tokens
        # The hidden state of the last token of each context; the spare row's stays for samples
        # still to come.
        shape = len(rows.token_R) + 1, model.cfg.hidden_size
        self.end_RH = torch.zeros(shape, dtype=model.dtype, device=model.device)

    def begin(self, admission: Admission, sequences: Sequences) -> None:
        """Run the contexts of new rows, each once, and sample the first token of every row."""
        sequence_B, rows = admission.sequence_B, admission.rows
        first = rows.start
        contexts = {row: sequences.context(int(sequence_B[row - first])) for row in admission.fresh}
        for layout in plan_passes(contexts, most=self.prefill_tokens, splits=self.cache.splits):
            self._prefill(layout)
        self.cache.copy(
            int((sequences.start_S + sequences.count_S)[sequence_B].max()), self.transfer
        )
        self.rows.open(
            rows,
            [sequences.request(sequence) for sequence in sequence_B.tolist()],
            sequences.count_S[sequence_B],
            sequences.limit_S[sequence_B],
        )
        (source_B,) = self.transfer.send(admission.source_B)
        logits_BV = self.model.logits(self.end_RH[source_B])
        if admission.kept is not None:
            self.end_RH[-1] = self.end_RH[admission.kept]
        self.rows.draw(rows)
        has_cuts = bool(sequences.has_cuts_S[sequence_B].any())
        self.rows.record(rows, *self.rows.choose(rows, logits_BV, has_cuts))

    def window(self, num_rows: int, steps: int, *, longest: int, has_cuts: bool) -> None:
        """Decode `steps` tokens of the first rows; none will have cached more than `longest`."""
        size = self.cache.window(
            self.model,
            self.rows,
            num_rows,
            steps=steps,
            longest=longest,
            has_cuts=has_cuts,
            transfer=self.transfer,
        )
        counts = self.transfer.counts
        counts.windows += 1
        counts.steps += steps
        counts.row_steps += steps * size

    def drop(self, source_M: Indices, target_M: Indices, *, before: int, after: int) -> None:
        """Shrink from `before` to `after` rows, moving some into the gaps."""
        if len(source_M):
            self.rows.move(source_M, target_M)
            self.cache.move(source_M, target_M)
        self.rows.end(slice(after, before))

    def _prefill(self, layout: Layout) -> None:
        counts = self.transfer.counts
        counts.prefills += 1
        counts.prefill_tokens += len(layout.tokens_T)
        attend = self.cache.prefill(layout, self.transfer)
        tokens_T, positions_T, end_E, row_E = self.transfer.send(
            layout.tokens_T, layout.positions_T, layout.end_E, layout.row_E
        )
        hidden_TH = self.model(tokens_T, positions_T, attend)
        self.end_RH[row_E] = hidden_TH[end_E]
