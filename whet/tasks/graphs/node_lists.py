"""Read the final list of a response, or the final two: names or numbers in square brackets.

What counts, in this order: the last box, the last `<answer>` tag, lists that follow the word
"answer", the last list; without any list in brackets, names or numbers that are all the answer has.
Lists that the text denies, the thought, and the question repeated do not count. Any text is read,
in linear time.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from typing import TypeVar

from whet.answers.doubt import CHOICE, TURN, any_of, is_denied
from whet.answers.final_answer import Span, decided_text, find_tags, last_box, make_span
from whet.tasks.answers import MAX_LIST_CHARS, candidates, write_in_line
from whet.tasks.graphs.node_names import Names

MAX_CHARS = 1 << 16
"""Only the end of a longer response is read."""

_MAX_LISTS = 256
_MAX_MARKS = 16
_MAX_GAP = 40
_BRACKET = re.compile(r"\\?[\[\]]")
_MARK = re.compile(r"answer[^\w\[\]]{0,20}(?:(?:is|are)\b[^\w\[\]]{0,20})?(?=\[)", re.IGNORECASE)
_SOME_NUMBER = r"[-+−]?[0-9]{1,6}(?:\.[0-9]{1,6})?"
_NUMBERS = re.compile(rf"\s*{_SOME_NUMBER}(?:\s*,\s*{_SOME_NUMBER})*\s*")
_JOINING = any_of(CHOICE, TURN, "and|also|either|no")
_NEXT = re.compile(rf"\W{{0,6}}(?:{_JOINING}\W{{0,4}}){{0,4}}", re.IGNORECASE)
_STATING = re.compile(
    rf"(?:[:：]|\b(?:is|are)\b|{_JOINING}|[\])\s][,/;\n]|\] )[^\w\[\]]{{0,20}}\Z", re.IGNORECASE
)
_OTHER_FORM = re.compile(r"\n|\band\b|->|→|\\to\b|\\rightarrow\b|\*\*")
_EITHER = re.compile(
    r"\][^\w\[\]]{0,6}(?:or|versus|vs)\b[^\w\[\]]{0,4}"
    r"(?:(?:maybe|perhaps|possibly|else)\W{1,3})?(?=\[)",
    re.IGNORECASE,
)
_COMMA = re.compile(r"\s*(?:[,;]|,? and)?\s*")
_OWN_LINE = re.compile(r"[ \t*`$>-]*+\[[^\n]*\][ \t*`$.]*+(?:\n|\Z)")
_ANNOUNCES = re.compile(
    r"(?:\A|[:：=→>(]|\b(?:is|are|be|was|were|get|have|choose|select|pick|take|answer|path|tour"
    r"|route|set|list|order|so|thus|hence|therefore|final|finally|or|and|wait|actually|no"
    r"|instead)\b)[^\w\[\]]*\Z",
    re.IGNORECASE,
)
_REMARK = re.compile(
    r"[\s*(]*(?:p\.?\s?s\b|nb\b|note|remark|fyi|by the way|for comparison|alternatively|an? )",
    re.IGNORECASE,
)
_EDGES_AT_END = re.compile(
    r"(?<![\w,-])([0-9]{1,5}-[0-9]{1,5}(?:, ?[0-9]{1,5}-[0-9]{1,5})++)[^0-9,;\n]{0,80}\Z"
)
_WALKED = re.compile(r", | ?-> ?")
_DIGIT = re.compile("[0-9]")
_STYLE = re.compile(r"(?<!\w)\\(?:text|textbf|mathrm|mathbf)\{([^{}]*)\}(?!\w)")
_ARROW = re.compile(r"->|→|\\to\b|\\rightarrow\b")

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeListReply:
    """The lists of an answer as node numbers, the names that are no node, and the text read."""

    lists: tuple[tuple[int, ...], ...]
    unknown: tuple[str, ...]
    text: str


def final_part(text: str, question: str = "") -> str:
    """Leave out the question repeated and the thought, and keep the end of what follows it."""
    if question:
        text = text.replace(question, " ")
    return (decided_text(text) or "")[-MAX_CHARS:]


def find_other_choice(text: str) -> str | None:
    """Cut a text before the "or" between the lists of its last line with any; None without one.

    >>> find_other_choice("It is [A] or [B].")
    'It is [A]'
    """
    end = text.rfind("]")
    start = text.rfind("\n", 0, max(end, 0)) + 1
    choice = _EITHER.search(text, start, end + 1)
    return text[: choice.start() + 1] if choice else None


def read_names(text: str, names: Sequence[str]) -> NodeListReply | None:
    """Read the final list of node names; None if there is no list.

    >>> read_names("Maybe [A, B]. The answer is: [B, c d]", ["A", "B", "C D"])
    NodeListReply(lists=((1, 2),), unknown=(), text='[B, c d]')
    """
    lookup = Names(names)

    def read(content: str) -> NodeListReply | None:
        reply = _read_names(content, lookup)
        is_remark = reply is not None and not reply.lists[0] and len(reply.unknown) == 1
        return None if is_remark else reply

    def read_strangers(content: str) -> NodeListReply | None:
        """Read what is no pattern to fill in, such as `[A, B, ...]`, and no reference: [1]."""
        is_remark = "..." in content or "…" in content or content.strip().isdigit()
        return None if is_remark else _read_names(content, lookup)

    final = _last(
        text, read, is_sure=lambda reply: bool(reply.lists[0]), bare=read, strange=read_strangers
    )
    if final is not None:
        return final
    for span in _short_candidates(text):
        reply = _read_names(write_in_line(span), lookup)
        if reply is not None and reply.lists[0] and not reply.unknown:
            return reply
    strangers = (_read_names(one.text, lookup) for one in reversed(_claimed(text)))
    return next((reply for reply in strangers if reply is not None), None)


def read_final_list(text: str) -> NodeListReply | None:
    """Read the final list of whole numbers.

    >>> read_final_list("[0, 1] is one [note]. [2, 0, 1]").lists
    ((2, 0, 1),)
    """

    reply = _last(
        text,
        _read_numbers,
        is_sure=lambda reply: len(reply.lists[0]) > 1,
        bare=lambda part: _read_numbers(part) if "," in part else None,
    )
    listed = map(_read_numbers, _short_candidates(text))
    return reply or next((one for one in listed if one and len(one.lists[0]) > 1), None)


def drop_walked_edges(text: str) -> str:
    """Leave out edges at the end of a text that are the steps of a walk before them.

    >>> drop_walked_edges("1,0,3 visits all: 1-0, 0-3.")
    '1,0,3 visits all: '
    """
    edges = _EDGES_AT_END.search(text, max(len(text) - MAX_LIST_CHARS // 4, 0))
    if edges is None:
        return text
    steps = [one.split("-") for one in edges[1].replace(" ", "").split(",")]
    walk = [steps[0][0], *(end for _, end in steps)]
    before = _WALKED.sub(",", text[: edges.start()])
    is_walk = steps == [list(step) for step in pairwise(walk)]
    is_given = re.search(rf"(?<![\w,-]){','.join(walk)}(?![\w,-])", before)
    return text[: edges.start(1)] if is_walk and is_given else text


def read_two(text: str) -> NodeListReply | None:
    """Read the final two lists of whole numbers, the first for A and the second for B."""
    for part in _closing_parts(text):
        inside = _all_numbers(_claimed(part, in_pairs=True))
        if len(inside) >= 2:
            return _join(inside[-2:])
    brackets = _claimed(text, in_pairs=True)
    for marked in _after_answer(text, brackets):
        following = _all_numbers([one for one in brackets if marked.start <= one.start])
        until = text.find("\n\n", marked.end)
        if len(following) >= 2 and (until < 0 or following[1][0] < until):
            offered = _all_numbers(_alternatives(text, brackets, marked))
            return _join(offered[-2:] if len(offered) > 2 else following[:2])
    inside = _all_numbers(brackets)
    return _join(inside[-2:]) if len(inside) >= 2 else None


def _last(
    text: str,
    read: Callable[[str], R | None],
    *,
    is_sure: Callable[[R], bool],
    bare: Callable[[str], R | None],
    strange: Callable[[str], R | None] = lambda content: None,
) -> R | None:
    """Try the places where an answer may be, in order.

    `bare` reads a box without brackets in it, `strange` a list that is stated as the answer and
    names nothing known.
    """

    def read_sure(part: str, bracket: Span) -> R | None:
        reply = read(bracket.text)
        return reply if reply is not None and is_sure(reply) else read_strange(part, bracket)

    def read_strange(part: str, bracket: Span) -> R | None:
        """Read a list that is stated as an answer, or joined to one, and is no remark."""
        start = bracket.start - 1
        is_stated = _STATING.search(part, max(start - _MAX_GAP, 0), start) is not None
        is_all = len(part.strip()) == len(bracket.text) + 2
        return strange(bracket.text) if is_stated or is_all else None

    for part in _closing_parts(text):
        for bracket in reversed(_claimed(part)):
            if (reply := read_sure(part, bracket)) is not None:
                return reply
        if (reply := bare(part)) is not None and is_sure(reply):
            return reply
    brackets = _claimed(text)
    for marked in _after_answer(text, brackets):
        for bracket in reversed(_alternatives(text, brackets, marked)):
            if (reply := read_sure(text, bracket)) is not None:
                return reply
    for bracket in reversed(brackets):
        if (reply := read(bracket.text) or read_strange(text, bracket)) is not None:
            return reply
    # Where there is no other list, `\[A, B\]` is one.
    plain = text.replace("\\[", "[").replace("\\]", "]") if "\\[" in text else ""
    replies = (read(bracket.text) for bracket in reversed(_brackets(plain)))
    return next((reply for reply in replies if reply is not None and is_sure(reply)), None)


def _brackets(text: str) -> list[Span]:
    r"""Find what the last pairs hold, in the order they close; `\[` and `\]` are mathematics."""
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


def _claimed(text: str, *, in_pairs: bool = False) -> list[Span]:
    """Find the brackets but those that the text denies, then or later.

    Where lists come in pairs, one that is joined to a denied one is denied too.
    """
    claimed: list[Span] = []
    denied: set[str] = set()
    after: Span | None = None
    for bracket in reversed(_brackets(text)):
        end = bracket.end
        if in_pairs and after and _COMMA.fullmatch(text, bracket.end + 1, after.start - 1):
            end = after.end
        if is_denied(text, bracket.start - 1, end + 1):
            denied.add(bracket.text)
        elif bracket.text not in denied:
            claimed.append(bracket)
        after = bracket
    return _outside_remarks(text, claimed[::-1])


def _outside_remarks(text: str, brackets: Sequence[Span]) -> list[Span]:
    """Leave out lists that are only mentioned behind one that has its own line."""
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
                own_lines[start] = _OWN_LINE.match(text, start) is not None
        before = bracket
    return [bracket for bracket in brackets if bracket.start in kept]


def _after_answer(text: str, brackets: Sequence[Span]) -> list[Span]:
    """Find the lists that follow the word "answer", the last one first."""
    starts = {match.end() + 1 for match in _MARK.finditer(text)}
    marked = [bracket for bracket in brackets if bracket.start in starts]
    return sorted(marked, key=attrgetter("start"), reverse=True)[:_MAX_MARKS]


def _alternatives(text: str, brackets: Sequence[Span], first: Span) -> list[Span]:
    """List a pair and those joined to it by "or", "no, " or a comma: the last of them counts."""
    joined = [first]
    for bracket in sorted(brackets, key=attrgetter("start")):
        gap = text[joined[-1].end + 1 : bracket.start - 1]
        is_near = joined[-1].end < bracket.start - 1 <= joined[-1].end + _MAX_GAP
        if is_near and "\n\n" not in gap and _NEXT.fullmatch(gap):
            joined.append(bracket)
    return joined


def _short_candidates(text: str) -> list[str]:
    return [span for span in candidates(text) if len(span) <= MAX_LIST_CHARS]


def _closing_parts(text: str) -> list[str]:
    """Take what the last box and the last answer tag hold, if there are any."""
    box = last_box(text)
    frames = [*([box] if box else []), *find_tags(text)[-1:]]
    return [
        frame.text
        for frame in frames
        if len(frame.text) <= MAX_LIST_CHARS and not is_denied(text, frame.start, frame.end)
    ]


def _read_numbers(content: str) -> NodeListReply | None:
    if not _DIGIT.search(content):
        return None
    content = write_in_line(content).replace('"', "").strip("[] ").removesuffix("\\right")
    if not _NUMBERS.fullmatch(content):
        return None
    pieces = [piece.strip() for piece in content.split(",")]
    unknown = tuple(piece for piece in pieces if not piece.isdecimal())
    numbers = tuple(0 if piece in unknown else int(piece) for piece in pieces)
    return NodeListReply(lists=(numbers,), unknown=unknown, text=f"[{content}]")


def _all_numbers(brackets: Sequence[Span]) -> list[tuple[int, NodeListReply]]:
    read = [
        (one.start, _read_numbers(one.text)) for one in sorted(brackets, key=attrgetter("start"))
    ]
    return [(start, reply) for start, reply in read if reply is not None]


def _join(replies: Sequence[tuple[int, NodeListReply]]) -> NodeListReply:
    (_, first), (_, second) = replies
    text = f"{first.text}, {second.text}"
    unknown = first.unknown + second.unknown
    return NodeListReply(lists=(*first.lists, *second.lists), unknown=unknown, text=text)


def _read_names(content: str, lookup: Names) -> NodeListReply | None:
    """Split a list into names, which may hold commas; None for what only wraps another list.

    Names in another form than a list with commas are read in that form.
    """
    reply = _split_names(content, lookup)
    if reply is not None and reply.unknown and _OTHER_FORM.search(content):
        listed = _split_names(write_in_line(content), lookup)
        if listed is not None and not listed.unknown:
            return replace(reply, lists=listed.lists, unknown=())
    return reply


def _split_names(content: str, lookup: Names) -> NodeListReply | None:
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
    index = 0
    while index < len(pieces):
        for width in range(min(lookup.most_commas + 1, len(pieces) - index), 0, -1):
            number = lookup.find(",".join(pieces[index : index + width]))
            if number is not None:
                numbers.append(number)
                break
        else:
            width = 1
            if pieces[index].strip():
                unknown.append(pieces[index].strip())
        index += width
    return NodeListReply(
        lists=(tuple(numbers),), unknown=tuple(unknown), text=f"[{content.strip()}]"
    )
