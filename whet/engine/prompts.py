"""Which prompts are run, and under which cache rows each is filed. Bookkeeping on the host, no torch.

Shapes: S distinct prompts, T their tokens laid end to end, B rows that read them, M cells those rows fill.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet.engine.base import Request
from whet.types import Tokens

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """One prefill: its tokens, and for every cell (row, column) of the cache the token that belongs there."""

    tokens_T: Indices
    positions_T: Indices
    lengths_S: Indices
    row_B: Indices
    end_B: Indices
    """The last token of the prompt each row reads."""
    row_M: Indices
    column_M: Indices
    source_M: Indices


def key_of(prompt: Tokens) -> bytes:
    """Name a prompt by its tokens."""
    return np.asarray(prompt, dtype=np.int32).tobytes()


def length_of(key: bytes) -> int:
    return len(key) // np.dtype(np.int32).itemsize


def places_of(requests: list[Request], first_row: int) -> dict[bytes, list[int]]:
    """List the rows of each distinct prompt; the requests take consecutive rows."""
    places: dict[bytes, list[int]] = {}
    for row, request in enumerate(requests, start=first_row):
        places.setdefault(key_of(request.prompt), []).append(row)
    return places


def lay_out(places: dict[bytes, list[int]]) -> Layout:
    """Lay the prompts end to end and say where each row finds its own."""
    prompts = [np.frombuffer(key, dtype=np.int32) for key in places]
    lengths = np.array([len(prompt) for prompt in prompts])
    starts = np.cumsum(lengths) - lengths
    owner_B = np.repeat(np.arange(len(prompts)), [len(rows) for rows in places.values()])
    row_B = np.concatenate([np.array(rows) for rows in places.values()])
    counts = lengths[owner_B]
    columns = np.concatenate([np.arange(n) for n in counts])
    return Layout(
        tokens_T=np.concatenate(prompts).astype(np.int64),
        positions_T=np.concatenate([np.arange(n) for n in lengths]),
        lengths_S=lengths,
        row_B=row_B,
        end_B=(starts + lengths - 1)[owner_B],
        row_M=np.repeat(row_B, counts),
        column_M=columns,
        source_M=np.repeat(starts[owner_B], counts) + columns,
    )
