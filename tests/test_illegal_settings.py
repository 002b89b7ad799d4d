"""Every illegal setting is refused before a model loads, with its key and what would be legal."""

from collections.abc import Iterator
from typing import get_args

import pytest
from illegal import Case, fill, list_cases, list_fields, out_of_range
from pydantic import BaseModel

from whet import toml
from whet.algos.settings import AlgoConfig
from whet.config import Config, load_settings
from whet.errors import ConfigError
from whet.pipeline.pipeline_config import STAGE_KINDS, PipelineConfig
from whet.toml import Table

UNBOUNDED = {"seed", "entropy_coef", "threshold"}
"""Numbers that may be anything: a bonus may be a penalty."""
ALGORITHMS = get_args(AlgoConfig.model_fields["name"].annotation)


def refusal(kind: type[Config], table: Table, *flags: str) -> str:
    """Read settings that should be refused; return the sentence, or nothing where they are not."""
    try:
        load_settings(kind, None, flags, defaults=table)
    except ConfigError as error:
        return str(error)
    return ""


def faults(cases: Iterator[Case], kind: type[Config]) -> tuple[int, list[str]]:
    """Count the cases, and list those whose message lacks the key or what is legal."""
    number = 0
    wrong = []
    for case in cases:
        number += 1
        message = refusal(kind, case.table)
        if not all(words in message for words in (case.key, *case.words)):
            wrong.append(f"{case} {case.words}: {message!r}")
    return number, wrong


@pytest.mark.parametrize("kind", STAGE_KINDS)
def test_each_setting_of_a_stage_is_refused_where_its_type_range_or_name_is_wrong(
    kind: str,
) -> None:
    number, wrong = faults(list_cases(STAGE_KINDS[kind], skip=["task"]), STAGE_KINDS[kind])

    assert wrong == []
    assert number >= {"make": 6, "teach": 15}.get(kind, 100)


def test_each_setting_of_each_task_is_refused_where_its_type_range_or_name_is_wrong() -> None:
    others = [name for name in STAGE_KINDS["make"].model_fields if name != "task"]
    number, wrong = faults(list_cases(STAGE_KINDS["make"], skip=others), STAGE_KINDS["make"])

    assert wrong == []
    assert number > 500


def test_a_mistake_in_a_stage_of_a_pipeline_is_named_with_the_stage() -> None:
    table: Table = {"task": "game24", "stages": {"one": {"kind": "rl", **fill(STAGE_KINDS["rl"])}}}

    for key, value, words in (
        ("train.lr", "-1", "greater than 0"),
        ("group_size", "many", "a whole number"),
        ("algo.nane", "grpo", 'did you mean "stages.one.algo.name"'),
        ("critic.lr", "0.1", 'algo.name = "grpo" needs no critic; ppo does'),
    ):
        message = refusal(PipelineConfig, table, f"--stages.one.{key}", value)
        assert f"stages.one.{key}" in message and words in message


def test_each_number_has_a_range_or_may_be_anything() -> None:
    fields = list_fields(PipelineConfig)
    numbers = [
        (model.__name__, name)
        for model, name, field in fields
        if {int, float} & {field.annotation} and name not in UNBOUNDED
        if not list(out_of_range(field.annotation, field.metadata))
    ]

    assert numbers == []


def unused(config: Config) -> Iterator[tuple[str, str]]:
    """List the settings that have no effect, each with the reason; a table by one of its own."""
    for key, reason in config.without_effect().items():
        here: object = config
        for part in key.split("."):
            here = None if here is None else dict(here)[part]  # type: ignore[call-overload]
        below = next(iter(type(here).model_fields)) if isinstance(here, BaseModel) else None
        yield (f"{key}.{below}" if below else key), reason
    tables = config.without_effect()
    for name, item in config:
        if isinstance(item, Config):
            for key, reason in unused(item):
                if not any(f"{name}.{key}.".startswith(f"{table}.") for table in tables):
                    yield f"{name}.{key}", reason


VARIANTS: dict[str, list[Table]] = {
    "rl": [{"algo": {"name": name}} for name in ALGORITHMS if not name.startswith("tango")],
    "dpo": [{"data": "d"}, {}],
    "sft": [{"model": {"path": "none", "new": "tiny"}}, {}],
}


@pytest.mark.parametrize("kind", STAGE_KINDS)
def test_a_setting_without_effect_is_refused_with_the_reason(kind: str) -> None:
    number = 0
    for variant in VARIANTS.get(kind, [{}]):
        table = toml.merge(fill(STAGE_KINDS[kind]), variant)
        config = load_settings(STAGE_KINDS[kind], None, [], defaults=table).config
        for key, reason in unused(config):
            value = toml.look_up(config.model_dump(mode="json"), key.split("."))
            if value is None and key.endswith((".new", ".lora")):
                continue  # none is what they have to be
            message = refusal(STAGE_KINDS[kind], table, f"--{key}", toml.literal(value))
            assert message.startswith(f"{key} = "), (key, message)
            assert message.endswith(f" has no effect: {reason}; leave it out")
            number += 1

    assert number > 0 or kind in ("make", "teach")
