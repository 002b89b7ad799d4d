"""Stream the rows of a data file: JSON lines, a JSON list, CSV or Parquet.

No file is loaded as a whole. An unreadable row raises a DataError with its file and line. NaN,
which pandas writes for missing values, is read as null.
"""

import base64
import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, time
from functools import partial
from itertools import count
from math import isnan
from pathlib import Path
from typing import BinaryIO, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from whet.errors import DataError
from whet.store.files import Row, parse_finite
from whet.types import Advance, Json

MAX_ROW_BYTES = 1 << 28
"""Most bytes or characters of a row; longer ones are refused, so that a broken file cannot fill the
memory."""
_CHUNK = 1 << 16
BATCH_BYTES = 1 << 24
"""Approximate number of bytes decoded at a time."""
MAX_BATCH = 1024
"""Most rows decoded at a time; repeated text is small in the file but large in memory."""
_NUMBERED = re.compile(rb'\{\s*"[0-9]+"\s*:\s*\{')


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """The fields of a row and its location: "line 12" of a text, "row 12" of a list or table."""

    location: str
    fields: Row


def iterate_rows(file: Path, *, advance: Advance | None = None) -> Iterator[SourceRow]:
    """Read the rows of a file in the format of its ending; lists and texts in a JSON list become
    fields."""
    reader = READERS.get(file_ending(file))
    if reader is None:
        raise DataError(f"{file} is not a data file: its name should end in {', '.join(READERS)}")
    if not file.is_file():
        raise DataError(f"there is no file {file}")
    try:
        yield from reader(file, advance or (lambda count: None))
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8 text ({error.reason}); save it as UTF-8") from error
    except (OSError, EOFError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"cannot read {file}: {reason}") from error


def file_ending(file: Path) -> str:
    """Return the ending that says how a file is read.

    >>> file_ending(Path("data/train.jsonl")), file_ending(Path("HumanEval.JSONL.gz"))
    ('.jsonl', '.jsonl.gz')
    """
    name = file.name.lower()
    endings = [ending for ending in READERS if name.endswith(ending)]
    return max(endings, key=len, default="")


def _read_json_lines(file: Path, advance: Advance) -> Iterator[SourceRow]:
    position = 0
    with file.open("rb") as raw:
        lines = gzip.GzipFile(fileobj=raw) if file.name.lower().endswith(".gz") else raw
        for number in count(1):
            line = read_next_line(lines, file, number)
            advance(raw.tell() - position)
            position = raw.tell()
            if not line:
                return
            line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if line.strip():
                yield _parse_row(file, f"line {number}", line.decode())


def read_next_line(lines: BinaryIO | gzip.GzipFile, file: Path, number: int) -> bytes:
    """Read the next line, empty at the end of the file; one that is too long is refused."""
    line = lines.readline(MAX_ROW_BYTES + 1)
    if len(line) > MAX_ROW_BYTES:
        size = f"{MAX_ROW_BYTES >> 20} MiB"
        raise DataError(f"{file} line {number} is longer than {size}; is there one row per line?")
    return line


def _parse_row(file: Path, location: str, text: str) -> SourceRow:
    try:
        value: Json = json.loads(text, parse_constant=parse_constant, parse_float=parse_finite)
    except (ValueError, RecursionError) as error:
        raise DataError(f"broken JSON in {file} {location}: {error}") from error
    return _to_row(file, location, value)


def _to_row(file: Path, location: str, value: Json) -> SourceRow:
    if not isinstance(value, dict):
        raise DataError(
            f"{file} {location} holds {json.dumps(value)[:80]}, "
            "which should be an object like {...}"
        )
    return SourceRow(location=location, fields=value)


def _read_json(file: Path, advance: Advance) -> Iterator[SourceRow]:
    """Read JSON lines, a list of objects or lists, an object of rows by number, or an object over
    several lines."""
    with file.open("rb") as binary:
        start = binary.read(_CHUNK).lstrip(b"\xef\xbb\xbf \t\r\n")
    if _NUMBERED.match(start) or start.partition(b"\n")[0].strip() == b"{":
        yield from _read_object(file, advance)
        return
    if start[:1] != b"[":
        yield from _read_json_lines(file, advance)
        return
    with file.open("rb") as binary:
        items = JsonList(io.TextIOWrapper(binary, encoding="utf-8-sig"), file, advance)
        for number, value in enumerate(items, start=1):
            name = "values" if isinstance(value, list) else "text"
            fields: Json = {name: value} if isinstance(value, list | str) else value
            yield _to_row(file, f"row {number}", fields)


def _read_object(file: Path, advance: Advance) -> Iterator[SourceRow]:
    """Read a file that is one object: a row, or rows by number; the number is the id of a row
    without one."""
    size = file.stat().st_size
    if size > MAX_ROW_BYTES:
        raise DataError(f"{file} is one object of more than {MAX_ROW_BYTES >> 20} MiB, not a list")
    advance(size)
    whole = _parse_row(file, "row 1", file.read_text(encoding="utf-8-sig"))
    if not all(key.isdecimal() for key in whole.fields):
        yield whole
        return
    for number, (key, value) in enumerate(whole.fields.items(), start=1):
        row = _to_row(file, f"row {number}", value)
        yield SourceRow(location=row.location, fields={"id": key, **row.fields})


def _read_csv(file: Path, advance: Advance, *, delimiter: str = ",") -> Iterator[SourceRow]:
    csv.field_size_limit(MAX_ROW_BYTES)
    with file.open("r", encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(_count_bytes(text, advance), delimiter=delimiter, strict=True)
        try:
            header = next(reader, [])
            if len(set(header)) < len(header) or not any(header):
                raise DataError(f"{file} line 1 should name every column once, not {header}")
            for cells in reader:
                if len(cells) != len(header) and cells:
                    what = f"{len(cells)} cells where the header has {len(header)}"
                    raise DataError(f"{file} line {reader.line_num} has {what}")
                if cells:
                    fields = dict[str, Json](zip(header, cells, strict=True))
                    yield SourceRow(location=f"line {reader.line_num}", fields=fields)
        except csv.Error as error:
            raise DataError(f"{file} line {reader.line_num} is not CSV: {error}") from error


def _count_bytes(lines: Iterator[str], advance: Advance) -> Iterator[str]:
    for line in lines:
        advance(len(line.encode(errors="replace")))
        yield line


def _read_parquet(file: Path, advance: Advance) -> Iterator[SourceRow]:
    """Read a Parquet file a few megabytes at a time.

    A nested Arrow array holds at most 2 GiB of text. Row groups of large datasets exceed this,
    batches do not.
    """
    size = file.stat().st_size
    number = 0
    with pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False) as table:
        total = max(table.metadata.num_rows, 1)
        for group in range(table.num_row_groups):
            metadata = table.metadata.row_group(group)
            fitting = BATCH_BYTES * metadata.num_rows // max(metadata.total_byte_size, 1)
            rows = max(1, min(MAX_BATCH, fitting))
            for batch in table.iter_batches(batch_size=rows, row_groups=[group], use_threads=False):
                for row in batch.to_pylist():
                    number += 1
                    fields = {name: to_json_value(value) for name, value in row.items()}
                    yield SourceRow(location=f"row {number}", fields=fields)
                advance(size * batch.num_rows // total)


def parse_constant(name: str) -> None:
    """Read NaN, which pandas writes for a missing value, as null; refuse infinities."""
    if name != "NaN":
        raise ValueError(f"{name} is not a number in JSON")


class JsonList:
    """The items of a JSON list; text is read in doubling amounts until an item is complete."""

    def __init__(self, text: TextIO, file: Path, advance: Advance) -> None:
        self._decode_text = text
        self._file = file
        self._advance = advance
        self._buffer = ""
        self._position = 0
        self._decoder = json.JSONDecoder(parse_constant=parse_constant, parse_float=parse_finite)

    def __iter__(self) -> Iterator[Json]:
        self._expect("[", 1)
        number = 1
        if self._peek() == "]":
            return
        while True:
            yield self._item(number)
            number += 1
            if self._peek() == "]":
                return
            self._expect(",", number)

    def _item(self, number: int) -> Json:
        if self._peek() not in ("{", "[", '"'):
            text = self._buffer[self._position : self._position + 40]
            raise DataError(
                f"{self._file} row {number} is {text!r}, which should be an object like {{...}}"
            )
        wanted = _CHUNK
        while True:
            try:
                value: Json
                value, self._position = self._decoder.raw_decode(self._buffer, self._position)
                return value
            except (ValueError, RecursionError) as error:
                if len(self._buffer) - self._position > MAX_ROW_BYTES or not self._more(wanted):
                    raise DataError(f"broken JSON in {self._file} row {number}: {error}") from error
                wanted *= 2

    def _peek(self) -> str:
        while True:
            while self._position < len(self._buffer):
                if not self._buffer[self._position].isspace():
                    return self._buffer[self._position]
                self._position += 1
            if not self._more(_CHUNK):
                return ""

    def _expect(self, sign: str, number: int) -> None:
        if (character := self._peek()) != sign:
            raise DataError(
                f"broken JSON in {self._file} row {number}: "
                f"{character or 'the end'!r} where {sign!r} should be"
            )
        self._position += 1

    def _more(self, count: int) -> bool:
        new = self._decode_text.read(count)
        self._buffer = self._buffer[self._position :] + new
        self._position = 0
        self._advance(len(new.encode(errors="replace")))
        return bool(new)


def to_json_value(value: object) -> Json:
    """Turn Arrow's values into JSON: NaN to null, dates and decimals to text, bytes to text."""
    if isinstance(value, float):
        return None if isnan(value) else value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, dict):
        return {str(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(item) for item in value]
    if isinstance(value, bytes):
        return _decode_text(value)
    return value.isoformat() if isinstance(value, date | time) else str(value)


def _decode_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()


READERS: dict[str, Callable[[Path, Advance], Iterator[SourceRow]]] = {
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".jsonl.gz": _read_json_lines,
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": partial(_read_csv, delimiter="\t"),
    ".parquet": _read_parquet,
}
