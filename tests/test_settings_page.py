"""docs/settings.md is what the code says, and the code says what every setting means."""

import sys
from pathlib import Path
from typing import Literal

from whet.config import Config
from whet.pipeline.pipeline_config import STAGE_KINDS

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import settings_page  # noqa: E402


def test_the_page_of_settings_is_up_to_date() -> None:
    changed = settings_page.lines_that_differ(
        settings_page.PAGE.read_text(), settings_page.write_page()
    )
    assert list(changed) == [], "write it with `python tools/settings_page.py`"


def test_every_setting_has_a_meaning_and_every_number_a_unit() -> None:
    assert settings_page.list_faults(STAGE_KINDS.values()) == []


class Undocumented(Config):
    """Settings with two faults."""

    kind: Literal["undocumented"] = "undocumented"
    mystery: bool = False
    furlongs: float | None = None
    """How far."""


def test_a_setting_without_meaning_and_a_number_without_unit_are_seen() -> None:
    assert settings_page.list_faults([Undocumented])[:2] == [
        "Undocumented.mystery has no docstring below it",
        "Undocumented.furlongs has no unit in settings_page.py",
    ]


def test_the_page_has_units_defaults_and_what_a_stage_changes() -> None:
    lines = settings_page.PAGE.read_text().splitlines()
    wall = "| `wall` | number, > 0 | seconds | `30.0` | Seconds per response, from"
    assert [line for line in lines if line.startswith(wall)] != []
    assert [
        line
        for line in lines
        if line.startswith('| `algo` | [algo](#algo) |  | `name = "tango_grpo"')
    ]
