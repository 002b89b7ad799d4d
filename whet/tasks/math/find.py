"""Which part of a response is its answer: the tag, the boxes, a marked line, or failing these the end of the text.

Text inside the thinking part never counts. Boxes that are joined by a comma or by a few words with "and" are one answer
with several parts; otherwise the last box is the answer.
"""

import re

from whet.tasks.math.clock import time_of
from whet.tasks.math.hedge import has_turn, is_hedged
from whet.tasks.math.normal import normal
from whet.tasks.math.reader import readings
from whet.text.extract import Find, after_thought, boxed, formulas, last_line, marked, numbers, sentence, tagged

MAX_GAP = 80
MAX_WORDS = 4
MAX_BARE = 600
"""A response up to this many characters, in one line, may be an answer by itself."""

MAX_LINE = 2000
"""Of a longer last line, only this many characters at its end are searched."""

_MARKUP = re.compile(r"\\(?:text|mathrm|textbf|mbox|quad|qquad)(?![a-zA-Z])|\\[()\[\],;! ]|[${}&\s]+|\\\\")
_JOINER = re.compile(r",|;|\b(?:and|or|und|et|y)\b|和|或")
_TURN = re.compile(
    r"[.!?=]\s|\b(?:then|so|thus|hence|but|not|no|therefore|wait|actually|instead|now|next|because|since|which|gives?)\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"__[a-z]|[a-z_]\(['\"]|\[['\"]|\)\.[a-z]")
"""A line of program text states no answer, whatever number it ends in."""
_OPEN_BOX = re.compile(r"\\boxed\s?\{(?!\s*\})[^\n]*$")
"""A box that is opened at the end and never closed: the response was cut."""
_DENIAL = re.compile(r"[\s*:]*(?:not|never|neither|between|either)\b", re.IGNORECASE)
_STRAY = re.compile(r"(?:[?!@&^};%\\/]|(?<![a-z])\{)$")
"""A number in the last line that follows one of these is part of something else."""
_OPTION = re.compile(r"[\s*(]*[A-J][).:]+\s*[^\n=]{1,40}")
_NAME = re.compile(r"[A-Za-z]\w{0,3}(?:_\{?\w{1,3}\}?)?\s*=\s*$")


def find_answer(text: str) -> Find | None:
    """Find the answer of a response, with its span; None where it gives none."""
    start = after_thought(text)
    if start is None:
        return None
    visible = text[start:]
    tags = tagged(visible)
    if not tags and "<answer>" in visible:
        return None
    found = _in_tag(tags[-1]) if tags else _boxes(visible) or _unstated(visible)
    return None if found is None else _moved(found, start)


def _in_tag(tag: Find) -> Find | None:
    inside = _boxes(tag.text)
    if inside is not None:
        return _moved(inside, tag.start)
    return tag if tag.text.strip() else None


def _moved(find: Find, start: int) -> Find:
    return Find(text=find.text, start=start + find.start, end=start + find.end)


def _boxes(text: str) -> Find | None:
    boxes = [box for box in boxed(text) if box.text.strip()]
    if not boxes:
        return None
    joined = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        if not _is_joined(text[box.end : joined[0].start]):
            break
        joined.insert(0, box)
    if len(joined) == 1:
        return joined[0]
    parts = list({_meaning(box.text): box.text.strip() for box in joined}.values())
    return Find(text=" , ".join(parts), start=joined[0].start, end=joined[-1].end)


def _meaning(text: str) -> object:
    """Tell boxes apart that hold the same answer in another form: a mixed number and its fraction are one."""
    found = readings(text)
    return found[0].node._replace(digits=0) if found else normal(text)


def _is_joined(gap: str) -> bool:
    if len(gap) > MAX_GAP or "\n\n" in gap:
        return False
    words = _NAME.sub("", _MARKUP.sub(" ", gap).strip())
    return bool(_JOINER.search(words)) and not _TURN.search(words) and len(words.split()) <= MAX_WORDS + 1


def _unstated(text: str) -> Find | None:
    """Find an answer that is neither tagged nor boxed."""
    whole = text.strip()
    if len(whole) <= MAX_BARE and "\n" not in whole and not marked(whole) and _is_answer(whole):
        return Find(text=whole, start=0, end=len(text))
    if _OPEN_BOX.search(text):
        return None
    marks = marked(text)
    if marks:
        return None if _DENIAL.match(marks[-1].text) else _in_line(marks[-1], is_first=True)
    line = last_line(text)
    if line is None:
        return None
    line = _cut(text, max(line.start, line.end - MAX_LINE), line.end)
    if _CODE.search(line.text):
        return None
    return _in_line(line, is_first=False) or (line if len(line.text) <= MAX_BARE else None)


def _is_answer(text: str) -> bool:
    return bool(readings(text)) or _OPTION.fullmatch(text) is not None or time_of(text) is not None


def _cut(text: str, start: int, end: int) -> Find:
    return Find(text=text[start:end], start=start, end=end)


def _in_line(line: Find, *, is_first: bool) -> Find | None:
    """Find the answer in a line: the line itself where it can be read, else a formula or number in it.

    Behind a mark the first of its first sentence counts, otherwise the last. One that is hedged or taken back is none:
    then the whole line stands.
    """
    said = sentence(line) if is_first else line
    if readings(said.text) or (is_first and _OPTION.fullmatch(said.text)):
        found: Find | None = said
    else:
        found = _piece(said, is_first=is_first)
    if found is None or (found.start, found.end) == (line.start, line.end) or not has_turn(line.text):
        return found
    chosen = Find(text=found.text, start=found.start - line.start, end=found.end - line.start)
    pieces = [
        chosen,
        *(piece for piece in _pieces(line.text) if piece.start >= chosen.end or piece.end <= chosen.start),
    ]
    pieces.sort(key=lambda piece: piece.start)
    return line if is_hedged(line.text, pieces, chosen, len(said.text)) else found


def _piece(line: Find, *, is_first: bool) -> Find | None:
    pieces = _pieces(line.text)
    if not is_first:
        pieces = [piece for piece in pieces if not _STRAY.search(line.text[max(0, piece.start - 2) : piece.start])]
    telling = [piece for piece in pieces if any(sign.isdigit() for sign in piece.text)] or pieces
    if not telling:
        return line if normal(line.text) and is_first else None
    chosen, beside = (telling[0], telling[1:2]) if is_first else (telling[-1], telling[-2:-1])
    for other in beside:
        between = line.text[min(chosen.end, other.end) : max(chosen.start, other.start)]
        if between.isspace():
            return line if is_first else None
    return _moved(chosen, line.start)


def _pieces(text: str) -> list[Find]:
    """List the formulas that can be read and the numbers outside them, in order."""
    pieces = [piece for piece in formulas(text) if readings(piece.text)]
    spans = [(piece.start, piece.end) for piece in pieces]
    pieces += [piece for piece in numbers(text) if not any(start <= piece.start < end for start, end in spans)]
    return sorted(pieces, key=lambda piece: piece.start)
