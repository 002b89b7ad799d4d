"""Find the answer of a response: in the tag, the boxes, or else in words.

Text inside the thinking part never counts. Boxes joined by a comma, or by a few words with "and",
are one answer with several parts; otherwise the last box is the answer. Words beside a tag or box
may take it back. `prose` finds answers in words.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from whet.answers.doubt import CONTRACTION, DENIAL, TURN, any_of
from whet.answers.final_answer import Span, decided_text, find_boxes, find_tags, visible_text
from whet.tasks.math.asked_values import find_named_boxes
from whet.tasks.math.meaning import are_same, meaning_of
from whet.tasks.math.prose import find_in_words

MAX_GAP = 80
MAX_GAP_WORDS = 5
"""If there are more characters or words than this between two boxes, they are two answers."""
WINDOW = 80
"""A denial is searched for in this many characters before a box."""

_MARKUP = re.compile(
    r"\\(?:text|mathrm|textbf|mbox|quad|qquad)(?![a-zA-Z])|\\[()\[\],;! ]|[${}&\s]+|\\\\"
)
"""LaTeX markup and white space between boxes."""
_JOINER = re.compile(r",|;|\b(?:and|or|und|et|y)\b|和|或")
_NEW_THOUGHT = re.compile(
    r"[.!?=]\s|"
    + any_of(
        TURN, DENIAL, "but|no|then|so|thus|hence|therefore|now|next|because|since|which|gives?"
    ),
    re.IGNORECASE,
)
"""Words between two boxes that make them two answers: `so`, `but`, `wait`."""
_PART = re.compile(r"(?:^|[\s*])(?:\(?[b-h]\)|[(（][2-9][)）])")
"""The label of a later part: `(b)`, `(2)`."""
_BOX_NAME = re.compile(r"[A-Za-z]\w{0,3}(?:_\{?\w{1,3}\}?)?\s*=\s*$")
"""A name before a box: `x_1 =`."""
_RULED_OUT_BEFORE = re.compile(
    rf"(?:{CONTRACTION}|\b(?:not|never|cannot))(?: be| equal(?: to)?)?"
    r"(?:[\s:*$`\"'(\[{\\]|<answer>)*\Z",
    re.IGNORECASE,
)
"""Words before a box that deny it: `is not`."""
_RULED_OUT_AFTER = re.compile(
    r"(?:[\s*$`\"')\]}.,;\\]|</answer>){0,12}(?:(?:that|this|it|which) )?"
    r"(?:is|was)(?: (?:also|clearly|obviously|certainly|just))?"
    r" (?:wrong|incorrect|false|mistaken|impossible|not (?:right|correct|true|it|the answer))\b"
    r"(?! (?:to|in general)\b)",
    re.IGNORECASE,
)
"""Words after a box that deny it: `is clearly wrong`."""
_RETRACTION = re.compile(
    r"(?:[\s*$`\"')\]}.,;:!\\—–-]|</answer>){0,12}(?:(?:but|oh|no|hmm|wait)\W{1,3})?"
    r"(?:(?:just )?kidding|scratch that|correction|oops|on second thought|I meant?\b(?= [^a-z])"
    r"|sorry(?=[^\n]{0,60}[0-9])|actually\W{1,3}(?:no|wait)|wait\W{1,3}no"
    r"|no\W{1,3}(?:wait|actually)|(?:actually|no)\W{1,3}it(?: is|['’]s)(?=[\s$*\\(]{1,4}[-0-9]))\b",
    re.IGNORECASE,
)
"""Words after a box that take it back: `scratch that`, `no, wait`, `actually, it is 5`."""

_SPOKEN_SIGN = re.compile(
    r"\A\s*(?:\\text\s?\{\s*)?(?:negative|minus)\b[\s~]*\}?\s*(?=\\?[0-9$dtf])", re.IGNORECASE
)
"""A sign in words before a number: `negative 42`."""


def find_answer(text: str, *, in_parts: bool = False, names: tuple[str, ...] = ()) -> Span | None:
    """Find the answer of a response; None if it gives none.

    With `in_parts`, the boxes after (a), (b), ... or (1), (2), ... are one answer. The boxes after
    all of `names` always are.
    """
    is_named = bool(names) and find_named_boxes(visible_text(text) or "", names) is not None

    def is_part(gap: str) -> bool:
        return is_named or bool(in_parts and _PART.search(gap)) or _joins(gap)

    visible = decided_text(text, same=are_same, is_part=is_part)
    if visible is None:
        return None
    start = len(text) - len(visible)
    marked = None
    if tags := find_tags(visible):
        boxes = _last_boxes(tags[-1].text, in_parts)
        marked = boxes.shift(tags[-1].start) if boxes else tags[-1]
        if not marked.text.strip():
            return None
    elif "<answer>" in visible:
        return None
    else:
        named = find_named_boxes(visible, names) if names else None
        marked = named or _last_boxes(visible, in_parts)
    stated = _unless_taken_back(visible, marked) if marked else find_in_words(visible)
    return stated and stated.shift(start)


def _unless_taken_back(text: str, marked: Span) -> Span | None:
    """Return a box or tag, or its correction if one follows, or None if it is denied."""
    if _is_ruled_out(text, marked.start, marked.end):
        return None
    end = _find_retraction(text, marked.end)
    if end is None:
        return replace(marked, text=_SPOKEN_SIGN.sub("-", marked.text, count=1))
    rest = find_in_words(text[end:])
    is_other = rest and any(sign.isdigit() for sign in rest.text)
    return rest.shift(end) if rest and is_other else None


def _last_boxes(text: str, in_parts: bool) -> Span | None:
    """Return the last box together with the boxes joined to it."""
    boxes = [box for box in find_boxes(text) if box.text.strip()]
    if not boxes:
        return None
    first = len(boxes) - 1
    while first > 0:
        gap = text[boxes[first - 1].end : boxes[first].start]
        if not (in_parts and _PART.search(gap)) and not _joins(gap):
            break
        first -= 1
    if first == len(boxes) - 1:
        return boxes[-1]
    parts: dict[object, str] = {}
    for index, box in enumerate(boxes[first:]):
        if (
            not in_parts
            and len(boxes) - first == 2
            and parts
            and _is_set_again(boxes[first:], text)
        ):
            parts.clear()
        parts[index if in_parts else meaning_of(box.text)] = box.text.strip()
    return Span(text=" , ".join(parts.values()), start=boxes[first].start, end=boxes[-1].end)


def _is_set_again(boxes: Sequence[Span], text: str) -> bool:
    """Whether the second of two boxes restates the bounds in the first as an interval."""
    first, second = boxes
    gap = text[first.end : second.start]
    return "interval" in gap.lower() and are_same(first.text, second.text)


def _joins(gap: str) -> bool:
    if len(gap) > MAX_GAP or "\n\n" in gap:
        return False
    words = _BOX_NAME.sub("", _MARKUP.sub(" ", gap).strip())
    is_short = len(words.split()) <= MAX_GAP_WORDS
    return is_short and bool(_JOINER.search(words)) and not _NEW_THOUGHT.search(words)


def _is_ruled_out(text: str, start: int, end: int) -> bool:
    """Whether the words beside a box or tag say that its content is wrong.

    Bounds and conditions beside a box are not denials: `There are at most \\boxed{4}`.
    """
    before = text[max(text.rfind("\n", 0, start) + 1, start - WINDOW) : start]
    is_denied_before = _RULED_OUT_BEFORE.search(before) is not None
    return is_denied_before or _RULED_OUT_AFTER.match(text, end) is not None


def _find_retraction(text: str, end: int) -> int | None:
    """Find the end of the words that retract the answer before them; None if there are none."""
    match = _RETRACTION.match(text, end)
    return match.end() if match else None
