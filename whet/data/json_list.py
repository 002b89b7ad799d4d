"""The items of one large JSON list, read one at a time."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from whet.errors import DataError
from whet.store.files import finite_number
from whet.types import Json

MAX_ROW = 1 << 28
"""Bytes, or characters, of a row. A longer one is refused: a broken file should not fill the
memory."""
_CHUNK = 1 << 16


def constant(name: str) -> None:
    """Read NaN, which pandas writes where a value is missing, as null; no infinity is a number of
    JSON."""
    if name != "NaN":
        raise ValueError(f"{name} is not a number that JSON knows")


class JsonList:
    """The items of one JSON list. More text is read, twice as much each time, until the next item
    is whole."""

    def __init__(self, text: TextIO, file: Path, advance: Callable[[int], None]) -> None:
        self._text = text
        self._file = file
        self._advance = advance
        self._buffer = ""
        self._place = 0
        self._decoder = json.JSONDecoder(parse_constant=constant, parse_float=finite_number)

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
        if self._peek() not in ("{", "["):
            found = self._buffer[self._place : self._place + 40]
            raise DataError(
                f"{self._file} row {number} is {found!r}, which should be an object like {{...}}"
            )
        wanted = _CHUNK
        while True:
            try:
                value, self._place = self._decoder.raw_decode(self._buffer, self._place)
            except (ValueError, RecursionError) as error:
                if len(self._buffer) - self._place > MAX_ROW or not self._more(wanted):
                    raise DataError(f"broken JSON in {self._file} row {number}: {error}") from error
                wanted *= 2
            else:
                result: Json = value
                return result

    def _peek(self) -> str:
        while True:
            while self._place < len(self._buffer):
                if not self._buffer[self._place].isspace():
                    return self._buffer[self._place]
                self._place += 1
            if not self._more(_CHUNK):
                return ""

    def _expect(self, sign: str, number: int) -> None:
        if (found := self._peek()) != sign:
            raise DataError(
                f"broken JSON in {self._file} row {number}: {found or 'the end'!r} where {sign!r} should be"
            )
        self._place += 1

    def _more(self, count: int) -> bool:
        new = self._text.read(count)
        self._buffer = self._buffer[self._place :] + new
        self._place = 0
        self._advance(len(new.encode(errors="replace")))
        return bool(new)
