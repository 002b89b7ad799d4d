"""A user's own rows, mapped by `field=column`; also chats and preference pairs.

A column may be a path such as `extra_info.index`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan

from whet.data.importers.base import (
    Fields,
    ImportedResponse,
    ParsedRow,
    Reader,
    check_name,
    parse_json,
    show,
    split_last,
)
from whet.errors import ConfigError, DataError
from whet.types import SPLITS, Json, Message, Split
from whet.user_code import is_code_path

MAPPED_FIELDS = {
    "prompt": "the question: a text, or a list of messages",
    "system": "a system message to put before it",
    "answer": "the reference answer",
    "answers": "a list of accepted answers",
    "response": "a response to imitate",
    "responses": "a list of responses to imitate",
    "messages": "a whole chat; its last message, the assistant's, is a response to imitate",
    "chosen": "the better of two responses: a text, or a whole chat",
    "rejected": "the worse of them",
    "model": "who wrote the responses",
    "level": "difficulty from 0 to 1",
    "split": "sft, rl, dev, test, or train for rl",
    "task": "the task that grades the row, where rows differ",
    "id": "the row's own id",
}
"""The fields of `--map`, besides payload.NAME."""

SPLIT_NAMES: dict[str, Split] = {
    **{split: split for split in SPLITS},
    "train": "rl",
    "validation": "dev",
    "valid": "dev",
    "val": "dev",
}
UNGRADED = "judge"
"""The task of rows that have answers but no reference, if none is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """Read rows by a mapping from fields to columns."""

    columns: Mapping[str, str]
    task: str | None

    def parse(self, row: Mapping[str, Json]) -> ParsedRow:
        fields = Fields({name: read_column(row, column) for name, column in self.columns.items()})
        payload = {
            name.removeprefix("payload."): value
            for name, value in fields.items()
            if name.startswith("payload.")
        }
        prompt, responses = _read_chat(fields)
        references = [Fields(answers=item).scalar("answers") for item in _list(fields, "answers")]
        if references:
            payload["answers"] = list[Json](references)
        answer = references[0] if references else None
        if "answer" in fields and not _is_missing(fields["answer"]):
            answer = fields.scalar("answer")
        elif "answer" in fields and answer is None:
            raise DataError(
                f"has no answer to grade against: {self.columns['answer']!r} is "
                f"{show(fields['answer'])}"
            )
        return ParsedRow(
            task=_read_task(fields) if "task" in fields else self.task or UNGRADED,
            prompt=prompt,
            answer=answer,
            payload=payload,
            level=_read_level(fields),
            split=parse_split(fields.scalar("split")) if fields.get("split") is not None else None,
            source_id=fields.row_id("id"),
            responses=responses,
        )


def parse_mapping(pairs: Sequence[str], task: str | None) -> Mapped:
    """Parse `field=column` pairs; refuse an incomplete mapping before any row is read."""
    columns: dict[str, str] = {}
    for pair in pairs:
        name, sign, column = (part.strip() for part in pair.partition("="))
        if not (sign and name and column):
            raise ConfigError(
                f"--map {pair!r} should have the form field=column, such as prompt=question"
            )
        if name not in MAPPED_FIELDS and not (name.startswith("payload.") and name != "payload."):
            raise ConfigError(
                f"--map {pair!r}: there is no field {name!r}; "
                f"fields are {', '.join(MAPPED_FIELDS)}, payload.NAME"
            )
        if name in columns:
            raise ConfigError(f"--map gives {name!r} twice, as {columns[name]!r} and {column!r}")
        columns[name] = column
    if not columns.keys() & {"prompt", "messages", "chosen"}:
        raise ConfigError(
            "--map needs prompt=COLUMN, messages=COLUMN, or chosen=COLUMN and rejected=COLUMN"
        )
    if ("chosen" in columns) != ("rejected" in columns):
        raise ConfigError("--map needs both chosen=COLUMN and rejected=COLUMN, or neither")
    has_responses = columns.keys() & {"messages", "chosen", "response", "responses"}
    if task is None and "task" not in columns and not has_responses:
        raise ConfigError("rows to be graded need a task: --task NAME, or --map task=COLUMN")
    return Mapped(columns=columns, task=task)


def parse_split(name: str) -> Split:
    """Read the name of a split as other systems write it."""
    return SPLIT_NAMES[check_name("split", name.lower(), SPLIT_NAMES)]


def _read_chat(fields: Fields) -> tuple[tuple[Message, ...], tuple[ImportedResponse, ...]]:
    """Read the prompt and responses of a row, in any of the known forms."""
    model = fields.scalar("model") if fields.get("model") is not None else None
    responses: list[ImportedResponse] = []
    prompt = _prompt(fields)
    if "messages" in fields:
        prompt, last = split_last(fields.messages("messages"), "messages")
        responses.append(ImportedResponse(text=last, model=model))
    for name, is_good in (("chosen", True), ("rejected", False)):
        if name in fields:
            before, last = _read_reply(fields, name)
            if before and prompt and before != prompt:
                raise DataError(f"the chat in {name!r} does not begin with the prompt")
            prompt = prompt or before
            responses.append(ImportedResponse(text=last, model=model, is_good=is_good, note=name))
    texts = [Fields(responses=item).text("responses") for item in _list(fields, "responses")]
    if "response" in fields:
        texts.append(fields.text("response"))
    responses += [ImportedResponse(text=text, model=model) for text in texts]
    if not prompt:
        raise DataError(
            "has no prompt: the chats hold only the response; map prompt=COLUMN as well"
        )
    return prompt, tuple(responses)


def _prompt(fields: Fields) -> tuple[Message, ...]:
    if "prompt" not in fields:
        return ()
    system = fields.text("system") if fields.get("system") else ""
    before = (Message(role="system", content=system),) if system else ()
    if isinstance(fields["prompt"], list):
        return (*before, *fields.messages("prompt"))
    return (*before, Message(role="user", content=fields.text("prompt")))


def _read_reply(fields: Fields, name: str) -> tuple[tuple[Message, ...], str]:
    if isinstance(fields[name], str):
        return (), fields.text(name)
    return split_last(fields.messages(name), name)


def _list(fields: Fields, name: str) -> list[Json]:
    if fields.get(name) is None:
        return []
    return Fields({name: parse_json(fields[name])}).entries(name)


def _is_missing(value: Json) -> bool:
    return value is None or value == "" or (isinstance(value, float) and isnan(value))


def _read_task(fields: Fields) -> str:
    """Read the task of a row; only the command line may name a code file."""
    name = fields.scalar("task")
    if is_code_path(name):
        raise DataError(f"names the task {show(name)}, a file of code: give it with --task")
    return name


def _read_level(fields: Fields) -> float | None:
    if fields.get("level") in (None, ""):
        return None
    try:
        level = float(fields.scalar("level"))
    except ValueError:
        level = -1.0
    if not 0 <= level <= 1:
        raise DataError(
            "level should be a number from 0 (easiest) to 1 (hardest), not "
            f"{show(fields['level'])}; --level COLUMN --bins makes levels from words or numbers"
        )
    return level


def read_column(row: Mapping[str, Json], path: str) -> Json:
    """Read a column by its name, or by a path with dots; a number picks an item of a list."""
    if path in row:
        return row[path]
    value: Json = dict(row)
    for name in path.split("."):
        inner = parse_json(value)
        if isinstance(inner, list) and name.isdecimal() and int(name) < len(inner):
            value = inner[int(name)]
        elif isinstance(inner, dict) and name in inner:
            value = inner[name]
        else:
            raise DataError(f"has no column {path!r}; its columns are {', '.join(row)}")
    return value


def _by_name(*names: str) -> Callable[[Fields], ParsedRow]:
    """Read rows whose columns are named like fields; any of them may be missing."""

    def read(row: Fields) -> ParsedRow:
        columns = {name: name for name in names if row.get(name) is not None}
        return Mapped(columns=columns, task=None).parse(row)

    return read


READERS: dict[str, Reader] = {
    "messages": _by_name("messages", "id", "model", "split"),
    "preferences": _by_name("prompt", "system", "chosen", "rejected", "id", "model", "split"),
}
