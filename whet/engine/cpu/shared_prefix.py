"""Who shares which prompt in the dense cache: bookkeeping only, no torch.

Shapes: R rows, B rows in use, P prompts, M rows that move.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from whet.engine.sequences import Indices


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """Rows arranged by their prompts: a line a prompt, as wide as the most rows that share one."""

    first: int
    """The prompt of the first line; the others follow."""
    lines: int
    width: int
    cell_B: Indices
    """The place of each row, counted line by line."""
    before_B: Indices
    """Tokens of each row's prompt."""

    @property
    def is_full(self) -> bool:
        """Say whether rows and places are the same, one after the other."""
        return self.lines * self.width == len(self.cell_B) and bool(
            (np.diff(self.cell_B) == 1).all()
        )


class SharedPrompts:
    """Room that never runs out: a prompt is kept once, for as long as a row continues it."""

    def __init__(self, rows: int) -> None:
        self.prompt_R = np.full(rows, -1, dtype=np.int64)
        self.length_P, self.uses_P = np.zeros((2, rows), dtype=np.int64)
        self._free: list[int] = []
        self._grids: dict[tuple[int, int], Grid] = {}
        self.clear()

    def clear(self) -> None:
        self.prompt_R.fill(-1)
        self.uses_P.fill(0)
        self._free = list(range(len(self.uses_P)))
        self._grids.clear()

    def place(self, row: int, *, tokens: int, ahead: int, most: int, source: int | None) -> bool:
        """Give a row the prompt of another, or a place for one of its own."""
        prompt = heapq.heappop(self._free) if source is None else int(self.prompt_R[source])
        self.prompt_R[row] = prompt
        self.length_P[prompt] = tokens
        self.uses_P[prompt] += 1
        self._grids.clear()
        return True

    def grow(self, row_M: Indices, tokens_M: Indices) -> bool:
        return True

    def release(self, row_M: Indices) -> None:
        for row in row_M.tolist():
            prompt = int(self.prompt_R[row])
            if prompt >= 0:
                self.uses_P[prompt] -= 1
                if not self.uses_P[prompt]:
                    heapq.heappush(self._free, prompt)
        self.prompt_R[row_M] = -1
        self._grids.clear()

    def move(self, source_M: Indices, target_M: Indices) -> None:
        self.prompt_R[target_M] = self.prompt_R[source_M]
        self.prompt_R[source_M] = -1
        self._grids.clear()

    def grid(self, rows: slice) -> Grid:
        """Arrange some rows; the same until one begins, ends or moves."""
        key = rows.start, rows.stop
        if key not in self._grids:
            self._grids[key] = self._arranged(self.prompt_R[rows])
        return self._grids[key]

    def _arranged(self, prompt_B: Indices) -> Grid:
        first = int(prompt_B.min())
        line_B = prompt_B - first
        order_B = np.argsort(line_B, kind="stable")
        sorted_B = line_B[order_B]
        count_P = np.bincount(line_B)
        offset_B = np.empty_like(order_B)
        offset_B[order_B] = np.arange(len(order_B)) - (np.cumsum(count_P) - count_P)[sorted_B]
        width = int(count_P.max())
        return Grid(
            first=first,
            lines=len(count_P),
            width=width,
            cell_B=line_B * width + offset_B,
            before_B=self.length_P[prompt_B],
        )
