"""What an importer makes of a row: a draft of a problem, and answers to it where the row holds
some.

Importers ask for fields through the functions here, so that a missing field, or one of another
kind, is refused in one sentence when the file is read.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from whet.errors import DataError
from whet.types import Json, Message, Problem, Split, content_id

Fields = Mapping[str, Json]

INDEX = "__index_level_0__"
"""The column pandas adds to Parquet for its own index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer that came with the row, and what the row says of it."""

    text: str
    model: str | None = None
    is_good: bool | None = None
    """True for a chosen or correct answer, False for a rejected or wrong one, None where the row
    does not say."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A problem before it has an id, a source and a split of its own."""

    task: str
    prompt: tuple[Message, ...]
    answer: str | None
    payload: Mapping[str, Json] = field(default_factory=dict)
    level: float | None = None
    split: Split | None = None
    """None takes the format's."""
    source_id: str | None = None
    """None takes the file and line."""
    id: str | None = None
    """Where the task itself names the problem; None hashes prompt, answer and payload."""
    answers: tuple[Answer, ...] = ()
    unsupported: str | None = None
    """Why the row cannot be graded here; such rows are left out and listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A layout of rows: the fields it must have, others it may have, and how a row is read."""

    about: str
    needs: tuple[str, ...]
    may: tuple[str, ...] = ()
    read: Callable[[Fields], Draft]
    split: Split = "test"

    def draft(self, row: Fields) -> Draft:
        """Read a row, once its fields are known to be those of the format."""
        known = {*self.needs, *self.may, INDEX}
        unknown = [name for name in row if name not in known and not name.endswith("_pass_rate")]
        missing = [name for name in self.needs if name not in row]
        if missing:
            raise DataError(f"has no field {missing[0]!r}; its fields are {', '.join(row)}")
        if unknown:
            names = ", ".join([*self.needs, *self.may])
            raise DataError(
                f"has the unknown field {unknown[0]!r}; known are {names}; for other columns use --map"
            )
        return self.read(row)


def layout(
    about: str, read: Callable[[Fields], Draft], needs: str, may: str = "", *, split: Split = "test"
) -> Format:
    """Describe a format whose field names have no spaces."""
    return Format(
        about=about, needs=tuple(needs.split()), may=tuple(may.split()), read=read, split=split
    )


def finished(
    draft: Draft, *, split: Split, override: Split | None, source: str, place: str
) -> Problem:
    """Name a draft and say where it is from; `split` is for drafts that have none, `place` for
    those without an id."""
    asked: Json = [[message.role, message.content] for message in draft.prompt]
    return Problem(
        id=draft.id or content_id(draft.task, [asked, draft.answer, dict(draft.payload)]),
        task=draft.task,
        prompt=draft.prompt,
        answer=draft.answer,
        payload=draft.payload,
        level=draft.level,
        split=override or draft.split or split,
        source=source,
        source_id=draft.source_id or place,
    )


def user(*parts: str) -> tuple[Message, ...]:
    """Ask in one user message; parts stand apart, empty ones are left out."""
    return (
        Message(role="user", content="\n\n".join(part.strip() for part in parts if part.strip())),
    )


def text(row: Fields, name: str) -> str:
    """Take a field that must be text and say something."""
    value = _there(row, name)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"field {name!r} should be text, not {shown(value)}")
    return value


def optional_text(row: Fields, name: str) -> str:
    """Take a text that may be missing, null or empty."""
    return text(row, name) if row.get(name) not in (None, "") else ""


def scalar(row: Fields, name: str) -> str:
    """Take a text or a number, written as a person would.

    >>> scalar({"answer": 27.0}, "answer"), scalar({"answer": " 3/4 "}, "answer")
    ('27', '3/4')
    """
    value = _there(row, name)
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        raise DataError(f"field {name!r} should be text or a number, not {shown(value)}")
    return written(value)


def reference(row: Fields, name: str) -> str:
    """Take a reference answer as text; empty where the row has none, so that it counts as a problem
    without gold."""
    return "" if name in row and row[name] in (None, "") else scalar(row, name)


def written(value: str | int | float) -> str:
    """Write a number without a needless point, exactly."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def amount(row: Fields, name: str) -> float:
    """Take a number that may be written as text."""
    try:
        return float(scalar(row, name))
    except ValueError as error:
        raise DataError(f"field {name!r} should be a number, not {shown(row[name])}") from error


def number(row: Fields, name: str) -> float:
    value = _there(row, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"field {name!r} should be a number, not {shown(value)}")
    return float(value)


def flag(row: Fields, name: str) -> bool:
    value = _there(row, name)
    if not isinstance(value, bool):
        raise DataError(f"field {name!r} should be true or false, not {shown(value)}")
    return value


def items(row: Fields, name: str) -> list[Json]:
    value = _there(row, name)
    if not isinstance(value, list):
        raise DataError(f"field {name!r} should be a list, not {shown(value)}")
    return value


def texts(row: Fields, name: str) -> list[str]:
    """Take a list of texts, of which there is at least one."""
    values = items(row, name)
    found = [value for value in values if isinstance(value, str)]
    if not found or len(found) < len(values):
        raise DataError(f"field {name!r} should be a list of texts, not {shown(values)}")
    return found


def table(row: Fields, name: str) -> dict[str, Json]:
    """Take an object; one written as JSON text is read, since some sets store nested fields so."""
    value = parsed(_there(row, name))
    if not isinstance(value, dict):
        raise DataError(f"field {name!r} should be an object like {{...}}, not {shown(value)}")
    return value


def row_id(row: Fields, name: str) -> str | None:
    """Take a row's own id as text; None where it has none."""
    value = row.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DataError(f"field {name!r} should be an id, a text or a number, not {shown(value)}")
    return written(value)


def one_of(kind: str, value: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    """Check a name against those that are known."""
    if value not in known:
        raise DataError(f"{kind} {value!r} is not known; known are {', '.join(known)}")
    return value


def fifth(step: float, steps: int = 5) -> float:
    """Place the k-th of some grades of difficulty in the middle of its share of [0, 1].

    >>> fifth(1), fifth(5), fifth(2, 3)
    (0.1, 0.9, 0.5)
    """
    return min(max((step - 0.5) / steps, 0.0), 1.0)


def parsed(value: Json) -> Json:
    """Read a text that holds JSON; any other value is given back."""
    if not isinstance(value, str):
        return value
    try:
        inner: Json = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return inner


def shown(value: Json) -> str:
    """Show a value in a sentence, cut short."""
    return json.dumps(value, ensure_ascii=False, default=str)[:80]


def _there(row: Fields, name: str) -> Json:
    if name not in row:
        raise DataError(f"has no field {name!r}; its fields are {', '.join(row)}")
    return row[name]
