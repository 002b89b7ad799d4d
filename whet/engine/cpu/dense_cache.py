"""The dense cache, for CPUs: each prompt once, and the response tokens of all rows in blocks.

A step reads memory sequentially: a prompt once for all its samples, and responses block by block.

Shapes: R rows, B rows in use, S prompts, N query heads, G key/value heads, Y query heads that share
one, C cached tokens, D head size, T tokens of a prefill, Q rows that move, are written or share a
prompt. Z is rows and key/value heads, or prompts and key/value heads, as one dimension.
"""

import heapq
from dataclasses import dataclass
from math import ceil

import numpy as np
import torch
from torch import Tensor, nn

from whet.engine.input_batch import HostTransfer, InputBatch
from whet.engine.scheduler import PrefillPass
from whet.kernels import AttentionSpec
from whet.kernels.layer_ops import split_heads
from whet.models.transformer import PackedAttention, Transformer
from whet.types import Indices

FEATURES = frozenset({"tied", "qkv_bias", "qk_norm", "rope_scaling", "sliding_window"})
"""The `ModelConfig.features` that its attention supports."""
CACHE_BLOCK = 16
"""Consecutive tokens of a row in a block; the tokens of the next row follow."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PromptGroups:
    """Rows in a grid by shared prompt: one line per prompt, as wide as the largest group."""

    first: int
    """The prompt of the first line; prompts of the other lines follow."""
    lines: int
    width: int
    cell_B: Indices
    """The cell of each row, counted line by line."""
    prompt_length_B: Indices
    """Tokens of each row's prompt."""

    @property
    def is_full(self) -> bool:
        """Whether the rows fill all cells, in order."""
        return self.lines * self.width == len(self.cell_B) and bool(
            (np.diff(self.cell_B) == 1).all()
        )


class SharedPrompts:
    """An allocator that never runs out; it keeps each prompt once, while a row uses it."""

    def __init__(self, rows: int) -> None:
        self.prompt_R = np.full(rows, -1, dtype=np.int64)
        self.length_S, self.uses_S = np.zeros((2, rows), dtype=np.int64)
        self._free: list[int] = []
        self._groups: dict[int, PromptGroups] = {}
        self.clear()

    def clear(self) -> None:
        self.prompt_R.fill(-1)
        self.uses_S.fill(0)
        self._free = list(range(len(self.uses_S)))
        self._groups.clear()

    def allocate(
        self, row: int, *, tokens: int, reserve: int, max_tokens: int, source: int | None
    ) -> bool:
        """Let a row share the prompt of another, or reserve a line for its own."""
        prompt = heapq.heappop(self._free) if source is None else int(self.prompt_R[source])
        self.prompt_R[row] = prompt
        self.length_S[prompt] = tokens
        self.uses_S[prompt] += 1
        self._groups.clear()
        return True

    def can_hold(self, tokens: int) -> bool:
        return True

    def grow(self, row_Q: Indices, tokens_Q: Indices) -> bool:
        return True

    def free(self, row_Q: Indices) -> None:
        for row in row_Q.tolist():
            prompt = int(self.prompt_R[row])
            if prompt >= 0:
                self.uses_S[prompt] -= 1
                if not self.uses_S[prompt]:
                    heapq.heappush(self._free, prompt)
        self.prompt_R[row_Q] = -1
        self._groups.clear()

    def move(self, source_Q: Indices, target_Q: Indices) -> None:
        self.prompt_R[target_Q] = self.prompt_R[source_Q]
        self.prompt_R[source_Q] = -1
        self._groups.clear()

    def group_rows(self, num_rows: int) -> PromptGroups:
        """Group the first rows by prompt; cached until a row starts, ends or moves."""
        if num_rows not in self._groups:
            self._groups[num_rows] = self._build_groups(self.prompt_R[:num_rows])
        return self._groups[num_rows]

    def _build_groups(self, prompt_B: Indices) -> PromptGroups:
        first = int(prompt_B.min())
        line_B = prompt_B - first
        order_B = np.argsort(line_B, kind="stable")
        sorted_B = line_B[order_B]
        count_S = np.bincount(line_B)
        offset_B = np.empty_like(order_B)
        offset_B[order_B] = np.arange(len(order_B)) - (np.cumsum(count_S) - count_S)[sorted_B]
        width = int(count_S.max())
        return PromptGroups(
            first=first,
            lines=len(count_S),
            width=width,
            cell_B=line_B * width + offset_B,
            prompt_length_B=self.length_S[prompt_B],
        )


class DenseCache:
    """Keys and values of every layer, written in place."""

    is_async = chunked = False

    def __init__(self, model: Transformer, *, slots: int, context: int) -> None:
        self.model = model
        cfg = model.cfg
        unknown = sorted(cfg.features - FEATURES)
        assert not unknown, f"the dense cache does not compute {unknown}; take build_cpu_cache"
        # The last row is the scheduler's spare, which holds only a prompt.
        self.allocator = SharedPrompts(slots + 1)
        self.prompts = torch.zeros(
            cfg.num_layers, 2, 0, cfg.num_kv_heads, 0, cfg.head_dim, dtype=model.dtype
        )
        self.blocks: list[Tensor] = []
        self._num_used = 0
        self._block = torch.zeros((), dtype=model.dtype).expand(
            cfg.num_layers, 2, slots, cfg.num_kv_heads, CACHE_BLOCK, cfg.head_dim
        )

    def refresh_weights(self) -> None:
        """Do nothing: the cache depends on no weights."""

    def prefill(self, chunks: PrefillPass, transfer: HostTransfer) -> "DensePrefill":
        prompt_T = self.allocator.prompt_R[chunks.row_T]
        self._reserve(int(prompt_T.max()) + 1, int(chunks.positions_T.max()) + 1)
        line_T, column_T, starts_S1 = transfer.to_device(
            prompt_T, chunks.positions_T, chunks.starts_S1
        )
        return DensePrefill(self, line_T, column_T, starts_S1.diff())

    def copy_shared_pages(self, transfer: HostTransfer) -> None:
        """Do nothing: rows read a shared prompt in place."""

    def move(self, source_Q: Indices, target_Q: Indices) -> None:
        source = torch.from_numpy(source_Q)
        target = torch.from_numpy(target_Q)
        for block in self.blocks[: self._num_used]:
            block.index_copy_(2, target, block.index_select(2, source))

    def decode_window(
        self, batch: InputBatch, num_rows: int, *, steps: int, longest: int, is_truncated: bool
    ) -> int:
        used = slice(0, num_rows)
        batch.draw_uniforms(used)
        for _ in range(steps):
            attend = self.decode(batch, num_rows, longest)
            batch.decode(self.model, used, attend, is_truncated=is_truncated)
        return num_rows

    def decode(self, batch: InputBatch, size: int, longest: int) -> "DenseDecode":
        """Return attention from the newest token of each of the first `size` rows to its cached
        tokens."""
        by_prompt = self.allocator.group_rows(size)
        column_B = batch.position_of(slice(0, size)) - torch.from_numpy(by_prompt.prompt_length_B)
        attend = DenseDecode(self, by_prompt, column_B)
        self.reserve_blocks(attend.num_blocks)
        return attend

    def reserve_blocks(self, number: int) -> None:
        """Use `number` blocks of all rows, and allocate those that are missing."""
        self._num_used = number
        while len(self.blocks) < number:
            # Zeros: attention multiplies masked values by 0, so none may be NaN.
            self.blocks.append(torch.zeros_like(self._block, memory_format=torch.contiguous_format))

    def _reserve(self, lines: int, length: int) -> None:
        """Allocate `lines` prompts of `length` tokens."""
        new_lines = max(0, lines - self.prompts.shape[2])
        new_length = max(0, length - self.prompts.shape[4])
        if new_lines or new_length:
            widths = (0, 0, 0, new_length, 0, 0, 0, new_lines)
            self.prompts = nn.functional.pad(self.prompts, widths)


class DensePrefill:
    """Packed attention over contexts that also caches their keys and values."""

    def __init__(
        self, cache: DenseCache, line_T: Tensor, column_T: Tensor, lengths_S: Tensor
    ) -> None:
        self.cache = cache
        self.packed = PackedAttention(lengths_S)
        self.line_T = line_T
        self.column_T = column_T

    def __call__(self, layer: int, qkv_TX: Tensor, spec: AttentionSpec) -> Tensor:
        q_TND, k_TGD, v_TGD = split_heads(qkv_TX, spec)
        for cached, new_TGD in zip(self.cache.prompts[layer], (k_TGD, v_TGD), strict=True):
            cached[self.line_T, :, self.column_T] = new_TGD
        return self.packed.attend(q_TND, k_TGD, v_TGD, spec.options)


class DenseDecode:
    """Attention of one new token per row over its prompt and its response so far.

    Scores of both parts share one softmax. Rows of one prompt read it in one matrix product.
    """

    def __init__(self, cache: DenseCache, by_prompt: PromptGroups, column_B: Tensor) -> None:
        self.cache = cache
        self.by_prompt = by_prompt
        self.prompt_length = int(by_prompt.prompt_length_B.max())
        used = int(column_B.max()) + 1
        # Blocks are read whole: skipping cells that no row has filled takes longer.
        self.num_blocks = ceil(used / CACHE_BLOCK)
        self.total = self.prompt_length + self.num_blocks * CACHE_BLOCK
        self.end = self.prompt_length + used
        self.cell_B = None if by_prompt.is_full else torch.from_numpy(by_prompt.cell_B)
        self.writes = self._list_writes(column_B)
        self.column_B = column_B
        self._biases: dict[int | None, Tensor | None] = {}

    def _list_writes(self, column_B: Tensor) -> list[tuple[int, Tensor, Tensor]]:
        """List, for each block that gets new tokens, their rows and their cells, head by head."""
        group_G = torch.arange(self.cache.prompts.shape[3])
        block_B = column_B // CACHE_BLOCK
        writes = []
        for number in sorted(set(block_B.tolist())):
            row_Q = (block_B == number).nonzero()[:, 0]
            head_QG = row_Q[:, None] * len(group_G) + group_G
            cell_QG = head_QG * CACHE_BLOCK + column_B[row_Q, None] % CACHE_BLOCK
            writes.append((int(number), row_Q, cell_QG.flatten()))
        return writes

    def _bias(self, window: int | None) -> Tensor | None:
        """Return a bias that masks tokens past the end of a row or its prompt, or before a window.

        None if nothing is masked: all rows are equally long, and no longer than the window.
        """
        if window is not None and window >= self.end:
            window = None
        if window not in self._biases:
            self._biases[window] = self._build_bias(window)
        return self._biases[window]

    def _build_bias(self, window: int | None) -> Tensor | None:
        prompt_length_B1 = torch.from_numpy(self.by_prompt.prompt_length_B)[:, None]
        column_B1 = self.column_B[:, None]
        all_equal = bool((prompt_length_B1 == self.prompt_length).all()) and bool(
            (self.prompt_length + column_B1 == self.end - 1).all()
        )
        if all_equal and window is None:
            return None
        prompt_C = torch.arange(self.prompt_length)
        added_C = torch.arange(self.num_blocks * CACHE_BLOCK)
        masks_prompt_BC = prompt_C >= prompt_length_B1
        masks_added_BC = added_C > column_B1
        if window is not None:
            first_B1 = prompt_length_B1 + column_B1 - window + 1
            masks_prompt_BC |= prompt_C < first_B1
            masks_added_BC |= prompt_length_B1 + added_C < first_B1
        masks_B11C = torch.cat([masks_prompt_BC, masks_added_BC], 1)[:, None, None]
        return torch.zeros(masks_B11C.shape).masked_fill_(masks_B11C, -torch.inf)

    def __call__(self, layer: int, qkv_TX: Tensor, spec: AttentionSpec) -> Tensor:
        q_BND, k_BGD, v_BGD = split_heads(qkv_TX, spec)
        for number, row_Q, cell_Q in self.writes:
            for cached, new_BGD in zip(
                self.cache.blocks[number][layer], (k_BGD, v_BGD), strict=True
            ):
                written_QGD = new_BGD if len(row_Q) == len(new_BGD) else new_BGD[row_Q]
                cached.view(-1, spec.head_dim).index_copy_(
                    0, cell_Q, written_QGD.reshape(-1, spec.head_dim)
                )
        rows = len(q_BND)
        groups = spec.num_kv_heads
        # Query heads that share a key head become rows of one small matrix: no key is read twice.
        q_BGYD = (q_BND * spec.head_dim**-0.5).view(rows, groups, -1, spec.head_dim)
        probs_BGYC = self._probs(layer, q_BGYD, self._bias(spec.options.window))
        probs_ZYC = probs_BGYC.view(rows * groups, -1, self.total)
        mixed_ZYD = q_BGYD.new_zeros(rows * groups, q_BGYD.shape[2], spec.head_dim)
        for values_ZCD, columns in self._row_blocks(layer, 1, rows):
            mixed_ZYD.baddbmm_(probs_ZYC[:, :, columns].contiguous(), values_ZCD)
        mixed_BGYD: Tensor = mixed_ZYD.view(rows, groups, -1, spec.head_dim)
        shared_ZQD = torch.bmm(
            self._to_lines(probs_BGYC[..., : self.prompt_length]), self._prompt_cache(layer, 1)
        )
        mixed_BGYD += self._to_rows(shared_ZQD, groups)
        return mixed_BGYD.view(q_BND.shape)

    def _probs(self, layer: int, q_BGYD: Tensor, bias_B11C: Tensor | None) -> Tensor:
        rows, groups, queries, size = q_BGYD.shape
        scores_BGYC = q_BGYD.new_empty(rows, groups, queries, self.total)
        scores_ZYC = scores_BGYC.view(rows * groups, queries, -1)
        q_ZYD = q_BGYD.view(-1, queries, size)
        for keys_ZCD, columns in self._row_blocks(layer, 0, rows):
            scores_ZYC[:, :, columns] = torch.bmm(q_ZYD, keys_ZCD.transpose(1, 2))
        shared_ZQC = torch.bmm(self._to_lines(q_BGYD), self._prompt_cache(layer, 0).transpose(1, 2))
        scores_BGYC[..., : self.prompt_length] = self._to_rows(shared_ZQC, groups)
        if bias_B11C is None:
            scores_BGYC[..., self.end :] = -torch.inf
        else:
            scores_BGYC += bias_B11C
        return torch.softmax(scores_BGYC, dim=-1)

    def _row_blocks(self, layer: int, which: int, rows: int) -> list[tuple[Tensor, slice]]:
        """List the keys (0) or values (1) of responses by block, with their score columns."""
        blocks = []
        for number in range(self.num_blocks):
            column = self.prompt_length + number * CACHE_BLOCK
            cached_ZCD = self.cache.blocks[number][layer, which, :rows].flatten(0, 1)
            blocks.append((cached_ZCD, slice(column, column + CACHE_BLOCK)))
        return blocks

    def _prompt_cache(self, layer: int, which: int) -> Tensor:
        first = self.by_prompt.first
        return self.cache.prompts[layer, which, first : first + self.by_prompt.lines].flatten(0, 1)[
            :, : self.prompt_length
        ]

    def _to_lines(self, x_BGYD: Tensor) -> Tensor:
        """Gather rows by prompt, one matrix per prompt and key head: [S G, Q Y, D]."""
        _, groups, queries, size = x_BGYD.shape
        lines, width = self.by_prompt.lines, self.by_prompt.width
        if self.cell_B is not None:
            x_BGYD = x_BGYD.new_zeros(lines * width, groups, queries, size).index_copy_(
                0, self.cell_B, x_BGYD
            )
        x_SQGYD = x_BGYD.reshape(lines, width, groups, queries, size)
        return x_SQGYD.transpose(1, 2).reshape(lines * groups, width * queries, size)

    def _to_rows(self, x_ZQD: Tensor, groups: int) -> Tensor:
        """Undo `_to_lines`: [B, G, Y, D]."""
        lines = self.by_prompt.lines
        width = self.by_prompt.width
        size = x_ZQD.shape[-1]
        x_SQGYD = x_ZQD.view(lines, groups, width, -1, size).transpose(1, 2)
        x_BGYD = x_SQGYD.flatten(0, 1)
        return x_BGYD if self.cell_B is None else x_BGYD[self.cell_B]
