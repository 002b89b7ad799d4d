"""A user's own rows: `field=column` says which column holds what; chats and preference pairs are
rows like others.

A column name may be a path such as `extra_info.index`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from whet.data.importers.base import (
    Answer,
    Draft,
    Fields,
    Format,
    items,
    layout,
    one_of,
    parsed,
    row_id,
    scalar,
    shown,
    text,
)
from whet.data.importers.chats import before_last, messages
from whet.errors import ConfigError, DataError
from whet.types import SPLITS, Json, Message, Split

FIELDS = {
    "prompt": "the question: a text, or a list of messages",
    "system": "a system message to put before it",
    "answer": "the reference answer",
    "answers": "a list of accepted answers",
    "response": "an answer to imitate",
    "responses": "a list of answers to imitate",
    "messages": "a whole chat; its last message, the assistant's, is an answer to imitate",
    "chosen": "the better of two answers: a text, or a whole chat",
    "rejected": "the worse of them",
    "model": "who wrote the answers",
    "level": "difficulty from 0 to 1",
    "split": "sft, rl, dev, test, or train for rl",
    "task": "the task that grades the row, where rows differ",
    "id": "the row's own id",
}
"""What `--map` can fill, besides payload.NAME."""

SPLIT_NAMES: dict[str, Split] = {
    **{split: split for split in SPLITS},
    "train": "rl",
    "validation": "dev",
    "valid": "dev",
    "val": "dev",
}
UNGRADED = "judge"
"""The task of rows that come with answers and without a reference, where none is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """Reads a row by a mapping from fields to columns."""

    columns: Mapping[str, str]
    task: str | None

    def draft(self, row: Fields) -> Draft:
        found = {name: _column(row, column) for name, column in self.columns.items()}
        payload = {
            name.removeprefix("payload."): found[name]
            for name in found
            if name.startswith("payload.")
        }
        prompt, answers = _asked(found)
        references = [scalar({"answers": item}, "answers") for item in _several(found, "answers")]
        if references:
            payload["answers"] = list[Json](references)
        answer = (
            scalar(found, "answer")
            if found.get("answer") not in (None, "")
            else next(iter(references), None)
        )
        return Draft(
            task=scalar(found, "task") if "task" in found else self.task or UNGRADED,
            prompt=prompt,
            answer=answer,
            payload=payload,
            level=_level(found),
            split=split_named(scalar(found, "split")) if found.get("split") is not None else None,
            source_id=row_id(found, "id"),
            answers=answers,
        )


def mapped(pairs: Sequence[str], task: str | None) -> Mapped:
    """Read `field=column` pairs; what cannot make a problem is refused before any row is read."""
    columns: dict[str, str] = {}
    for pair in pairs:
        name, sign, column = (part.strip() for part in pair.partition("="))
        if not (sign and name and column):
            raise ConfigError(
                f"--map {pair!r} should have the form field=column, such as prompt=question"
            )
        if name not in FIELDS and not (name.startswith("payload.") and name != "payload."):
            raise ConfigError(
                f"--map {pair!r}: there is no field {name!r}; fields are {', '.join(FIELDS)}, payload.NAME"
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
    has_answers = columns.keys() & {"messages", "chosen", "response", "responses"}
    if task is None and "task" not in columns and not has_answers:
        raise ConfigError("rows to be graded need a task: --task NAME, or --map task=COLUMN")
    return Mapped(columns=columns, task=task)


def split_named(name: str) -> Split:
    """Read the name of a split as other systems write it."""
    return SPLIT_NAMES[one_of("split", name.lower(), SPLIT_NAMES)]


def _asked(found: Fields) -> tuple[tuple[Message, ...], tuple[Answer, ...]]:
    """Find the prompt and the answers of a row, whichever way it holds them."""
    model = scalar(found, "model") if found.get("model") is not None else None
    answers: list[Answer] = []
    prompt = _prompt(found)
    if "messages" in found:
        chat = messages(found["messages"], "messages")
        prompt, last = before_last(chat, "messages")
        answers.append(Answer(text=last, model=model))
    for name, is_good in (("chosen", True), ("rejected", False)):
        if name in found:
            before, last = _reply(found[name], name)
            if before and prompt and before != prompt:
                raise DataError(f"the chat in {name!r} does not begin with the prompt")
            prompt = prompt or before
            answers.append(Answer(text=last, model=model, is_good=is_good, note=name))
    answers += [
        Answer(text=text({"responses": item}, "responses"), model=model)
        for item in _several(found, "responses")
    ]
    if "response" in found:
        answers.append(Answer(text=text(found, "response"), model=model))
    if not prompt:
        raise DataError("has no prompt: the chats hold only the answer; map prompt=COLUMN as well")
    return prompt, tuple(answers)


def _prompt(found: Fields) -> tuple[Message, ...]:
    system = (Message(role="system", content=text(found, "system")),) if found.get("system") else ()
    if "prompt" not in found:
        return ()
    value = found["prompt"]
    asked = (
        messages(value, "prompt")
        if isinstance(value, list)
        else (Message(role="user", content=text(found, "prompt")),)
    )
    return (*system, *asked)


def _reply(value: Json, name: str) -> tuple[tuple[Message, ...], str]:
    if isinstance(value, str):
        return (), text({name: value}, name)
    return before_last(messages(value, name), name)


def _several(found: Fields, name: str) -> list[Json]:
    if found.get(name) is None:
        return []
    return items({name: parsed(found[name])}, name)


def _level(found: Fields) -> float | None:
    if found.get("level") in (None, ""):
        return None
    try:
        level = float(scalar(found, "level"))
    except ValueError:
        level = -1.0
    if not 0 <= level <= 1:
        raise DataError(
            f"level should be a number from 0 (easiest) to 1 (hardest), not {shown(found['level'])}"
        )
    return level


def _column(row: Fields, path: str) -> Json:
    """Take a column by its name, or step by step along a path with dots."""
    if path in row:
        return row[path]
    value: Json = dict(row)
    for name in path.split("."):
        inner = parsed(value)
        if not isinstance(inner, dict) or name not in inner:
            raise DataError(f"has no column {path!r}; its columns are {', '.join(row)}")
        value = inner[name]
    return value


def _named(*names: str) -> Callable[[Fields], Draft]:
    """Read a row whose columns carry the names of fields, as far as it has them."""

    def read(row: Fields) -> Draft:
        there = {name: name for name in names if row.get(name) is not None}
        return Mapped(columns=there, task=None).draft(row)

    return read


FORMATS: dict[str, Format] = {
    "messages": layout(
        "chats; the last message is an answer to imitate",
        _named("messages", "id", "model", "split"),
        "messages",
        "id model split source",
        split="sft",
    ),
    "preferences": layout(
        "pairs of a chosen and a rejected answer",
        _named("prompt", "system", "chosen", "rejected", "id", "model", "split"),
        "chosen rejected",
        "prompt system id model split source score_chosen score_rejected",
        split="sft",
    ),
}
