"""The running requests as device tensors, one row each; sampling; copies to and from the host.

The newest token of a row has been sampled but not yet run through the model; its position is `first
+ count`. Ended rows are not live: they are computed, but nothing is recorded. The random numbers of
a row depend only on its seed and position, so no other request can change its samples. On a GPU,
copies to the host are asynchronous: the host waits only for the event of a copy it needs.

Shapes: R rows, B rows in use, Q rows that move, W columns of an output, V vocabulary, H hidden.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whet.engine.base import EngineStats, Request
from whet.engine.scheduler import WindowOutput
from whet.kernels.lm_head import row_logprobs, sample_rows
from whet.models.transformer import Attend, Transformer
from whet.types import Indices

_ALIGNED = 16


class HostTransfer:
    """Copies between the host and one device, counted in `stats`."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stats = EngineStats()

    def to_device(self, *arrays: NDArray[Any]) -> list[Tensor]:
        """Copy arrays to the device in one transfer."""
        self.stats.copies_to_device += 1
        if self.device.type == "cpu":
            return [torch.from_numpy(array) for array in arrays]
        packed = (
            torch.from_numpy(pack_bytes(arrays)).pin_memory().to(self.device, non_blocking=True)
        )
        return unpack(packed, arrays)

    def to_host(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Start a copy to the host; the returned function waits for it."""
        self.stats.copies_to_host += 1
        if self.device.type == "cpu":
            copied = tensor.clone()
            return lambda: copied
        copied = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        copied.copy_(tensor, non_blocking=True)
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record()

        def wait() -> Tensor:
            event.synchronize()
            return copied

        return wait


def pack_bytes(arrays: Sequence[NDArray[Any]]) -> NDArray[np.uint8]:
    """Concatenate the bytes of arrays, each at an aligned offset."""
    starts = _starts(arrays)
    packed = np.zeros(starts[-1], dtype=np.uint8)
    for start, array in zip(starts[:-1], arrays, strict=True):
        packed[start : start + array.nbytes] = (
            np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        )
    return packed


def unpack(packed: Tensor, arrays: Sequence[NDArray[Any]]) -> list[Tensor]:
    """Return views of the arrays in a tensor of their bytes."""
    return [
        packed[start : start + array.nbytes]
        .view(torch.from_numpy(array[:0]).dtype)
        .view(array.shape)
        for start, array in zip(_starts(arrays)[:-1], arrays, strict=True)
    ]


def _starts(arrays: Sequence[NDArray[Any]]) -> list[int]:
    return [0, *accumulate(ceil(array.nbytes / _ALIGNED) * _ALIGNED for array in arrays)]


_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIX1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX2 = 0x94D049BB133111EB - 2**64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SamplingTensors:
    """The sampling settings of B rows, one tensor per setting."""

    temperature_B: Tensor
    top_k_B: Tensor
    top_p_B: Tensor
    min_p_B: Tensor

    @property
    def is_truncated_B(self) -> Tensor:
        """Rows with top-k, top-p or min-p; at temperature 0 none of them matters."""
        is_set_B = (self.top_k_B > 0) | (self.top_p_B < 1) | (self.min_p_B > 0)
        return is_set_B & (self.temperature_B > 0)


def sample_tokens(
    logits_BV: Tensor, uniform_B: Tensor, sampling: SamplingTensors, *, is_truncated: bool
) -> tuple[Tensor, Tensor]:
    """Choose a token per row; return it with its log-probability before any truncation.

    `is_truncated` is false when no row uses top-k, top-p or min-p, which saves the sort.
    """
    token_B, logprob_B = sample_rows(logits_BV, uniform_B, sampling.temperature_B)
    if not is_truncated:
        return token_B, logprob_B
    scale_B = torch.where(sampling.temperature_B == 0, 1.0, sampling.temperature_B)
    probs_BV = truncate_probs(torch.softmax(logits_BV.float() / scale_B[:, None], dim=-1), sampling)
    # Rows without truncation keep their token: `inverse_cdf` rounds differently, and a sample must
    # not depend on the other rows.
    token_B = torch.where(sampling.is_truncated_B, inverse_cdf(probs_BV, uniform_B), token_B)
    return token_B, row_logprobs(logits_BV, token_B, sampling.temperature_B)


def inverse_cdf(probs_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """Pick one token per row by inverting the cumulative sum; probability 0 is never picked."""
    sums_BV = probs_BV.cumsum(-1, dtype=torch.float64)
    # A product that rounds up to the total would point past the last likely token.
    target_B = (uniform_B * sums_BV[:, -1]).minimum(sums_BV[:, -1] * (1 - 2**-52))
    return torch.searchsorted(sums_BV, target_B[:, None], right=True)[:, 0].clamp(
        max=probs_BV.shape[1] - 1
    )


def truncate_probs(probs_BV: Tensor, sampling: SamplingTensors) -> Tensor:
    """Zero the tokens outside top-k, top-p and min-p; the most likely one always stays."""
    order_BV = probs_BV.sort(dim=-1, descending=True, stable=True)
    sorted_BV = order_BV.values
    rank_V = torch.arange(probs_BV.shape[1], device=probs_BV.device)
    top_k_B = torch.where(sampling.top_k_B == 0, probs_BV.shape[1], sampling.top_k_B)
    before_BV = sorted_BV.cumsum(-1) - sorted_BV
    keep_BV = (rank_V < top_k_B[:, None]) & (
        (before_BV < sampling.top_p_B[:, None]) | (sampling.top_p_B[:, None] == 1)
    )
    keep_BV &= sorted_BV >= sampling.min_p_B[:, None] * sorted_BV[:, :1]
    return torch.zeros_like(probs_BV).scatter(1, order_BV.indices, sorted_BV * keep_BV)


def uniforms(seed_B: Tensor, position_B: Tensor) -> Tensor:
    """Hash seed and position to a number in [0, 1) by SplitMix64, in wrapping int64."""
    x = seed_B + (position_B + 1) * _GOLDEN
    x = (x ^ _shift_right(x, 30)) * _MIX1
    x = (x ^ _shift_right(x, 27)) * _MIX2
    return _shift_right(x ^ _shift_right(x, 31), 11).double() * 2.0**-53


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Shift right as unsigned integers do."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


_INT_FIELDS = ("token", "prompt_end", "count", "fetched", "limit", "seed", "top_k", "live")
"""The integer fields of a row, in the order of `InputBatch.ints`."""


class InputBatch:
    """Tensors of R rows at fixed addresses, and a buffer of the tokens since the last fetch.

    `is_stop_V` marks the tokens that end a row.
    """

    def __init__(self, rows: int, window: int, transfer: HostTransfer, is_stop_V: Tensor) -> None:
        self.transfer = transfer
        self.is_stop_V = is_stop_V
        self.columns = window + 2
        device = transfer.device
        self.ints = torch.zeros(len(_INT_FIELDS), rows, dtype=torch.int64, device=device)
        self.token_R, self.prompt_end_R, self.count_R, self.fetched_R = self.ints[:4].unbind()
        self.limit_R, self.seed_R, self.top_k_R, self.live_R = self.ints[4:].unbind()
        self.floats = torch.ones(3, rows, dtype=torch.float32, device=device)
        self.temperature_R, self.top_p_R, self.min_p_R = self.floats.unbind()
        # For each row: whether it is live, its count, and its tokens and log-probabilities since
        # `fetched`, the n-th in column n. An ended row keeps writing to the column after its last
        # token, which is never read.
        self.output_RW = torch.zeros(rows, 2 + 2 * self.columns, dtype=torch.int32, device=device)
        self._tokens_RW = self.output_RW[:, 2 : 2 + self.columns]
        self._logprobs_RW = self.output_RW[:, 2 + self.columns :].view(torch.float32)
        self.uniform_RW = torch.zeros(rows, self.columns, dtype=torch.float64, device=device)
        self._offset_W = torch.arange(self.columns, device=device)

    def clear(self) -> None:
        self.ints.zero_()

    def add_requests(
        self, rows: slice, requests: list[Request], count_B: Indices, limit_B: Indices
    ) -> None:
        """Start rows that have `count_B` tokens already; the next one is still to be sampled."""
        settings = [request.sampling for request in requests]
        fields: dict[str, Indices | list[int] | int] = {
            "token": 0,
            "prompt_end": [len(request.prompt) - 1 for request in requests],
            "count": count_B,
            "fetched": count_B,
            "limit": limit_B,
            "seed": [request.seed for request in requests],
            "top_k": [s.top_k for s in settings],
            "live": 1,
        }
        ints = np.empty((len(_INT_FIELDS), len(requests)), dtype=np.int64)
        for number, name in enumerate(_INT_FIELDS):
            ints[number] = fields[name]
        floats = np.array(
            [[s.temperature, s.top_p, s.min_p] for s in settings], dtype=np.float32
        ).T.copy()
        self.ints[:, rows], self.floats[:, rows] = self.transfer.to_device(ints, floats)

    def position_of(self, rows: slice) -> Tensor:
        """Return the position of each row's newest token."""
        return self.prompt_end_R[rows] + self.count_R[rows]

    def sampling_of(self, rows: slice) -> SamplingTensors:
        return SamplingTensors(
            temperature_B=self.temperature_R[rows],
            top_k_B=self.top_k_R[rows],
            top_p_B=self.top_p_R[rows],
            min_p_B=self.min_p_R[rows],
        )

    def draw_uniforms(self, rows: slice) -> None:
        """Draw the random numbers of all tokens until the next fetch, by row seed and position."""
        self.uniform_RW[rows] = uniforms(
            self.seed_R[rows, None], self.fetched_R[rows, None] + self._offset_W
        )

    def column_of(self, rows: slice) -> Tensor:
        """Return the output column of each row's next token."""
        return (self.count_R[rows] - self.fetched_R[rows])[:, None]

    def newest_tokens(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Return the token and log-probability in the output column of each row."""
        column_B1 = self.column_of(rows)
        token_B1, logprob_B1 = (
            out_RW[rows].gather(1, column_B1) for out_RW in (self._tokens_RW, self._logprobs_RW)
        )
        return token_B1[:, 0].long(), logprob_B1[:, 0]

    def sample(self, rows: slice, logits_BV: Tensor, is_truncated: bool) -> tuple[Tensor, Tensor]:
        """Sample the next token of each row by its own settings and random number."""
        uniform_B = self.uniform_RW[rows].gather(1, self.column_of(rows))[:, 0]
        sampling = self.sampling_of(rows)
        return sample_tokens(logits_BV, uniform_B, sampling, is_truncated=is_truncated)

    def append_tokens(self, rows: slice, token_B: Tensor, logprob_B: Tensor) -> None:
        """Store the sampled tokens of live rows; end rows at a stop token or their limit."""
        column_B1 = self.column_of(rows)
        self._tokens_RW[rows].scatter_(1, column_B1, token_B[:, None].int())
        self._logprobs_RW[rows].scatter_(1, column_B1, logprob_B[:, None])
        self.token_R[rows] = token_B
        count_B = self.count_R[rows]
        live_B = self.live_R[rows]
        count_B += live_B
        live_B.masked_fill_(self.is_stop_V[token_B] | (count_B >= self.limit_R[rows]), 0)

    def decode(
        self, model: Transformer, rows: slice, attend: Attend, *, is_truncated: bool
    ) -> None:
        """Run the newest token of some rows through the model, and sample the next."""
        hidden_BH = model(self.token_R[rows], self.position_of(rows), attend)
        self.append_tokens(rows, *self.sample(rows, model.logits(hidden_BH), is_truncated))

    def fetch_output(self, sequence_B: Indices) -> Callable[[], WindowOutput]:
        """Start copying the new tokens of the first rows to the host; calling the result waits."""
        used = slice(0, len(sequence_B))
        self.output_RW[used, 0] = self.live_R[used]
        self.output_RW[used, 1] = self.count_R[used]
        wait = self.transfer.to_host(self.output_RW[used])
        self.fetched_R[used] = self.count_R[used]

        def read() -> WindowOutput:
            output = wait().numpy()
            middle = 2 + self.columns
            return WindowOutput(
                sequence_B=sequence_B,
                is_done_B=output[:, 0] == 0,
                count_B=output[:, 1].astype(np.int64),
                tokens_BW=output[:, 2:middle],
                logprobs_BW=output[:, middle:].view(np.float32),
            )

        return read

    def move(self, source_Q: Indices, target_Q: Indices) -> None:
        source, target = self.transfer.to_device(source_Q, target_Q)
        for fields in (self.ints, self.floats):
            fields[:, target] = fields[:, source]

    def deactivate(self, rows: slice) -> None:
        """End rows: they are still computed, but nothing is recorded."""
        self.live_R[rows] = 0


class CpuInputBatch(InputBatch):
    """The batch on a CPU, where numpy is faster than torch for arrays this small."""

    def __init__(self, rows: int, window: int, transfer: HostTransfer, is_stop_V: Tensor) -> None:
        super().__init__(rows, window, transfer, is_stop_V)
        self._fields = self.ints.numpy(), self.floats.numpy()
        states = self.live_R, self.count_R, self.fetched_R
        self._live, self._count, self._fetched = (state_R.numpy() for state_R in states)
        self._buffers = self._tokens_RW.numpy(), self._logprobs_RW.numpy()

    def fetch_output(self, sequence_B: Indices) -> Callable[[], WindowOutput]:
        self.transfer.stats.copies_to_host += 1
        used = slice(0, len(sequence_B))
        count_B = self._count[used].copy()
        tokens_BW, logprobs_BW = (out_RW[used].copy() for out_RW in self._buffers)
        output = WindowOutput(
            sequence_B=sequence_B,
            is_done_B=self._live[used] == 0,
            count_B=count_B,
            tokens_BW=tokens_BW,
            logprobs_BW=logprobs_BW,
        )
        self._fetched[used] = count_B
        return lambda: output

    def move(self, source_Q: Indices, target_Q: Indices) -> None:
        for fields in self._fields:
            fields[:, target_Q] = fields[:, source_Q]

    def deactivate(self, rows: slice) -> None:
        self._live[rows] = 0
