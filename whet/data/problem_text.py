"""A problem as a person would want to read it: a heading, what is asked, the answer, and the
payload in short."""

import json

from whet.errors import visible
from whet.types import Json, Problem

MAX_TEXT = 4000
"""Longer texts are cut, and the cut is said."""
MAX_VALUE = 100
"""Of one payload value, this much is shown."""


def heading(problem: Problem) -> str:
    """Name a problem, with its level, split and source in one line."""
    level = (
        "no level"
        if problem.level is None
        else f"level {min(int(problem.level * 5) + 1, 5)} ({problem.level:.2f})"
    )
    origin = " ".join(part for part in (problem.source, problem.source_id) if part)
    return visible(" · ".join(part for part in (problem.id, level, problem.split, origin) if part))


def sections(problem: Problem) -> list[tuple[str, str]]:
    """List what to show below the heading, each with a title."""
    asked = [(message.role, shortened(message.content)) for message in problem.prompt]
    answer = "none" if problem.answer is None else shortened(problem.answer)
    payload = visible(
        "\n".join(f"{key}: {summary(value)}" for key, value in problem.payload.items())
    )
    return [*asked, ("answer", answer), *([("payload", payload)] if payload else [])]


def page(problem: Problem) -> str:
    """Write a problem as plain lines, the content indented."""
    lines = [heading(problem)]
    for title, content in sections(problem):
        lines += [f"  {title}:", *(f"    {line}".rstrip() for line in content.splitlines())]
    return "\n".join(lines) + "\n"


def shortened(text: str) -> str:
    """Cut a long text, saying how much is left out; signs that are not seen stand as their escapes.

    >>> shortened("x" * 4003)[-25:]
    'x … and 3 more characters'
    """
    text = visible(text.strip("\n"))
    return (
        text
        if len(text) <= MAX_TEXT
        else f"{text[:MAX_TEXT]} … and {len(text) - MAX_TEXT:,} more characters"
    )


def summary(value: Json) -> str:
    """Say a payload value in one line.

    >>> summary([1, 2, 3]), summary({"a": 1})
    ('[1, 2, 3]', '{"a": 1}')
    """
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= MAX_VALUE:
        return text
    size = (
        f"{len(value):,} {'characters' if isinstance(value, str) else 'items'}"
        if isinstance(value, str | list | dict)
        else ""
    )
    return f"{text[:MAX_VALUE]} … ({size})" if size else text
