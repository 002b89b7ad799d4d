"""The ranks of a run: every rank runs the recipe, and sampling, log-probabilities and gradients are
split between them.

One process is a world of one, where nothing is exchanged and torch.distributed is not imported.
`whet/cluster/ranks.py` has a world of several processes, as torchrun starts them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from pydantic import Field

from whet.config import Config

T = TypeVar("T")


class ClusterConfig(Config):
    """How ranks share a model and save it; a run may be resumed with other values."""

    shard: int | None = Field(default=None, ge=1)
    """Ranks that share one copy of the trained weights and the optimizer; the others have further
    copies; none is all ranks."""
    sequence_parallel: int = Field(default=1, ge=1, le=8)
    """Ranks that share the tokens of each sequence, for responses too long for one GPU."""
    timeout: float = Field(default=600.0, gt=0)
    """Seconds that a rank waits for the others before the run ends."""
    background_saves: bool = False
    """Write checkpoints from a copy in host memory while training continues."""


class World:
    """The ranks that run this recipe together; here a single one."""

    rank = 0
    size = 1
    is_restarted = False
    """Whether ranks ran before and failed, so that the run continues from its last checkpoint."""

    @property
    def is_rank_zero(self) -> bool:
        """Whether this rank writes the run folder and prints."""
        return self.rank == 0

    def all_gather(self, part: T, tag: str) -> list[T]:
        """Return the parts of all ranks, in their order.

        Ranks must call it at the same place, which `tag` names; it is an error if they differ.
        """
        return [part]

    def run_on_rank_zero(self, act: Callable[[], T], tag: str) -> T:
        """Run a function on rank 0; all ranks get its result, or raise its error."""
        return act()

    def for_thread(self) -> "World":
        """Return a world of the same ranks for a second thread, whose collectives are separate;
        ranks call it together."""
        return self

    def configure(self, cluster: ClusterConfig) -> None:
        """Arrange the ranks as a stage asks for."""

    def explain(self, error: Exception) -> Exception | None:
        """Say in a sentence which ranks caused an error, if they did."""
        return None

    def split_between_ranks(self, items: list[T]) -> list[T]:
        """Return this rank's items; `merge_from_ranks` undoes it."""
        return items[self.rank :: self.size]

    def merge_from_ranks(self, part: list[T], tag: str) -> list[T]:
        """Return the items of all ranks in the order that they had before `split_between_ranks`."""
        parts = self.all_gather(part, tag)
        count = sum(len(items) for items in parts)
        return [parts[index % self.size][index // self.size] for index in range(count)]


_world = World()
_thread_world: ContextVar[World | None] = ContextVar("_thread_world", default=None)


def get_world() -> World:
    """Return this thread's world if it has one, else that of the process."""
    return _thread_world.get() or _world


@contextmanager
def world_of_thread(world: World) -> Iterator[None]:
    """Let a thread use its own world, from `World.for_thread`."""
    token = _thread_world.set(world)
    try:
        yield
    finally:
        _thread_world.reset(token)


def set_world(world: World) -> None:
    """Make this the world of the process."""
    global _world
    _world = world
