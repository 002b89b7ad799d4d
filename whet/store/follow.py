"""The run folder for several ranks: the first one writes, the others read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from whet.config import Config
from whet.store.lock import Lock
from whet.store.run import RolloutSet, RunStore
from whet.types import Group, Json
from whet.world import get_world


class ReadOnlyRun(RunStore):
    """A run that the first rank writes; writes by other ranks do nothing."""

    def pin_inputs(self, hashes: Mapping[str, str]) -> None: ...

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def log_event(self, event: str, **facts: Json) -> None: ...

    def write_rollouts(self, name: RolloutSet, step: int, groups: Iterable[Group]) -> Path:
        return self.rollout_file(name, step)

    def write_eval(self, step: int, result: Mapping[str, Json]) -> None: ...

    def rewind(self, step: int) -> None: ...

    def list_lost_results(self, step: int) -> list[str]:
        return []

    def finish(self, summary: Mapping[str, Json]) -> None: ...


def open_run(
    folder: Path,
    config: Config,
    origin: Mapping[str, str],
    *,
    resume: bool,
    ignore: Sequence[str] = (),
) -> RunStore:
    """Open a run by `RunStore.open` on the first rank, and read-only on the others."""
    world = get_world()
    store: RunStore | None = None

    def start() -> None:
        nonlocal store
        store = RunStore.open(folder, config, origin, resume=resume, ignore=ignore)

    world.run_on_rank_zero(start, f"the run in {folder.name}")
    return store or ReadOnlyRun(folder, lock=None)


@contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Lock a folder against other commands, on the first rank."""
    lock = Lock(folder) if get_world().is_rank_zero else None
    try:
        yield
    finally:
        if lock is not None:
            lock.close()
