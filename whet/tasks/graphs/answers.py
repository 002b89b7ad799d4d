"""Find the final answer in a response: lists of names or of numbers in square brackets. Total, and
linear in the text.

What counts, in this order: the last `\\boxed{...}`, the last `<answer>` tag, lists that follow the
word "answer", the last list. Reasoning in a `<think>` block never counts, nor does one that was
never closed, nor the question said again.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from whet.tasks.graphs.lookup import Names

MAX_CHARS = 1 << 16
"""Only the end of a longer response is read."""

_MAX_LISTS = 256
_MAX_MARKS = 16
_MAX_LIST_CHARS = 1 << 13
_MAX_GAP = 40
_BRACKET = re.compile(r"\\?[\[\]]")
_MARK = re.compile(r"answer[^\w\[\]]{0,20}(?:(?:is|are)\b[^\w\[\]]{0,20})?(?=\[)", re.IGNORECASE)
_NUMBERS = re.compile(r"\s*[0-9]{1,6}(?:\s*,\s*[0-9]{1,6})*\s*")
_NEXT = re.compile(
    r"\W{0,6}(?:\b(?:or|and|also|either|no|wait|maybe|perhaps|actually|rather)\b\W{0,4}){0,4}",
    re.IGNORECASE,
)
_TOLD = re.compile(
    r"(?:[:：]|\b(?:is|are|or|no|and|also|maybe|wait|actually|rather)\b|[\])\s][,/;\n])[^\w\[\]]{0,20}\Z",
    re.IGNORECASE,
)
_STYLE = re.compile(r"(?<!\w)\\(?:text|textbf|mathrm|mathbf)\{([^{}]*)\}(?!\w)")
_ARROW = re.compile(r"->|→|\\to\b|\\rightarrow\b")

R = TypeVar("R")
Place = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The lists of an answer as node numbers, the names that are no node, and the words it was read
    from."""

    lists: tuple[tuple[int, ...], ...]
    unknown: tuple[str, ...]
    text: str


def final_part(text: str, question: str = "") -> str:
    """Leave out the question said again and the reasoning block, and keep the end of what is
    left."""
    if question:
        text = text.replace(question, " ")
    text = text[text.rfind("</think>") + len("</think>") :] if "</think>" in text else text
    opened = text.find("<think>")
    return (text if opened < 0 else text[:opened])[-MAX_CHARS:]


def read_names(text: str, names: Sequence[str]) -> Reply | None:
    """Read the final list of node names; None where there is no list.

    >>> read_names("Maybe [A, B]. The answer is: [B, c d]", ["A", "B", "C D"])
    Reply(lists=((1, 2),), unknown=(), text='[B, c d]')
    """
    lookup = Names(names)

    def read(content: str) -> Reply | None:
        reply = _named(content, lookup)
        is_remark = reply is not None and not reply.lists[0] and len(reply.unknown) == 1
        return None if is_remark else reply

    def is_sure(reply: Reply) -> bool:
        return bool(reply.lists[0])

    found = _last(
        text,
        read,
        is_sure=is_sure,
        bare=read,
        strange=lambda content: _strange(_named(content, lookup)),
    )
    if found is not None:
        return found
    strangers = (_named(text[start + 1 : end], lookup) for start, end in reversed(_brackets(text)))
    return next((reply for reply in strangers if reply is not None), None)


def read_numbers(text: str) -> Reply | None:
    """Read the final list of whole numbers.

    >>> read_numbers("[0, 1] is one [note]. [2, 0, 1]").lists
    ((2, 0, 1),)
    """

    def is_sure(reply: Reply) -> bool:
        return len(reply.lists[0]) > 1

    return _last(
        text, _numbered, is_sure=is_sure, bare=lambda part: _numbered(part) if "," in part else None
    )


def read_two(text: str) -> Reply | None:
    """Read the final two lists of whole numbers, the first for A and the second for B."""
    for part in _closing_parts(text):
        inside = _all_numbered(part, _brackets(part))
        if len(inside) >= 2:
            return _joined(inside[-2:])
    places = _brackets(text)
    for start, end in _marked(text, places):
        marked = _all_numbered(text, [place for place in places if start <= place[0]])
        until = text.find("\n\n", end)
        if len(marked) >= 2 and (until < 0 or marked[1][0] < until):
            listed = _all_numbered(text, _alternatives(text, places, (start, end)))
            return _joined(listed[-2:] if len(listed) > 2 else marked[:2])
    inside = _all_numbered(text, places)
    return _joined(inside[-2:]) if len(inside) >= 2 else None


def _last(
    text: str,
    read: Callable[[str], R | None],
    *,
    is_sure: Callable[[R], bool],
    bare: Callable[[str], R | None],
    strange: Callable[[str], R | None] = lambda content: None,
) -> R | None:
    """Try the places an answer may stand in turn.

    `bare` reads a box without brackets in it, `strange` a list that is told as the answer and names
    nothing known.
    """

    def told(part: str, place: Place) -> R | None:
        return strange(part[place[0] + 1 : place[1]]) if _is_told(part, place) else None

    for part in _closing_parts(text):
        for place in reversed(_brackets(part)):
            reply = read(part[place[0] + 1 : place[1]])
            reply = reply if reply is not None and is_sure(reply) else told(part, place)
            if reply is not None:
                return reply
        reply = bare(part)
        if reply is not None and is_sure(reply):
            return reply
    places = _brackets(text)
    replies = {place: read(text[place[0] + 1 : place[1]]) for place in reversed(places)}
    for marked in _marked(text, places):
        for place in reversed(_alternatives(text, places, marked)):
            reply = replies[place]
            reply = reply if reply is not None and is_sure(reply) else told(text, place)
            if reply is not None:
                return reply
    found = next(
        (reply for place in replies if (reply := replies[place] or told(text, place)) is not None),
        None,
    )
    return _escaped(text, read, is_sure) if found is None else found


def _escaped(text: str, read: Callable[[str], R | None], is_sure: Callable[[R], bool]) -> R | None:
    r"""Take `\[A, B\]` for a list where there is no other."""
    plain = text.replace("\\[", "[").replace("\\]", "]") if "\\[" in text else ""
    replies = (read(plain[start + 1 : end]) for start, end in reversed(_brackets(plain)))
    return next((reply for reply in replies if reply is not None and is_sure(reply)), None)


def _brackets(text: str) -> list[Place]:
    """Find the last bracket pairs, in the order they close; `\\[` and `\\]` are mathematics, not
    lists."""
    opened: list[int] = []
    places: list[Place] = []
    for match in _BRACKET.finditer(text):
        if match.group() == "[":
            opened.append(match.start())
        elif match.group() == "]" and opened:
            start = opened.pop()
            if match.start() - start <= _MAX_LIST_CHARS:
                places.append((start, match.start()))
    return places[-_MAX_LISTS:]


def _marked(text: str, places: Sequence[Place]) -> list[Place]:
    """Find the lists that follow the word "answer", the last one first."""
    starts = {match.end() for match in _MARK.finditer(text)}
    return sorted((place for place in places if place[0] in starts), reverse=True)[:_MAX_MARKS]


def _alternatives(text: str, places: Sequence[Place], first: Place) -> list[Place]:
    """List a place and those joined to it by "or", "no, " or a comma: the last of them counts."""
    found = [first]
    for place in sorted(places):
        if found[-1][1] < place[0] <= found[-1][1] + _MAX_GAP:
            gap = text[found[-1][1] + 1 : place[0]]
            if "\n\n" not in gap and _NEXT.fullmatch(gap):
                found.append(place)
    return found


def _closing_parts(text: str) -> list[str]:
    """Cut out the last box and the last answer tag, where there are any."""
    parts = [boxed(text)] if "\\boxed{" in text else []
    start = text.rfind("<answer>")
    if start >= 0:
        parts.append(text[start + len("<answer>") :].split("</answer>", 1)[0])
    return [part for part in parts if part is not None and len(part) <= _MAX_LIST_CHARS]


def boxed(text: str) -> str | None:
    """Cut out what the last `\\boxed{}` holds; None where there is none or it does not close."""
    start = text.rfind("\\boxed{")
    depth = 0
    for place in range(start + len("\\boxed"), len(text) if start >= 0 else 0):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return text[start + len("\\boxed{") : place]
    return None


def _is_told(text: str, place: Place) -> bool:
    """See that a list is told as an answer, or joined to one, and is no remark in brackets."""
    return _TOLD.search(text, max(place[0] - _MAX_GAP, 0), place[0]) is not None


def _strange(reply: Reply | None) -> Reply | None:
    """Keep what names nobody, and is neither a pattern to fill in such as `[A, B, ...]` nor a
    reference such as [1]."""
    is_remark = reply is not None and (
        "..." in reply.text or "…" in reply.text or reply.text[1:-1].isdigit()
    )
    return None if is_remark else reply


def _numbered(content: str) -> Reply | None:
    content = content.strip().removesuffix("\\right")
    if not _NUMBERS.fullmatch(content):
        return None
    return Reply(
        lists=(tuple(map(int, re.findall("[0-9]+", content))),), unknown=(), text=f"[{content}]"
    )


def _all_numbered(text: str, places: Sequence[Place]) -> list[tuple[int, Reply]]:
    read = [(start, _numbered(text[start + 1 : end])) for start, end in sorted(places)]
    return [(start, reply) for start, reply in read if reply is not None]


def _joined(replies: Sequence[tuple[int, Reply]]) -> Reply:
    (_, first), (_, second) = replies
    return Reply(
        lists=(*first.lists, *second.lists), unknown=(), text=f"{first.text}, {second.text}"
    )


def _named(content: str, lookup: Names) -> Reply | None:
    """Split a list into names; None for what only wraps another list. Names may hold commas
    themselves."""
    inner = _STYLE.sub(r"\1", content).strip().removesuffix("\\right").strip()
    inner = inner.removeprefix("\\{").removesuffix("\\}").strip()
    if lookup.find(inner) is None:
        if inner.startswith("[") and inner.endswith("]"):
            return None
        if "," not in inner:
            inner = _ARROW.sub(",", inner)
    pieces = inner.split(",")
    numbers: list[int] = []
    unknown: list[str] = []
    place = 0
    while place < len(pieces):
        for width in range(min(lookup.most_commas + 1, len(pieces) - place), 0, -1):
            number = lookup.find(",".join(pieces[place : place + width]))
            if number is not None:
                numbers.append(number)
                break
        else:
            width = 1
            if pieces[place].strip():
                unknown.append(pieces[place].strip())
        place += width
    return Reply(lists=(tuple(numbers),), unknown=tuple(unknown), text=f"[{content.strip()}]")
