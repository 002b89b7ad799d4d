"""The paged cache, for GPUs: keys and values are in pages, and each row has a list of pages.

A page holds the keys and values of consecutive tokens. Pages are never moved: a row that moves
takes its list with it. Rows with the same prompt share its full pages; a page that is still written
to belongs to one row.

Shapes: E pages of the whole cache, A pages of a row, N query heads, D head size, R rows, B rows in
use, Q rows that grow, end or move, S chunks of context, T their tokens.
"""

from math import ceil

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whet.engine.cuda_graphs import DecodeGraphs, round_up_length, round_up_rows
from whet.engine.input_batch import HostTransfer, InputBatch
from whet.engine.scheduler import PrefillPass
from whet.errors import EngineError
from whet.kernels import AttentionSpec
from whet.kernels.attention import decode_scratch, paged_decode, paged_prefill, tile_table
from whet.kernels.layer_ops import split_heads_into
from whet.models.transformer import Transformer
from whet.types import Indices

PAGE = 64
"""Tokens of a page: as many keys as the attention kernels read at a time."""
FREE_MEMORY_FRACTION = 0.9
"""Fraction of free memory that a cache takes without `kv_cache_gb`; the rest is for activations."""


class PageAllocator:
    """A stack of free pages, the number of rows that use each page, and the table of pages."""

    def __init__(self, *, num_pages: int, num_rows: int, longest: int, page_size: int) -> None:
        self.page_size = page_size
        self.num_pages = num_pages
        self.table_RA = np.zeros((num_rows, ceil(longest / page_size)), dtype=np.int32)
        self.held_R, self.max_pages_R = np.zeros((2, num_rows), dtype=np.int64)
        """Pages that each row holds now, and the most that it may need."""
        self.ref_count_E = np.zeros(num_pages, dtype=np.int64)
        self._free_pages = np.arange(num_pages, dtype=np.int32)[::-1].copy()
        self.num_free = num_pages
        self._copies: list[tuple[int, int]] = []

    def can_hold(self, tokens: int) -> bool:
        """Whether a row of `tokens` tokens fits if it has all pages to itself."""
        return self._count_pages(tokens) <= self.num_pages

    def allocate(
        self, row: int, *, tokens: int, reserve: int, max_tokens: int, source: int | None
    ) -> bool:
        """Give an empty row pages for `reserve` tokens; `source` shares its first `tokens`.

        Full pages are shared; the last one, which both rows will write to, is copied. Returns False
        and changes nothing unless a page stays free for each row that can still grow: otherwise new
        rows would soon preempt others. `max_tokens` is how far the row can grow.
        """
        full, partial = divmod(tokens, self.page_size) if source is not None else (0, 0)
        end = self._count_pages(reserve)
        if end - full > self.num_free - np.count_nonzero(self.held_R < self.max_pages_R):
            return False
        if source is not None:
            pages = self.table_RA[source, :full]
            self.ref_count_E[pages] += 1
            self.table_RA[row, :full] = pages
        self.table_RA[row, full:end] = self._take(end - full)
        self.held_R[row], self.max_pages_R[row] = end, self._count_pages(max_tokens)
        if source is not None and partial:
            self._copies.append((int(self.table_RA[source, full]), int(self.table_RA[row, full])))
        return True

    def grow(self, row_Q: Indices, tokens_Q: Indices) -> bool:
        """Give rows the pages they lack for `tokens_Q` tokens; give none if too few are free."""
        lack_Q = np.maximum(-(-tokens_Q // self.page_size) - self.held_R[row_Q], 0)
        total = int(lack_Q.sum())
        if total > self.num_free:
            return False
        if total:
            order = np.arange(total) - np.repeat(np.cumsum(lack_Q) - lack_Q, lack_Q)
            self.table_RA[
                np.repeat(row_Q, lack_Q), np.repeat(self.held_R[row_Q], lack_Q) + order
            ] = self._take(total)
            self.held_R[row_Q] += lack_Q
        return True

    def free(self, row_Q: Indices) -> None:
        """Free the pages of some rows, except pages that other rows use."""
        held_QA = np.arange(self.table_RA.shape[1]) < self.held_R[row_Q][:, None]
        pages = self.table_RA[row_Q][held_QA]
        np.subtract.at(self.ref_count_E, pages, 1)
        freed = np.unique(pages[self.ref_count_E[pages] == 0])
        self._free_pages[self.num_free : self.num_free + len(freed)] = freed
        self.num_free += len(freed)
        self.held_R[row_Q] = self.max_pages_R[row_Q] = 0

    def move(self, source_Q: Indices, target_Q: Indices) -> None:
        """Move the pages of some rows to empty rows."""
        self.table_RA[target_Q] = self.table_RA[source_Q]
        for pages_R in (self.held_R, self.max_pages_R):
            pages_R[target_Q] = pages_R[source_Q]
            pages_R[source_Q] = 0

    def clear(self) -> None:
        """Free every page."""
        self.free(np.arange(len(self.held_R)))
        self._copies.clear()

    def pop_copies(self) -> Indices:
        """Return the page copies to make, as pairs of source and target, and clear the list."""
        copies = np.array(self._copies, dtype=np.int64).reshape(-1, 2)
        self._copies.clear()
        return copies

    def _count_pages(self, tokens: int) -> int:
        return ceil(tokens / self.page_size)

    def _take(self, count: int) -> NDArray[np.int32]:
        self.num_free -= count
        pages = self._free_pages[self.num_free : self.num_free + count]
        self.ref_count_E[pages] = 1
        return pages


class PagedCache:
    """The pages of all layers, their allocator, and a copy of its table on the device."""

    is_async = chunked = True

    def __init__(self, model: Transformer, *, slots: int, context: int, num_pages: int) -> None:
        self.model = model
        cfg = model.cfg
        shape = (cfg.num_layers, num_pages, cfg.num_kv_heads, PAGE, cfg.head_dim)
        # Zeros: attention multiplies masked values by 0, so none may be NaN.
        self.keys = torch.zeros(shape, dtype=model.dtype, device=model.device)
        self.values = torch.zeros(shape, dtype=model.dtype, device=model.device)
        self.allocator = PageAllocator(
            num_pages=num_pages, num_rows=slots + 1, longest=context, page_size=PAGE
        )
        self.table_RA = torch.zeros(
            self.allocator.table_RA.shape, dtype=torch.int32, device=model.device
        )
        self.graphs = DecodeGraphs() if model.device.type == "cuda" else None

    def refresh_weights(self) -> None:
        """Do nothing: the cache depends on no weights."""

    def prefill(self, chunks: PrefillPass, transfer: HostTransfer) -> "PagedPrefill":
        table_RA = self.allocator.table_RA
        page_T = table_RA[chunks.row_T, chunks.positions_T // PAGE].astype(np.int64)
        used = ceil(int(chunks.positions_T.max() + 1) / PAGE)
        cell_T = page_T * PAGE + chunks.positions_T % PAGE
        starts_S1 = chunks.starts_S1.astype(np.int32)
        before_S = chunks.before_S.astype(np.int32)
        return PagedPrefill(
            self, *transfer.to_device(cell_T, table_RA[chunks.row_S, :used], starts_S1, before_S)
        )

    def copy_shared_pages(self, transfer: HostTransfer) -> None:
        pairs_Q2 = self.allocator.pop_copies()
        if len(pairs_Q2):
            source_Q, target_Q = transfer.to_device(pairs_Q2[:, 0].copy(), pairs_Q2[:, 1].copy())
            for keys, values in zip(self.keys, self.values, strict=True):
                keys[target_Q] = keys[source_Q]
                values[target_Q] = values[source_Q]

    def move(self, source_Q: Indices, target_Q: Indices) -> None:
        """Do nothing: `copy_page_table` sends the table before the next window."""

    def copy_page_table(self, num_rows: int, longest: int, transfer: HostTransfer) -> None:
        used = ceil(longest / PAGE)
        (self.table_RA[:num_rows, :used],) = transfer.to_device(
            self.allocator.table_RA[:num_rows, :used]
        )

    def decode_window(
        self, batch: InputBatch, num_rows: int, *, steps: int, longest: int, is_truncated: bool
    ) -> int:
        """Replay CUDA graphs on a GPU: a step depends only on sizes and addresses."""
        self.copy_page_table(num_rows, longest, batch.transfer)
        batch.draw_uniforms(slice(0, num_rows))
        size = round_up_rows(num_rows, len(batch.token_R))
        width = round_up_length(longest)

        def step() -> None:
            attend = self.decode(batch, size, width)
            batch.decode(self.model, slice(0, size), attend, is_truncated=is_truncated)

        for _ in range(steps):
            if self.graphs is None:
                step()
            else:
                self.graphs.run((size, width, is_truncated), step)
        batch.transfer.stats.captured_graphs = 0 if self.graphs is None else len(self.graphs)
        return size

    def decode(self, batch: InputBatch, size: int, longest: int) -> "PagedDecode":
        used = slice(0, size)
        return PagedDecode(self, batch.position_of(used), batch.live_R[used], longest)


class PagedPrefill:
    """Attention over chunks of context, after their keys and values are written to pages."""

    def __init__(
        self,
        cache: PagedCache,
        cell_T: Tensor,
        table_SA: Tensor,
        starts_S1: Tensor,
        before_S: Tensor,
    ) -> None:
        self.cache = cache
        self.cell_T = cell_T
        self.where = table_SA, starts_S1, before_S, tile_table(starts_S1, len(cell_T), before_S)

    def __call__(self, layer: int, qkv_TX: Tensor, spec: AttentionSpec) -> Tensor:
        keys = self.cache.keys[layer]
        values = self.cache.values[layer]
        q_TND = split_heads_into(qkv_TX, spec, keys, values, self.cell_T)
        return paged_prefill(q_TND, keys, values, *self.where, options=spec.options)


class PagedDecode:
    """Attention of one new token per row over its pages; ended rows are skipped."""

    def __init__(self, cache: PagedCache, position_B: Tensor, live_B: Tensor, longest: int) -> None:
        self.cache = cache
        self.scratch: tuple[Tensor, Tensor, Tensor] | None = None
        # Attention reads as many pages as the table has columns: cut it to the longest row.
        self.table_BA = cache.table_RA[: len(position_B), : ceil(longest / PAGE)].contiguous()
        # An ended row may be longer than the longest live one: it reads its first page instead,
        # and writes nothing.
        page_B = self.table_BA.gather(1, (position_B * live_B // PAGE)[:, None])[:, 0].long()
        self.cell_B = torch.where(live_B == 1, page_B * PAGE + position_B % PAGE, -1)
        self.length_B = (position_B + 1) * live_B

    def __call__(self, layer: int, qkv_TX: Tensor, spec: AttentionSpec) -> Tensor:
        keys = self.cache.keys[layer]
        values = self.cache.values[layer]
        q_BND = split_heads_into(qkv_TX, spec, keys, values, self.cell_B)
        if self.scratch is None:
            self.scratch = decode_scratch(q_BND, self.table_BA.shape[1] * PAGE)
        return paged_decode(
            q_BND, keys, values, self.table_BA, self.length_B, self.scratch, options=spec.options
        )


def build_paged_cache(
    model: Transformer, *, slots: int, context: int, kv_cache_gb: float | None = None
) -> PagedCache:
    """Build a cache of `kv_cache_gb` GiB, or of free memory, at most enough for full slots."""
    cfg = model.cfg
    page_bytes = 2 * cfg.num_layers * cfg.num_kv_heads * PAGE * cfg.head_dim * model.dtype.itemsize
    num_pages = (slots + 1) * ceil(context / PAGE)
    if kv_cache_gb is not None:
        num_pages = min(num_pages, int(kv_cache_gb * 2**30) // page_bytes)
    elif model.device.type == "cuda":
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info(model.device)
        num_pages = min(num_pages, int(FREE_MEMORY_FRACTION * free) // page_bytes)
    if num_pages < 1:
        raise EngineError(
            f"the cache has no room for {PAGE} tokens, which take {page_bytes} bytes; "
            "raise engine.kv_cache_gb"
        )
    return PagedCache(model, slots=slots, context=context, num_pages=num_pages)
