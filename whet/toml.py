"""TOML in and out: read a file with its mistakes named, parse one value from the command line,
write a table.

tomllib only reads, so the writer is here. It knows text, numbers, booleans, lists and tables; None
is left out.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from whet.errors import ConfigError
from whet.types import Json

Table = dict[str, Json]
DEEPEST = 64
"""Tables and lists within each other, far more than settings have and far fewer than Python can
follow."""


def read(file: Path) -> Table:
    """Read a file, or say in one sentence why not: missing, no permission, not text, broken at a
    line."""
    try:
        return _plain_table(tomllib.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise ConfigError(f"there is no file {file}") from error
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text, so it is no TOML file") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_broken(file, str(error))) from error
    except RecursionError:
        raise ConfigError(f"{file} nests tables or lists too deeply to be read") from None


def value(text: str) -> Json:
    """Parse a TOML value; what is none is a bare string.

    >>> value("[1, 2.5]"), value("true"), value("adamw"), value("none")
    ([1, 2.5], True, 'adamw', 'none')
    """
    try:
        parsed = tomllib.loads(f"value = {text}")
        return text if set(parsed) != {"value"} else _plain(parsed["value"], text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def write(table: Mapping[str, Json], *, at: str = "") -> str:
    """Write a table as TOML text: its plain keys first, then each table below it under its own
    header."""
    plain = {key: item for key, item in table.items() if item is not None and not _is_tables(item)}
    lines = [f"{name(key)} = {literal(item)}\n" for key, item in plain.items()]
    for key, item in table.items():
        path = f"{at}.{name(key)}" if at else name(key)
        if isinstance(item, dict):
            lines.append(f"\n[{path}]\n{write(item, at=path)}")
        elif isinstance(item, list) and _is_tables(item):
            lines.extend(
                f"\n[[{path}]]\n{write(row, at=path)}" for row in item if isinstance(row, dict)
            )
    return "".join(lines)


def literal(item: Json) -> str:
    """Write one value on one line.

    >>> literal([1e-5, "a", {"k": True}])
    '[1e-05, "a", {k = true}]'
    """
    if isinstance(item, dict):
        return (
            "{"
            + ", ".join(f"{name(k)} = {literal(v)}" for k, v in item.items() if v is not None)
            + "}"
        )
    if isinstance(item, list):
        return "[" + ", ".join(literal(part) for part in item) + "]"
    if isinstance(item, float):
        return repr(item)
    # JSON's escapes are TOML's; DEL alone must be escaped in TOML and is not in JSON.
    return (
        "none" if item is None else json.dumps(item, ensure_ascii=False).replace("\x7f", "\\u007f")
    )


def name(key: str) -> str:
    """Quote a key where TOML asks for it."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else literal(key)


def _is_tables(item: Json) -> bool:
    return isinstance(item, dict) or (
        isinstance(item, list) and bool(item) and all(isinstance(x, dict) for x in item)
    )


def _plain_table(table: Mapping[str, object], depth: int = 0) -> Table:
    return {key: _plain(item, str(item), depth + 1) for key, item in table.items()}


def _plain(item: object, text: str, depth: int = 0) -> Json:
    """Keep what JSON has too; dates and times become the text they were."""
    if depth > DEEPEST:
        raise RecursionError
    if isinstance(item, dict):
        return _plain_table(item, depth)
    if isinstance(item, list):
        return [_plain(part, str(part), depth + 1) for part in item]
    return item if isinstance(item, bool | int | float | str) else text


def _broken(file: Path, message: str) -> str:
    what, _, position = message.partition(" (at ")
    line = re.match(r"line (\d+)", position)
    where = f"line {line[1]}" if line else "at its end"
    return f"broken TOML in {file} {where}: {what[:1].lower()}{what[1:]}"
