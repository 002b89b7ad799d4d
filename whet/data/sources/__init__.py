"""Sources: training and evaluation sets, each described by a TOML file in this folder.

A file says where the rows are (hub id or local names), how to read, filter and split them, and how
to prompt. A user's own source is such a file, given by its path.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

from pydantic import Field

from whet import toml
from whet.config import Config, load_settings
from whet.data.importers import find_format
from whet.data.importers.base import show
from whet.data.importers.mapped import parse_mapping, read_column
from whet.data.problems import split_by_hash
from whet.errors import ConfigError
from whet.store.files import Row
from whet.tasks.registry import TASKS
from whet.types import Json, Split
from whet.user_code import is_code_path

_Value = str | bool | int | float
MAX_SEARCHED = 100_000
"""Most characters of a value that patterns are matched against."""
_FOLDER = Path(str(files(__name__)))


class ColumnRule(Config):
    """A condition on one column; if several are given, all must hold."""

    column: str
    """Its name, or a path such as `extra_info.index`. A row without it cannot be read."""
    equals: _Value | None = None
    """The value it must have."""
    one_of: tuple[_Value, ...] = ()
    """Values of which it must be one."""
    none_of: tuple[_Value, ...] = ()
    """Values that it must not have."""
    min: float | None = None
    """The smallest number, such as a pass rate; text that is a number counts as one."""
    max: float | None = None
    """The largest number."""
    min_chars: int | None = Field(default=None, ge=0)
    """The fewest characters of a text."""
    max_chars: int | None = Field(default=None, ge=0)
    """The most characters of a text."""
    empty: Literal["no", "yes"] | None = None
    """`no` leaves out rows where it is null, a blank text or an empty list; `yes` the others."""
    matching: str = ""
    """A regular expression that must match somewhere in the text."""
    not_matching: str = ""
    """A regular expression that must not match."""

    def check(self) -> None:
        """Refuse an empty rule and an invalid regular expression."""
        if self == ColumnRule(column=self.column):
            raise ConfigError(f"the rule for the column {self.column!r} has no condition")
        for pattern in (self.matching, self.not_matching):
            try:
                re.compile(pattern)
            except (re.error, RecursionError) as error:
                raise ConfigError(f"{pattern!r} is not a regular expression: {error}") from error

    def explain(self, row: Row) -> str | None:
        """Say why a row is left out; None if it is kept."""
        value = read_column(row, self.column)
        failure = self._find_failure(value)
        return failure and f"{self.column} {failure}"

    def _find_failure(self, value: Json) -> str | None:
        if self.equals is not None and not _is_same(value, self.equals):
            return f"is not {show(self.equals)}"
        if self.one_of and not any(_is_same(value, item) for item in self.one_of):
            return f"is none of {show(list(self.one_of))}"
        if any(_is_same(value, item) for item in self.none_of):
            return f"is {show(value)}"
        if self.empty is not None and (self.empty == "yes") != _is_empty(value):
            return "is empty" if self.empty == "no" else "is not empty"
        return self._find_number_failure(value) or self._find_text_failure(value)

    def _find_number_failure(self, value: Json) -> str | None:
        if self.min is None and self.max is None:
            return None
        number = _to_number(value)
        if number is None:
            return "is not a number"
        if self.min is not None and number < self.min:
            return f"is below {self.min:g}"
        return f"is above {self.max:g}" if self.max is not None and number > self.max else None

    def _find_text_failure(self, value: Json) -> str | None:
        text = value if isinstance(value, str) else "" if value is None else show(value)
        if self.min_chars is not None and len(text) < self.min_chars:
            return f"has fewer than {self.min_chars:,} characters"
        if self.max_chars is not None and len(text) > self.max_chars:
            return f"has more than {self.max_chars:,} characters"
        if self.matching and not _compile(self.matching).search(text[:MAX_SEARCHED]):
            return f"does not match {self.matching}"
        if self.not_matching and _compile(self.not_matching).search(text[:MAX_SEARCHED]):
            return f"matches {self.not_matching}"
        return None


_compile = cache(re.compile)


def _is_same(value: Json, wanted: _Value) -> bool:
    """Compare values, with true and 1 different."""
    return value == wanted and isinstance(value, bool) == isinstance(wanted, bool)


def _is_empty(value: Json) -> bool:
    return value is None or value == [] or (isinstance(value, str) and not value.strip())


def _to_number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return float(value)
    except ValueError:
        return None


Seen = Literal["rows", "schema", "unknown"]


class SourceFile(Config):
    """Files whose rows are read in the same way."""

    names: tuple[str, ...] = Field(min_length=1)
    """Patterns of their paths: in the hub's repository, in the folder of raw files, or, for your
    own source, in the folder of its file."""
    split: Split | Mapping[Split, float] | None = None
    """The split of the rows, or fractions by the hash of their prompt; None takes the rows' own."""
    hub: str | None = None
    """Another repository than the source's."""
    format: str | None = None
    """Another layout than the source's."""
    rows: int | None = Field(default=None, ge=1)
    """Read only this many from the beginning of each file."""


class SourcePrompt(Config):
    """Changes to the prompt that the format makes of a row."""

    system: str | None = None
    """The system message; an empty text removes the row's, None keeps it."""
    remove: tuple[str, ...] = ()
    """Texts that are cut out of the question."""
    template: str = "{prompt}"
    """The last message, with the question in place of `{prompt}`."""


class Source(Config):
    """A training or evaluation set, as one TOML file describes it."""

    about: str
    """What it is, in a few words."""
    tasks: tuple[str, ...] = Field(min_length=1)
    """The tasks of its problems; rows of other tasks are left out. Mapped rows belong to the first
    one."""
    files: tuple[SourceFile, ...] = Field(min_length=1)
    """Where the rows are. A problem that is in several files stays in the first."""
    hub: str | None = None
    """The dataset's id on the Hugging Face hub."""
    revision: str = "main"
    """A branch, tag or commit of the hub's repository."""
    where: str = ""
    """Where to get the files, if not from the hub."""
    format: str | None = None
    """The layout of the rows, as `whet data import --format` takes it."""
    map: Mapping[str, str] = {}
    """Columns by field, as `whet data import --map` takes them, in place of a layout."""
    attach: Mapping[str, str] = {}
    """JSON files that belong to a row, by the column they fill; `{column}` is the row's value."""
    ignore: tuple[str, ...] = ()
    """Columns that the layout does not know and that are not needed."""
    keep: tuple[ColumnRule, ...] = ()
    """Rules; a row that breaks one is left out and counted."""
    prompt: SourcePrompt = SourcePrompt()
    sample: Mapping[Split, int] = {}
    """The most problems of a split; those with the smallest hash stay."""
    seed: int = 42
    """Another seed splits and samples differently."""
    cite: str = ""
    """The script or public file that the schema is from."""
    seen: Seen = "unknown"
    """Whether rows were read, only their schema is known, or neither."""

    @property
    def splits(self) -> list[str]:
        """List the splits of its files, in the order of the files."""
        names: list[str] = []
        for file in self.files:
            given = [file.split] if isinstance(file.split, str) else list(file.split or ["rows'"])
            names += [name for name in given if name not in names]
        return names


def load_source(name: str) -> tuple[Source, Path]:
    """Load a source by its name, or a user's own by the path of its file."""
    listing = "`whet data prepare --list` lists them"
    path = toml.find_file(name, _FOLDER, "source", listing=listing)
    try:
        source = load_settings(Source, path, ()).config
        _check(source)
    except ConfigError as error:
        raise ConfigError(str(error) if path.name in str(error) else f"{path}: {error}") from error
    return source, path


def list_sources() -> list[str]:
    """List the names of the sources that come with whet."""
    return toml.list_names(_FOLDER)


def _check(source: Source) -> None:
    """Refuse inconsistent settings, before any file is opened."""
    for file in source.files:
        layout = file.format or source.format
        if (layout is None) == (not source.map):
            raise ConfigError("give either a format or a map for every file, not both or neither")
        if layout is not None:
            find_format(layout)
        if isinstance(file.split, Mapping):
            split_by_hash("", file.split, source.seed)
    if source.map:
        parse_mapping([f"{field}={column}" for field, column in source.map.items()], "math")
    if "{prompt}" not in source.prompt.template:
        raise ConfigError("prompt.template should have {prompt} where the question belongs")
    for task in source.tasks:
        if task not in TASKS and not is_code_path(task):
            raise ConfigError(f"there is no task {task!r}; known tasks: {', '.join(TASKS)}")
    for rule in source.keep:
        rule.check()
