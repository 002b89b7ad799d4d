"""Files of JSON lines: append a row, read them all, keep some. A broken line is named by file and number."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from whet.errors import DataError
from whet.store.files import replacing, write_atomic, writing
from whet.types import Json, compact

Row = dict[str, Json]


def append(path: Path, row: Mapping[str, Json]) -> None:
    """Add a row in one write; where the disk takes only a part of it, the part is taken back."""
    line = to_line(row)
    with writing(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            _write_whole(descriptor, line)
        finally:
            os.close(descriptor)


def write_rows(path: Path, rows: Iterable[Mapping[str, Json]]) -> None:
    """Write a whole file of rows, or nothing."""
    with replacing(path) as new, new.open("wb") as file:
        file.writelines(to_line(row) for row in rows)


def read_rows(path: Path, *, repair: bool = False) -> list[Row]:
    """Read all rows. With `repair`, a last line that a kill cut short is left out; that is for files we append to.

    The file itself stays as it is.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    lines = content.split(b"\n")
    if repair:
        lines[-1] = b""
    return [_row(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def cut(path: Path, keep: Callable[[Row], bool]) -> None:
    """Rewrite one of our own append files with the rows to keep, and without a last line cut short by a kill."""
    if path.exists():
        write_atomic(path, b"".join(to_line(row) for row in read_rows(path, repair=True) if keep(row)))


def to_line(row: Mapping[str, Json]) -> bytes:
    return compact(row) + b"\n"


def _write_whole(descriptor: int, line: bytes) -> None:
    before = os.fstat(descriptor).st_size
    try:
        done = 0
        while done < len(line):
            done += os.write(descriptor, line[done:])
    except OSError:
        with suppress(OSError):  # what is no plain file keeps nothing to take back
            os.ftruncate(descriptor, before)
        raise


def _row(path: Path, number: int, line: bytes) -> Row:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise DataError(f"broken JSON in {path} line {number}: {error}") from error
    if not isinstance(row, dict):
        raise DataError(f"{path} line {number} holds {line.decode()[:80]}, which should be an object like {{...}}")
    return row
