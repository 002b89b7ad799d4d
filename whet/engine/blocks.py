"""Which pages of the cache each row holds: bookkeeping on the host, no torch.

A page takes the keys and values of a few neighbouring tokens. Rows of one prompt read its full
pages together; a page that is still to be written belongs to one row alone.

Shapes: R rows, P pages a row may hold, N pages in all, M rows named in a call.
"""

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


class PageAllocator:
    """Free pages as a stack, users of each page, and the pages of each row in order."""

    def __init__(self, *, pages: int, rows: int, longest: int, page: int) -> None:
        self.page = page
        self.pages = pages
        self.table_RP = np.zeros((rows, -(-longest // page)), dtype=np.int32)
        self.held_R, self.most_R = np.zeros((2, rows), dtype=np.int64)
        """PagedCache each row holds now, and the most it can come to need."""
        self.users_N = np.zeros(pages, dtype=np.int64)
        self._stack = np.arange(pages, dtype=np.int32)[::-1].copy()
        self.num_free = pages
        self._copies: list[tuple[int, int]] = []

    def holds(self, tokens: int) -> bool:
        """Say whether a row of so many tokens fits when it has the pool to itself."""
        return self._pages(tokens) <= self.pages

    def place(self, row: int, *, tokens: int, ahead: int, most: int, source: int | None) -> bool:
        """Give an empty row pages for `ahead` tokens, sharing the first `tokens` with row `source`.

        Full pages are shared; the last, which both will go on to write, is copied. Nothing changes,
        and the answer is no, unless a page stays free for each row that can still grow, so that
        newcomers do not soon push others out. `most` is the number of tokens the row itself can
        grow to.
        """
        full, rest = divmod(tokens, self.page) if source is not None else (0, 0)
        end = self._pages(ahead)
        if end - full > self.num_free - np.count_nonzero(self.held_R < self.most_R):
            return False
        if source is not None:
            pages = self.table_RP[source, :full]
            self.users_N[pages] += 1
            self.table_RP[row, :full] = pages
        self.table_RP[row, full:end] = self._take(end - full)
        self.held_R[row], self.most_R[row] = end, self._pages(most)
        if source is not None and rest:
            self._copies.append((int(self.table_RP[source, full]), int(self.table_RP[row, full])))
        return True

    def grow(self, row_M: Indices, tokens_M: Indices) -> bool:
        """Give rows the pages they lack for so many tokens, or none where too few are free."""
        lack_M = np.maximum(-(-tokens_M // self.page) - self.held_R[row_M], 0)
        total = int(lack_M.sum())
        if total > self.num_free:
            return False
        if total:
            order = np.arange(total) - np.repeat(np.cumsum(lack_M) - lack_M, lack_M)
            self.table_RP[
                np.repeat(row_M, lack_M), np.repeat(self.held_R[row_M], lack_M) + order
            ] = self._take(total)
            self.held_R[row_M] += lack_M
        return True

    def release(self, row_M: Indices) -> None:
        """Take all pages of some rows back; those that no other row reads fall free."""
        held_MP = np.arange(self.table_RP.shape[1]) < self.held_R[row_M][:, None]
        pages = self.table_RP[row_M][held_MP]
        np.subtract.at(self.users_N, pages, 1)
        free = np.unique(pages[self.users_N[pages] == 0])
        self._stack[self.num_free : self.num_free + len(free)] = free
        self.num_free += len(free)
        self.held_R[row_M] = self.most_R[row_M] = 0

    def move(self, source_M: Indices, target_M: Indices) -> None:
        """Give the pages of some rows to others, which hold none."""
        self.table_RP[target_M] = self.table_RP[source_M]
        for pages_R in (self.held_R, self.most_R):
            pages_R[target_M] = pages_R[source_M]
            pages_R[source_M] = 0

    def clear(self) -> None:
        """Take every page back."""
        self.release(np.arange(len(self.held_R)))
        self._copies.clear()

    def take_copies(self) -> Indices:
        """Hand out, once, the pages to copy before anyone writes: pairs of source and target."""
        copies = np.array(self._copies, dtype=np.int64).reshape(-1, 2)
        self._copies.clear()
        return copies

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self.page)

    def _take(self, number: int) -> NDArray[np.int32]:
        self.num_free -= number
        taken = self._stack[self.num_free : self.num_free + number]
        self.users_N[taken] = 1
        return taken
