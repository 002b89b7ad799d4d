"""Nested tables of settings and their dotted keys: merge two, set one value, name them all, read
them from flags."""

from collections.abc import Mapping, Sequence

from whet import toml
from whet.errors import ConfigError
from whet.toml import Table
from whet.types import Json

TAGS = ("kind", "name")
"""Fields that name the variant of a union, where their type is a Literal."""


def merge(old: Mapping[str, Json], new: Mapping[str, Json]) -> Table:
    """Lay one table over another, key by key; lists and values are replaced whole.

    So is a table where the new one picks another variant by its `kind` or `name`.
    """
    both = dict(old)
    for key, item in new.items():
        before = both.get(key)
        if isinstance(before, dict) and isinstance(item, dict) and not _is_other(before, item):
            item = merge(before, item)
        both[key] = item
    return both


def _is_other(old: Table, new: Table) -> bool:
    return any(tag in new and tag in old and new[tag] != old[tag] for tag in TAGS)


def flat(table: Mapping[str, Json], prefix: str = "") -> dict[str, Json]:
    """Name every value by its dotted key; rows of a list of tables are numbered.

    >>> flat({"a": {"b": 1}, "c": [{"d": 2}]})
    {'a.b': 1, 'c.0.d': 2}
    """
    values: dict[str, Json] = {}
    for key, item in table.items():
        path = f"{prefix}{toml.name(key)}"
        if isinstance(item, list) and item and all(isinstance(row, dict) for row in item):
            item = {str(index): row for index, row in enumerate(item)}
        values |= flat(item, f"{path}.") if isinstance(item, dict) and item else {path: item}
    return values


def with_value(table: Mapping[str, Json], key: str, item: Json) -> Table:
    """Set one dotted key, opening tables on the way; a number picks a row of a list.

    >>> with_value({"a": [{"b": 1}, {"b": 2}]}, "a.1.b", 3)
    {'a': [{'b': 1}, {'b': 3}]}
    """
    changed = _set(dict(table), key.split("."), item, key)
    assert isinstance(changed, dict), "a table stays a table"
    return changed


def from_flags(arguments: Sequence[str]) -> dict[str, str]:
    """Read `--key value`, `--key=value` and a lone `--key`, which means true; the last of a key
    wins."""
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


def _set(here: Json, way: Sequence[str], item: Json, key: str) -> Json:
    if not way:
        return item
    part = way[0]
    rest = way[1:]
    if isinstance(here, dict):
        return here | {part: _set(here.get(part, {}), rest, item, key)}
    if isinstance(here, list) and part.isdecimal() and int(part) < len(here):
        return [_set(row, rest, item, key) if i == int(part) else row for i, row in enumerate(here)]
    raise ConfigError(f"unknown flag --{key}: there is no {part!r} in {toml.literal(here)}")
