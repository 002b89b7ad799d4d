"""Settings: one frozen class beside each component, read as defaults < TOML < flags, each value
with its origin."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Generic, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema

from whet import mistakes, tables, toml
from whet.errors import ConfigError
from whet.toml import Table
from whet.types import Json


def _forbid_coercion(schema: object) -> None:
    """Make numbers and booleans strict, wherever they stand in the schema; text to Path or Enum
    stays allowed."""
    if isinstance(schema, dict):
        if schema.get("type") in ("int", "float", "bool"):
            schema["strict"] = True
        for key in schema.keys() - {"default", "expected", "metadata"}:
            _forbid_coercion(schema[key])
    elif isinstance(schema, list | tuple):
        for part in schema:
            _forbid_coercion(part)


class Config(BaseModel):
    """The base of every settings class: frozen, unknown keys refused, a number is never read from
    text or a boolean.

    The text "none" sets an optional field to None, which TOML cannot say otherwise. A table for a
    field whose default is a table changes that default key by key, unless its `kind` or `name`
    picks another variant.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=()
    )

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema = handler(source)
        _forbid_coercion(schema)
        return schema

    @model_validator(mode="before")
    @classmethod
    def _lay_over_defaults(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        filled = dict(given)
        for key in filled.keys() & cls.model_fields.keys():
            field = cls.model_fields[key]
            item = filled[key]
            if item == "none" and NoneType in get_args(field.annotation):
                filled[key] = None
            elif isinstance(item, dict):
                filled[key] = _over(_default(field), item)
        return filled


C = TypeVar("C", bound=Config)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Generic[C]):
    """Settings, and for each dotted key where its value came from: "default", a file's name, or
    "cli"."""

    config: C
    origin: Mapping[str, str]


def load(
    kind: type[C],
    file: Path | None,
    overrides: Sequence[str],
    *,
    defaults: Mapping[str, Json] | None = None,
) -> Loaded[C]:
    """Read settings: `defaults`, then the file, then flags such as `--train.lr 1e-3`; later wins.

    A file's `kind` is left out where the class has no such field.
    """
    tree: Table = {}
    origin: dict[str, str] = {}
    for source, layer in (
        ("default", defaults or {}),
        (file.name if file else "", toml.read(file) if file else {}),
    ):
        known = {
            key: item for key, item in layer.items() if key != "kind" or "kind" in kind.model_fields
        }
        tree = tables.merged(tree, known)
        origin |= dict.fromkeys(tables.flat(known), source)
    texts = tables.from_flags(overrides)
    for key, text in texts.items():
        tree = tables.with_value(tree, key, toml.value(text))
        origin = {k: v for k, v in origin.items() if not k.startswith(f"{key}.")} | {key: "cli"}
    config = _validated(kind, tree, origin, texts)
    keys = tables.flat(to_table(config))
    return Loaded(
        config=config, origin=MappingProxyType({key: _origin(key, origin) for key in keys})
    )


def kind_of(file: Path) -> str:
    """Read which kind of settings a file holds, which its first line says: `kind = "rl"`."""
    table = toml.read(file)
    kind = table.get("kind")
    if not isinstance(kind, str) or next(iter(table)) != "kind":
        raise ConfigError(
            f'{file} does not say what it is for: its first line should be like kind = "rl"'
        )
    return kind


def show(loaded: Loaded[C]) -> str:
    """Print every setting with where it came from, one aligned line each."""
    settings = tables.flat(to_table(loaded.config))
    rows = [
        (key, toml.literal(item), loaded.origin.get(key, "default"))
        for key, item in settings.items()
    ]
    keys = max((len(key) for key, _, _ in rows), default=0)
    # One very long value should not push every comment off the screen.
    values = max((len(text) for _, text, _ in rows if len(text) <= 40), default=0)
    return "".join(f"{key:<{keys}} = {text:<{values}}  # {source}\n" for key, text, source in rows)


def to_toml(config: Config) -> str:
    """Write settings as a TOML file that loads back equal."""
    return toml.write(to_table(config, keep_none=False)).lstrip("\n")


def to_table(config: Config, *, keep_none: bool = True) -> Table:
    """Turn settings into plain values. Without None, one that its field's default would undo
    becomes "none"."""
    table: Table = {}
    for key, item in config:
        undone = (
            item is None and not keep_none and _default(type(config).model_fields[key]) is not None
        )
        table[key] = "none" if undone else _plain(item, keep_none)
    return table


def differences(a: Config, b: Config) -> list[str]:
    """List what differs, as "train.lr: 0.001 -> 0.002"."""
    old, new = (
        {k: toml.literal(v) for k, v in tables.flat(to_table(side)).items()} for side in (a, b)
    )
    pairs = {
        key: (old.get(key, "(not there)"), new.get(key, "(not there)")) for key in [*old, *new]
    }
    return [
        f"{key}: {before} -> {after}" for key, (before, after) in pairs.items() if before != after
    ]


def _validated(
    kind: type[C], tree: Table, origin: Mapping[str, str], texts: Mapping[str, str]
) -> C:
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        # A flag such as `--project 24` means text where text is asked for.
        keys = {
            ".".join(mistakes.path(row["loc"], tree))
            for row in wrong
            if row["type"] == "string_type"
        }
        for key in keys & texts.keys():
            tree = tables.with_value(tree, key, texts[key])
        if keys & texts.keys():
            return _validated(
                kind, tree, origin, {key: text for key, text in texts.items() if key not in keys}
            )
        raise ConfigError(
            mistakes.sentence(kind, wrong, tree, lambda key: _origin(key, origin))
        ) from error


def _default(field: FieldInfo) -> object:
    return (
        None
        if field.is_required()
        else field.get_default(call_default_factory=True, validated_data={})
    )


def _over(default: object, given: Mapping[str, Json]) -> Table:
    """Lay a given table over default settings, unless it picks another variant; a plain dict is
    replaced whole."""
    if not isinstance(default, Config) or _is_other_variant(default, given):
        return dict(given)
    before = dict(default)
    kept = {key: _plain(item) for key, item in before.items() if key not in given}
    over = {
        key: _over(before.get(key), item) if isinstance(item, dict) else item
        for key, item in given.items()
    }
    return kept | over


def _is_other_variant(default: Config, given: Mapping[str, Json]) -> bool:
    fields = {
        tag: type(default).model_fields[tag]
        for tag in mistakes.TAGS
        if tag in type(default).model_fields
    }
    names = {
        tag: get_args(f.annotation)
        for tag, f in fields.items()
        if get_origin(f.annotation) is Literal
    }
    return any(tag in given and given[tag] not in allowed for tag, allowed in names.items())


def _origin(key: str, origin: Mapping[str, str]) -> str:
    while key and key not in origin:
        key = key.rpartition(".")[0]
    return origin.get(key, "default")


def _plain(item: object, keep_none: bool = True) -> Json:
    if isinstance(item, Config):
        return to_table(item, keep_none=keep_none)
    if isinstance(item, Mapping):
        return {str(key): _plain(part, keep_none) for key, part in item.items()}
    if isinstance(item, list | tuple):
        return [_plain(part, keep_none) for part in item]
    if isinstance(item, Enum):
        return _plain(item.value)
    if item is None or isinstance(item, bool | int | float | str):
        return item
    assert isinstance(item, Path), f"a setting cannot be a {type(item).__name__}"
    return str(item)
