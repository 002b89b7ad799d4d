"""Which part of a response is its answer: the tag, the boxes, a marked line, or failing these the
end of the text.

Text inside the thinking part never counts. Boxes that are joined by a comma or by a few words with
"and" are one answer with several parts; otherwise the last box is the answer.
"""

import re

from whet.tasks.math.lexer import normal, time_of
from whet.tasks.math.lines import in_line, is_option, is_question, last_word
from whet.tasks.math.parser import readings
from whet.text.extract import Find, after_thought, boxed, last_line, marked, tagged

MAX_GAP = 80
MAX_WORDS = 4
MAX_BARE = 600
"""A response up to this many characters, in one line, may be an answer by itself."""

MAX_LINE = 2000
"""Of a longer last line, only this many characters at its end are searched."""

_MARKUP = re.compile(
    r"\\(?:text|mathrm|textbf|mbox|quad|qquad)(?![a-zA-Z])|\\[()\[\],;! ]|[${}&\s]+|\\\\"
)
_JOINER = re.compile(r",|;|\b(?:and|or|und|et|y)\b|和|或")
_TURN = re.compile(
    r"[.!?=]\s|\b(?:then|so|thus|hence|but|not|no|therefore|wait|actually|instead|now|next|because|since|which|gives?)\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"__[a-z]|[a-z_]\(['\"]|\[['\"]|\)\.[a-z]")
"""A line of program text states no answer, whatever number it ends in."""
_OPEN_BOX = re.compile(r"\\boxed\s?\{(?!\s*\})[^\n]*$")
"""A box that is opened at the end and never closed: the response was cut."""
_CLOSED = re.compile(r"\n[ \t]*(?:\\[\])]|\$\$)[\s*$`.]*\Z")
"""The end of a formula on lines of its own."""
_DENIAL = re.compile(r"[\s*:]*(?:=|(?:not|never|neither|between|either)\b)", re.IGNORECASE)
_OBJECT = re.compile(
    r"""\{\s*"[^"\n]{1,40}"\s*:[^\n]*\}[\s`]*$|\{\s*\n\s*"[^"\n]{1,40}"\s*:(?:[^{}]|\{\d)*\}[\s`]*$"""
)
_VALUE = re.compile(
    r"""["'](?:final[_ ]?)?(?:answer|result|solution)["']\s*:\s*("[^"\n]*"|[^\s,}"][^,}\n]*)""",
    re.IGNORECASE,
)
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
    """Tell boxes apart that hold the same answer in another form: a mixed number and its fraction
    are one."""
    found = readings(text)
    return found[0].node._replace(digits=0) if found else normal(text)


def _is_joined(gap: str) -> bool:
    if len(gap) > MAX_GAP or "\n\n" in gap:
        return False
    words = _NAME.sub("", _MARKUP.sub(" ", gap).strip())
    return (
        bool(_JOINER.search(words))
        and not _TURN.search(words)
        and len(words.split()) <= MAX_WORDS + 1
    )


def _unstated(text: str) -> Find | None:
    """Find an answer that is neither tagged nor boxed."""
    whole = text.strip()
    if len(whole) <= MAX_BARE and "\n" not in whole and not marked(whole) and _is_answer(whole):
        return Find(text=whole, start=0, end=len(text))
    if _OPEN_BOX.search(text):
        return None
    if (told := _in_object(text)) is not None:
        return told if told.text.strip() else None
    marks = marked(text)
    if marks:
        return None if _DENIAL.match(marks[-1].text) else in_line(marks[-1], is_first=True)
    return _in_last_line(text)


def _in_last_line(text: str) -> Find | None:
    closed = _CLOSED.search(text, max(0, len(text) - 40))
    line = last_line(text[: closed.start()] if closed else text)
    if line is None:
        return None
    line = _cut(text, max(line.start, line.end - MAX_LINE), line.end)
    if _CODE.search(line.text) or is_question(line.text):
        return None
    found = in_line(line, is_first=False)
    return found or last_word(line) or (line if len(line.text) <= MAX_BARE else None)


def _in_object(text: str) -> Find | None:
    """Find the answer of a JSON object that the response ends in; empty where it has none under
    such a key."""
    whole = _OBJECT.search(text, max(0, len(text) - MAX_LINE))
    if whole is None:
        return None
    values = list(_VALUE.finditer(text, whole.start(), whole.end()))
    if len(values) != 1:
        return _cut(text, whole.start(), whole.start())
    value = _cut(text, values[0].start(1), values[0].end(1))
    return Find(text=value.text.replace("\\\\", "\\").strip('"'), start=value.start, end=value.end)


def _is_answer(text: str) -> bool:
    return bool(readings(text)) or is_option(text) or time_of(text) is not None


def _cut(text: str, start: int, end: int) -> Find:
    return Find(text=text[start:end], start=start, end=end)
