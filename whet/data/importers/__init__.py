"""Row formats of other systems, by name; a benchmark's format is named after its file.

`formats.md` lists them with their fields. Each family of formats has a module with a function for
each. A user's own format is a function of a row's `Fields`, given as `--format my_rows.py:read`.
"""

from importlib.resources import files

from whet.data.importers import code, graphs, logic, mapped, math, outputs, qa, tables, verl
from whet.data.importers.base import Fields, ParsedRow, Reader, RowFormat
from whet.data.importers.mapped import parse_split
from whet.errors import ConfigError, DataError
from whet.user_code import is_code_path, load_function


def _read_table() -> dict[str, RowFormat]:
    families = (math, qa, tables, logic, graphs, code, outputs, verl, mapped)
    readers = {name: read for family in families for name, read in family.READERS.items()}
    formats = {}
    lines = files(__name__).joinpath("formats.md").read_text(encoding="utf-8").splitlines()
    for line in lines[2:]:
        name, split, about, fields = line.strip("| ").split(" | ")
        required, _, optional = fields.removesuffix("]").partition("[")
        formats[name] = RowFormat(
            about=about,
            required=tuple(required.strip().split(", ")) if required else (),
            optional=None if optional == "*" else tuple(optional.split(", ")) if optional else (),
            split=parse_split(split),
            read=readers[name],
        )
    return formats


FORMATS = _read_table()


def find_format(name: str) -> RowFormat:
    """Find a format by name, or load a user's; an error lists the known names."""
    if is_code_path(name):
        return RowFormat(about="", required=(), optional=None, split="rl", read=_load_reader(name))
    if name not in FORMATS:
        raise ConfigError(
            f"there is no format {name!r}; known formats: {', '.join(sorted(FORMATS))}, or your "
            "own function such as my_rows.py:read"
        )
    return FORMATS[name]


def _load_reader(reference: str) -> Reader:
    call = load_function(reference, "--format", ("row",), passes=(DataError,))

    def read(row: Fields) -> ParsedRow:
        parsed = call(row)
        if not isinstance(parsed, ParsedRow):
            raise ConfigError(
                f"--format = {reference!r} should return a ParsedRow, not {parsed!r:.60}"
            )
        return parsed

    return read
