"""One writer a folder: a lock that dies with its process, so that none is ever stale."""

import fcntl
import os
from pathlib import Path

from whet.errors import ConfigError
from whet.store.files import writing

_held: set[int] = set()


class Lock:
    """Hold a folder's `.lock` until `close`, or fail with a sentence that names the process holding
    it."""

    def __init__(self, folder: Path) -> None:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(self._descriptor, 32).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise ConfigError(
                f"{folder} is being written by process {holder}: wait for it, or choose another folder"
            ) from error
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"{os.getpid()}\n".encode())
        _held.add(self._descriptor)

    def close(self) -> None:
        if self._descriptor in _held:
            _held.remove(self._descriptor)
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)


def _let_go_in_child() -> None:
    """Close the forked copies: a worker that outlives a killed run would keep it locked."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)
