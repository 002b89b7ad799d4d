"""What the engine asks of a KV cache: dense rows on a CPU, pages on a GPU.

Shapes: S pieces of context, T their tokens laid end to end, B rows, M rows or pages that are
copied.
"""

from typing import Protocol

from whet.engine.prefill import Layout
from whet.engine.row_state import Rows
from whet.engine.scheduler import BlockAllocator
from whet.engine.sequences import Indices
from whet.engine.transfer import Link
from whet.models.transformer import Attend, Transformer


class KVCache(Protocol):
    """Keys and values of all layers for the rows that `room` keeps the books of."""

    has_lag: bool
    """The host looks at a window while the next one runs."""
    splits: bool
    """A long context can be run in pieces."""

    @property
    def allocator(self) -> BlockAllocator: ...

    def start(self) -> None:
        """Begin a call of the engine: weights may have moved since the last one."""
        ...

    def holds(self, tokens: int) -> bool:
        """Say whether a request of so many tokens can ever run."""
        ...

    def prefill(self, layout: Layout, link: Link) -> Attend:
        """Attend within pieces of context and to what is cached of them, and cache the pieces."""
        ...

    def copy(self, longest: int, link: Link) -> None:
        """Copy what rows that begin now share with others, once it has been filed."""
        ...

    def move(self, source_M: Indices, target_M: Indices) -> None:
        """Follow rows that move to close gaps."""
        ...

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
        """Decode `steps` tokens of the first rows, which will have cached `longest` at most.

        Returns how many rows each step computed, padding included.
        """
        ...


class Build(Protocol):
    """Makes a cache for a model; called on first use, and again after sleep."""

    def __call__(self, model: Transformer, *, slots: int, context: int) -> KVCache: ...


def decode_step(
    model: Transformer, rows: Rows, used: slice, attend: Attend, *, has_cuts: bool
) -> None:
    """Run the newest token of some rows through the model, and sample the next."""
    hidden_BH = model(rows.token_R[used], rows.position_of(used), attend)
    rows.record(used, *rows.choose(used, model.logits(hidden_BH), has_cuts))
