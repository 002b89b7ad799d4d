"""Write checkpoints in a thread while training goes on."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from whet.errors import DataError, WhetError
from whet.world import get_world


@dataclass(frozen=True, slots=True, kw_only=True)
class _Write:
    name: str
    result: Future[None]
    finish: Callable[[], None]


class BackgroundWriter:
    """Writes in a thread, one thing at a time. All ranks call its methods together."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="writer")
        self._pending: _Write | None = None

    def start(
        self, name: str, write: Callable[[], None], finish: Callable[[], None] = lambda: None
    ) -> None:
        """Wait for the write before, then start another; its error will call it by `name`.

        `write` runs in the thread and exchanges nothing with other ranks. `finish`, which may, runs
        in a later call, once all ranks have written: it makes what was written visible.
        """
        self.wait()
        self._pending = _Write(name=name, result=self._pool.submit(write), finish=finish)

    def check(self) -> None:
        """Finish a write that has ended on all ranks, or raise its error; for every step."""
        if self._pending is None:
            return
        is_done = get_world().all_gather(self._pending.result.done(), "a write in the background")
        if all(is_done):
            self.wait()

    def wait(self) -> None:
        """Wait until all ranks have written what was started, and finish it, or raise its error."""
        pending = self._pending
        self._pending = None
        if pending is None:
            return
        reason = None
        try:
            pending.result.result()
        except WhetError as error:
            reason = str(error)
        for other in get_world().all_gather(reason, f"the end of writing {pending.name}"):
            if other is not None:
                raise DataError(f"{pending.name} was not written: {other}")
        pending.finish()
