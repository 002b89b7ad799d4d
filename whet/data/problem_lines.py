"""Lines of problem files: read in chunks, and again by number, without keeping their text."""

import json
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import BinaryIO

from whet.data.row_files import MAX_ROW_BYTES, parse_constant, read_next_line
from whet.errors import ConfigError, DataError
from whet.store.files import parse_finite
from whet.types import Advance, Json, Problem

CHUNK_BYTES = 1 << 20
"""Approximate amount of text processed at a time."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class ProblemLines:
    """The rows of several problem files, numbered from 0 across all of them.

    Only the position of each row is kept, 16 bytes, so files larger than memory can be read in any
    order.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        for file in files:
            if file.suffix != ".jsonl":
                raise ConfigError(
                    f"{file} should be a file of problems and end in .jsonl: make one with "
                    "`whet data import`"
                )
            if not file.is_file():
                raise DataError(f"there is no file {file}")
        if not files:
            raise ConfigError("give at least one file of problems")
        self.files = tuple(files)
        self._versions = [_version(file) for file in files]
        self._first_rows = [0]
        self._offsets = array("q")
        self._line_numbers = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def num_bytes(self) -> int:
        return sum(file.stat().st_size for file in self.files)

    def scan(self, advance: Advance) -> Iterator[list[bytes]]:
        """Read all rows once, in chunks, and remember their offsets."""
        for file in self.files:
            chunk: list[bytes] = []
            size = 0
            for number, offset, line in _read_lines(file):
                self._offsets.append(offset)
                self._line_numbers.append(number)
                chunk.append(line)
                size += len(line)
                if size >= CHUNK_BYTES:
                    advance(size)
                    yield chunk
                    chunk = []
                    size = 0
            advance(size)
            if chunk:
                yield chunk
            self._first_rows.append(len(self))

    def read(self, rows: Iterable[int]) -> Iterator[bytes]:
        """Read scanned rows, in the given order."""
        with ExitStack() as stack:
            handles = [stack.enter_context(_open(file)) for file in self.files]
            for row in rows:
                handle = handles[self.file_of(row)]
                handle.seek(self._offsets[row])
                yield handle.readline(MAX_ROW_BYTES + 1)

    def locate(self, row: int) -> str:
        """Name the file and line of a row."""
        return f"{self.files[self.file_of(row)]} line {self._line_numbers[row]}"

    def parse(self, row: int, line: bytes) -> Problem:
        return parse_problem(line, self.locate(row))

    def check_unchanged(self) -> None:
        """Raise an error if a file has changed since it was opened."""
        for file, version in zip(self.files, self._versions, strict=True):
            if _version(file) != version:
                raise DataError(f"{file} changed while it was being read: run the command again")

    def file_of(self, row: int) -> int:
        """Return the file number of a row; this works during a scan too."""
        return min(bisect_right(self._first_rows, row), len(self.files)) - 1


def _open(file: Path) -> BinaryIO:
    try:
        return file.open("rb")
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}") from error


def _version(file: Path) -> tuple[int, int]:
    facts = file.stat()
    return facts.st_size, facts.st_mtime_ns


def _read_lines(file: Path) -> Iterator[tuple[int, int, bytes]]:
    """Read the lines that are not blank, each with its number and offset."""
    offset = 0
    with _open(file) as handle:
        for number in count(1):
            line = read_next_line(handle, file, number)
            if not line:
                return
            skipped = len(BYTE_ORDER_MARK) if line.startswith(BYTE_ORDER_MARK) else 0
            if line[skipped:].strip():
                yield number, offset + skipped, line[skipped:]
            offset += len(line)


def parse_problem(line: bytes, place: str) -> Problem:
    """Parse one line of a problem file; an error names `place`."""
    try:
        value: Json = json.loads(line, parse_constant=parse_constant, parse_float=parse_finite)
    except (ValueError, RecursionError) as error:
        raise DataError(f"broken JSON in {place}: {error}") from error
    if not isinstance(value, dict):
        raise DataError(f"{place} holds {str(value)[:80]}, which should be an object like {{...}}")
    try:
        return Problem.from_json(value)
    except DataError as error:
        raise DataError(f"{place}: {error}") from error


def to_question(problem: Problem) -> str:
    """Return a problem's messages without the system prompt."""
    asked = [message.content for message in problem.prompt if message.role != "system"]
    return "\n".join(asked or [message.content for message in problem.prompt])
