"""Files of JSON lines: append a row, read them all, keep some. A broken line is named by file and
number."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import isinf
from pathlib import Path

from whet.errors import DataError
from whet.store.files import replacing, write_atomic, writing
from whet.types import Json, compact

Row = dict[str, Json]


def finite_number(text: str) -> float:
    """Read a number of JSON; one that is too large to be finite is a ValueError."""
    if isinf(number := float(text)):
        raise ValueError(f"{text} is more than a number can be")
    return number


def _not_json(name: str) -> None:
    raise ValueError(f"{name} is not a number that JSON knows")


def _finite_or_none(text: str) -> float | None:
    return None if isinf(number := float(text)) else number


_STRICT = json.JSONDecoder(parse_constant=_not_json, parse_float=finite_number)
_LENIENT = json.JSONDecoder(parse_constant=lambda name: None, parse_float=_finite_or_none)


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
    """Read all rows. NaN and infinities, which are no JSON, are refused.

    With `repair` they are read as null, and a last line that a kill cut short is left out; that is
    for files we append to. The file itself stays as it is.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    lines = content.split(b"\n")
    if repair:
        lines[-1] = b""
    decoder = _LENIENT if repair else _STRICT
    return [
        _row(path, number, line, decoder)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]


def cut(path: Path, keep: Callable[[Row], bool]) -> None:
    """Rewrite one of our own append files with the rows to keep, and without a last line cut short
    by a kill."""
    if path.exists():
        write_atomic(
            path, b"".join(to_line(row) for row in read_rows(path, repair=True) if keep(row))
        )


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


def _row(path: Path, number: int, line: bytes, decoder: json.JSONDecoder) -> Row:
    try:
        row = decoder.decode(line.decode(json.detect_encoding(line), "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"broken JSON in {path} line {number}: {error}") from error
    if not isinstance(row, dict):
        raise DataError(
            f"{path} line {number} holds {line.decode(errors='replace')[:80]}, which should be an object like {{...}}"
        )
    return row
