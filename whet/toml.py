"""Read, write and merge TOML tables, find values by dotted keys, parse flags.

tomllib only reads. The writer here supports text, numbers, booleans, lists and tables; None is left
out.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date, time
from difflib import get_close_matches
from pathlib import Path

from whet.errors import ConfigError
from whet.types import Json

Table = dict[str, Json]
MAX_DEPTH = 64
"""Deepest nesting of tables and lists, far above that of settings and far below Python's limit."""
TAGS = ("kind", "name")
"""Fields that select the variant of a union, if their type is a Literal."""


def list_names(folder: Path) -> list[str]:
    """List the names of the TOML files in a folder, without the suffix."""
    return sorted(file.stem for file in folder.glob("*.toml"))


def find_file(name: str, folder: Path, noun: str, *, listing: str) -> Path:
    """Find a file in a folder by name, or the user's own file by path.

    Errors call the content `noun`, and `listing` says where the names are listed.
    """
    if name.endswith(".toml"):
        return Path(name).expanduser()
    known = list_names(folder)
    if name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f'did you mean "{close[0]}"? ' if close else ""
        raise ConfigError(
            f"there is no {noun} {name!r}; {hint}{listing}; your own file, such as "
            f"my_{noun}.toml, works too"
        )
    return folder / f"{name}.toml"


def read(file: Path) -> Table:
    """Read a file; a failure is one sentence: missing, no permission, not text, a broken line."""
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
        return {key: _to_json(item) for key, item in table.items()}
    except FileNotFoundError as error:
        raise ConfigError(f"there is no file {file}") from error
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text, so it is not a TOML file") from error
    except tomllib.TOMLDecodeError as error:
        what, _, position = str(error).partition(" (at ")
        line = re.match(r"line (\d+)", position)
        where = f"line {line[1]}" if line else "at its end"
        reason = f"{what[:1].lower()}{what[1:]}"
        raise ConfigError(f"broken TOML in {file} {where}: {reason}") from error
    except ValueError as error:
        raise ConfigError(f"{file} has a number with too many digits") from error
    except RecursionError:
        raise ConfigError(f"{file} nests tables or lists too deeply") from None


def parse_value(text: str) -> Json:
    """Parse a TOML value; dates and invalid TOML are taken as text.

    >>> parse_value("[1, 2.5]"), parse_value("true"), parse_value("adamw"), parse_value("none")
    ([1, 2.5], True, 'adamw', 'none')
    """
    try:
        parsed = tomllib.loads(f"value = {text}")
        is_value = len(parsed) == 1 and not isinstance(parsed["value"], date | time)
        return _to_json(parsed["value"]) if is_value else text
    except (ValueError, RecursionError):
        return text


def write(table: Mapping[str, Json], *, at: str = "") -> str:
    """Write a table as TOML text: its values first, then each inner table under its header."""
    lines = []
    tables = []
    for key, item in table.items():
        path = f"{at}.{quote(key)}" if at else quote(key)
        if isinstance(item, dict):
            tables.append(f"\n[{path}]\n{write(item, at=path)}")
        elif rows := _rows(item):
            tables += [f"\n[[{path}]]\n{write(row, at=path)}" for row in rows]
        elif item is not None:
            lines.append(f"{quote(key)} = {literal(item)}\n")
    return "".join([*lines, *tables])


def literal(item: Json) -> str:
    """Write one value on one line.

    >>> literal([1e-5, "a", {"k": True}])
    '[1e-05, "a", {k = true}]'
    """
    if isinstance(item, dict):
        pairs = [f"{quote(k)} = {literal(part)}" for k, part in item.items() if part is not None]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(item, list):
        return f"[{', '.join(literal(part) for part in item)}]"
    if item is None or isinstance(item, float):
        return "none" if item is None else repr(item)
    # TOML has the escapes of JSON, but must also escape DEL.
    return json.dumps(item, ensure_ascii=False).replace("\x7f", "\\u007f")


def quote(key: str) -> str:
    """Quote a key if TOML requires it."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else literal(key)


def merge(old: Mapping[str, Json], new: Mapping[str, Json]) -> Table:
    """Merge a new table into an old one, key by key; lists and values are replaced.

    A table is also replaced if the new one selects another variant by `kind` or `name`.
    """
    both = dict(old)
    for key, item in new.items():
        before = both.get(key)
        if isinstance(before, dict) and isinstance(item, dict):
            tags = [tag for tag in TAGS if tag in before and tag in item]
            is_same = all(before[tag] == item[tag] for tag in tags)
            item = merge(before, item) if is_same else item
        both[key] = item
    return both


def flatten(table: Mapping[str, Json], prefix: str = "") -> dict[str, Json]:
    """Map dotted keys to values; rows of a list of tables are numbered.

    >>> flatten({"a": {"b": 1}, "c": [{"d": 2}]})
    {'a.b': 1, 'c.0.d': 2}
    """
    values: dict[str, Json] = {}
    for key, item in table.items():
        path = f"{prefix}{quote(key)}"
        rows = {str(index): row for index, row in enumerate(_rows(item))}
        below = item if isinstance(item, dict) else rows
        values |= flatten(below, f"{path}.") if below else {path: item}
    return values


def look_up(item: Json, keys: Sequence[str | int]) -> Json:
    """Follow keys and row numbers to a value; None if there is none."""
    for key in keys:
        if isinstance(item, list):
            item = item[int(key)]
        elif isinstance(item, dict):
            item = item.get(str(key))
    return item


def with_value(table: Mapping[str, Json], key: str, item: Json) -> Table:
    """Set a dotted key, creating tables as needed; a number selects a row of a list.

    >>> with_value({"a": [{"b": 1}, {"b": 2}]}, "a.1.b", 3)
    {'a': [{'b': 1}, {'b': 3}]}
    """

    def replace(here: Json, parts: Sequence[str]) -> Json:
        if not parts:
            return item
        part, *rest = parts
        if isinstance(here, dict):
            return {**here, part: replace(here.get(part, {}), rest)}
        if isinstance(here, list) and part.isdecimal() and int(part) < len(here):
            row = int(part)
            return [*here[:row], replace(here[row], rest), *here[row + 1 :]]
        raise ConfigError(f"unknown flag --{key}: there is no {part!r} in {literal(here)}")

    first, *rest = key.split(".")
    return {**table, first: replace(table.get(first, {}), rest)}


def from_flags(arguments: Sequence[str]) -> dict[str, str]:
    """Parse `--key value`, `--key=value` and a lone `--key`, which is true; the last one wins."""
    flags: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        flag = rest.pop(0)
        key, equals, text = flag.removeprefix("--").partition("=")
        if not flag.startswith("--") or not all(key.split(".")):
            raise ConfigError(
                f"cannot read {flag!r}: settings are given as --key value, such as --train.lr 0.001"
            )
        if not equals:
            text = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        flags.pop(key, None)
        flags[key] = text
    return flags


def _rows(item: Json) -> list[Table]:
    """Return the rows of a list of tables; [] for anything else."""
    rows = item if isinstance(item, list) else []
    tables = [row for row in rows if isinstance(row, dict)]
    return tables if len(tables) == len(rows) else []


def _to_json(item: object, depth: int = 1) -> Json:
    """Convert to JSON values; dates and times become text."""
    if depth > MAX_DEPTH:
        raise RecursionError
    if isinstance(item, dict):
        return {key: _to_json(part, depth + 1) for key, part in item.items()}
    if isinstance(item, list):
        return [_to_json(part, depth + 1) for part in item]
    return item if isinstance(item, bool | int | float | str) else str(item)
