"""Find where a response states its answer: boxes, tags, marked lines, formulas, numbers. Each find
keeps its span.

Every function reads the text a bounded number of times, whatever is in it, and the regular
expressions have nothing to backtrack into.
"""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

_BOX = re.compile(r"\\?(?:boxed|fbox|framebox)(?![a-zA-Z])\s?")
_CLOSED_THOUGHT = re.compile(r"</(?:think|thinking|thought|reasoning)>")
_OPEN_THOUGHT = re.compile(r"<(?:think|thinking|thought|reasoning)>")
_MARK = re.compile(
    r"####[ \t]*:?"
    r"|(?:^|(?<=\n))[ \t]*A:"
    r"|(?<![a-zA-Z])correct (?:option|choice) is(?![a-zA-Z])"
    r"|(?:(?<![a-zA-Z])(?:final[ ]{1,3})?(?:answers?|results?|réponse|respuesta|antwort)(?![a-zA-Z])|答案)\**[ \t]{0,3}"
    r"(?::|：|=|(?:is|are|est|es|ist)(?![a-zA-Z])|是|为)[ \t]{0,3}(?::|：)?\**",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.])[-+−]?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+(?:,[0-9]+(?![0-9,]))?|(?=\.[0-9]))(?:\.[0-9]+)?"
    r"(?:[eE][-+]?[0-9]+)?(?:\s?/\s?[0-9]+(?![0-9.]))?(?:\s?\\?%)?"
    r"|[-−]?\\[dtc]?frac\s?\{[^{}]{1,40}\}\s?\{[^{}]{1,40}\}"
)
_ENDS = re.compile(r"[.。!?](?=[\s$\"')]|$)|\n")
MAX_LINE = 2000
"""What follows a mark is read this far."""
MAX_MARKS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Find:
    """A piece of a response and where it stands, end exclusive."""

    text: str
    start: int
    end: int


def after_thought(text: str) -> int | None:
    """Find where the thinking part ends: 0 where there is none, None where it was opened and never
    closed."""
    start = 0
    for match in _CLOSED_THOUGHT.finditer(text):
        start = match.end()
    return None if _OPEN_THOUGHT.search(text, start) else start


def boxed(text: str) -> list[Find]:
    """List what stands in `\\boxed{...}` and its kin, outermost boxes only, in order; unclosed
    boxes are left out.

    >>> [find.text for find in boxed(r"so \\boxed{\\frac{1}{2}} and \\boxed 3")]
    ['\\\\frac{1}{2}', '3']
    """
    found: list[Find] = []
    closing: dict[int, int] | None = None
    end = 0
    for match in _BOX.finditer(text):
        place = match.end()
        if match.start() < end or place >= len(text):
            continue
        if text[place] == "{":
            closing = _pairs(text) if closing is None else closing
            if place in closing:
                end = closing[place] + 1
                found.append(Find(text=text[place + 1 : end - 1], start=match.start(), end=end))
        elif text[place].isalnum() and text[match.start()] == "\\" and text[place - 1] == " ":
            end = place + 1
            found.append(Find(text=text[place:end], start=match.start(), end=end))
    return found


def tagged(text: str, tag: str = "answer") -> list[Find]:
    """List what stands between `<tag>` and `</tag>`, over any number of lines."""
    opening = f"<{tag}>"
    closing = f"</{tag}>"
    found: list[Find] = []
    end = text.find(closing)
    start = 0
    while end >= 0:
        place = text.rfind(opening, start, end)
        if place >= 0:
            inside = place + len(opening)
            found.append(Find(text=text[inside:end], start=inside, end=end))
        start = end + len(closing)
        end = text.find(closing, start)
    return found


def marked(text: str) -> list[Find]:
    """List what follows `####`, `Answer:`, `the answer is` and the like, to the end of its line;
    the last few only."""
    found = []
    for match in deque(_MARK.finditer(text), maxlen=MAX_MARKS):
        limit = match.end() + MAX_LINE
        end = text.find("\n", match.end(), limit)
        end = min(limit, len(text)) if end < 0 else end
        if text[match.end() : end].strip(" *$:"):
            found.append(Find(text=text[match.end() : end], start=match.end(), end=end))
    return found


def sentence(find: Find) -> Find:
    """Cut a find after its first sentence; a point inside a number or formula ends none."""
    for match in _ENDS.finditer(find.text):
        if find.text[: match.start()].count("$") % 2 == 0 or match.group() == "\n":
            return Find(
                text=find.text[: match.start()], start=find.start, end=find.start + match.start()
            )
    return find


def last_line(text: str) -> Find | None:
    """Find the last line that holds more than spaces and marks."""
    end = len(text.rstrip(" \t\r\n*$`"))
    if end == 0:
        return None
    start = text.rfind("\n", 0, end) + 1
    stop = text.find("\n", end)
    stop = len(text) if stop < 0 else stop
    return Find(text=text[start:stop], start=start, end=stop)


def formulas(text: str) -> list[Find]:
    """List what stands between dollar signs, `\\(` and `\\)`, `\\[` and `\\]`, in order."""
    found = []
    opening: tuple[str, int] | None = None
    for match in re.finditer(r"\\[\\$]|\\[()\[\]]|\$\$?", text):
        mark = match.group()
        if mark in ("\\\\", "\\$"):
            continue
        if opening is not None and mark == {"\\(": "\\)", "\\[": "\\]"}.get(opening[0], opening[0]):
            found.append(
                Find(text=text[opening[1] : match.start()], start=opening[1], end=match.start())
            )
            opening = None
        elif opening is None and mark not in ("\\)", "\\]"):
            opening = (mark, match.end())
    return found


def numbers(text: str) -> Iterator[Find]:
    """List the numbers and simple fractions, in order."""
    for match in _NUMBER.finditer(text):
        if match.group():
            yield Find(text=match.group(), start=match.start(), end=match.end())


def _pairs(text: str) -> dict[int, int]:
    """Match every opening brace with the one that closes it; escaped braces are none."""
    closing: dict[int, int] = {}
    waiting: list[int] = []
    for match in re.finditer(r"\\[\\{}]|[{}]", text):
        if match.group() == "{":
            waiting.append(match.start())
        elif match.group() == "}" and waiting:
            closing[waiting.pop()] = match.start()
    return closing
