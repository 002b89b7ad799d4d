"""Where a response commits itself to an answer: tags, boxes, "the answer is", or its last line.
Linear in the text.

Unlike `whet.tasks.answers`, which looks for the strongest form, this keeps all of them in order: a
person who writes `\\boxed{A}` and ends with "so the answer is C" has answered C.
"""

import re
from collections import deque
from dataclasses import dataclass
from typing import Literal

MAX_CHARS = 1 << 22
"""Longer responses are not read."""
MAX_SPAN = 4096
"""Longer answers are not read."""
_MAX_OF_A_KIND = 64
_WINDOW = 1 << 18
"""Answers in words are looked for in so many last characters."""

_MARKER = re.compile(
    r"(?:\bans(?:wers?)?|\b(?:correct|right|best) (?:option|choice)|答案|正确选项)"
    r"(?:[ \t]{1,4}(?:choice|option|letter))?(?:[ \t]{1,4}(?:to|for|of)[ \t][^\n.:：]{1,80}?)?[ \t*_\"']{0,8}"
    r"(?:should be|would be|must be|is|are|:|：|=|[-–—](?=[ \t])|应为|为|是|选)[ \t*_:：]*",
    re.IGNORECASE,
)
_PICK = re.compile(
    r"(?:\bI(?:'ll| will| would|'d)?[ \t]{1,4}(?:choose|select|pick|go with)"
    r"|\bwhich[ \t]{1,4}(?:is|matches|corresponds to)[ \t]{1,4}(?:option|choice)(?=[ \t*]{1,4}\(?(?-i:[A-Z])\b)"
    r"|故选|应选|因此选|所以选|选择|选(?=[A-Z(（]))[ \t:：]*",
    re.IGNORECASE,
)
_VERDICT = re.compile(
    r"(?<![A-Za-z0-9])(?:option[ \t]{1,4}|choice[ \t]{1,4})?(\([A-Z]\)|[A-Z])\)?\*{0,2}"
    r"[ \t]{1,4}is[ \t]{1,4}(?:the answer|(?:the[ \t]{1,4})?(?:correct|right|best))"
    r"(?=[ \t]{0,4}(?:[.,;!)\n]|\Z|because\b|since\b|as\b|(?:answer|option|choice|one)\b))"
)
_OPEN = re.compile(
    r"(?:\b(?:if|whether|that|suppose|assume|why|not|neither|nor|or|and|because)|(?-i:\b[A-Z])\)?[,/])[ \t]*\Z",
    re.IGNORECASE,
)
_OTHERS = re.compile(r"\b(?:gold|golden|reference|official)[ \t]{1,4}\Z", re.IGNORECASE)
"""What is said of the reference is no answer of the response."""
_CONCLUSION = re.compile(r"\b(?:therefore|thus|hence|so|it is|it's|must be)[ \t,:]+", re.IGNORECASE)

Form = Literal["tag", "box", "marker", "conclusion", "line"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One place where the response says its answer. `is_explicit` ones (tag, box) are answers
    whatever is in them."""

    place: int
    form: Form
    text: str

    @property
    def is_explicit(self) -> bool:
        return self.form in ("tag", "box")

    @property
    def is_loose(self) -> bool:
        """Tell that only a bare answer counts here, since such a place may hold any sentence."""
        return self.form in ("conclusion", "line")


def statements(text: str) -> list[Statement]:
    """List what the response commits itself to, first to last; nothing where it was cut in its
    reasoning or answer.

    >>> [each.text for each in statements("<think>B?</think>The answer is B. No: \\\\boxed{C}")]
    ['B. No: \\\\boxed{C}', 'C']
    """
    said = spoken(text)
    if said is None:
        return []
    tags = _tags(said)
    boxes = _boxes(said)
    if tags is None or boxes is None:
        return []
    found = sorted([*tags, *boxes, *_markers(said)], key=lambda each: each.place)
    line = _last_line(said)
    # A last line with a box or a marker in it is read there; one that only concludes may also be
    # bare as a whole.
    if line is not None and all(
        each.place < line.place or each.form == "conclusion" for each in found
    ):
        found.append(line)
    return found


def spoken(text: str) -> str | None:
    """Leave out the reasoning; None where it has not ended or the text is too long."""
    if len(text) > MAX_CHARS:
        return None
    said = text.rpartition("</think>")[2]
    return None if "<think>" in said else said


def balanced(text: str, start: int) -> int:
    """Find the end of the braces that open just before `start`; -1 where they do not close in
    time."""
    depth = 1
    for place in range(start, min(len(text), start + MAX_SPAN)):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return place
    return -1


def _tags(said: str) -> list[Statement] | None:
    """Read the answer tags; None where the last one is not closed."""
    found: list[Statement] = []
    if said.rfind("<answer>") > said.rfind("</answer>"):
        return None
    end = len(said)
    while len(found) < _MAX_OF_A_KIND:
        closing = said.rfind("</answer>", 0, end)
        opening = said.rfind("<answer>", 0, max(closing, 0))
        if opening < 0:
            break
        start = opening + len("<answer>")
        # What is longer than any answer stands as one that cannot be read.
        found.append(Statement(place=opening, form="tag", text=said[start:closing][: MAX_SPAN + 1]))
        end = opening
    return found


def _boxes(said: str) -> list[Statement] | None:
    """Read the boxes; None where the last one is not closed."""
    found: list[Statement] = []
    end = len(said)
    for number in range(_MAX_OF_A_KIND):
        place = said.rfind("\\boxed", 0, end)
        if place < 0:
            break
        end = place
        start = place + len("\\boxed")
        bare = re.compile(r"\s{0,8}\{").match(said, start)
        closing = balanced(said, bare.end()) if bare else -1
        if bare and closing >= 0:
            found.append(Statement(place=place, form="box", text=said[bare.end() : closing]))
        elif number == 0 and bare:
            return None
    return found


def _markers(said: str) -> list[Statement]:
    start = max(len(said) - _WINDOW, 0)
    forms: tuple[tuple[re.Pattern[str], Form], ...] = (
        (_MARKER, "marker"),
        (_PICK, "marker"),
        (_CONCLUSION, "conclusion"),
    )
    found = [
        Statement(place=match.start(), form=form, text=_rest(said, match.end()))
        for pattern, form in forms
        for match in deque(pattern.finditer(said, start), maxlen=_MAX_OF_A_KIND)
        if not _OTHERS.search(said, max(match.start() - 16, 0), match.start())
    ]
    for match in deque(_VERDICT.finditer(said, start), maxlen=_MAX_OF_A_KIND):
        if not _OPEN.search(said[max(match.start() - 12, 0) : match.start()]):
            found.append(Statement(place=match.start(), form="marker", text=match[1]))
    return found


def _rest(said: str, start: int) -> str:
    """Take the rest of the line, or the next line where nothing is left of this one."""
    rest = said[start : start + MAX_SPAN + 1].lstrip()
    return rest.partition("\n")[0]


def _last_line(said: str) -> Statement | None:
    whole = said.rstrip()
    place = whole.rfind("\n") + 1
    line = whole[place:]
    return (
        Statement(place=place, form="line", text=line) if line and len(line) <= MAX_SPAN else None
    )
