"""Training sequences as arrays, and packed batches of them as tensors.

Shapes: T tokens of S sequences laid end to end; M of them were sampled, or are to be imitated, and
carry a loss. Where answers are compared, the sequences make P pairs, and each pair carries one.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whet.types import Floats, Tokens


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Example:
    """One training sequence. Per-token arrays cover the response only: the tokens from `start` to
    the end."""

    tokens: Tokens
    start: int
    """Index of the first response token; at least 1, since something must predict it."""
    group: str
    rollout: str
    temperature: float = 1.0
    logprob: Floats | None = None
    """Under the policy that sampled; None for text nobody sampled."""
    old_logprob: Floats | None = None
    ref_logprob: Floats | None = None
    value: Floats | None = None
    """What a critic expects at each token."""
    value_target: Floats | None = None
    advantage: float | Floats = 0.0
    """Of every response token, or of each."""
    weight: float = 0.0
    """Multiplies the loss of every response token, or that of its pair."""
    pair: int | None = None
    """Number of its pair within an optimiser step, where two answers are compared."""
    is_chosen: bool = False
    """Whether it is the better answer of its pair."""

    @property
    def num_targets(self) -> int:
        return len(self.tokens) - self.start


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """Two answers to one prompt, of which the first is to become more likely."""

    chosen: Example
    rejected: Example


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """What one forward pass sees. `source_M` is the token whose hidden state predicts `label_M`."""

    tokens_T: Tensor
    positions_T: Tensor
    lengths_S: Tensor
    longest: int
    source_M: Tensor
    label_M: Tensor
    segment_M: Tensor
    temperature_M: Tensor
    weight_M: Tensor
    advantage_M: Tensor
    behaviour_M: Tensor
    old_M: Tensor | None
    reference_M: Tensor | None
    value_M: Tensor | None = None
    """What a critic expected before the step."""
    value_target_M: Tensor | None = None
    chosen_P: Tensor | None = None
    """Which sequence is the better answer of each pair; None where nothing is compared."""
    rejected_P: Tensor | None = None
    weight_P: Tensor | None = None

    @property
    def weight(self) -> Tensor:
        """What multiplies each loss: a pair's, where there are pairs, else a token's."""
        return self.weight_M if self.weight_P is None else self.weight_P


def to_batch(examples: list[Example], device: torch.device) -> Batch:
    """Lay examples end to end."""
    assert all(example.start >= 1 for example in examples), (
        "something must predict the first response token"
    )
    lengths = np.array([len(example.tokens) for example in examples])
    starts = np.cumsum(lengths) - lengths
    counts = np.array([example.num_targets for example in examples])
    firsts = starts + np.array([example.start for example in examples])

    def longs(values: NDArray[np.integer]) -> Tensor:
        return torch.from_numpy(values.astype(np.int64)).to(device)

    def spread(values: list[float]) -> Tensor:
        return torch.from_numpy(np.repeat(np.array(values, dtype=np.float32), counts)).to(device)

    def each(values: list[float | Floats]) -> Tensor:
        assert all(
            np.shape(value) in ((), (count,)) for value, count in zip(values, counts, strict=True)
        ), "a per-token advantage has a value for every response token"
        parts = [
            np.broadcast_to(np.float32(value), (count,))
            for value, count in zip(values, counts, strict=True)
        ]
        return torch.from_numpy(np.concatenate(parts)).to(device)

    def joined(arrays: list[Floats | None]) -> Tensor | None:
        if any(array is None for array in arrays):
            assert all(array is None for array in arrays), (
                "a batch has a per-token field for all examples or for none"
            )
            return None
        return torch.from_numpy(
            np.concatenate([a for a in arrays if a is not None]).astype(np.float32)
        ).to(device)

    offsets = np.concatenate([np.arange(n) for n in counts])
    target = np.repeat(firsts, counts) + offsets
    tokens = np.concatenate([example.tokens for example in examples])
    behaviour = joined([example.logprob for example in examples])
    pairs = _pairs(examples)
    return Batch(
        tokens_T=longs(tokens),
        positions_T=longs(np.concatenate([np.arange(n) for n in lengths])),
        lengths_S=longs(lengths),
        longest=int(lengths.max()),
        source_M=longs(target - 1),
        label_M=longs(tokens[target]),
        segment_M=longs(np.repeat(np.arange(len(examples)), counts)),
        temperature_M=spread([example.temperature for example in examples]),
        weight_M=spread([example.weight for example in examples]),
        advantage_M=each([example.advantage for example in examples]),
        behaviour_M=spread([0.0] * len(examples)) if behaviour is None else behaviour,
        old_M=joined([example.old_logprob for example in examples]),
        reference_M=joined([example.ref_logprob for example in examples]),
        value_M=joined([example.value for example in examples]),
        value_target_M=joined([example.value_target for example in examples]),
        chosen_P=longs(np.array([chosen for chosen, _ in pairs])) if pairs else None,
        rejected_P=longs(np.array([rejected for _, rejected in pairs])) if pairs else None,
        weight_P=torch.tensor([examples[chosen].weight for chosen, _ in pairs], device=device)
        if pairs
        else None,
    )


def _pairs(examples: list[Example]) -> list[tuple[int, int]]:
    """Find the places of the better and the worse answer of each pair; empty where nothing is
    compared."""
    chosen = {
        item.pair: index
        for index, item in enumerate(examples)
        if item.pair is not None and item.is_chosen
    }
    rejected = {
        item.pair: index
        for index, item in enumerate(examples)
        if item.pair is not None and not item.is_chosen
    }
    is_whole = chosen.keys() == rejected.keys() and 2 * len(chosen) in (0, len(examples))
    assert is_whole, "both answers of a pair lie in one batch, and a batch holds pairs only or none"
    return [(index, rejected[pair]) for pair, index in chosen.items()]
