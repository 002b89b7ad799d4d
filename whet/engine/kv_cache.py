"""The KV cache interface: dense on a CPU, paged on a GPU. Shapes: Q rows that move."""

from typing import Protocol

from whet.engine.input_batch import HostTransfer, InputBatch
from whet.engine.scheduler import CacheAllocator, PrefillPass
from whet.models.transformer import Attend, Transformer
from whet.types import Indices


class KVCache(Protocol):
    """Keys and values of all layers. On a GPU its calls only enqueue work."""

    is_async: bool
    """Whether the host reads the tokens of a window while the next one runs."""
    chunked: bool
    """Whether a long context can be prefilled in chunks."""

    @property
    def allocator(self) -> CacheAllocator: ...

    def refresh_weights(self) -> None:
        """Use the current weights; for the start of a call, and after weights change."""
        ...

    def prefill(self, chunks: PrefillPass, transfer: HostTransfer) -> Attend:
        """Return attention over chunks and the cached tokens before them; it caches the chunks."""
        ...

    def copy_shared_pages(self, transfer: HostTransfer) -> None:
        """Copy cached prompt tokens that new rows cannot share in place."""
        ...

    def move(self, source_Q: Indices, target_Q: Indices) -> None:
        """Move rows into gaps."""
        ...

    def decode_window(
        self, batch: InputBatch, num_rows: int, *, steps: int, longest: int, is_truncated: bool
    ) -> int:
        """Decode `steps` tokens of the first rows, whose caches grow to at most `longest` tokens.

        Returns how many rows each step computed, padding included.
        """
        ...


class BuildCache(Protocol):
    """Builds the cache of a model; called on first use, and again after `sleep`."""

    def __call__(self, model: Transformer, *, slots: int, context: int) -> KVCache: ...
