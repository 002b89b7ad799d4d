"""docs/settings.md: every setting of every kind of stage, with its values, unit, default and
meaning, read from the classes.

    python tools/settings_page.py           # write the page again python tools/settings_page.py
    --check   # exit with 1 if it would change
"""

import argparse
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from whet import toml
from whet.config import CONSTANT, differences
from whet.config_errors import find_settings_classes, list_tags
from whet.pipeline.pipeline_config import STAGE_KINDS
from whet.recipes.registry import STAGES

WIDTH = 120
PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
HEAD = """# Settings

Every setting of every kind of stage. `python tools/settings_page.py` writes this page from the code, and a test fails
when it is out of date. `whet show FILE --explain` prints the settings of a file that have an effect, with their values
and where these come from.

A setting has a place in its stage: `lr` of [`train`](#train) is `train.lr` in the file of one stage,
`stages.rl.train.lr` for the stage `rl` of a pipeline, and `--stages.rl.train.lr 1e-6` on the command line. `none` is
written as the text `"none"`. A default of — means that the setting must be given. A setting that would change nothing
under the others is refused with the reason.
"""
PLAIN = {int: "whole number", float: "number", bool: "true or false", str: "text", Path: "path"}
UNITS: Mapping[str, str] = {
    "tokens": "buffer easy_tokens free_tokens max_model_len max_tokens micro_batch_tokens positions",
    "steps": "every generator_turns lag steps verifier_turns warmup warmup_steps max_steps",
    "epochs": "epochs rest",
    "problems": "count max_extra_problems most problems problems_per_step",
    "responses": "first_samples group_size held_out samples per_problem",
    "verifications": "judgements verifier_group_size",
    "examples": "batch_size",
    "optimizer steps": "num_minibatches",
    "checkpoints": "keep",
    "requests": "in_flight max_num_seqs",
    "per minute": "requests_per_minute tokens_per_minute",
    "seconds": "budget seconds timeout wait wall",
    "MiB": "memory_mb",
    "GiB": "kv_cache_gb",
    "characters": "min_unit",
    "digits": "rounded_digits",
    "processes": "workers",
    "ranks": "sequence_parallel shard",
    "attempts": "restores tries",
    "price": "price_in price_out",
    "reward": "answer_weight correct correct_long correct_short exact feasible no_answer other "
    "think_weight wrong wrong_long wrong_short",
    "level, 0 to 1": "level max_level min_level",
    "fraction, 0 to 1": "alpha final_alpha gae_lambda gamma max_momentum quantile smoothing "
    "threshold tolerance top_p unscored_fraction beta2",
    "ratio": "clip clip_high clip_low dual_clip high low limit",
    "factor": "beta entropy_coef kl_coef lr_factor step_weight weight weights",
    "of the logits": "final_temperature temperature",
    "gradient norm": "max_grad_norm",
    "none": "depth eps final_lr highest_card lr max_pieces min_repeats rank seed size top_k "
    "weight_decay",
}
"""The names of numeric settings by their unit; those that count things without a unit are last."""
EXCEPTIONS: Mapping[tuple[str, str], str] = {
    ("LoraConfig", "alpha"): "none",
    ("PairsConfig", "per_problem"): "pairs",
    ("DPOConfig", "batch_size"): "pairs",
    ("KeepConfig", "most"): "responses",
    ("PassRateCurriculum", "low"): "fraction, 0 to 1",
    ("PassRateCurriculum", "high"): "fraction, 0 to 1",
    ("CriticConfig", "clip"): "reward",
}
"""Where a name has another unit in one class."""

Model = type[BaseModel]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a class of settings is used: its dotted keys in a stage, and the kinds of stages."""

    keys: tuple[str, ...]
    kinds: tuple[str, ...]
    is_variant: bool
    """Whether the class is one of several at its place, selected by `kind` or `name`."""


def write_page() -> str:
    """Write the page: the stages, then the tables that they share."""
    places = find_places()
    parts = [HEAD, "## Stages\n"]
    for kind, stage in STAGE_KINDS.items():
        runs = f"`whet {kind} FILE`" if STAGES[kind].help else "in pipelines only"
        parts += [f"### {kind}\n", _wrap(f"{_sentence(stage)} Run: {runs}."), _table(stage, places)]
    parts.append("## Tables\n")
    written: set[str] = set()
    for model, place in places.items():
        key = place.keys[0]
        if key not in written:
            parts.append(f"### {key}\n")
            others = f" Also: {_join(place.keys[1:])}." if place.keys[1:] else ""
            parts.append(_wrap(f"In {', '.join(place.kinds)}.{others}"))
            written.add(key)
        if place.is_variant:
            parts.append(f"#### {_variant(model, key)}\n")
        if text := _sentence(model):
            parts.append(_wrap(text))
        parts.append(_table(model, places))
    return "\n".join(parts)


def find_places() -> dict[Model, Place]:
    """Find the classes below the stages, those nearest to a stage first, in the order of keys."""
    found: dict[Model, list[tuple[str, str, bool]]] = {}
    ways: list[tuple[str, str, Model]] = [(kind, "", model) for kind, model in STAGE_KINDS.items()]
    while ways:
        deeper: list[tuple[str, str, Model]] = []
        for kind, prefix, model in ways:
            for name, field in settings_of(model).items():
                below = list(find_settings_classes(field.annotation))
                for part in below:
                    key = f"{prefix}{name}"
                    found.setdefault(part, []).append((kind, key, len(below) > 1))
                    deeper.append((kind, f"{key}.", part))
        ways = [way for way in deeper if way[1].count(".") < 5 and ".tasks." not in way[1]]
    places = {
        model: Place(
            keys=tuple(dict.fromkeys(key for _, key, _ in rows)),
            kinds=tuple(dict.fromkeys(kind for kind, _, _ in rows)),
            is_variant=rows[0][2],
        )
        for model, rows in found.items()
    }
    order = list(dict.fromkeys(place.keys[0] for place in places.values()))
    return dict(sorted(places.items(), key=lambda item: order.index(item[1].keys[0])))


def settings_of(model: Model) -> dict[str, FieldInfo]:
    """List the fields of a class that are settings."""
    fields = model.model_fields.items()
    return {name: field for name, field in fields if field.json_schema_extra is not CONSTANT}


def list_faults(stages: Iterable[Model]) -> list[str]:
    """Name the settings without a meaning, and the numbers without a unit."""
    faults = []
    for model in (*stages, *find_places()):
        for name, field in settings_of(model).items():
            if not _meaning(name, field):
                faults.append(f"{model.__name__}.{name} has no docstring below it")
            if _is_number(field.annotation) and _unit(model, name) is None:
                faults.append(f"{model.__name__}.{name} has no unit in {Path(__file__).name}")
    return faults


def _table(model: Model, places: Mapping[Model, Place]) -> str:
    lines = ["| setting | values | unit | default | meaning |", "|---|---|---|---|---|"]
    for name, field in settings_of(model).items():
        cells = (
            f"`{name}`",
            _values(field, places),
            _show_unit(model, name, field),
            _default(field),
            _meaning(name, field),
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _meaning(name: str, field: FieldInfo) -> str:
    text = " ".join((field.description or "").split())
    if not text and name in toml.TAGS and get_origin(field.annotation) is Literal:
        return "Says what the file or the table is; the settings below go with it."
    return _escape(text)


def _wrap(paragraph: str) -> str:
    """Wrap a paragraph as the documents are; a name in backticks stays on one line."""
    glued = re.sub(r"`[^`]*`", lambda span: span[0].replace(" ", "\0"), paragraph)
    lines = textwrap.wrap(glued, WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ") + "\n"


def _sentence(model: Model) -> str:
    """Return the first paragraph of a class; pydantic's own is none."""
    text = model.__dict__.get("__doc__") or ""
    return _escape(" ".join(text.split("\n\n")[0].split()))


def _escape(text: str) -> str:
    """Keep tags in the text, outside of backticks, from being read as HTML."""
    parts = text.split("`")
    return "`".join(
        part if index % 2 else part.replace("<", "&lt;").replace("*", "\\*")
        for index, part in enumerate(parts)
    )


def _variant(model: Model, key: str) -> str:
    return f"{key}: {', '.join(list_tags(model)) or model.__name__}"


def _values(field: FieldInfo, places: Mapping[Model, Place]) -> str:
    if models := list(find_settings_classes(field.annotation)):
        key = places[models[0]].keys[0]
        words = f"[{key}](#{key.replace('.', '')})"
        if get_origin(field.annotation) in (list, tuple):
            words = f"list of {words}"
        return f"{words} or none" if NoneType in get_args(field.annotation) else words
    bounds = [_bound(item) for item in field.metadata]
    return ", ".join([_type(field.annotation), *filter(None, bounds)])


def _type(annotation: object) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(args[0])
    if origin is Literal:
        return ", ".join(f"`{toml.literal(value)}`" for value in args)
    if origin in (Union, UnionType):
        return " or ".join("none" if part is NoneType else _type(part) for part in args)
    if origin in (tuple, list):
        parts = dict.fromkeys(_type(part) for part in args if part is not Ellipsis)
        return f"list of {' or '.join(parts)}"
    if origin is dict:
        return f"table of {_type(args[1])} by {_type(args[0])}"
    return PLAIN.get(annotation, "text") if isinstance(annotation, type) else "text"


def _bound(item: object) -> str:
    match item:
        case Ge(ge=bound):
            return f"≥ {_number(bound)}"
        case Gt(gt=bound):
            return f"> {_number(bound)}"
        case Le(le=bound):
            return f"≤ {_number(bound)}"
        case Lt(lt=bound):
            return f"< {_number(bound)}"
    return ""


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "—"
    value = field.get_default(call_default_factory=True, validated_data={})
    if not isinstance(value, BaseModel):
        return f"`{toml.literal(to_jsonable_python(value, inf_nan_mode='constants'))}`"
    try:
        changed = differences(type(value)(), value)  # type: ignore[arg-type]
    except ValueError:  # the class has settings without a default
        changed = []
    pairs = [(line.partition(":")[0], line.partition(" -> ")[2]) for line in changed]
    return ", ".join(f"`{key} = {new}`" for key, new in pairs)


def _is_number(annotation: object) -> bool:
    if annotation in (int, float):
        return True
    if get_origin(annotation) is Literal:
        return False
    return any(_is_number(part) for part in get_args(annotation) if not isinstance(part, FieldInfo))


def _unit(model: Model, name: str) -> str | None:
    named = [unit for unit, names in UNITS.items() if name in names.split()]
    return EXCEPTIONS.get((model.__name__, name)) or next(iter(named), None)


def _show_unit(model: Model, name: str, field: FieldInfo) -> str:
    unit = _unit(model, name) if _is_number(field.annotation) else None
    return "" if unit in (None, "none") else str(unit)


def _join(keys: tuple[str, ...]) -> str:
    return ", ".join(f"`{key}`" for key in keys)


def lines_that_differ(old: str, new: str) -> Iterator[str]:
    """List the lines that only one of two texts has."""
    yield from sorted(set(old.splitlines()) ^ set(new.splitlines()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    page = write_page()
    if parser.parse_args().check:
        sys.exit("\n".join(lines_that_differ(PAGE.read_text(), page)) or 0)
    PAGE.write_text(page)
    print(f"{page.count(chr(10) + '| `')} settings in {PAGE}")


if __name__ == "__main__":
    main()
