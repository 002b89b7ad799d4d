"""The user's cache folder of `whet view`, where `whet replay --tokens` leaves token quantities of
rollouts. Run folders are never written."""

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
    """Return the viewer's cache folder, by the XDG rules."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return home / "whet" / "view"


def write_token_columns(cache: Path, rollouts: Path, columns: Mapping[str, TokenColumns]) -> Path:
    """Write the token quantities of a file's rollouts, by id; return the path."""
    names = sorted({name for row in columns.values() for name in row})
    table = pa.table(
        {
            "id": pa.array(list(columns), pa.string()),
            **{
                name: pa.array([row.get(name) for row in columns.values()], pa.list_(pa.float32()))
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
    """Read the token quantities of a rollout; empty if its file has changed since."""
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
