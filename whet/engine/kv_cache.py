"""What the engine asks of a KV cache: dense rows on a CPU, pages on a GPU.

Shapes: Q rows that move.
"""

from typing import Protocol

from whet.engine.input_batch import HostTransfer, InputBatch
from whet.engine.scheduler import BlockAllocator, Indices, PrefillPass
from whet.models.transformer import Attend, Transformer


class KVCache(Protocol):
    """Keys and values of all layers. Its calls only enqueue work."""

    has_lag: bool
    """The host looks at a window while the next one runs."""
    splits: bool
    """A long context can be run in chunks."""

    @property
    def allocator(self) -> BlockAllocator: ...

    def start(self) -> None:
        """Begin a call of the engine: weights may have moved since the last one."""
        ...

    def prefill(self, chunks: PrefillPass, transfer: HostTransfer) -> Attend:
        """Attend within chunks of context and to what is cached of them, and cache the chunks."""
        ...

    def copy_shared(self, transfer: HostTransfer) -> None:
        """Copy what rows that begin now share with others, once it is cached."""
        ...

    def move(self, source_Q: Indices, target_Q: Indices) -> None:
        """Follow rows that move to close gaps."""
        ...

    def decode_window(
        self, batch: InputBatch, num_rows: int, *, steps: int, longest: int, is_truncated: bool
    ) -> int:
        """Decode `steps` tokens of the first rows, which will have cached `longest` at most.

        Returns how many rows each step computed, padding included.
        """
        ...


class BuildCache(Protocol):
    """Makes a cache for a model; called on first use, and again after sleep."""

    def __call__(self, model: Transformer, *, slots: int, context: int) -> KVCache: ...
