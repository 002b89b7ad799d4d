"""List where a response commits to an answer: tags, boxes, "the answer is", its last line.

Unlike `whet.tasks.answers`, which looks for the strongest form, this keeps all forms in order: a
response that has `\\boxed{A}` and ends with "so the answer is C" has answered C.
"""

import re
import unicodedata
from collections import deque
from dataclasses import dataclass
from typing import Literal

from whet.answers.doubt import DENIAL, REFERENCE, any_of, cut_remarks, is_denied
from whet.answers.final_answer import (
    decided_text,
    find_boxes,
    find_tags,
    has_open_box,
    has_open_tag,
)
from whet.answers.sentences import last_line
from whet.types import Problem

MAX_SPAN = 4096
"""Longer answers are not read."""
_MAX_OF_A_KIND = 64
_WINDOW = 1 << 18
"""Answers in words are searched for in this many characters at the end."""

_MARKER = re.compile(
    r"(?:\bans(?:wers?)?|\b(?:correct|right|best) (?:option|choice)|答案|正确选项)"
    r"(?:[ \t]{1,4}(?:choice|option|letter))?(?:[ \t]{1,4}(?:to|for|of)[ \t][^\n.:：]{1,80}?)?"
    r"[ \t*_\"']{0,8}(?:should be|would be|must be|is|are|:|：|=|[-–—](?=[ \t])|应为|为|是|选)"
    r"[ \t*_:：]*"
    r"|^[ \t]*(?:#{1,6}|\*\*)[ \t*]*(?:the )?(?:final )?answer[ \t*]*$"
    r"|\b(?:conclusion|verdict|choice|réponse|respuesta|antwort|(?<!-)results?|output|solution"
    r"|final)[*\"']{0,3}[ \t]?(?::|：|→|->|=>?)[ \t*_]*"
    r"|\b(?:result|solution) is\b[ \t*_:]*"
    r"|^####[ \t]+(?=\(?(?:[A-E]\b|yes\b|no\b|true\b|false\b))",
    re.IGNORECASE | re.MULTILINE,
)
"""Words or signs that introduce an answer: `the correct option is`, `Result:`, `答案是`."""
_PICK = re.compile(
    r"(?:\bI(?:'ll| will| would|'d)?[ \t]{1,4}(?:choose|select|pick|go with)"
    r"|\bwhich[ \t]{1,4}(?:is|matches|corresponds to)[ \t]{1,4}(?:option|choice)"
    r"(?=[ \t*]{1,4}\(?(?-i:[A-Z])\b)"
    r"|故选|应选|因此选|所以选|选择|选(?=[A-Z(（]))[ \t:：]*",
    re.IGNORECASE,
)
"""Words that pick an option: `I choose`, `which matches option`."""
_VERDICT = re.compile(
    r"(?<![A-Za-z0-9])(?:option[ \t]{1,4}|choice[ \t]{1,4})?(\([A-Z]\)|[A-Z])\)?\*{0,2}"
    r"[ \t]{1,4}is[ \t]{1,4}(?:the answer|(?:the[ \t]{1,4})?(?:correct|right|best))"
    r"(?=[ \t]{0,4}(?:[.,;!)\n]|\Z|because\b|since\b|as\b|(?:answer|option|choice|one)\b))"
)
"""A letter that a sentence calls right: `B is the correct answer`."""
_NO_VERDICT = re.compile(
    any_of(DENIAL, "if|whether|that|suppose|assume|why|or|and|because")
    + r"[ \t]*\Z|(?-i:\b[A-Z])\)?[,/][ \t]*\Z",
    re.IGNORECASE,
)
"""Before `B is correct`, these show that the response does not claim it."""
_OTHERS = re.compile(any_of(REFERENCE, "official") + r"[ \t]{1,4}\Z", re.IGNORECASE)
"""A statement about the reference is not the response's own answer."""
_CONCLUSION = re.compile(
    r"\b(?:therefore|thus|hence|so|it is|it's|must be|(?:all in all|in short|to sum up|overall"
    r"|in conclusion)(?=[,:]))[ \t,:*]+",
    re.IGNORECASE,
)

_WRAPPER = re.compile(r"\\(?:(?:text|math)(?:bf|it|tt|sf|rm)|text|bf|rm)\s?\{([^{}]*)\}")
_NOISE = re.compile(r"[*`$]|_{2,}|\\[()\[\]!,;]|\\(?:quad|left|right)(?![a-z])")

StatedForm = Literal["tag", "box", "marker", "conclusion", "line"]
LOOSE = ("conclusion", "line")
"""These may hold any sentence, so only a bare answer counts in them."""
_PATTERNS: tuple[tuple[re.Pattern[str], StatedForm], ...] = (
    (_MARKER, "marker"),
    (_PICK, "marker"),
    (_CONCLUSION, "conclusion"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One answer that the response states, and its position; a tag or box counts with any
    content."""

    start: int
    form: StatedForm
    text: str

    @property
    def is_explicit(self) -> bool:
        """Whether the answer is in a tag or box."""
        return self.form in ("tag", "box")


def statements(text: str) -> list[Statement]:
    """List the answers that the response commits to, first to last; empty if it was cut off.

    >>> [one.text for one in statements("<think>B?</think>The answer is B. No: \\\\boxed{C}")]
    ['B. No: \\\\boxed{C}', 'C']
    """
    visible = decided_text(text)
    if visible is None or has_open_tag(visible) or has_open_box(visible):
        return []
    boxes = find_boxes(visible, nested=True)
    if boxes and len(boxes[-1].text) > MAX_SPAN:
        return []
    stated = []
    for tag in find_tags(visible)[-_MAX_OF_A_KIND:]:
        # What is longer than any answer, or is denied, counts as one that cannot be read.
        content = "" if is_denied(visible, tag.start, tag.end) else tag.text[: MAX_SPAN + 1]
        stated.append(Statement(start=tag.start, form="tag", text=content))
    for box in boxes:
        if len(box.text) <= MAX_SPAN:
            content = "" if is_denied(visible, box.start, box.end) else box.text
            stated.append(Statement(start=box.start, form="box", text=content))
    stated = sorted([*stated, *_in_words(visible)], key=lambda statement: statement.start)
    line = last_line(_cut_closing(cut_remarks(visible)))
    if line is None or len(line.text) > MAX_SPAN or is_denied(visible, line.start, line.end):
        return stated
    # A last line in a tag, or with a box or a marker, is read there; one with only a conclusion may
    # also be a bare answer as a whole.
    is_inside = any(tag.start < line.start < tag.end for tag in find_tags(visible)[-1:])
    is_read = any(one.start >= line.start and one.form != "conclusion" for one in stated)
    if not is_inside and not is_read:
        stated.append(Statement(start=line.start, form="line", text=line.text.rstrip()))
    return stated


def _cut_closing(text: str) -> str:
    """Cut off what only closes a tag or a formula, so that the last line has words."""
    for _ in range(4):
        text = text.rstrip(" \t\r\n*$`")
        ending = next((end for end in ("</answer>", "\\]", "\\)") if text.endswith(end)), "")
        text = text[: len(text) - len(ending)]
    return text


def _in_words(text: str) -> list[Statement]:
    start = max(len(text) - _WINDOW, 0)
    stated = []
    for pattern, form in _PATTERNS:
        for match in deque(pattern.finditer(text, start), maxlen=_MAX_OF_A_KIND):
            # The rest of the line, or the next line if this one ends here.
            rest = text[match.end() : match.end() + MAX_SPAN + 1].lstrip().partition("\n")[0]
            end = text.find(rest, match.end()) + len(rest)
            if is_denied(text, match.end(), match.end()) or is_denied(text, match.end(), end):
                continue
            if not _OTHERS.search(text, max(match.start() - 16, 0), match.start()):
                stated.append(Statement(start=match.start(), form=form, text=rest))
    for match in deque(_VERDICT.finditer(text, start), maxlen=_MAX_OF_A_KIND):
        if not _NO_VERDICT.search(text[max(match.start() - 12, 0) : match.start()]):
            stated.append(Statement(start=match.start(), form="marker", text=match[1]))
    return stated


def write_boxed(problem: Problem) -> str | None:
    """Write the reference answer in a box, None if there is none."""
    return None if problem.answer is None else f"The answer is \\boxed{{{problem.answer}}}."


def strip_markup(text: str) -> str:
    """Drop markup around words: emphasis, dollar signs, LaTeX text commands, full-width forms."""
    words = unicodedata.normalize("NFKC", text)
    for _ in range(3):
        words = _WRAPPER.sub(r"\1", words)
    return " ".join(_NOISE.sub(" ", words).replace("\\ ", " ").split()).strip()
