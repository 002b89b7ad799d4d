"""The lock of a run folder: one process writes it."""

import fcntl
import os
from pathlib import Path

from whet.errors import ConfigError
from whet.store.files import write_errors


class Lock:
    """Hold a folder's `.lock` until `close`; the error names another process that holds it.

    The lock is released when its process ends, so it is never stale.
    """

    def __init__(self, folder: Path) -> None:
        with write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(self._descriptor, 32).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise ConfigError(
                f"{folder} is being written by process {holder}: wait for it, or choose another "
                "folder"
            ) from error
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"{os.getpid()}\n".encode())
        _locked.add(self._descriptor)

    def close(self) -> None:
        if self._descriptor in _locked:
            _locked.remove(self._descriptor)
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)


_locked: set[int] = set()


def _unlock_in_child() -> None:
    """Close forked copies, or a worker that outlives a killed run would keep it locked."""
    for descriptor in _locked:
        os.close(descriptor)
    _locked.clear()


os.register_at_fork(after_in_child=_unlock_in_child)


def is_locked(folder: Path) -> bool:
    """Whether a process on this machine, or another one that shares the folder, is writing."""
    try:
        descriptor = os.open(folder / ".lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
