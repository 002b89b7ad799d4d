"""The progress of a teacher: a small file in the run folder, written every few seconds.

`whet teach status` reads the files of all shards; the writer of an old one is dead.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import Field

from whet.config import Config
from whet.errors import ConfigError, DataError
from whet.store.files import read_object, write_json
from whet.user_code import validate_settings

EVERY_SECONDS = 5.0
DEAD_SECONDS = 60.0
"""Age of a file whose writer counts as dead."""
FILE = "progress.json"


class TeachProgress(Config):
    """Counts of one shard, or of a run without shards."""

    wanted: int = 0
    """Responses in all."""
    done: int = 0
    failed: int = 0
    """Requests that failed permanently."""
    graded: int = 0
    kept: int = 0
    """Graded responses that the rule keeps, as far as it can tell."""
    prompt_tokens: int = 0
    tokens: int = 0
    cost: float = 0.0
    rate: float = 0.0
    """Responses per second since the start of this attempt."""
    token_rate: float = 0.0
    state: Literal["running", "stopped", "finished"] = "running"
    time: float = Field(default_factory=time.time)
    """Seconds since 1970, when this was written."""
    host: str = Field(default_factory=socket.gethostname)
    process: int = Field(default_factory=os.getpid)

    @property
    def left(self) -> float:
        """The seconds until the remaining responses are done."""
        missing = self.wanted - self.done - self.failed
        return missing / self.rate if self.rate else float("inf")

    def is_dead(self, now: float) -> bool:
        return self.state == "running" and now - self.time > DEAD_SECONDS


def read_teach_progress(folder: Path) -> TeachProgress | None:
    """Read the progress of a run or shard folder; None if it has not started."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        return validate_settings(TeachProgress, read_object(path))
    except ConfigError as error:
        raise DataError(f"{path} is not the progress file of a teacher: {error}") from error


def write_progress(folder: Path, progress: TeachProgress) -> None:
    """Write the progress file atomically."""
    write_json(folder / FILE, progress.model_dump())


@contextmanager
def beat(folder: Path, look: Callable[[], TeachProgress]) -> Iterator[None]:
    """Write the progress now and every few seconds from a thread, until the block ends."""
    is_over = threading.Event()

    def write() -> None:
        write_progress(folder, look())
        while not is_over.wait(EVERY_SECONDS):
            write_progress(folder, look())

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        write_progress(folder, look().model_copy(update={"state": "stopped"}))
