"""Read the final answer of a response in its strongest form, and state scores.

The last statement counts, in the strongest form there is: `<answer>` tags, then `\\boxed{}`, then a
line that starts with `Answer:`, then the last fenced block, then the text itself: all of it, what
follows its last line that ends in a colon, its last line, or what that line says it is. If a line
below a tag or box starts with `Answer:` and gives another answer, that line counts. A tag or box
that is opened but never closed gives no answer, because the response was cut off.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from whet.answers.doubt import (
    CHOICE,
    DENIAL,
    FALSE,
    TURN,
    any_of,
    cut_remarks,
    is_denied,
    is_doubtful,
    points_on,
    strip_lead,
)
from whet.answers.final_answer import (
    decided_text,
    find_tags,
    has_open_box,
    has_open_tag,
    last_box,
)
from whet.answers.sentences import last_line, text_after_label, text_after_verb
from whet.answers.withdrawal import DISOWNING, RETREATING
from whet.types import Score, Verdict

T = TypeVar("T")

MAX_ANSWER_CHARS = 1 << 16
"""Longer answers are not read."""
MAX_LIST_CHARS = 1 << 13
"""Longer lists are returned unchanged."""
_HEADING = re.compile(
    r"^[ \t*#>✅•-]*(?:the |my )?(?:(?:final|correct(?:ed)?|revised|updated|new) )*(?:answer|答案)"
    r"(?: is)?[ \t*]*"
    r"(?:(?:[:：→–—]|-(?=[ \t])|=>)(?:\*(?=[ \t]))?(?:[ \t]|\*\*)*|\n(?=\s*\S))"
    r"|(?<=[.!?] )(?:I (?:stay|stick|go) with )?(?:final )?answer:[ \t]*",
    re.IGNORECASE | re.MULTILINE,
)
"""What introduces the answer: `**Final answer:**`, `The correct answer is:`, `I stick with
answer:`."""
_COLON = re.compile(r"^[^\n]{0,400}:[ \t*]*\n", re.MULTILINE)
"""A line that ends in a colon; the answer may follow it."""
_TEXT = re.compile(
    r"(?<!\w)\\(?:text(?:bf|it|tt|rm|sf)?|math(?:bf|it|tt|rm|sf)|bf|rm)\s?\{([^{}]*)\}(?!\w)"
)
_SPACING = re.compile(r"\\(?:[,;:!> ]|q?quad(?![a-z]))|(?<=,)~")
_NUMBERING = re.compile(r"\(?([0-9]{1,3})[.):]\s+")
_BULLET = re.compile(r"[-*•+]\s+")
_ARROW = re.compile(r"\s*(?:->|→|\\to\b|\\rightarrow\b)\s*")
_LAST_AND = re.compile(r",?\s+and\s+(?=[^\s,][^,]*\Z)")
_PAIRS = (
    *((mark, mark) for mark in ("**", "*", "__", "_", "`", "$$", "$")),
    ("\\(", "\\)"),
    ("\\[", "\\]"),
)
_QUOTES = ('""', "''", "“”", "‘’", "``")
_VALUE = re.compile(r"[`{\[]")
_ASIDE = re.compile(
    r"(?<=\S) \((?:(?:check|verif|as |by )[^()0-9\n]{0,80}"
    r"|(?!(?:minus|negative|times|in|of|to|mod|base|per|plus|half|with|without|before|after)\b)"
    r"[a-z]+,?(?: [a-z',-]+){2,11})\)\.?\Z"
    r"|(?<=\S) \((?:all |in all |that is |i\.e\. |with |the )?[0-9]{1,4} (?:in all|in total"
    r"|letters?|characters?|chars|words?|signs?|items?|elements?|entries|names?|users?|nodes?"
    r"|steps?|moves?|edges?|bonds?|stops?|cities|rows?|values?)\b[a-z ,]{0,60}\)\.?\Z"
    r"|(?<=\S)(?:,| [—–-]) (?:since|because|as|where|so that)(?: [\w'’+*/=.,()×-]+){2,40}\Z"
    r"|(?<=[0-9]), (?:and )?not -?[0-9][0-9.,]{0,20}(?: [a-z][a-z' ]{0,80})?\.?\Z"
)
"""A remark after an answer: `69 (checked by adding again)`, `abc (3 letters)`, `16, not 15`."""
_CHECK_BELOW = re.compile(
    r"[\s*_]*\((?:check|verification|sanity check|test)\b[^\n]*\)[\s*_.]*\Z", re.I
)
"""A check in parentheses below an answer: `(Check: 2 + 2 = 4)`."""
_RESTATED = re.compile(
    r"\b(?:answer|result|solution|it) (?:is|should be|must be)\b[\s:*]*"
    r"(?!(?:right|correct|valid|verified|consistent|true|the|an?|in|as|now|also)\b)([^\n]+)\Z",
    re.IGNORECASE,
)
"""A last sentence that states the answer again: `so the result is 12`."""
_MORE_THAN_CONTRAST = re.compile(any_of(CHOICE, TURN, FALSE, DENIAL, "but|no|is"))
_SENTENCE = re.compile(r"[*_#]*[A-Z]\S*(?: \S+){2}")
"""The start of a line of prose."""
_MAX_RESTATED = 300
_ANSWER_SENTENCE = re.compile(
    r"(?<=[.!?] )(?:so |thus |hence |therefore,? )?(?:the|my) (?:final |correct |right )?"
    r"(?:answer|result|output) is[^\n.!?]*[.!]?\Z",
    re.IGNORECASE,
)
"""A last sentence that states the answer, even if earlier sentences doubt it."""
_BOLD_END = re.compile(
    r"\b(?:(?:so|thus|hence|therefore)[,:]?|no[,:]) \*\*([^*\n]+)\*\*[.!]?\Z", re.IGNORECASE
)
"""A conclusion in bold: `so **12**`."""


def candidates(text: str) -> tuple[str, ...]:
    """List the texts that may be the final answer, in the order to try them; there is usually one.

    >>> candidates("<think><answer>3</answer></think> so <answer> 4 </answer>")
    ('4',)
    >>> candidates("I think\\nAnswer: 4")
    ('4',)
    >>> candidates("<answer>4")
    ()
    """
    visible = decided_text(text)
    stated = () if visible is None else map(strip_wrapping, _strongest(cut_remarks(visible)))
    spans = [span for span in stated if 0 < len(span) <= MAX_ANSWER_CHARS]
    spans += [
        span[: aside.start()]
        for span in spans
        if (aside := _ASIDE.search(span)) and not _is_more_than_aside(span, aside)
    ]
    forms = (form for span in spans for form in (span, strip_wrapping(_unquote(span))))
    return tuple(dict.fromkeys(filter(None, forms)))


def read_final(text: str, read: Callable[[str], T | None]) -> tuple[str, T] | None:
    """Read the first candidate that the reader understands; None if there is none."""
    for span in candidates(text):
        value = read(span)
        if value is not None:
            return span, value
    return None


def strip_wrapping(span: str) -> str:
    """Remove the bold marks, formula signs, text command or fence around a whole span."""
    span = _strip_fence(span).removeprefix("✅").lstrip()
    span = (span if "\n" in span else span.strip("#").strip()).removeprefix("= ")
    for _ in range(4):
        bare = span.removesuffix(".")
        if bare.count("**") == 1:
            # The other half is before `Answer:`.
            span = bare = bare.removesuffix("**").removesuffix(".")
        opening, closing = next(((a, b) for a, b in _PAIRS if _is_wrapped(bare, a, b)), ("", ""))
        if opening:
            span = bare[len(opening) : -len(closing)].strip()
        elif match := _TEXT.fullmatch(bare):
            span = match[1].strip()
        else:
            break
    return span


def strip_text_commands(span: str) -> str:
    r"""Replace `\text{...}` and similar commands with their content.

    >>> strip_text_commands(r"[\text{owl}, \textbf{crow}]")
    '[owl, crow]'
    """
    return _TEXT.sub(r"\1", span)


def write_in_line(span: str) -> str:
    r"""Rewrite a list with commas if its items are on lines, between arrows or before an `and`.

    >>> write_in_line("1. **owl**\n2. crow"), write_in_line(r"a \to b"), write_in_line("a, b and c")
    ('owl, crow', 'a, b', 'a, b, c')
    """
    if len(span) > MAX_LIST_CHARS:
        return span
    plain = _SPACING.sub(" ", strip_text_commands(span)).replace("**", "").strip()
    lines = [line.strip().rstrip(",;") for line in plain.splitlines() if line.strip()]
    numbers = [_NUMBERING.match(line) for line in lines]
    if len(lines) > 1 and all(one and one[1] == str(n) for n, one in enumerate(numbers, 1)):
        lines = [line[one.end() :] for line, one in zip(lines, numbers, strict=True) if one]
    elif all(map(_BULLET.match, lines)):
        lines = [_BULLET.sub("", line, count=1) for line in lines]
    if len(lines) != 1:
        return ", ".join(lines)
    (line,) = lines
    if "," not in line and _ARROW.search(line):
        return _ARROW.sub(", ", line)
    return _LAST_AND.sub(", ", line.removesuffix("."))


def no_answer(*parts: str) -> Score:
    """State that nothing could be read: `correct` and the other parts named are 0."""
    facts = dict.fromkeys(("correct", *parts), 0.0)
    return Score(verdict=Verdict.NO_ANSWER, parts=facts, note="no final answer could be read")


def to_score(is_right: bool, parts: Mapping[str, float], answer: str, note: str) -> Score:
    """State a verdict, with `correct` among the parts."""
    return Score(
        verdict=Verdict.CORRECT if is_right else Verdict.WRONG,
        parts={"correct": float(is_right), **parts},
        answer=answer[:1000],
        note=note,
    )


def _strongest(text: str) -> tuple[str, ...]:
    if "<answer>" in text or "</answer>" in text:
        tags = find_tags(text)
        if not tags or has_open_tag(text):
            return ()
        tag = tags[-1]
        if is_denied(text, tag.start, tag.end):
            return ()
        return (tag.text,) if (box := _last_box(tag.text)) is None else box
    if (box := _last_box(text)) is not None:
        return box
    if (rest := after_heading(text)) is not None:
        return _under_heading(text, rest)
    return _in_plain_text(text)


def _is_more_than_aside(span: str, aside: re.Match[str]) -> bool:
    """Whether the text after an answer doubts it, or names the answer as what it is not."""
    remark = aside[0].lower()
    if remark.startswith((" (check", " (verif", " (as ", " (by ")):
        return is_doubtful(remark)
    if not remark.startswith((", not", ", and not")):
        words = remark.strip(" ().").split()
        return is_doubtful(remark) or not (DISOWNING | RETREATING).isdisjoint(words)
    _, _, other = remark.partition("not ")
    number = other.split()[0].rstrip(".,")
    has_turn = _MORE_THAN_CONTRAST.search(other) is not None
    return has_turn or span[: aside.start()].endswith(number)


def after_heading(text: str) -> str | None:
    """Return everything after the last line that starts with `Answer:` or `Final answer:`."""
    ends = [match.end() for match in _HEADING.finditer(text)]
    return text[ends[-1] :] if ends else None


def _under_heading(text: str, rest: str) -> tuple[str, ...]:
    """List the possible answers in the text that follows a heading.

    A line right below the answer is part of it, unless it is prose. A later sentence that states
    the answer again counts.
    """
    line, _, below = rest.partition("\n")
    start = len(text) - len(rest)
    if below.strip() and points_on(line):
        return (below.strip(),)
    is_check = _CHECK_BELOW.match(below) is not None and not is_doubtful(below)
    is_answer = is_check or not below.split("\n")[0].strip("` ") or _SENTENCE.match(below)
    if not is_answer or is_denied(text, start, start + len(line)):
        return (rest,)
    again = None if is_doubtful(last := below[-_MAX_RESTATED:]) else _RESTATED.search(last)
    return (rest, *([again[1]] if again else []), line, text_after_verb(line) or "")


def _in_plain_text(text: str) -> tuple[str, ...]:
    """List the possible answers of a text that marks none."""
    fenced = text.split("```")
    if len(fenced) >= 3:
        block = fenced[-2] if len(fenced) % 2 else fenced[-3]
        return (f"```{block}```",)
    line = last_line(text)
    if line is None:
        return ()
    *_, tail = _COLON.split(text)
    if is_denied(text, len(text) - len(tail.lstrip()), len(text)):
        return ()
    value = _VALUE.search(line.text)
    if value and is_denied(line.text, value.start(), line.end - line.start):
        return ()
    last = line.text.rstrip()[-_MAX_RESTATED:]
    sentence = _ANSWER_SENTENCE.search(last)
    rest = text_after_verb(sentence[0] if sentence else last) or text_after_label(last) or ""
    start = line.text.rfind(rest)
    is_claimed = not is_denied(line.text, start, start + len(rest))
    bold = _BOLD_END.search(last)
    in_bold = bold[1] if bold and not is_denied(last, *bold.span(1)) else ""
    return text, tail, line.text, strip_lead(line.text), rest if is_claimed else "", in_bold


def _last_box(text: str) -> tuple[str, ...] | None:
    """Return the content of the last box: nothing if it is not closed, None if there is no box."""
    box = last_box(text)
    if box is None:
        return () if has_open_box(text) else None
    return () if is_denied(text, box.start, box.end) else (box.text,)


def _unquote(span: str) -> str:
    """Remove a full stop, and the quotes around a whole span."""
    bare = span.removesuffix(".").rstrip()
    pair = next((pair for pair in _QUOTES if _is_wrapped(bare, *pair)), None)
    return bare[1:-1].strip() if pair else bare


def _is_wrapped(span: str, opening: str, closing: str) -> bool:
    is_long = len(span) > len(opening) + len(closing)
    inside = span[len(opening) : -len(closing)]
    return is_long and span.startswith(opening) and span.endswith(closing) and opening not in inside


def _strip_fence(span: str) -> str:
    """Return the content of a fenced block that is the whole span, without its language word."""
    span = span.strip()
    inside = span[3:-3]
    if len(span) < 6 or not span.startswith("```") or not span.endswith("```") or "```" in inside:
        return span
    word, _, rest = inside.partition("\n")
    return (rest if word.strip().isalnum() and rest else inside).strip()
