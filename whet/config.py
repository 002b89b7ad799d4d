"""Settings: frozen classes read from defaults < TOML < flags, with the origin of each value."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import ClassVar, Generic, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    JsonValue,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, to_jsonable_python

from whet import config_errors, toml
from whet.errors import ConfigError
from whet.toml import Table
from whet.types import Json


def _forbid_coercion(schema: object) -> None:
    """Make numbers and booleans strict everywhere in the schema.

    Pydantic's strict mode would also refuse text for a Path or Enum and a list for a tuple, which
    TOML cannot write otherwise.
    """
    if isinstance(schema, dict):
        if schema.get("type") in ("int", "float", "bool"):
            schema["strict"] = True
        for key in schema.keys() - {"default", "expected", "metadata"}:
            _forbid_coercion(schema[key])
    elif isinstance(schema, list | tuple):
        for inner in schema:
            _forbid_coercion(inner)


_UNSET = "nothing in it is set"
CONSTANT: dict[str, JsonValue] = {"constant": True}
"""Marks a field that only code may set, not users: `Field(json_schema_extra=CONSTANT)`."""


class Config(BaseModel):
    """The base of all settings classes: frozen; unknown keys are refused, and numbers are never
    read from text or booleans.

    The text "none" sets an optional field to None, which TOML lacks. A table given for a field is
    merged into its default key by key, unless its `kind` or `name` selects another variant. Each
    setting has a docstring below it, which `whet show --explain` prints.
    """

    shared_with: ClassVar[str] = ""
    """The field whose tables inherit the settings above them, as a pipeline's stages do."""
    left_out_by_default: ClassVar[bool] = False
    """Whether a table without settings is neither shown nor stored."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        protected_namespaces=(),
        ser_json_inf_nan="constants",
        allow_inf_nan=False,
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
        filled: dict[str, object] = {**cls.expand_table(given)}
        for key in filled.keys() & cls.model_fields.keys():
            field = cls.model_fields[key]
            if filled[key] == "none" and NoneType in get_args(field.annotation):
                filled[key] = None
            else:
                filled[key] = _lay_over(_default(field), filled[key])
        return filled

    @classmethod
    def expand_table(cls, given: Mapping[str, Json]) -> Table:
        """Expand the implicit settings of a table before validation."""
        return dict(given)

    def without_effect(self) -> Mapping[str, str]:
        """List the settings that have no effect given the others, with the reasons.

        They are not shown, and a file or flag that sets one is refused.
        """
        return {}


C = TypeVar("C", bound=Config)
C_co = TypeVar("C_co", bound=Config, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings(Generic[C_co]):
    """Settings with the origin of each dotted key: "default", a file's name, or "cli"."""

    config: C_co
    origin: Mapping[str, str]


def load_settings(
    cls: type[C],
    file: Path | None,
    overrides: Sequence[str],
    *,
    defaults: Mapping[str, Json] | None = None,
) -> LoadedSettings[C]:
    """Read settings: `defaults`, then the file, then flags such as `--train.lr 1e-3`; later wins.

    A file's `kind` is dropped if the class has no such field.
    """
    layers = [("default", dict(defaults or {})), *(read_layers(file) if file else ())]
    return load_layers(cls, layers, overrides)


def load_layers(
    cls: type[C], layers: Sequence[tuple[str, Table]], overrides: Sequence[str]
) -> LoadedSettings[C]:
    """Merge tables, each with its origin; later ones win, and flags win over all."""
    tree: Table = {}
    sources: dict[str, str] = {}
    for source, table in layers:
        layer = dict(table)
        if "kind" not in cls.model_fields:
            layer.pop("kind", None)
        tree = toml.merge(tree, layer)
        sources |= {key: source for key, item in toml.flatten(layer).items() if item != {}}
        sources = {key: sources[key] for key in toml.flatten(tree) if key in sources}
    texts = toml.from_flags(overrides)
    for key, text in texts.items():
        tree = toml.with_value(tree, key, toml.parse_value(text))
        sources = {k: v for k, v in sources.items() if not k.startswith(f"{key}.")} | {key: "cli"}
    origin = SettingOrigins(sources, cls.shared_with)
    config = _validate(cls, tree, origin, texts)
    _refuse_without_effect(config, origin)
    settings = (setting for setting in _settings(config) if setting.path[-1] != "name")
    defaults = {setting.key for setting in settings if setting.value == setting.default}
    keys = toml.flatten(to_table(config))
    origins = {key: origin.of(key, is_default=key in defaults) for key in keys}
    return LoadedSettings(config=config, origin=MappingProxyType(origins))


def read_layers(file: Path, above: Sequence[Path] = ()) -> list[tuple[str, Table]]:
    """Read a file and the chain of files that it `extends`, the base first."""
    if file.resolve() in above:
        names = " -> ".join(path.name for path in (*above, file))
        raise ConfigError(f"{names}: these files extend each other in a circle")
    table = toml.read(file)
    base = table.pop("extends", None)
    if base is None:
        return [(file.name, table)]
    if not isinstance(base, str):
        raise ConfigError(f'{file}: extends should be the name of a file, like "base.toml"')
    layers = read_layers(file.parent / base, (*above, file.resolve()))
    for name, layer in layers:
        if "kind" in layer and "kind" in table and layer["kind"] != table["kind"]:
            raise ConfigError(
                f"{file} is of kind {table['kind']!r} and extends {name}, which is of kind "
                f"{layer['kind']!r}"
            )
    return [*layers, (file.name, table)]


@dataclass(frozen=True, slots=True)
class SettingOrigins:
    """The origin of each given dotted key."""

    sources: Mapping[str, str]
    shared_with: str = ""

    def of(self, key: str, *, is_default: bool = False) -> str:
        """Return the origin of a key: its own, that of what is around it, or a shared setting's.

        What is around it may be a short form, `task = "game24"`: the origin of the name, and of no
        default.
        """
        parent = key
        while parent and parent not in self.sources:
            parent = parent.rpartition(".")[0]
        if parent:
            return "default" if is_default and parent != key else self.sources[parent]
        first, _, rest = key.partition(".")
        if first != self.shared_with or not rest:
            return "default"
        return self.of(rest.partition(".")[2], is_default=is_default)

    def named_key(self, key: str) -> str | None:
        """Find this key, or one below it, among those given by a file or flag."""
        names = [name for name, source in self.sources.items() if source != "default"]
        return next((name for name in names if f"{name}.".startswith(f"{key}.")), None)


def _validate(cls: type[C], tree: Table, origin: SettingOrigins, texts: Mapping[str, str]) -> C:
    tree = cls.expand_table(tree)
    try:
        return cls.model_validate(tree)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        # A flag such as `--project 24` is text if the setting is text.
        wants_text = [row["loc"] for row in errors if row["type"] == "string_type"]
        keys = texts.keys() & {".".join(config_errors.key_path(loc, tree)) for loc in wants_text}
        if not keys:
            raise config_errors.describe_errors(cls, errors, tree, origin.of) from error
    for key in keys:
        tree = toml.with_value(tree, key, texts[key])
    return _validate(cls, tree, origin, {k: text for k, text in texts.items() if k not in keys})


def _refuse_without_effect(config: Config, origin: SettingOrigins) -> None:
    settings = {setting.key: setting for setting in _settings(config)}
    for key, setting in settings.items():
        if setting.reason is None:
            continue
        named_key = origin.named_key(key)
        key = named_key or key
        value = settings.get(key, setting).value
        source = origin.of(key)
        if named_key or (source != "default" and value != setting.default):
            where = "" if source in ("cli", "default") else f" in {source}"
            shown = "" if isinstance(value, Config) else f" = {_literal(value)}"
            raise ConfigError(f"{key}{shown}{where} has no effect: {setting.reason}; leave it out")


def kind_of(file: Path) -> str:
    """Read the kind of a settings file from its first line: `kind = "rl"`."""
    table = toml.read(file)
    kind = table.get("kind")
    if not isinstance(kind, str) or next(iter(table)) != "kind":
        raise ConfigError(
            f'{file} does not state its kind: its first line should be like kind = "rl"'
        )
    return kind


def show_settings(loaded: LoadedSettings[Config], *, explain: bool = False) -> str:
    """Format every setting with its origin, and its meaning if `explain`, one aligned line each."""
    meanings = explain_settings(loaded.config)
    rows = []
    for key, item in toml.flatten(_fold(to_table(loaded.config))).items():
        source = loaded.origin.get(key, "default")
        rows.append((key, toml.literal(item), f"{source}: {meanings[key]}" if explain else source))
    keys = max((len(key) for key, _, _ in rows), default=0)
    # A very long value should not push all comments off the screen.
    values = max((len(text) for _, text, _ in rows if len(text) <= 40), default=0)
    return "".join(f"{key:<{keys}} = {text:<{values}}  # {source}\n" for key, text, source in rows)


def explain_settings(config: Config) -> dict[str, str]:
    """Return the meaning of each setting by its dotted key."""
    return {setting.key: setting.meaning for setting in _settings(config)}


def _fold(table: Table) -> Table:
    """Shorten nearly empty tables so that each is shown on one line.

    A table in which everything is off becomes empty, and one with a single value other than none
    keeps only that value.
    """
    folded: Table = {}
    for key, item in table.items():
        if isinstance(item, dict):
            is_off = all(value is None or value is False or value == [] for value in item.values())
            present: Table = {name: value for name, value in item.items() if value is not None}
            item = {} if is_off and len(item) > 1 else _fold(present if len(present) == 1 else item)
        folded[key] = item
    return folded


def to_toml(config: Config) -> str:
    """Write settings as a TOML file that loads back equal."""
    return toml.write(to_table(config, keep_none=False)).lstrip("\n")


def to_table(config: Config, *, keep_none: bool = True) -> Table:
    """Turn settings into plain values, without settings that have no effect.

    Unless `keep_none`, a None that differs from its field's default becomes "none".
    """
    table: Table = config.model_dump(mode="json", serialize_as_any=True)
    for setting in reversed(list(_settings(config))):  # the entries of a table before the table
        *parents, name = setting.path
        around = toml.look_up(table, parents)
        if not isinstance(around, dict):
            continue
        if setting.reason is not None:
            del around[name]
        elif not keep_none and setting.value is None and setting.default is not None:
            around[name] = "none"
    return table


def differences(a: Config, b: Config) -> list[str]:
    """List the differences, as "train.lr: 0.001 -> 0.002"."""
    old, new = ({k: toml.literal(v) for k, v in toml.flatten(to_table(c)).items()} for c in (a, b))
    gone = "(not there)"
    pairs = {key: (old.get(key, gone), new.get(key, gone)) for key in [*old, *new]}
    return [f"{key}: {was} -> {now}" for key, (was, now) in pairs.items() if was != now]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """A value or table at any depth of the settings; `reason` is set if it has no effect."""

    path: tuple[str, ...]
    value: object
    default: object
    meaning: str
    reason: str | None

    @property
    def key(self) -> str:
        return ".".join(map(toml.quote, self.path))


def _settings(
    item: object,
    path: tuple[str, ...] = (),
    meaning: str = "",
    reasons: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[_Setting]:
    """List all values below an item, each table before its entries.

    `reasons` are those of the tables around it, by keys below the item.
    """
    fields: Mapping[str, FieldInfo] = {}
    parts: Iterable[tuple[object, object]] = ()
    if isinstance(item, Config):
        fields = type(item).model_fields
        constants = {
            key: _describe_constant(field) for key, field in fields.items() if _is_constant(field)
        }
        reasons = {**constants, **item.without_effect(), **reasons}
        meaning = meaning or _first_sentence(type(item).__doc__ or "")
        parts = item
    elif isinstance(item, Mapping):
        parts = item.items()
    elif isinstance(item, list | tuple):
        parts = enumerate(item)
    for key, value in parts:
        name = str(key)
        field = fields.get(name)  # None for list or dict items and for settings of a user's class
        description = _first_sentence((field and field.description) or "") or meaning
        here = (*path, name)
        yield _Setting(
            path=here,
            value=value,
            default=None if field is None else _default(field),
            meaning=description,
            reason=reasons.get(name, _UNSET if _is_left_out(value) else None),
        )
        below = {
            k.removeprefix(f"{name}."): v for k, v in reasons.items() if k.startswith(f"{name}.")
        }
        yield from _settings(value, here, description, below)


def _first_sentence(text: str) -> str:
    return re.split(r"\.\s(?=[A-Z])|;\s", " ".join(text.split()))[0].removesuffix(".")


def _is_constant(field: FieldInfo) -> bool:
    return field.json_schema_extra is CONSTANT


def _is_left_out(value: object) -> bool:
    is_optional = isinstance(value, Config) and value.left_out_by_default
    return is_optional and value == type(value)()


def _describe_constant(field: FieldInfo) -> str:
    value = _default(field)
    return f"it is not a setting{'' if value is None else f', but always {_literal(value)}'}"


def _literal(value: object) -> str:
    return toml.literal(to_jsonable_python(value, inf_nan_mode="constants"))


def _default(field: FieldInfo) -> object:
    if field.is_required():
        return None
    return field.get_default(call_default_factory=True, validated_data={})


def _lay_over(default: object, given: object) -> object:
    """Merge a given table into the default, unless it selects another variant; other values replace
    the default."""
    if not isinstance(default, Config) or not isinstance(given, dict):
        return given
    tags = set(config_errors.list_tags(type(default)))
    if tags and any(tag in given and given[tag] not in tags for tag in toml.TAGS):
        return given
    before = dict(default)
    return before | {key: _lay_over(before.get(key), item) for key, item in given.items()}
