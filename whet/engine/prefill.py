"""Contexts to run, cut into forward passes of bounded size. Bookkeeping on the host, no torch.

Shapes: S pieces of context in one pass, T their tokens laid end to end.
"""

from dataclasses import dataclass

import numpy as np

from whet.engine.sequences import Indices
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
