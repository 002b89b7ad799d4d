"""A program that prints what every setting means, and how algorithms compare rewards.

The classes with these facts load torch, and a viewer should not wait for it: `facts.py` runs this
program beside the viewer, once per version of whet.
"""

import json
from dataclasses import asdict
from types import UnionType
from typing import Annotated, Union, get_args, get_origin

from whet.algos.presets import PRESETS, Preset
from whet.config import Config
from whet.pipeline.pipeline_config import STAGE_KINDS


def list_meanings(settings: type[Config], prefix: str = "") -> dict[str, str]:
    """Return the meaning of each setting of a class by its dotted key, of the first variant."""
    meanings: dict[str, str] = {}
    for name, field in settings.model_fields.items():
        key = f"{prefix}{name}"
        meanings[key] = " ".join((field.description or "").split())
        for variant in list_configs(field.annotation):
            for inner, meaning in list_meanings(variant, f"{key}.").items():
                meanings.setdefault(inner, meaning)
    return meanings


def list_configs(annotation: object) -> list[type[Config]]:
    """Find the settings classes in a type such as `A | B | None`, but not inside lists."""
    if isinstance(annotation, type):
        return [annotation] if issubclass(annotation, Config) else []
    if get_origin(annotation) in (Union, UnionType, Annotated):
        return [config for part in get_args(annotation) for config in list_configs(part)]
    return []


def main() -> None:
    meanings = {kind: list_meanings(settings) for kind, settings in STAGE_KINDS.items()}
    presets = {name: describe_preset(preset) for name, preset in PRESETS.items()}
    print(json.dumps({"meanings": meanings, "presets": presets}))


def describe_preset(preset: Preset) -> dict[str, str | float | bool | None]:
    """Return the parts of an algorithm that settings of the same names replace."""
    parts = asdict(preset)
    return {name: parts[name] for name in parts if name != "paper"}


if __name__ == "__main__":
    main()
