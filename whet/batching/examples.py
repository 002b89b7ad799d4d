"""What is trained on: sequences as arrays, pairs of them for preference training, and batches of
them, laid end to end as tensors on a device. Which examples share a mini-batch and a micro-batch,
and which prefixes they share.

Shapes: T tokens of S sequences; M of them are targets, which have a loss; U are left when shared
prefixes are merged. C are the cells of a padded row. In preference training the sequences form P
pairs with one loss each.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from random import Random

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whet.errors import DataError
from whet.types import Floats, Indices, TokenFields, Tokens

_ROW_MULTIPLE = 8
"""Padded rows have a multiple of this many cells, because torch's attention is then faster."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Example(TokenFields[Floats]):
    """One training sequence; per-token arrays cover the response, from `response_start` on."""

    tokens: Tokens
    response_start: int
    """Index of the first response token; at least 1, since something must predict it."""
    group_id: str
    rollout_id: str
    temperature: float = 1.0
    advantage: float | Floats = 0.0
    """One for the whole response, or one per response token."""
    loss_weight: float = 0.0
    """Multiplies the loss of every response token, or of its pair."""
    pair: int | None = None
    """Number of its preference pair within an optimizer step."""
    is_chosen: bool = False
    """Whether it is the better response of its pair."""

    @property
    def num_targets(self) -> int:
        return len(self.tokens) - self.response_start


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreferencePair:
    """Two responses to one prompt; training makes the chosen one more likely."""

    chosen: Example
    rejected: Example


def with_field(
    examples: Sequence[Example], name: str, values: Iterable[float | Floats]
) -> list[Example]:
    """Set the named field of each example to its value."""
    return [
        replace(example, **{name: value})  # type: ignore[arg-type]
        for example, value in zip(examples, values, strict=True)
    ]


ExampleUnit = list[int]
"""Positions of examples that stay together: one example, or the two of a pair."""


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
class Batch(TokenFields[Tensor]):
    """The input of a forward pass. `predictor_M` is the token whose state predicts `label_M`."""

    tokens_T: Tensor
    positions_T: Tensor
    lengths_S: Tensor
    longest: int
    predictor_M: Tensor
    label_M: Tensor
    segment_M: Tensor
    temperature_M: Tensor
    loss_weight_M: Tensor
    advantage_M: Tensor
    chosen_P: Tensor | None = None
    """The sequence of the better response of each pair; None without pairs."""
    rejected_P: Tensor | None = None
    loss_weight_P: Tensor | None = None

    @property
    def loss_weight(self) -> Tensor:
        """The weight of each loss: per pair if there are pairs, else per token."""
        return self.loss_weight_M if self.loss_weight_P is None else self.loss_weight_P


def to_batch(examples: list[Example], device: torch.device) -> Batch:
    """Lay examples end to end; no examples make an empty batch."""
    assert all(example.response_start >= 1 for example in examples), (
        "something must predict the first response token"
    )
    lengths = np.array([len(example.tokens) for example in examples], dtype=np.int64)
    target_counts = np.array([example.num_targets for example in examples], dtype=np.int64)
    response_starts = np.array([example.response_start for example in examples], dtype=np.int64)
    first_targets = np.cumsum(lengths) - lengths + response_starts
    targets = np.repeat(first_targets, target_counts) + _positions(target_counts)
    tokens = np.concatenate([np.zeros(0, np.int32), *(example.tokens for example in examples)])
    token_fields = [example.per_token() for example in examples]
    pairs = _find_pairs(examples)

    def to_longs(values: NDArray[np.integer]) -> Tensor:
        return _copy_to(torch.from_numpy(values.astype(np.int64)), device)

    def to_floats(values: Sequence[float | Floats]) -> Tensor:
        return _copy_to(torch.from_numpy(_repeat_per_token(values, target_counts)), device)

    def join_field(name: str) -> Tensor | None:
        arrays = [fields[name] for fields in token_fields]
        present = [array for array in arrays if array is not None]
        assert len(present) in (0, len(arrays)), (
            "a batch has a per-token quantity for all examples or for none"
        )
        return to_floats(present) if present else None

    return Batch(
        tokens_T=to_longs(tokens),
        positions_T=to_longs(_positions(lengths)),
        lengths_S=to_longs(lengths),
        longest=int(lengths.max(initial=0)),
        predictor_M=to_longs(targets - 1),
        label_M=to_longs(tokens[targets]),
        segment_M=to_longs(np.repeat(np.arange(len(examples)), target_counts)),
        temperature_M=to_floats([example.temperature for example in examples]),
        loss_weight_M=to_floats([example.loss_weight for example in examples]),
        advantage_M=to_floats([example.advantage for example in examples]),
        chosen_P=to_longs(np.array([chosen for chosen, _ in pairs])) if pairs else None,
        rejected_P=to_longs(np.array([rejected for _, rejected in pairs])) if pairs else None,
        loss_weight_P=_copy_to(
            torch.tensor([examples[chosen].loss_weight for chosen, _ in pairs]), device
        )
        if pairs
        else None,
        **{name: join_field(name) for name in (token_fields[0] if token_fields else ())},
    )


def _copy_to(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy from host memory without waiting for a GPU.

    The GPU is still working on the previous batch; meanwhile the host prepares the next.
    """
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def _positions(lengths: Indices) -> Indices:
    """Number the tokens of each sequence from 0, all sequences end to end."""
    return np.concatenate([np.zeros(0, np.int64), *(np.arange(length) for length in lengths)])


def _repeat_per_token(values: Sequence[float | Floats], counts: NDArray[np.integer]) -> Floats:
    """Lay values end to end, one per response token; a single number applies to all of them."""
    arrays = []
    for value, count in zip(values, counts, strict=True):
        assert np.shape(value) in ((), (count,)), (
            "a per-token quantity has a value for every response token"
        )
        arrays.append(np.broadcast_to(np.float32(value), (count,)))
    return np.concatenate([np.zeros(0, np.float32), *arrays])


def _find_pairs(examples: list[Example]) -> list[tuple[int, int]]:
    """Find the indices of the better and the worse response of each pair, if there are pairs."""
    indices: dict[bool, dict[int, int]] = {True: {}, False: {}}
    for index, item in enumerate(examples):
        if item.pair is not None:
            indices[item.is_chosen][item.pair] = index
    chosen = indices[True]
    rejected = indices[False]
    is_whole = chosen.keys() == rejected.keys() and 2 * len(chosen) in (0, len(examples))
    assert is_whole, "both responses of a pair lie in one batch, and a batch has only pairs or none"
    return [(index, rejected[pair]) for pair, index in chosen.items()]


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
