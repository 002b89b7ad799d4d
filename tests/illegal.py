"""Illegal settings made from the schema: for each setting of each stage, values of the wrong type
and out of range, and a misspelt name."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from whet.config import CONSTANT
from whet.config_errors import find_settings_classes
from whet.rewards.shaping import UserTerm
from whet.tasks.user_task import UserTaskConfig
from whet.toml import TAGS, Table, with_value
from whet.types import Json

NEEDED: Mapping[str, Json] = {
    "task": {"name": "game24"},
    "data": "d",
    "model": {"path": "m"},
    "teacher": {"path": "t"},
    "verifier": {"path": "v"},
    "max_tokens": 64,
    "buffer": 8,
    "tasks": ["game24"],
    "stages": [{}],
    "url": "http://127.0.0.1:9/v1",
    "urls": ["http://127.0.0.1:9"],
    "question": "1 + 1?",
    "answer": "2",
}
"""Values of settings that have no default, by their names."""
WORD = "a word"
USERS_OWN = (UserTaskConfig, UserTerm)
"""Classes that load a file of the user's: what they refuse is tested beside them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A table of settings with one mistake; the message has to hold the key and all of `words`."""

    table: Table
    key: str
    words: Sequence[str]
    mistake: str

    def __str__(self) -> str:
        return f"{self.mistake} {self.key}"


def fill(model: type[BaseModel]) -> Table:
    """Give a settings class what it needs to be valid."""
    return {
        name: "m" if field.annotation is str and name == "model" else NEEDED[name]
        for name, field in model.model_fields.items()
        if field.is_required() and name not in TAGS
    }


def list_cases(kind: type[BaseModel], *, skip: Sequence[str] = ()) -> Iterator[Case]:
    """Make all cases of a stage, without those below the settings in `skip`."""
    yield from _walk(kind, fill(kind), (), skip)


def list_fields(
    model: type[BaseModel], seen: set[type[BaseModel]] | None = None
) -> list[tuple[type[BaseModel], str, FieldInfo]]:
    """List the settings of a class and of all classes below it, each class once."""
    known = set() if seen is None else seen
    known.add(model)
    fields = []
    for name, field in model.model_fields.items():
        if field.json_schema_extra is not CONSTANT:
            fields.append((model, name, field))
        for below in find_settings_classes(field.annotation):
            fields += list_fields(below, known) if below not in known else []
    return fields


def _walk(
    model: type[BaseModel], base: Table, path: tuple[str, ...], skip: Sequence[str]
) -> Iterator[Case]:
    yield from _misspell(model, base, path)
    for name, field in model.model_fields.items():
        here = (*path, name)
        if ".".join(here) in skip or field.json_schema_extra is CONSTANT:
            continue
        yield from _spoil(field, base, here)
        for below, holder in _list_tables(field):
            table = _put(base, here, [below] if holder is list else below)
            model_below = _find_class(field, below)
            yield from _walk(model_below, table, (*here, "0") if holder is list else here, skip)


def _misspell(model: type[BaseModel], base: Table, path: tuple[str, ...]) -> Iterator[Case]:
    if model.model_config.get("extra") == "allow":
        return
    for name, field in model.model_fields.items():
        if field.json_schema_extra is not CONSTANT:
            wrong = (*path, name[:-1] + "q" + name[-1])
            table = _put(base, wrong, 1)
            yield Case(table=table, key=".".join(wrong), words=[name], mistake="misspelt")


def _spoil(field: FieldInfo, base: Table, path: tuple[str, ...]) -> Iterator[Case]:
    key = ".".join(path)
    value, words = _wrong_type(field)
    yield Case(table=_put(base, path, value), key=key, words=words, mistake="wrong type")
    for value, word in out_of_range(field.annotation, field.metadata):
        table = _put(base, path, value)
        yield Case(table=table, key=key, words=[word], mistake="out of range")
    if get_origin(field.annotation) in (list, tuple):
        for part in _flatten(get_args(field.annotation)[0]):
            if isinstance(part, str):
                table = _put(base, path, [WORD])
                yield Case(table=table, key=f"{key}.0", words=[part], mistake="wrong item")
    if get_origin(field.annotation) is dict:
        for value, word in out_of_range(get_args(field.annotation)[1], ()):
            table = _put(base, path, {"correct": value})
            yield Case(table=table, key=f"{key}.correct", words=[word], mistake="out of range")


def _wrong_type(field: FieldInfo) -> tuple[Json, list[str]]:
    """Find a value that a field cannot take, and what the message says of those it can."""
    parts = set(_flatten(field.annotation))
    literals = [str(part) for part in parts if isinstance(part, str | int)]
    if literals:
        return WORD, literals
    for plain, words in ((bool, "true or false"), (int, "a whole number"), (float, "a number")):
        if plain in parts and str not in parts:
            return WORD, [words]
    if list in parts or tuple in parts:
        return 3.5, ["a list"]
    if dict in parts:
        return 3.5, ["a table"]
    return 3.5, [
        "a table"
        if any(isinstance(part, type) and issubclass(part, BaseModel) for part in parts)
        else "text"
    ]


def out_of_range(annotation: object, metadata: Sequence[object]) -> Iterator[tuple[Json, str]]:
    for limit in metadata:
        match limit:
            case Ge(ge=low):
                yield low - 1, f"at least {low}"
            case Gt(gt=low):
                yield low, f"greater than {low}"
            case Le(le=high):
                yield high * 2 + 1, f"at most {high}"
            case Lt(lt=high):
                yield high, f"less than {high}"
            case MinLen(min_length=least) if least > 0:
                yield [] if get_origin(annotation) in (list, tuple) else "", str(least)
            case FieldInfo():
                yield from out_of_range(annotation, limit.metadata)
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        yield from out_of_range(inner, more)
    elif get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            yield from out_of_range(part, ())


def _list_tables(field: FieldInfo) -> Iterator[tuple[Table, type]]:
    """List a table for each settings class that a field can hold, and what holds it."""
    holder = list if {list, tuple} & {*_flatten(field.annotation)} else dict
    if get_origin(field.annotation) is dict:
        return
    for model in find_settings_classes(field.annotation):
        for tag in _list_tags(model) if model not in USERS_OWN else ():
            yield {**tag, **fill(model)}, holder


def _list_tags(model: type[BaseModel]) -> list[Table]:
    for name in TAGS:
        field = model.model_fields.get(name)
        if field is not None and get_origin(field.annotation) is Literal:
            return [{name: str(get_args(field.annotation)[0])}]
    return [{}]


def _find_class(field: FieldInfo, table: Table) -> type[BaseModel]:
    tags = {name: table[name] for name in TAGS if name in table}
    return next(
        model
        for model in find_settings_classes(field.annotation)
        if tags in ({}, *_list_tags(model))
    )


def _flatten(annotation: object) -> Iterator[object]:
    """List the plain types, settings classes and literal values of an annotation."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _flatten(get_args(annotation)[0])
    elif origin in (Union, UnionType, Literal):
        for part in get_args(annotation):
            yield from [part] if origin is Literal else _flatten(part)
    elif annotation is not NoneType:
        yield origin or annotation


def _put(table: Table, path: Sequence[str], value: Json) -> Table:
    """Set a value in a copy of a table; "0" is the first item of a list."""
    if "0" in path:
        at = path.index("0")
        items = _look_up(table, path[:at])
        assert isinstance(items, list) and isinstance(items[0], dict)
        return with_value(table, ".".join(path[:at]), [_put(items[0], path[at + 1 :], value)])
    return with_value(table, ".".join(path), value)


def _look_up(table: Json, path: Sequence[str]) -> Json:
    for key in path:
        assert isinstance(table, dict)
        table = table[key]
    return table
