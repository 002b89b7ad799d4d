"""The ranks of a run: each runs the recipe; they split sampling, log-probabilities and gradients.

A single process is a world of size 1, which exchanges nothing and does not import
torch.distributed. `whet/cluster/ranks.py` has the world of several processes, as torchrun starts
them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from pydantic import Field

from whet.config import Config

T = TypeVar("T")


class ClusterConfig(Config):
    """How ranks share a model and save it; a run may resume with other values."""

    shard: int | None = Field(default=None, ge=1)
    """Ranks that one copy of the trained weights and the optimizer is sharded over; further ranks
    hold replicas; none shards over all ranks."""
    sequence_parallel: int = Field(default=1, ge=1, le=8)
    """Ranks that share the tokens of each sequence, for responses too long for one GPU."""
    timeout: float = Field(default=600.0, gt=0)
    """Seconds that a rank waits for the others before the run ends."""
    background_saves: bool = False
    """Write checkpoints from a copy in host memory while training continues."""


class World:
    """The ranks that run a recipe together; this class is a single one."""

    rank = 0
    size = 1
    is_restarted = False
    """Whether ranks ran before and failed, so that the run continues from its last checkpoint."""

    @property
    def is_rank_zero(self) -> bool:
        """Whether this rank writes the run folder and prints."""
        return self.rank == 0

    def all_gather(self, part: T, tag: str) -> list[T]:
        """Return the parts of all ranks, in rank order.

        All ranks must make the same call, which `tag` names; different tags are an error.
        """
        return [part]

    def run_on_rank_zero(self, act: Callable[[], T], tag: str) -> T:
        """Run a function on rank 0; all ranks get its result, or raise its error."""
        return act()

    def for_thread(self) -> "World":
        """Return a world of the same ranks with its own collectives, for a second thread."""
        return self

    def configure(self, cluster: ClusterConfig) -> None:
        """Apply the cluster settings of a stage."""

    def explain(self, error: Exception) -> Exception | None:
        """Name the ranks that caused a failed collective; None for any other error."""
        return None

    def split_between_ranks(self, items: list[T]) -> list[T]:
        """Return this rank's items; `merge_from_ranks` undoes it."""
        return items[self.rank :: self.size]

    def merge_from_ranks(self, part: list[T], tag: str) -> list[T]:
        """Return the items of all ranks in their order before `split_between_ranks`."""
        parts = self.all_gather(part, tag)
        count = sum(len(items) for items in parts)
        return [parts[index % self.size][index // self.size] for index in range(count)]


_world = World()
_thread_world: ContextVar[World | None] = ContextVar("_thread_world", default=None)


def get_world() -> World:
    """Return this thread's world if it has one, else the process's."""
    return _thread_world.get() or _world


@contextmanager
def world_of_thread(world: World) -> Iterator[None]:
    """Use a world from `World.for_thread` in this thread."""
    token = _thread_world.set(world)
    try:
        yield
    finally:
        _thread_world.reset(token)


def set_world(world: World) -> None:
    """Set the world of the process."""
    global _world
    _world = world
