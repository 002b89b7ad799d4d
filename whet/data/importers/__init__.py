"""Layouts of other systems' rows, by name. Each family is one small file; a layout is a function
from a row to a draft.

The benchmarks carry the names of their files.
"""

from whet.data.importers import (
    areal,
    choice,
    code,
    graphs,
    logic,
    mapped,
    math,
    outputs,
    simulation,
    tables,
    verl,
)
from whet.data.importers.base import Format
from whet.errors import ConfigError

FORMATS: dict[str, Format] = {
    **math.FORMATS,
    **choice.FORMATS,
    **logic.FORMATS,
    **tables.FORMATS,
    **graphs.FORMATS,
    **code.FORMATS,
    **simulation.FORMATS,
    **outputs.FORMATS,
    **verl.FORMATS,
    **areal.FORMATS,
    **mapped.FORMATS,
}


def format_named(name: str) -> Format:
    """Find a layout; an unknown name is refused with the list of those that are known."""
    if name not in FORMATS:
        raise ConfigError(f"there is no format {name!r}; known are {', '.join(sorted(FORMATS))}")
    return FORMATS[name]
