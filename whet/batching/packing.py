"""Packing: which examples share a mini-batch and a micro-batch, and which prefixes they share.

Shapes: T tokens of S sequences laid end to end; U tokens are left when shared prefixes are merged;
C are the cells of a padded row.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from random import Random

import numpy as np

from whet.batching.examples import Example, ExampleUnit
from whet.errors import DataError
from whet.types import Indices

_ROW_MULTIPLE = 8
"""Padded rows have a multiple of this many cells, which torch's attention runs faster."""


def split_minibatches(
    examples: Sequence[Example], count: int, rng: Random | None
) -> list[list[Example]]:
    """Deal the examples of a step to at most `count` mini-batches, shuffled by `rng`."""
    order = list(examples)
    if rng is not None:
        rng.shuffle(order)
    return [order[index::count] for index in range(min(count, len(order)))]


def pack(
    examples: Sequence[Example], token_budget: int, *, ranks: int = 1, is_padded: bool = True
) -> list[list[int]]:
    """Split examples into micro-batches within the budget, as lists of their positions.

    Any split gives the same gradient; this one wastes little. Pairs stay together. Rank r takes
    every `ranks`-th micro-batch from r on; empty ones are added so that ranks have equally many.

    If attention runs on a padded grid, the budget counts its cells: examples of similar length are
    packed together, longest first, each followed by those of the same prompt, which is then
    computed once. Otherwise the budget counts tokens, and micro-batches get similar sizes. Ties
    keep the given order.

    >>> from whet.testing.fakes import example
    >>> examples = [example(length=3), example(length=9), example(length=4)]
    >>> pack(examples, token_budget=16)
    [[1], [2, 0]]
    >>> pack(examples, token_budget=16, is_padded=False)
    [[1, 2, 0]]
    """
    lengths = [len(item.tokens) for item in examples]
    units = _list_units(examples)
    for unit in units:
        size = sum(lengths[index] for index in unit)
        if is_padded:
            size = len(unit) * _max_length(unit, lengths)
        if size > token_budget:
            names = " and ".join(examples[index].rollout_id for index in unit)
            what = f"example {names} has" if len(unit) == 1 else f"the pair of {names} takes"
            raise DataError(
                f"{what} {size} tokens, more than train.micro_batch_tokens = {token_budget}; "
                f"raise that setting or leave the {'example' if len(unit) == 1 else 'pair'} out"
            )
    longest_first = sorted(units, key=lambda unit: -_max_length(unit, lengths))
    if is_padded:
        if ranks > 1:  # else one micro-batch may hold everything, and the other ranks nothing
            padded = sum(len(unit) * _max_length(unit, lengths) for unit in units)
            per_rank = ceil(padded / ranks)
            token_budget = min(token_budget, max(per_rank, _max_grid(units, lengths)))
        micro_batches = _pack_grid(_sort_by_prompt(longest_first, examples), lengths, token_budget)
    else:
        micro_batches = _pack_tokens(longest_first, lengths, token_budget, ranks)
    return micro_batches + [[] for _ in range(-len(micro_batches) % ranks)]


def _list_units(examples: Sequence[Example]) -> list[ExampleUnit]:
    units: list[ExampleUnit] = []
    pairs: dict[int, ExampleUnit] = {}
    for index, item in enumerate(examples):
        if item.pair in pairs:
            pairs[item.pair].append(index)
            continue
        units.append([index])
        if item.pair is not None:
            pairs[item.pair] = units[-1]
    return units


def _max_length(unit: ExampleUnit, lengths: Sequence[int]) -> int:
    return max(lengths[index] for index in unit)


def _max_grid(units: Sequence[ExampleUnit], lengths: Sequence[int]) -> int:
    return max((len(unit) * _max_length(unit, lengths) for unit in units), default=0)


def _sort_by_prompt(units: Sequence[ExampleUnit], examples: Sequence[Example]) -> list[ExampleUnit]:
    """Move units of the same prompt next to the first of them."""
    by_prompt: dict[bytes, list[ExampleUnit]] = {}
    for unit in units:
        first = examples[unit[0]]
        by_prompt.setdefault(first.tokens[: first.response_start].tobytes(), []).append(unit)
    return [unit for group in by_prompt.values() for unit in group]


def _pack_grid(
    units: Sequence[ExampleUnit], lengths: Sequence[int], budget: int
) -> list[list[int]]:
    micro_batches: list[list[int]] = []
    width = 0
    for unit in units:
        new_width = max(width, _max_length(unit, lengths))
        if micro_batches and (len(micro_batches[-1]) + len(unit)) * new_width <= budget:
            micro_batches[-1].extend(unit)
            width = new_width
        else:
            micro_batches.append(list(unit))
            width = _max_length(unit, lengths)
    return micro_batches


def _pack_tokens(
    units: Sequence[ExampleUnit], lengths: Sequence[int], budget: int, ranks: int
) -> list[list[int]]:
    """Add each unit to the emptiest of as few micro-batches as could hold all units."""
    min_count = ceil(sum(lengths) / budget)
    micro_batches: list[list[int]] = [[] for _ in range(ceil(min_count / ranks) * ranks)]
    heap = [(0, index) for index in range(len(micro_batches))]
    for unit in units:
        num_tokens = sum(lengths[index] for index in unit)
        num_used, index = heapq.heappop(heap)
        if num_used + num_tokens > budget:
            heapq.heappush(heap, (num_used, index))
            num_used = 0
            index = len(micro_batches)
            micro_batches.append([])
        micro_batches[index].extend(unit)
        heapq.heappush(heap, (num_used + num_tokens, index))
    return micro_batches


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MergedPrefixes:
    """The U tokens left when shared prefixes are merged, and the index of each of T among them."""

    first_U: Indices
    """An index in T of each token."""
    node_T: Indices
    """The index in U of each token; -1 for the last of a sequence, which predicts nothing."""
    node_SC: Indices
    """The index in U of the token in each cell; past the end of a row, its last token."""
    cell_U: Indices
    """A cell of each token, numbered across all rows."""


def merge_prefixes(tokens_T: Indices, lengths_S: Indices) -> MergedPrefixes:
    """Merge shared prefixes; in sorted order, neighbours share the most."""
    starts_S = np.cumsum(lengths_S) - lengths_S
    counts_S = np.maximum(lengths_S - 1, 1)
    rows = [
        tokens_T[start : start + count] for start, count in zip(starts_S, counts_S, strict=True)
    ]
    node_T = np.full(len(tokens_T), -1, dtype=np.int64)
    width = ceil(int(counts_S.max()) / _ROW_MULTIPLE) * _ROW_MULTIPLE
    node_SC = np.zeros((len(rows), width), dtype=np.int64)
    first_U = list[Indices]()
    cell_U = list[Indices]()
    num_nodes = 0
    previous = rows[0][:0]
    previous_nodes = node_T[:0]
    for index in sorted(range(len(rows)), key=lambda index: rows[index].astype(">i8").tobytes()):
        row = rows[index]
        start = int(starts_S[index])
        num_shared = _common_prefix_length(previous, row)
        nodes = np.concatenate(
            [previous_nodes[:num_shared], np.arange(num_nodes, num_nodes + len(row) - num_shared)]
        )
        node_T[start : start + len(row)] = nodes
        node_SC[index, : len(row)] = nodes
        node_SC[index, len(row) :] = nodes[-1]
        first_U.append(np.arange(start + num_shared, start + len(row)))
        cell_U.append(np.arange(num_shared, len(row)) + index * width)
        num_nodes += len(row) - num_shared
        previous, previous_nodes = row, nodes
    return MergedPrefixes(
        first_U=np.concatenate(first_U),
        node_T=node_T,
        node_SC=node_SC,
        cell_U=np.concatenate(cell_U),
    )


def _common_prefix_length(a: Indices, b: Indices) -> int:
    """Count the tokens at the start of two sequences that are the same."""
    most = min(len(a), len(b))
    differs = np.nonzero(a[:most] != b[:most])[0]
    return int(differs[0]) if len(differs) else most
