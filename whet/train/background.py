"""Write checkpoints in a thread while training goes on."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from torch import Tensor

from whet.errors import DataError


def copy_to_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors to memory that the next step does not change, for a write in the background."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


class BackgroundWriter:
    """Runs one write at a time in a thread.

    A write may be `Checkpoints.save`, whose folder appears when it is complete. On several ranks,
    it must not use a process group that training uses at the same time.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="writer")
        self._pending: Future[object] | None = None
        self._name = ""

    def start(self, name: str, write: Callable[[], object]) -> None:
        """Wait for the write before, then start one; `name` says in its error what is missing."""
        self.wait()
        self._name = name
        self._pending = self._pool.submit(write)

    def check(self) -> None:
        """Raise the error of a write that failed since the last call; does not wait."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Wait until what was started is on disk."""
        pending = self._pending
        self._pending = None
        try:
            if pending is not None:
                pending.result()
        except DataError as error:
            raise DataError(f"{self._name} was not written: {error}") from error
