"""What sequences have in common at their start, so that it is computed once: samples of one prompt
share it, and more.

Shapes: S sequences, T their tokens laid end to end, U tokens that differ in themselves or in what
stands before them, C cells of a grid with a line a sequence.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
_MULTIPLE = 8
"""Lines have whole vectors of this many cells, which torch's attention takes faster than odd
ones."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Merged:
    """Tokens to compute, and where each of a sequence is found among them."""

    first_U: Indices
    """A place of each token in T; of several, any."""
    node_T: Indices
    """Which of U each token is; -1 for the last of a sequence, which predicts nothing."""
    node_C: Indices
    """Which of U stands in each cell; past the end of a line, its last one again."""
    cell_U: Indices
    """A cell of each token."""
    longest: int
    """Cells of a line."""


def merge_prefixes(tokens_T: Indices, lengths_S: Indices) -> Merged:
    """Find equal beginnings: of sequences in the order of a dictionary, neighbours have most in
    common."""
    starts_S = np.cumsum(lengths_S) - lengths_S
    counts_S = np.maximum(lengths_S - 1, 1)
    lines = [
        tokens_T[start : start + count] for start, count in zip(starts_S, counts_S, strict=True)
    ]
    node_T = np.full(len(tokens_T), -1, dtype=np.int64)
    longest = -(-int(counts_S.max()) // _MULTIPLE) * _MULTIPLE
    node_SC = np.zeros((len(lines), longest), dtype=np.int64)
    first_U = list[Indices]()
    cell_U = list[Indices]()
    used = 0
    before = lines[0][:0]
    before_nodes = node_T[:0]
    for index in sorted(range(len(lines)), key=lambda line: lines[line].astype(">i8").tobytes()):
        line = lines[index]
        start = int(starts_S[index])
        same = _common(before, line)
        nodes = np.concatenate([before_nodes[:same], np.arange(used, used + len(line) - same)])
        node_T[start : start + len(line)] = nodes
        node_SC[index, : len(line)] = nodes
        node_SC[index, len(line) :] = nodes[-1]
        first_U.append(np.arange(start + same, start + len(line)))
        cell_U.append(np.arange(same, len(line)) + index * longest)
        used += len(line) - same
        before, before_nodes = line, nodes
    return Merged(
        first_U=np.concatenate(first_U),
        node_T=node_T,
        node_C=node_SC.reshape(-1),
        cell_U=np.concatenate(cell_U),
        longest=longest,
    )


def _common(a: Indices, b: Indices) -> int:
    """Count the tokens at the start of two sequences that are the same."""
    most = min(len(a), len(b))
    differs = np.nonzero(a[:most] != b[:most])[0]
    return int(differs[0]) if len(differs) else most
