"""What the engine asks of a key/value cache. There are two: dense rows for a CPU, pages for a GPU.

Shapes: S pieces of context, T their tokens laid end to end, B rows, M rows or pages that are
copied.
"""

from typing import Protocol

from whet.engine.prompts import Layout
from whet.engine.rows import Rows
from whet.engine.scheduler import Room
from whet.engine.sequences import Indices
from whet.engine.transfer import Link
from whet.models.transformer import Attend, Transformer


class Store(Protocol):
    """Keys and values of all layers for the rows that `room` keeps the books of."""

    has_lag: bool
    """The host looks at a window while the next one runs."""
    splits: bool
    """A long context can be run in pieces."""
    is_recorded: bool
    """A decode step depends on sizes and addresses alone, so it can be recorded as a graph."""

    @property
    def room(self) -> Room: ...

    def start(self) -> None:
        """Begin a call of the engine: weights may have moved since the last one."""
        ...

    def holds(self, tokens: int) -> bool:
        """Say whether a request of so many tokens can ever run."""
        ...

    def prefill(self, layout: Layout, link: Link) -> Attend:
        """Attend within pieces of context and to what is cached of them, and file their keys and
        values."""
        ...

    def copy(self, longest: int, link: Link) -> None:
        """Copy what rows that begin now share with others, once it has been filed."""
        ...

    def move(self, source_M: Indices, target_M: Indices) -> None:
        """Follow rows that move to close gaps."""
        ...

    def sync(self, num_rows: int, longest: int, link: Link) -> None:
        """Bring what the next window needs to the device."""
        ...

    def decode(self, rows: Rows, size: int, longest: int) -> Attend:
        """Attend from the newest token of the first `size` rows to all that each has cached."""
        ...


class Build(Protocol):
    """Makes a store for a model; called on first use, and again after sleep."""

    def __call__(self, model: Transformer, *, slots: int, context: int) -> Store: ...
