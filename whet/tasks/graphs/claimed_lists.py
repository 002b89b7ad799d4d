"""Find the lists in square brackets that a response may give as its answer, most likely first.

In order of precedence: the last box, the last `<answer>` tag, a list that is the whole last line,
lists that follow the word "answer", the last list. Lists that the text denies do not count.
"""

import re
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Literal, NamedTuple

from whet.answers.doubt import CHOICE, SENTENCE_WINDOW, TURN, any_of, is_denied
from whet.answers.final_answer import Span, find_tags, last_box, make_span
from whet.answers.withdrawal import is_disowned
from whet.tasks.answers import MAX_LIST_CHARS

_MAX_LISTS = 256
_MAX_MARKS = 16
_MAX_GAP = 40
_BRACKET = re.compile(r"\\?[\[\]]")
_MARK = re.compile(r"answer[^\w\[\]]{0,20}(?:(?:is|are)\b[^\w\[\]]{0,20})?(?=\[)", re.IGNORECASE)
"""The word "answer" before a list: `The answer is: [`."""
_JOINING = any_of(CHOICE, TURN, "and|also|either|no")
_NEXT = re.compile(rf"\W{{0,6}}(?:{_JOINING}\W{{0,4}}){{0,4}}", re.IGNORECASE)
"""What joins a list to another one: `or`, `no, `."""
_STATING = re.compile(
    rf"(?:[:：]|\b(?:is|are)\b|{_JOINING}|[\])\s][,/;\n]|\] )[^\w\[\]]{{0,20}}\Z", re.IGNORECASE
)
"""The end of the words before a list that states it: `: `, `is `."""
_COMMA = re.compile(r"\s*(?:[,;]|,? and)?\s*")
_BESIDE = re.compile(r"[ \t*`$,;/|&.]*+(?:\n[ \t*`$>•-]*+(?:[0-9]{1,2}[.)])?[ \t*`$]*+)?")
"""What may stand between two lists on the same line or on successive lines."""
_OWN_LINE = re.compile(
    r"[ \t*`$>•-]*+(?:[0-9]{1,2}[.)])?[ \t*`$>-]*+\[[^\n]*\][ \t*`$.,;]*+(?:\n|\Z)"
)
"""A line that holds only a list."""
_ANNOUNCES = re.compile(
    r"(?:\A|[:：=→>(]|\b(?:is|are|be|was|were|get|have|choose|select|pick|take|answer|path|tour"
    r"|route|set|list|order|so|thus|hence|therefore|final|finally|or|and|wait|actually|no"
    r"|instead)\b)[^\w\[\]]*\Z",
    re.IGNORECASE,
)
"""The end of words that introduce a list: `so the path is`, `Answer:`."""
_REMARK = re.compile(
    r"[\s*(]*(?:p\.?\s?s\b|nb\b|note|remark|fyi|by the way|for comparison|alternatively|an? )",
    re.IGNORECASE,
)
"""The start of a line that only remarks: `Note`, `By the way`."""


class AnswerPlace(NamedTuple):
    """A part of a response that may be its answer."""

    text: str
    form: Literal["marked", "bare", "list", "formula"]
    """A list in a tag or box or after "answer"; a whole tag or box; any list; a TeX display."""
    is_stated: bool = False
    """Whether the words before a list state it as an answer, or it is the whole text."""


def find_places(text: str) -> Iterator[AnswerPlace]:
    """Yield the places where an answer may be, most likely first."""
    for part in find_closing_parts(text):
        yield from _list_places(part, find_claimed(part), "marked")
        yield AnswerPlace(part, "bare")
    brackets = find_claimed(text)
    if brackets and text.rstrip(" \t\r\n*`$.").endswith("]") and _has_own_line(text, brackets[-1]):
        yield from _list_places(text, brackets[-1:], "list")
    for marked in find_after_answer(text, brackets):
        yield from _list_places(text, list_alternatives(text, brackets, marked), "marked")
    yield from _list_places(text, brackets, "list")
    # If there is no other list, `\[A, B\]` is one.
    plain = text.replace("\\[", "[").replace("\\]", "]") if "\\[" in text else ""
    for bracket in reversed(_brackets(plain)):
        yield AnswerPlace(bracket.text, "formula")


def _list_places(
    text: str, brackets: Sequence[Span], form: Literal["marked", "list"]
) -> Iterator[AnswerPlace]:
    """Yield brackets from the last; one that is joined to another is stated too."""
    size = len(text.strip())
    for bracket in reversed(brackets):
        start = bracket.start - 1
        is_stated = _STATING.search(text, max(start - _MAX_GAP, 0), start) is not None
        yield AnswerPlace(bracket.text, form, is_stated or size == len(bracket.text) + 2)


def find_closing_parts(text: str) -> list[str]:
    """List the contents of the last box and the last answer tag, if there are any."""
    box = last_box(text)
    frames = [*([box] if box else []), *find_tags(text)[-1:]]
    return [
        frame.text
        for frame in frames
        if len(frame.text) <= MAX_LIST_CHARS and not is_denied(text, frame.start, frame.end)
    ]


def find_claimed(text: str, *, in_pairs: bool = False) -> list[Span]:
    """Find the brackets that the text does not deny, there or later.

    With `in_pairs`, a list that is joined to a denied one is denied too.
    """
    claimed: list[Span] = []
    denied: set[str] = set()
    after: Span | None = None
    for bracket in reversed(_brackets(text)):
        end = bracket.end
        if in_pairs and after and _COMMA.fullmatch(text, bracket.end + 1, after.start - 1):
            end = after.end
        line = text.rfind("\n", 0, bracket.start) + 1
        lead = text[max(line, bracket.start - SENTENCE_WINDOW) : bracket.start - 1]
        if is_denied(text, bracket.start - 1, end + 1) or is_disowned(lead):
            denied.add(bracket.text)
        elif bracket.text not in denied:
            claimed.append(bracket)
        after = bracket
    return _outside_remarks(text, claimed[::-1])


def find_after_answer(text: str, brackets: Sequence[Span]) -> list[Span]:
    """Find the lists that follow the word "answer", the last one first."""
    starts = {match.end() + 1 for match in _MARK.finditer(text)}
    marked = [bracket for bracket in brackets if bracket.start in starts]
    return sorted(marked, key=attrgetter("start"), reverse=True)[:_MAX_MARKS]


def list_alternatives(text: str, brackets: Sequence[Span], first: Span) -> list[Span]:
    """List a pair and those joined to it by "or", "no, " or a comma; the last of them counts."""
    joined = [first]
    for bracket in sorted(brackets, key=attrgetter("start")):
        gap = text[joined[-1].end + 1 : bracket.start - 1]
        is_near = joined[-1].end < bracket.start - 1 <= joined[-1].end + _MAX_GAP
        if is_near and "\n\n" not in gap and _NEXT.fullmatch(gap):
            joined.append(bracket)
    return joined


def find_row(text: str) -> list[Span]:
    r"""Find the lists that end a text without words between them, on one line or each on its own.

    >>> [one.text for one in find_row("Of [C], these:\n[A], [B]\n[A [a], C]")]
    ['A', 'B', 'A [a], C']
    """
    row: list[Span] = []
    for bracket in reversed(_brackets(text)):
        if row and bracket.start > row[-1].start:
            continue
        gap = text[bracket.end + 1 : row[-1].start - 1] if row else ""
        if not _BESIDE.fullmatch(gap):
            break
        if "\n" in gap and not all(_has_own_line(text, one) for one in (bracket, row[-1])):
            break
        row.append(bracket)
    return row[::-1]


def _has_own_line(text: str, bracket: Span) -> bool:
    return _OWN_LINE.match(text, text.rfind("\n", 0, bracket.start) + 1) is not None


def _outside_remarks(text: str, brackets: Sequence[Span]) -> list[Span]:
    """Drop lists that are only mentioned after one on its own line."""
    kept: set[int] = set()
    own_lines: dict[int, bool] = {}
    before: Span | None = None
    for bracket in sorted(brackets, key=attrgetter("start")):
        start = text.rfind("\n", 0, bracket.start) + 1
        lead = text[max(start, bracket.start - 1 - _MAX_GAP) : bracket.start - 1]
        is_stated = bool(_ANNOUNCES.search(lead)) and not _REMARK.match(text, start)
        if before and (
            bracket.end < before.end or _COMMA.fullmatch(text, before.end + 1, bracket.start - 1)
        ):
            is_stated = before.start in kept
        if is_stated or start in own_lines or not any(own_lines.values()):
            kept.add(bracket.start)
            if start not in own_lines:
                own_lines[start] = _has_own_line(text, bracket)
        before = bracket
    return [bracket for bracket in brackets if bracket.start in kept]


def _brackets(text: str) -> list[Span]:
    r"""Find the contents of the last pairs, in closing order; `\[` and `\]` are TeX displays."""
    opened: list[int] = []
    pairs: list[tuple[int, int]] = []
    for match in _BRACKET.finditer(text):
        if match.group() == "[":
            opened.append(match.end())
        elif match.group() == "]" and opened:
            start = opened.pop()
            if match.start() - start < MAX_LIST_CHARS:
                pairs.append((start, match.start()))
    return [make_span(text, start, end) for start, end in pairs[-_MAX_LISTS:]]
