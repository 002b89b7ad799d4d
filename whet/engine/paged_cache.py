"""The paged cache, for GPUs: keys and values lie in pages that rows list.

A page takes the keys and values of a few neighbouring tokens. Nothing is ever moved: rows that
change place take their list along. Rows of one prompt read its full pages together; a page that is
still to be written belongs to one row alone.

Shapes: N pages in all, G key/value heads, D head size, R rows, P pages of a row, B rows in use, M
rows named in a call, S pieces of context, T their tokens.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whet.engine.graphs import DecodeGraphs, rounded_length, rounded_rows
from whet.engine.row_state import HostTransfer, Rows
from whet.engine.runner import Layout, decode_step
from whet.engine.scheduler import Indices
from whet.errors import EngineError
from whet.kernels import AttentionSpec
from whet.kernels.attention import decode_scratch, paged_decode, paged_prefill, tile_table
from whet.kernels.rows import split_heads_into
from whet.models.transformer import Transformer


class PageAllocator:
    """Free pages as a stack, users of each page, and the pages of each row in order."""

    def __init__(self, *, pages: int, rows: int, longest: int, page: int) -> None:
        self.page = page
        self.pages = pages
        self.table_RP = np.zeros((rows, -(-longest // page)), dtype=np.int32)
        self.held_R, self.most_R = np.zeros((2, rows), dtype=np.int64)
        """Pages each row holds now, and the most it can come to need."""
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


PAGE = 64
"""Tokens of a page: the block of keys that attention takes at a time."""
_SHARE_OF_FREE = 0.9
"""Share of free memory for a pool of no set size; activations and graphs need the rest."""


class PagedCache:
    """The pool of all layers, the books of who holds what, and their copy on the device."""

    has_lag = splits = True

    def __init__(self, model: Transformer, *, slots: int, context: int, pages: int) -> None:
        cfg = model.cfg
        shape = (cfg.num_layers, pages, cfg.num_kv_heads, PAGE, cfg.head_dim)
        # Zeros, since what masked attention reads beyond a row's end is multiplied by 0, and must
        # be a number.
        self.keys = torch.zeros(shape, dtype=model.dtype, device=model.device)
        self.values = torch.zeros(shape, dtype=model.dtype, device=model.device)
        self.allocator = PageAllocator(pages=pages, rows=slots + 1, longest=context, page=PAGE)
        self.table_RP = torch.zeros(
            self.allocator.table_RP.shape, dtype=torch.int32, device=model.device
        )
        self.graphs = DecodeGraphs() if model.device.type == "cuda" else None

    def start(self) -> None:
        """Nothing is kept of the weights."""

    def holds(self, tokens: int) -> bool:
        return self.allocator.holds(tokens)

    def prefill(self, layout: Layout, transfer: HostTransfer) -> "Prefill":
        table_RP = self.allocator.table_RP
        page_T = table_RP[layout.row_T, layout.positions_T // PAGE].astype(np.int64)
        used = -(-int(layout.positions_T.max() + 1) // PAGE)
        cell_T = page_T * PAGE + layout.positions_T % PAGE
        starts_S1 = layout.starts_S1.astype(np.int32)
        before_S = layout.before_S.astype(np.int32)
        return Prefill(
            self, *transfer.send(cell_T, table_RP[layout.row_S, :used], starts_S1, before_S)
        )

    def copy(self, longest: int, transfer: HostTransfer) -> None:
        pairs_M2 = self.allocator.take_copies()
        if len(pairs_M2):
            source_M, target_M = transfer.send(pairs_M2[:, 0].copy(), pairs_M2[:, 1].copy())
            for keys, values in zip(self.keys, self.values, strict=True):
                keys[target_M] = keys[source_M]
                values[target_M] = values[source_M]

    def move(self, source_M: Indices, target_M: Indices) -> None:
        """Lists of pages are brought up to date by `sync`."""

    def sync(self, num_rows: int, longest: int, transfer: HostTransfer) -> None:
        used = -(-longest // PAGE)
        (self.table_RP[:num_rows, :used],) = transfer.send(
            self.allocator.table_RP[:num_rows, :used]
        )

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
        """Decode by graphs on a GPU: a step depends on sizes and addresses alone."""
        self.sync(num_rows, longest, transfer)
        rows.draw(slice(0, num_rows))
        size = rounded_rows(num_rows, len(rows.token_R))
        width = rounded_length(longest)

        def step() -> None:
            attend = self.decode(rows, size, width)
            decode_step(model, rows, slice(0, size), attend, has_cuts=has_cuts)

        for _ in range(steps):
            if self.graphs is None:
                step()
            else:
                self.graphs.run((size, width, has_cuts), step)
        transfer.counts.recordings = 0 if self.graphs is None else len(self.graphs)
        return size

    def decode(self, rows: Rows, size: int, longest: int) -> "Decode":
        used = slice(0, size)
        return Decode(self, rows.position_of(used), rows.live_R[used], longest)


class Prefill:
    """Attention over pieces of context, whose keys and values go to their pages first."""

    def __init__(
        self,
        cache: PagedCache,
        cell_T: Tensor,
        table_SP: Tensor,
        starts_S1: Tensor,
        before_S: Tensor,
    ) -> None:
        self.cache = cache
        self.cell_T = cell_T
        self.where = table_SP, starts_S1, before_S, tile_table(starts_S1, len(cell_T), before_S)

    def __call__(self, layer: int, qkv_TX: Tensor, spec: AttentionSpec) -> Tensor:
        keys = self.cache.keys[layer]
        values = self.cache.values[layer]
        q_TND = split_heads_into(qkv_TX, spec, keys, values, self.cell_T)
        return paged_prefill(q_TND, keys, values, *self.where, options=spec.options)


class Decode:
    """Attention of one new token per row over its pages; ended rows are skipped."""

    def __init__(self, cache: PagedCache, position_B: Tensor, live_B: Tensor, longest: int) -> None:
        self.cache = cache
        self.scratch: tuple[Tensor, Tensor, Tensor] | None = None
        # The width of the table bounds what attention looks through, so it is cut to the longest
        # row.
        self.table_BP = cache.table_RP[: len(position_B), : -(-longest // PAGE)].contiguous()
        # An ended row may stand beyond the longest live one: it looks at its first page instead,
        # and writes nowhere.
        page_B = self.table_BP.gather(1, (position_B * live_B // PAGE)[:, None])[:, 0].long()
        self.cell_B = torch.where(live_B == 1, page_B * PAGE + position_B % PAGE, -1)
        self.length_B = (position_B + 1) * live_B

    def __call__(self, layer: int, qkv_TX: Tensor, spec: AttentionSpec) -> Tensor:
        keys = self.cache.keys[layer]
        values = self.cache.values[layer]
        q_BND = split_heads_into(qkv_TX, spec, keys, values, self.cell_B)
        if self.scratch is None:
            self.scratch = decode_scratch(q_BND, self.table_BP.shape[1] * PAGE)
        return paged_decode(
            q_BND, keys, values, self.table_BP, self.length_B, self.scratch, options=spec.options
        )


def build_paged_cache(
    model: Transformer, *, slots: int, context: int, kv_gb: float | None = None
) -> PagedCache:
    """Make a pool of `kv_gb` GiB, or of free memory, but no larger than full slots need."""
    cfg = model.cfg
    page_bytes = 2 * cfg.num_layers * cfg.num_kv_heads * PAGE * cfg.head_dim * model.dtype.itemsize
    pages = (slots + 1) * -(-context // PAGE)
    if kv_gb is not None:
        pages = min(pages, int(kv_gb * 2**30) // page_bytes)
    elif model.device.type == "cuda":
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info(model.device)
        pages = min(pages, int(_SHARE_OF_FREE * free) // page_bytes)
    if pages < 1:
        raise EngineError(
            f"the cache has no room for {PAGE} tokens, which take {page_bytes} bytes; "
            "raise engine.kv_gb"
        )
    return PagedCache(model, slots=slots, context=context, pages=pages)
