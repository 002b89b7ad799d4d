"""Rows of a data file, one at a time: JSON lines, a JSON list, CSV or Parquet. No file is held in
memory whole.

A row that cannot be read is a DataError that names the file and the line. NaN, which pandas writes
where a value is missing, is read as null.
"""

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from whet.data.json_list import MAX_ROW, JsonList, constant
from whet.data.parquet import read_table
from whet.errors import DataError
from whet.store.files import finite_number
from whet.types import Json

Row = dict[str, Json]
Advance = Callable[[int], None]
"""Told how many bytes of the file have just been read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """The fields of a row, and where it stands: "line 12" of a text, "row 12" of a list or a
    table."""

    place: str
    fields: Row


def read_source(file: Path, *, advance: Advance | None = None) -> Iterator[SourceRow]:
    """Read the rows of a file; its name says what it is. A list in a JSON list becomes the field
    `values`."""
    reader = READERS.get(kind_of_file(file))
    if reader is None:
        raise DataError(f"{file} is not a data file: its name should end in {', '.join(READERS)}")
    if not file.is_file():
        raise DataError(f"there is no file {file}")
    try:
        yield from reader(file, advance or _ignore)
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8 text ({error.reason}); save it as UTF-8") from error
    except (OSError, EOFError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"cannot read {file}: {reason}") from error


def kind_of_file(file: Path) -> str:
    """Tell a file's kind from its name.

    >>> kind_of_file(Path("data/train.jsonl")), kind_of_file(Path("HumanEval.JSONL.gz"))
    ('.jsonl', '.jsonl.gz')
    """
    name = file.name.lower()
    return next(
        (ending for ending in sorted(READERS, key=len, reverse=True) if name.endswith(ending)), ""
    )


def _ignore(count: int) -> None:
    pass


def _json_lines(file: Path, advance: Advance) -> Iterator[SourceRow]:
    with file.open("rb") as binary:
        yield from _lines(file, binary, advance)


def _zipped_lines(file: Path, advance: Advance) -> Iterator[SourceRow]:
    with file.open("rb") as packed, gzip.open(packed) as binary:
        place = 0

        def advance_packed(count: int) -> None:
            nonlocal place
            advance(packed.tell() - place)
            place = packed.tell()

        yield from _lines(file, binary, advance_packed)


def _lines(file: Path, binary: BinaryIO | gzip.GzipFile, advance: Advance) -> Iterator[SourceRow]:
    number = 0
    while line := binary.readline(MAX_ROW + 1):
        number += 1
        advance(len(line))
        if len(line) > MAX_ROW:
            raise DataError(
                f"{file} line {number} is longer than {MAX_ROW >> 20} MiB; is it one row a line?"
            )
        line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if line.strip():
            yield _parsed(file, f"line {number}", line.decode())


def _parsed(file: Path, place: str, text: str) -> SourceRow:
    try:
        value: Json = json.loads(text, parse_constant=constant, parse_float=finite_number)
    except (ValueError, RecursionError) as error:
        raise DataError(f"broken JSON in {file} {place}: {error}") from error
    return _row(file, place, value)


def _row(file: Path, place: str, value: Json) -> SourceRow:
    if not isinstance(value, dict):
        raise DataError(
            f"{file} {place} holds {json.dumps(value)[:80]}, which should be an object like {{...}}"
        )
    return SourceRow(place=place, fields=value)


def _json(file: Path, advance: Advance) -> Iterator[SourceRow]:
    """Read a list of objects or of lists; a file that opens with an object is read as JSON
    lines."""
    with file.open("rb") as binary:
        first = binary.read(1 << 16).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if first != b"[":
        yield from _json_lines(file, advance)
        return
    with file.open("rb") as binary:
        items = JsonList(io.TextIOWrapper(binary, encoding="utf-8-sig"), file, advance)
        for number, value in enumerate(items, start=1):
            fields: Json = {"values": value} if isinstance(value, list) else value
            yield _row(file, f"row {number}", fields)


def _csv(file: Path, advance: Advance, *, delimiter: str = ",") -> Iterator[SourceRow]:
    csv.field_size_limit(MAX_ROW)
    with file.open("r", encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(_counted(text, advance), delimiter=delimiter, strict=True)
        try:
            header = next(reader, [])
            if len(set(header)) < len(header) or not any(header):
                raise DataError(f"{file} line 1 should name every column once, not {header}")
            for cells in reader:
                if len(cells) != len(header) and cells:
                    what = f"{len(cells)} cells where the header has {len(header)}"
                    raise DataError(f"{file} line {reader.line_num} has {what}")
                if cells:
                    yield SourceRow(
                        place=f"line {reader.line_num}",
                        fields=dict(zip(header, cells, strict=True)),
                    )
        except csv.Error as error:
            raise DataError(f"{file} line {reader.line_num} is not CSV: {error}") from error


def _tsv(file: Path, advance: Advance) -> Iterator[SourceRow]:
    yield from _csv(file, advance, delimiter="\t")


def _counted(lines: Iterator[str], advance: Advance) -> Iterator[str]:
    for line in lines:
        advance(len(line.encode(errors="replace")))
        yield line


def _parquet(file: Path, advance: Advance) -> Iterator[SourceRow]:
    for number, fields in enumerate(read_table(file, advance), start=1):
        yield SourceRow(place=f"row {number}", fields=fields)


READERS: dict[str, Callable[[Path, Advance], Iterator[SourceRow]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".jsonl.gz": _zipped_lines,
    ".json": _json,
    ".csv": _csv,
    ".tsv": _tsv,
    ".parquet": _parquet,
}
