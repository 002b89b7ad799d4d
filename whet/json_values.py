"""JSON values: written in one form, hashed into the ids of problems, read as numbers."""

import hashlib
import json
from collections.abc import Mapping

from whet.errors import DataError
from whet.types import Json


def content_id(task: str, content: Json) -> str:
    """Name a problem by its content, so that its id is the same in every file and machine.

    >>> content_id("game24", [1, 2, 3, 4])
    'game24/c3aea7055b1f'
    """
    return f"{task}/{hashlib.blake2b(compact(content, sort_keys=True), digest_size=6).hexdigest()}"


def compact(value: Json | Mapping[str, Json], *, sort_keys: bool = False) -> bytes:
    """Write JSON in UTF-8 without spaces; NaN and infinities are refused.

    Half of a surrogate pair, which UTF-8 cannot hold, is written as its escape.

    >>> compact({"a": ["b", 1]}), compact(chr(0xD800))
    (b'{"a":["b",1]}', b'"\\\\ud800"')
    """
    try:
        text = json.dumps(
            value, sort_keys=sort_keys, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
    except (ValueError, RecursionError) as error:
        raise DataError(f"this cannot be written as JSON ({error})") from error
    return text.encode("utf-8", "backslashreplace")


def read_number(value: Json) -> float:
    """Read a JSON number.

    >>> read_number(2)
    2.0
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"not a number: {value!r}")
    return float(value)


def read_integer(value: Json) -> int:
    """Read a JSON integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"not an integer: {value!r}")
    return value
