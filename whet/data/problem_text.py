"""A problem as text to read: a heading, the prompt, the answer, and the payload in short."""

import json

from whet.errors import visible
from whet.tasks.generated import fifth
from whet.types import Json, Problem

MAX_TEXT = 4000
"""Longer texts are cut, with a note."""
MAX_VALUE = 100
"""Characters shown of a payload value."""


def heading(problem: Problem) -> str:
    """Name a problem, with its level, split and source in one line."""
    level = "no level"
    if problem.level is not None:
        level = f"level {fifth(problem.level) + 1} ({problem.level:.2f})"
    origin = " ".join(part for part in (problem.source, problem.source_id) if part)
    return visible(" · ".join(part for part in (problem.id, level, problem.split, origin) if part))


def sections(problem: Problem) -> list[tuple[str, str]]:
    """List the titles and texts below the heading."""
    parts: list[tuple[str, str]] = [(m.role, shorten(m.content)) for m in problem.prompt]
    parts.append(("answer", "none" if problem.answer is None else shorten(problem.answer)))
    values = [f"{key}: {summary(value)}" for key, value in problem.payload.items()]
    if values:
        parts.append(("payload", visible("\n".join(values))))
    return parts


def page(problem: Problem) -> str:
    """Write a problem as plain lines, the content indented."""
    lines = [heading(problem)]
    for title, content in sections(problem):
        lines += [f"  {title}:", *(f"    {line}".rstrip() for line in content.splitlines())]
    return "\n".join(lines) + "\n"


def shorten(text: str) -> str:
    """Cut a long text and say how much is left out; escape characters that cannot be seen.

    >>> shorten("x" * 4003)[-25:]
    'x … and 3 more characters'
    """
    text = visible(text.strip("\n"))
    rest = len(text) - MAX_TEXT
    return text if rest <= 0 else f"{text[:MAX_TEXT]} … and {rest:,} more characters"


def summary(value: Json) -> str:
    """Write a payload value in one line.

    >>> summary([1, 2, 3]), summary({"a": 1})
    ('[1, 2, 3]', '{"a": 1}')
    """
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= MAX_VALUE or not isinstance(value, str | list | dict):
        return text
    kind = "characters" if isinstance(value, str) else "items"
    return f"{text[:MAX_VALUE]} … ({len(value):,} {kind})"
