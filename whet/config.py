"""Settings: one frozen class beside each component, read as defaults < TOML < flags, each value
with its origin."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import ClassVar, Generic, Literal, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    JsonValue,
    ValidationError,
    model_validator,
)
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


CONSTANT: dict[str, JsonValue] = {"constant": True}
"""Marks a field that code may set and that is no setting: `Field(json_schema_extra=CONSTANT)`."""


class Config(BaseModel):
    """The base of every settings class: frozen, unknown keys refused, a number is never read from
    text or a boolean.

    The text "none" sets an optional field to None, which TOML cannot say otherwise. A table for a
    field whose default is a table changes that default key by key, unless its `kind` or `name`
    picks another variant. A setting has a docstring below it, which `whet show --explain` prints.
    """

    shared_with: ClassVar[str] = ""
    """The field whose tables also take what stands above them, as a pipeline's stages do."""

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

    def without_effect(self) -> Mapping[str, str]:
        """Name the settings that change nothing under the others, each with the reason.

        They are not shown, and a file or a flag that sets one is refused.
        """
        return {}


C = TypeVar("C", bound=Config)


C_co = TypeVar("C_co", bound=Config, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Generic[C_co]):
    """Settings, and for each dotted key where its value came from: "default", a file's name, or
    "cli"."""

    config: C_co
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
    sources: dict[str, str] = {}
    layers = [("default", dict(defaults or {})), *(_read_layers(file) if file else ())]
    for source, layer in layers:
        if "kind" not in kind.model_fields:
            layer.pop("kind", None)
        tree = tables.merge(tree, layer)
        sources |= {key: source for key, item in tables.flat(layer).items() if item != {}}
        sources = {key: sources[key] for key in tables.flat(tree) if key in sources}
    texts = tables.from_flags(overrides)
    for key, text in texts.items():
        tree = tables.with_value(tree, key, toml.value(text))
        sources = {k: v for k, v in sources.items() if not k.startswith(f"{key}.")} | {key: "cli"}
    origin = Origin(sources, kind.shared_with)
    config = _validate(kind, tree, origin, texts)
    _refuse_without_effect(config, origin)
    keys = tables.flat(to_table(config))
    return Loaded(config=config, origin=MappingProxyType({key: origin.of(key) for key in keys}))


def _read_layers(file: Path, above: Sequence[Path] = ()) -> list[tuple[str, Table]]:
    """Read a file and those that it `extends`, the one that begins the chain first."""
    if file.resolve() in above:
        names = " -> ".join(path.name for path in (*above, file))
        raise ConfigError(f"{names}: these files extend each other in a circle")
    table = toml.read(file)
    base = table.pop("extends", None)
    if base is None:
        return [(file.name, table)]
    if not isinstance(base, str):
        raise ConfigError(f'{file}: extends should be the name of a file, like "base.toml"')
    layers = _read_layers(file.parent / base, (*above, file.resolve()))
    for name, layer in layers:
        if "kind" in layer and "kind" in table and layer["kind"] != table["kind"]:
            raise ConfigError(
                f"{file} is of kind {table['kind']!r} and extends {name}, which is of kind "
                f"{layer['kind']!r}"
            )
    return [*layers, (file.name, table)]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where each dotted key that was given came from."""

    sources: Mapping[str, str]
    shared_with: str = ""

    def of(self, key: str) -> str:
        """Say where a value came from: itself, the table around it, or what all tables share."""
        parent = key
        while parent and parent not in self.sources:
            parent = parent.rpartition(".")[0]
        if parent:
            return self.sources[parent]
        first, _, rest = key.partition(".")
        return self.of(rest.partition(".")[2]) if first == self.shared_with and rest else "default"

    def named_key(self, key: str) -> str | None:
        """Find the key, or one below it, that a file or a flag names."""
        names = [name for name, source in self.sources.items() if source != "default"]
        return next((name for name in names if f"{name}.".startswith(f"{key}.")), None)


def kind_of(file: Path) -> str:
    """Read which kind of settings a file holds, which its first line says: `kind = "rl"`."""
    table = toml.read(file)
    kind = table.get("kind")
    if not isinstance(kind, str) or next(iter(table)) != "kind":
        raise ConfigError(
            f'{file} does not say what it is for: its first line should be like kind = "rl"'
        )
    return kind


def show(loaded: Loaded[Config], *, explain: bool = False) -> str:
    """Print every setting with where it came from, one aligned line each, and what it means."""
    rows = []
    for key, item in tables.flat(_fold(to_table(loaded.config))).items():
        source = loaded.origin.get(key, "default")
        comment = f"{source}: {meaning(loaded.config, key)}" if explain else source
        rows.append((key, toml.literal(item), comment))
    keys = max((len(key) for key, _, _ in rows), default=0)
    # One very long value should not push every comment off the screen.
    values = max((len(text) for _, text, _ in rows if len(text) <= 40), default=0)
    return "".join(f"{key:<{keys}} = {text:<{values}}  # {source}\n" for key, text, source in rows)


def _fold(table: Table) -> Table:
    """Turn a table in which everything is off into an empty one, which is shown on one line."""
    folded: Table = {}
    for key, item in table.items():
        if isinstance(item, dict):
            is_off = all(part is None or part is False or part == [] for part in item.values())
            item = {} if is_off and len(item) > 1 else _fold(item)
        folded[key] = item
    return folded


def to_toml(config: Config) -> str:
    """Write settings as a TOML file that loads back equal."""
    return toml.write(to_table(config, keep_none=False)).lstrip("\n")


def meaning(config: Config, key: str) -> str:
    """Say in one line what a setting is for, as the docstring below it begins."""
    text = ""
    here: object = config
    for part in key.split("."):
        if isinstance(here, Config):
            field = type(here).model_fields.get(part)
            text = (field and field.description) or text or type(here).__doc__ or ""
            here = getattr(here, part)
        elif isinstance(here, Mapping):
            here = here.get(part)
        elif isinstance(here, list | tuple):
            here = here[int(part)]
    return re.split(r"\.\s(?=[A-Z])|;\s", " ".join(text.split()))[0].removesuffix(".")


def to_table(
    config: Config, *, keep_none: bool = True, hidden: Collection[str] = frozenset()
) -> Table:
    """Turn settings into plain values, without those that have no effect.

    Without None, one that its field's default would undo becomes "none".
    """
    table: Table = {}
    hidden = {*hidden, *config.without_effect()}
    for key, item in config:
        field = type(config).model_fields.get(key)  # none for a setting of the user's own class
        if key in hidden or (field is not None and _is_constant(field)):
            continue
        below = {name.removeprefix(f"{key}.") for name in hidden if name.startswith(f"{key}.")}
        default = None if field is None else _default(field)
        undone = item is None and not keep_none and default is not None
        table[key] = "none" if undone else _plain(item, keep_none, below)
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


def _refuse_without_effect(config: Config, origin: Origin) -> None:
    for key, reason in _without_effect(config):
        key = origin.named_key(key) or key
        value, default = _value_and_default(config, key)
        source = origin.of(key)
        if origin.named_key(key) or (source != "default" and value != default):
            where = "" if source in ("cli", "default") else f" in {source}"
            given = "" if isinstance(value, Config) else f" = {toml.literal(_plain(value))}"
            raise ConfigError(f"{key}{given}{where} has no effect: {reason}")


def _without_effect(item: object, prefix: str = "") -> Iterator[tuple[str, str]]:
    """List the dotted keys without effect, wherever they stand."""
    parts: Iterable[tuple[object, object]] = ()
    if isinstance(item, Config):
        yield from ((f"{prefix}{key}", reason) for key, reason in item.without_effect().items())
        for name, field in type(item).model_fields.items():
            if _is_constant(field):
                value = _plain(_default(field))
                always = "" if value is None else f", but always {toml.literal(value)}"
                yield f"{prefix}{name}", f"it is no setting{always}"
        parts = item
    elif isinstance(item, Mapping):
        parts = item.items()
    elif isinstance(item, list | tuple):
        parts = enumerate(item)
    for key, part in parts:
        yield from _without_effect(part, f"{prefix}{key}.")


def _value_and_default(config: Config, key: str) -> tuple[object, object]:
    value: object = config
    default: object = None
    for part in key.split("."):
        if isinstance(value, Config):
            default = _default(type(value).model_fields[part])
            value = getattr(value, part)
        elif isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list | tuple):
            value = value[int(part)]
    return value, default


def _validate(kind: type[C], tree: Table, origin: Origin, texts: Mapping[str, str]) -> C:
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
            return _validate(
                kind, tree, origin, {key: text for key, text in texts.items() if key not in keys}
            )
        raise ConfigError(mistakes.sentence(kind, wrong, tree, origin.of)) from error


def _is_constant(field: FieldInfo) -> bool:
    return field.json_schema_extra is CONSTANT


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
        for tag in tables.TAGS
        if tag in type(default).model_fields
    }
    names = {
        tag: get_args(f.annotation)
        for tag, f in fields.items()
        if get_origin(f.annotation) is Literal
    }
    return any(tag in given and given[tag] not in allowed for tag, allowed in names.items())


def _plain(item: object, keep_none: bool = True, hidden: Collection[str] = frozenset()) -> Json:
    if isinstance(item, Config):
        return to_table(item, keep_none=keep_none, hidden=hidden)
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
