"""What is trained on: sequences as arrays, pairs of them for preference training, and batches of
them, laid end to end as tensors on a device.

Shapes: T tokens of S sequences; M of them are targets, which have a loss. In preference training
the sequences form P pairs with one loss each.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whet.types import Floats, Indices, TokenFields, Tokens


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
