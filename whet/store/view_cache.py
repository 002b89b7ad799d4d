"""The folder in the user's cache that `whet view` keeps, and what `whet replay --tokens` leaves
there: numbers per token of the rollouts in one file. Runs themselves are never written.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from whet.store.files import atomic_path
from whet.types import Floats

TokenColumns = Mapping[str, Floats]
"""Numbers per token by name, such as `entropy`, over the response of one rollout."""
STAMP = b"stamp"
"""The key under which a file records the rollout file it was computed from, with its size and
time."""


def cache_folder() -> Path:
    """Name the folder of the viewer, by the XDG rules."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return home / "whet" / "view"


def write_token_columns(cache: Path, rollouts: Path, columns: Mapping[str, TokenColumns]) -> Path:
    """Write what was computed of the rollouts of a file, by their ids; return where it is."""
    names = sorted({name for each in columns.values() for name in each})
    table = pa.table(
        {
            "id": pa.array(list(columns), pa.string()),
            **{
                name: pa.array(
                    [each.get(name) for each in columns.values()], pa.list_(pa.float32())
                )
                for name in names
            },
        }
    )
    path = _name_file(cache, rollouts)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with atomic_path(path) as new:
        pq.write_table(table.replace_schema_metadata({STAMP: _stamp(rollouts)}), new)
    return path


def read_token_columns(cache: Path, rollouts: Path, rollout_id: str) -> dict[str, Floats]:
    """Read what was computed of one rollout: nothing, where the file of rollouts has changed."""
    path = _name_file(cache, rollouts)
    if not path.is_file():
        return {}
    metadata = pq.read_schema(path).metadata or {}
    if metadata.get(STAMP) != _stamp(rollouts):
        return {}
    rows = pq.read_table(path, filters=[("id", "=", rollout_id)]).to_pylist()[:1]
    return {
        name: np.array(values, dtype=np.float32)
        for row in rows
        for name, values in row.items()
        if isinstance(values, list)
    }


def _name_file(cache: Path, rollouts: Path) -> Path:
    key = hashlib.sha256(str(rollouts.resolve()).encode()).hexdigest()[:24]
    return cache / "tokens" / f"{key}.parquet"


def _stamp(rollouts: Path) -> bytes:
    facts = rollouts.stat()
    return f"{facts.st_size}:{facts.st_mtime_ns}".encode()
