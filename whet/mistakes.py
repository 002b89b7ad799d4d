"""What pydantic found wrong with settings, as one sentence: the key, its value, its file, what
would be right."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from whet import tables, toml
from whet.tables import TAGS
from whet.toml import Table
from whet.types import Json

Model = type[BaseModel]
WANTED: Mapping[str, str] = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "path_type": "a path",
    "none_required": "none",
    "finite_number": "a finite number",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "too_short": "at least {min_length} long",
    "too_long": "at most {max_length} long",
    "string_too_short": "at least {min_length} characters long",
    "string_too_long": "at most {max_length} characters long",
    "string_pattern_mismatch": "text of the form {pattern}",
}


MOVED: Mapping[str, str] = {"exam": "validation"}
"""Settings of older files, by their dotted keys in a stage, and what they are called now."""


def sentence(
    kind: Model, errors: Sequence[ErrorDetails], tree: Table, origin: Callable[[str], str]
) -> str:
    """Say the first mistake, and how many keys have one besides it; one that moved comes first."""
    errors = sorted(errors, key=lambda error: _moved_to(".".join(path(error["loc"], tree))) is None)
    keys = [".".join(path(error["loc"], tree)) for error in errors]
    alike = [error for error, key in zip(errors, keys, strict=True) if key == keys[0]]
    more = len(set(keys)) - 1
    counted = f" (and {more} more mistake{'s' if more > 1 else ''})" if more else ""
    leaf = keys[0]
    unknown = _at(tree, leaf.split("."))
    if alike[0]["type"] == "extra_forbidden" and isinstance(unknown, dict) and unknown:
        leaf = next(iter(tables.flat(unknown, f"{leaf}.")))
    return (
        _no_such(alike[0], keys[0], tree, origin) or _one(kind, alike, keys[0], tree, origin(leaf))
    ) + counted


def path(loc: Sequence[str | int], tree: Table) -> list[str]:
    """Follow an error's location through what was given, leaving out the union tags that pydantic
    puts in between."""
    keys: list[str] = []
    here: Json = tree
    for index, part in enumerate(loc):
        last = index == len(loc) - 1
        is_tag = isinstance(here, dict) and part in [here.get(tag) for tag in TAGS]
        if isinstance(here, dict) and (part in here or (last and not is_tag)):
            here = here.get(str(part))
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            here = here[part]
        else:
            continue
        keys.append(str(part))
    return keys


def models(annotation: object) -> Iterator[Model]:
    """Find the settings classes a type speaks of: itself, its union members, its list or dict
    items."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models(part)


def tags(model: Model) -> Iterator[str]:
    """List the values by which a union tells this class from its siblings."""
    for name, field in model.model_fields.items():
        if name in TAGS and get_origin(field.annotation) is Literal:
            yield from get_args(field.annotation)


def _no_such(
    error: ErrorDetails, key: str, tree: Table, origin: Callable[[str], str]
) -> str | None:
    """Name a table that flags alone have opened, such as a stage whose name is mistyped; None for
    other mistakes."""
    way = key.split(".")
    given = _at(tree, way)
    around = _at(tree, way[:-1])
    if (
        error["type"] != "union_tag_not_found"
        or not isinstance(given, dict)
        or not isinstance(around, dict)
    ):
        return None
    leaves = tables.flat(given, f"{key}.")
    others = [name for name in around if name != way[-1]]
    if not others or any(origin(leaf) != "cli" for leaf in leaves):
        return None
    return f'unknown flag --{next(iter(leaves))}; there is no "{key}", only {", ".join(others)}'


def _one(kind: Model, errors: Sequence[ErrorDetails], key: str, tree: Table, origin: str) -> str:
    error = errors[0]
    given = toml.literal(_at(tree, key.split(".")))
    where = "" if origin in ("cli", "default") else f" in {origin}"
    if error["type"] == "extra_forbidden":
        unknown = f"unknown flag --{key}" if origin == "cli" else f'unknown key "{key}"{where}'
        return unknown + _nearest(kind, error["loc"], key)
    if error["type"] == "missing" and isinstance(error["loc"][-1], int):
        return f"{key} = {given}{where}: should have {error['loc'][-1] + 1} or more items"
    if error["type"] == "missing":
        return f'"{key}" is missing: set it in the file or with --{key}'
    if error["type"] == "value_error":
        message = error["msg"].removeprefix("Value error, ")
        return (
            f"{key}{'' if given.startswith('{') else f' = {given}'}{where}: {message}"
            if key
            else message
        )
    if error["type"] in ("union_tag_invalid", "union_tag_not_found"):
        tag = str(error["ctx"]["discriminator"]).strip("'")
        choices = ", ".join(
            toml.literal(name) for model in _models_at(kind, error["loc"]) for name in tags(model)
        )
        given = toml.literal(_at(tree, [*key.split("."), tag]))
        return f"{key}.{tag} = {given}{where}: should be one of {choices}"
    wanted = dict.fromkeys(_expectation(row) for row in errors)
    return f"{key} = {given}{where}: should be {' or '.join(wanted)}"


def _expectation(error: ErrorDetails) -> str:
    if template := WANTED.get(error["type"]):
        return template.format(**error.get("ctx", {})).replace("'", '"')
    return error["msg"].removeprefix("Input should be ").removeprefix("Value error, should be ")


def _nearest(kind: Model, loc: Sequence[str | int], key: str) -> str:
    parent, _, last = key.rpartition(".")
    if (new := _moved_to(key)) is not None:
        return f'; it is called "{new}" now'
    known = sorted({name for model in _models_at(kind, loc[:-1]) for name in model.model_fields})
    if close := get_close_matches(last, known, n=1, cutoff=0.65):
        return f'; did you mean "{parent + "." if parent else ""}{close[0]}"?'
    elsewhere = [name for name in _deep(kind) if name.endswith(f".{key}") and not parent]
    if deep := get_close_matches(key, elsewhere, n=1, cutoff=0):
        return f'; did you mean "{deep[0]}"?'
    return f"; known keys{' of ' + parent if parent else ''}: {', '.join(known)}"


def _moved_to(key: str) -> str | None:
    """Find what a key of an older file is called now, in a stage or above all of them."""
    for old, new in MOVED.items():
        stage = f".{key}".removesuffix(f".{old}")
        if stage != f".{key}":
            return f"{stage}.{new}".removeprefix(".")
    return None


def _models_at(kind: Model, loc: Sequence[str | int]) -> list[Model]:
    here = [kind]
    is_name = False
    for part in loc:
        if is_name:  # a key of a dict, such as a stage's name
            is_name = False
            continue
        fields = [
            model.model_fields[part]
            for model in here
            if isinstance(part, str) and part in model.model_fields
        ]
        if fields:
            here = [model for field in fields for model in models(field.annotation)]
            is_name = any(get_origin(field.annotation) is dict for field in fields)
        else:
            here = [model for model in here if part in set(tags(model))] or here
    return here


def _deep(kind: Model, prefix: str = "") -> Iterator[str]:
    for name, field in kind.model_fields.items():
        yield f"{prefix}{name}"
        for model in models(field.annotation):
            yield from _deep(model, f"{prefix}{name}.")


def _at(tree: Table, keys: Sequence[str]) -> Json:
    here: Json = tree
    for key in keys:
        if isinstance(here, list):
            here = here[int(key)]
        elif isinstance(here, dict):
            here = here.get(key)
    return here
