"""What importers read and return: the fields of a row, and the problem in it.

A missing field, or one of the wrong kind, is refused in one sentence when the file is read.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from whet.errors import DataError
from whet.types import Json, Message, MessageRole, Problem, Split, content_id

BOXED = "Reason step by step and end with the final answer in \\boxed{}."
"""Added to a benchmark's own question: where the answer should be. The same for all benchmarks."""
INDEX = "__index_level_0__"
"""The column that pandas adds to Parquet for its own index."""
IDS = ("unique_id", "ID", "id", "idx", "puzzle_id", "task_id", "question_id", "query_id", "qid")
"""Where a row's own id may be; the first that has one counts."""
ROLES: dict[str, MessageRole] = {
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
}


class Fields(dict[str, Json]):
    """The fields of a row, with a method for each kind of value."""

    def text(self, name: str) -> str:
        """Read a text that is not blank."""
        value = self._get(name)
        if not isinstance(value, str) or not value.strip():
            raise _mismatch(name, "text", value)
        return value

    def optional_text(self, name: str) -> str:
        """Read a text that may be missing, null or empty."""
        return self.text(name) if self.get(name) not in (None, "") else ""

    def scalar(self, name: str) -> str:
        """Read a text or a number, written as text.

        >>> Fields(answer=27.0).scalar("answer"), Fields(answer=" 3/4 ").scalar("answer")
        ('27', '3/4')
        """
        value = self._get(name)
        if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
            raise _mismatch(name, "text or a number", value)
        return write_number(value)

    def reference(self, name: str) -> str:
        """Read a reference answer; empty if the row has none."""
        return "" if name in self and self[name] in (None, "") else self.scalar(name)

    def amount(self, name: str) -> float:
        """Read a number that may be written as text."""
        try:
            return float(self.scalar(name))
        except ValueError as error:
            raise _mismatch(name, "a number", self[name]) from error

    def number(self, name: str) -> float:
        value = self._get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _mismatch(name, "a number", value)
        return float(value)

    def flag(self, name: str) -> bool:
        value = self._get(name)
        if not isinstance(value, bool):
            raise _mismatch(name, "true or false", value)
        return value

    def entries(self, name: str) -> list[Json]:
        """Read a list."""
        value = self._get(name)
        if not isinstance(value, list):
            raise _mismatch(name, "a list", value)
        return value

    def texts(self, name: str) -> list[str]:
        """Read a list of at least one text."""
        values = self.entries(name)
        texts = [value for value in values if isinstance(value, str)]
        if not texts or len(texts) < len(values):
            raise _mismatch(name, "a list of texts", values)
        return texts

    def table(self, name: str) -> "Fields":
        """Read an object; some datasets store nested fields as JSON text."""
        value = parse_json(self._get(name))
        if not isinstance(value, dict):
            raise _mismatch(name, "an object like {...}", value)
        return Fields(value)

    def row_id(self, *names: str) -> str | None:
        """Read a row's own id from the first of some fields that has one."""
        for name in names:
            value = self.get(name)
            if value is not None and value != "":
                if isinstance(value, bool) or not isinstance(value, str | int | float):
                    raise _mismatch(name, "an id, a text or a number", value)
                return write_number(value)
        return None

    def messages(self, name: str) -> tuple[Message, ...]:
        """Read a chat: role and content, or from and value; content may be a list of text parts."""
        value = parse_json(self._get(name))
        if not isinstance(value, list) or not value:
            raise _mismatch(name, "a list of messages", value)
        return tuple(_message(item, name) for item in value)

    def _get(self, name: str) -> Json:
        if name not in self:
            raise DataError(f"has no field {name!r}; its fields are {', '.join(self)}")
        return self[name]


def _mismatch(name: str, wanted: str, value: Json) -> DataError:
    return DataError(f"field {name!r} should be {wanted}, not {show(value)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedResponse:
    """A response in a row, and the row's verdict on it."""

    text: str
    model: str | None = None
    is_good: bool | None = None
    """True for a chosen or correct response, False for a rejected or wrong one, None if unknown."""
    note: str = ""
    is_worked: bool = False
    """Whether it is the solution that a dataset gives for its own problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRow:
    """The content of a row: a problem without id, source and split, and its responses."""

    task: str
    prompt: tuple[Message, ...]
    answer: str | None
    payload: Mapping[str, Json] = field(default_factory=dict)
    level: float | None = None
    split: Split | None = None
    """None takes the format's."""
    source_id: str | None = None
    """The row's own id; None takes the file and line."""
    id: str | None = None
    """Set if the task itself names the problem; None hashes prompt, answer and payload."""
    responses: tuple[ImportedResponse, ...] = ()
    unsupported: str | None = None
    """Why the row cannot be graded here; such rows are left out and listed."""
    unread: tuple[str, ...] = ()
    """Fields of the row that the format does not know."""

    @property
    def has_replies(self) -> bool:
        """Whether the row is about its responses, so that another row may answer the same
        problem."""
        return any(not response.is_worked for response in self.responses)

    def to_problem(
        self, *, split: Split, override: Split | None, source: str, location: str
    ) -> Problem:
        """Name the problem; `split` is for rows that name none, `location` for those without id."""
        messages: Json = [[message.role, message.content] for message in self.prompt]
        return Problem(
            id=self.id or content_id(self.task, [messages, self.answer, dict(self.payload)]),
            task=self.task,
            prompt=self.prompt,
            answer=self.answer,
            payload=self.payload,
            level=self.level,
            split=override or self.split or split,
            source=source,
            source_id=self.source_id or location,
        )


Reader = Callable[[Fields], ParsedRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFormat:
    """A row of the table in formats.md, with the function that reads such rows."""

    about: str
    required: tuple[str, ...]
    optional: tuple[str, ...] | None
    """Fields; `a/b` is called `a`, or `b` in the public file of that name. None allows any."""
    split: Split
    read: Reader

    def parse(self, row: Mapping[str, Json]) -> ParsedRow:
        """Read a row; a missing or an unknown field is refused."""
        self._check_required(row)
        if unknown := self._find_unknown(row):
            raise DataError(
                f"has the unknown field {unknown[0]!r}; known fields: "
                f"{', '.join(dict.fromkeys(self._known))}; for other columns use --map"
            )
        return self.parse_known(row)

    def parse_known(self, row: Mapping[str, Json]) -> ParsedRow:
        """Read the fields that the format knows, and name the others; a missing one is refused."""
        self._check_required(row)
        unknown = self._find_unknown(row)
        fields = Fields({name: value for name, value in row.items() if name not in unknown})
        for own, *others in self._names:
            given = [name for name in others if name in row]
            if own not in row and given:
                fields[own] = row[given[0]]
        parsed = self.read(fields)
        source_id = parsed.source_id or fields.row_id(*IDS)
        return replace(parsed, source_id=source_id, unread=tuple(unknown))

    @property
    def _names(self) -> list[list[str]]:
        return [name.split("/") for name in (*self.required, *(self.optional or ()))]

    @property
    def _known(self) -> list[str]:
        return [name for group in self._names for name in group]

    def _check_required(self, row: Mapping[str, Json]) -> None:
        for own, *others in self._names[: len(self.required)]:
            if not row.keys() & {own, *others}:
                raise DataError(f"has no field {own!r}; its fields are {', '.join(row)}")

    def _find_unknown(self, row: Mapping[str, Json]) -> list[str]:
        known = {*self._known, INDEX}
        is_any = self.optional is None
        return [
            name for name in row if not (is_any or name in known or name.endswith("_pass_rate"))
        ]


def user(*parts: str) -> tuple[Message, ...]:
    """Make a user message of paragraphs; empty ones are left out."""
    paragraphs = [part.strip() for part in parts if part.strip()]
    return (Message(role="user", content="\n\n".join(paragraphs)),)


def worked_response(solution: str, gold: str) -> ImportedResponse:
    r"""Keep a worked solution as a response, in the form that the prompt asks for.

    >>> worked_response("1 + 1 is 2.", "2").text
    '1 + 1 is 2.\n\n\\boxed{2}'
    """
    text = solution.strip()
    ended = text if "\\boxed" in text else f"{text}\n\n\\boxed{{{gold}}}"
    return ImportedResponse(text=ended, is_worked=True)


def split_last(chat: tuple[Message, ...], name: str) -> tuple[tuple[Message, ...], str]:
    """Split a chat into its prompt and the assistant's last message."""
    if chat[-1].role != "assistant" or not chat[-1].content.strip():
        raise DataError(f"the chat in {name!r} should end with a message of the assistant")
    return chat[:-1], chat[-1].content


def check_name(kind: str, value: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    """Check a name against the known ones."""
    if value not in known:
        raise DataError(f"{kind} {value!r} is unknown; known: {', '.join(known)}")
    return value


def to_level(grade: float, grades: int = 5) -> float:
    """Return the level of the k-th of several grades: the middle of its share of [0, 1].

    >>> to_level(1), to_level(5), to_level(2, 3)
    (0.1, 0.9, 0.5)
    """
    return min(max((grade - 0.5) / grades, 0.0), 1.0)


def parse_json(value: Json) -> Json:
    """Read a text that holds JSON; return any other value as it is."""
    if not isinstance(value, str):
        return value
    try:
        inner: Json = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return inner


def write_number(value: str | int | float) -> str:
    """Write a number exactly, a whole one without a point."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def show(value: Json) -> str:
    """Write a value for an error message, shortened."""
    return json.dumps(value, ensure_ascii=False, default=str)[:80]


def _message(item: Json, name: str) -> Message:
    if not isinstance(item, dict):
        raise DataError(
            f"field {name!r} should hold messages with role and content, not {show(item)}"
        )
    role = check_name("role", str(item.get("role", item.get("from"))), ROLES)
    content = item.get("content", item.get("value"))
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        content = "".join(part for part in parts if isinstance(part, str)) if all(parts) else None
    if not isinstance(content, str):
        raise DataError(f"a message in {name!r} should have text as its content, not {show(item)}")
    return Message(role=ROLES[role], content=content)
