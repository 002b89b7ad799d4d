"""Formats of other systems' rows, by name; a benchmark has the name of its file.

Each family is a file here. A format reads a row into a draft of a problem.
"""

from whet.data.importers import choice, code, graphs, logic, mapped, math, outputs, tables, verl
from whet.data.importers.base import Format
from whet.errors import ConfigError

FORMATS: dict[str, Format] = {
    **math.FORMATS,
    **choice.FORMATS,
    **logic.FORMATS,
    **tables.FORMATS,
    **graphs.FORMATS,
    **code.FORMATS,
    **outputs.FORMATS,
    **verl.FORMATS,
    **mapped.FORMATS,
}


def find_format(name: str) -> Format:
    """Find a format; an unknown name is refused with the list of those that are known."""
    if name not in FORMATS:
        raise ConfigError(f"there is no format {name!r}; known are {', '.join(sorted(FORMATS))}")
    return FORMATS[name]
