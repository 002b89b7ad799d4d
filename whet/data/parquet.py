"""The rows of a Parquet file as plain JSON values, a few megabytes at a time.

Arrow cannot hold more than 2 GiB of text in one nested array, which whole row groups of large sets
pass; a batch of rows never does.
"""

import base64
from collections.abc import Callable, Iterator
from datetime import date, time
from math import isnan
from pathlib import Path

import pyarrow.parquet as pq

from whet.types import Json

BATCH_BYTES = 1 << 24
"""About this much is decoded at a time."""
MAX_BATCH = 1024
"""Rows at a time: repeated text is small in the file and large outside it."""


def read_table(file: Path, advance: Callable[[int], None]) -> Iterator[dict[str, Json]]:
    """Read row by row; `advance` is told the bytes of the file that stand for what was read."""
    size = file.stat().st_size
    with pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False) as table:
        total = max(table.metadata.num_rows, 1)
        for group in range(table.num_row_groups):
            about = table.metadata.row_group(group)
            rows = max(
                1, min(MAX_BATCH, BATCH_BYTES * about.num_rows // max(about.total_byte_size, 1))
            )
            for batch in table.iter_batches(batch_size=rows, row_groups=[group], use_threads=False):
                for row in batch.to_pylist():
                    yield {name: plain(value) for name, value in row.items()}
                advance(size * batch.num_rows // total)


def plain(value: object) -> Json:
    """Turn what Arrow gives into JSON values: NaN as null, dates and decimals as text, bytes as
    text or base64."""
    if isinstance(value, float):
        return None if isnan(value) else value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return _text(value)
    return value.isoformat() if isinstance(value, date | time) else str(value)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()
