"""The paged cache, for GPUs: keys and values lie in pages that rows list.

Nothing is ever moved: rows that change place take their list along, samples of one prompt read its
full pages together.

Shapes: N pages in all, G key/value heads, D head size, R rows, P pages of a row, B rows in use, S
pieces of context, T their tokens.
"""

import numpy as np
import torch
from torch import Tensor

from whet.engine.blocks import PageAllocator
from whet.engine.graphs import DecodeGraphs, rounded_length, rounded_rows
from whet.engine.kv_cache import decode_step
from whet.engine.prefill import Layout
from whet.engine.row_state import Rows
from whet.engine.sequences import Indices
from whet.engine.transfer import Link
from whet.errors import EngineError
from whet.kernels.attention import decode_scratch, paged_decode, paged_prefill, tile_table
from whet.models.rope import AttentionSpec
from whet.models.transformer import Transformer

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

    def prefill(self, layout: Layout, link: Link) -> "Prefill":
        table_RP = self.allocator.table_RP
        page_T = table_RP[layout.row_T, layout.positions_T // PAGE].astype(np.int64)
        used = -(-int(layout.positions_T.max() + 1) // PAGE)
        cell_T = page_T * PAGE + layout.positions_T % PAGE
        starts_S1 = layout.starts_S1.astype(np.int32)
        before_S = layout.before_S.astype(np.int32)
        return Prefill(self, *link.send(cell_T, table_RP[layout.row_S, :used], starts_S1, before_S))

    def copy(self, longest: int, link: Link) -> None:
        pairs_M2 = self.allocator.take_copies()
        if len(pairs_M2):
            source_M, target_M = link.send(pairs_M2[:, 0].copy(), pairs_M2[:, 1].copy())
            for keys, values in zip(self.keys, self.values, strict=True):
                keys[target_M] = keys[source_M]
                values[target_M] = values[source_M]

    def move(self, source_M: Indices, target_M: Indices) -> None:
        """Lists of pages are brought up to date by `sync`."""

    def sync(self, num_rows: int, longest: int, link: Link) -> None:
        used = -(-longest // PAGE)
        (self.table_RP[:num_rows, :used],) = link.send(self.allocator.table_RP[:num_rows, :used])

    def window(
        self,
        model: Transformer,
        rows: Rows,
        num_rows: int,
        *,
        steps: int,
        longest: int,
        has_cuts: bool,
        link: Link,
    ) -> int:
        """Decode by graphs on a GPU: a step depends on sizes and addresses alone."""
        self.sync(num_rows, longest, link)
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
        link.counts.recordings = 0 if self.graphs is None else len(self.graphs)
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
        q_TND = spec.split_into(qkv_TX, keys, values, self.cell_T)
        return paged_prefill(q_TND, keys, values, *self.where, window=spec.window)


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
        q_BND = spec.split_into(qkv_TX, keys, values, self.cell_B)
        if self.scratch is None:
            self.scratch = decode_scratch(q_BND, self.table_BP.shape[1] * PAGE)
        return paged_decode(
            q_BND, keys, values, self.table_BP, self.length_B, self.scratch, window=spec.window
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
