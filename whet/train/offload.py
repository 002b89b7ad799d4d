"""Optimizer state in host memory that streams through the device, three pieces at a time; and
frozen weights that stay there between passes.

While one piece is updated, the next is copied in and the last is copied back, which keeps the link
busy in both directions.
"""

import mmap
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass

import torch
from torch import Tensor, nn

PIECE = 2**24
"""Elements of a piece: enough that a copy costs more than its launch."""
NUM_BUFFERS, WIDTH = 3, 3
"""Pieces in flight at a time, and tensors in each."""

UpdatePiece = Callable[[slice, list[Tensor]], None]
Event = torch.cuda.Event | None


@dataclass(slots=True, kw_only=True, eq=False)
class StagingBuffer:
    """Device memory for one piece of each tensor, and an event after which it is free."""

    rows: Tensor
    free: Event


class StateStreamer:
    """Streams float32 tensors between host and device; on a CPU it copies at once."""

    def __init__(self, device: torch.device, *, piece: int = PIECE) -> None:
        self.device = device
        self.piece = piece
        self._inward = _Stream.new(device)
        self._outward = _Stream.new(device)
        self._buffers: list[StagingBuffer] = []
        self._count = 0

    def stream(self, host: Sequence[Tensor], update: UpdatePiece) -> None:
        """Copy flat tensors to the device piece by piece, apply `update`, and copy them back.

        `update` gets the slice and the pieces; it runs in the current stream, without waiting.
        """
        main = _Stream.current(self.device)
        for start in range(0, len(host[0]), self.piece):
            at = slice(start, min(start + self.piece, len(host[0])))
            buffer = self._next_buffer(main)
            pieces = [tensor[at] for tensor in host]
            device = [row[: len(piece)] for row, piece in zip(buffer.rows, pieces, strict=False)]
            with self._inward.wait_event(buffer.free):
                _copy(pieces, device)
            with main.wait_event(self._inward.record_event()):
                update(at, device)
            with self._outward.wait_event(main.record_event()):
                _copy(device, pieces)
            buffer.free = self._outward.record_event()

    def join(self) -> None:
        """Let later copies to the device wait for all copies back so far."""
        self._inward.wait_event(self._outward.record_event())

    def wait(self) -> None:
        """Let the host wait until everything is copied back."""
        self._outward.synchronize()

    def _next_buffer(self, main: "_Stream") -> StagingBuffer:
        if not self._buffers:
            memory = [
                torch.empty(WIDTH, self.piece, dtype=torch.float32, device=self.device)
                for _ in range(NUM_BUFFERS)
            ]
            # Earlier work in the current stream may still read this memory.
            self._buffers = [StagingBuffer(rows=rows, free=main.record_event()) for rows in memory]
        self._count += 1
        return self._buffers[self._count % NUM_BUFFERS]


class _Stream:
    """A CUDA stream; on a CPU, work is done at once."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self.stream = stream

    @staticmethod
    def new(device: torch.device) -> "_Stream":
        if device.type != "cuda":
            return _Stream(None)
        return _Stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]

    @staticmethod
    def current(device: torch.device) -> "_Stream":
        return _Stream(torch.cuda.current_stream(device) if device.type == "cuda" else None)

    def record_event(self) -> Event:
        """Record an event after the work queued so far."""
        return None if self.stream is None else self.stream.record_event()

    def wait_event(self, event: Event) -> AbstractContextManager[None]:
        """Let later work wait for an event; within the context, work goes to this stream."""
        if self.stream is None or event is None:
            return nullcontext()
        self.stream.wait_event(event)
        return torch.cuda.stream(self.stream)

    def synchronize(self) -> None:
        if self.stream is not None:
            self.stream.synchronize()


class OffloadedWeights:
    """Frozen weights that are in host memory except during a pass.

    They are copied to the device all at once, since they need no more memory than the gradients
    that follow.
    """

    def __init__(self, weights: Sequence[nn.Parameter], device: torch.device) -> None:
        self.weights = list(weights)
        self.device = device
        for weight in self.weights:
            weight.data = host_zeros(weight.shape, weight.dtype).copy_(weight.detach())

    @contextmanager
    def on_device(self) -> Iterator[None]:
        """Copy the weights to the device for a block, and free them there afterwards."""
        host = [weight.data for weight in self.weights]
        for weight, tensor in zip(self.weights, host, strict=True):
            weight.data = tensor.to(self.device, non_blocking=True, copy=True)
        try:
            yield
        finally:
            for weight, tensor in zip(self.weights, host, strict=True):
                weight.data = tensor


def host_zeros(shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """Allocate zeros in host memory, pinned where there is a GPU.

    Torch rounds pinned memory up to powers of two, which for a large model wastes up to half as
    much again.
    """
    count = torch.Size(shape).numel()
    mapping = mmap.mmap(-1, count * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(AttributeError, OSError):  # not every kernel has large pages
        mapping.madvise(mmap.MADV_HUGEPAGE)
    # All threads touch the pages here, so that pinning them is fast.
    zeros = torch.frombuffer(mapping, dtype=dtype).zero_()
    if torch.cuda.is_available():
        _register(mapping, zeros)
    return zeros.view(torch.Size(shape))


def _register(mapping: mmap.mmap, zeros: Tensor) -> None:
    """Pin memory; where the driver refuses, copies are slower."""
    runtime, address = torch.cuda.cudart(), zeros.data_ptr()  # type: ignore[no-untyped-call]
    if runtime.cudaHostRegister(address, zeros.nbytes, 0) == runtime.cudaError.success:
        weakref.finalize(mapping, runtime.cudaHostUnregister, address).atexit = False
    else:
        with suppress(RuntimeError):  # clear the error, or the next launch reports it
            torch.zeros(1, device="cuda").add_(1)


def _copy(sources: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source, non_blocking=True)
