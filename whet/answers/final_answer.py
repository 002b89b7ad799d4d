"""Find where a response states its answer, and whether it later takes it back.

This is the one reader of tags, boxes and last lines; each task decides which of them it accepts,
which is the strongest, and what the text of one means. `sentences` reads answers in words. Every
function reads the text a bounded number of times, and backtracks over a bounded length only.
"""

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import repeat

from whet.answers.doubt import (
    SENTENCE_WINDOW,
    decides_for_last,
    is_denied,
    leaves_open,
    names_nothing,
)
from whet.answers.withdrawal import (
    DISOWNING,
    OF,
    REMARK_WINDOW,
    RETREATING,
    find_other_answer,
    find_replacement,
    find_restated,
    is_disowned,
    takes_back_all,
)

MAX_CHARS = 1 << 22
"""Longer responses are not read."""
MAX_MARKS = 20
MAX_BOXES = 1024
MAX_NESTED_BOXES = 64
"""Of more boxes than these the last are read."""
MAX_BOX = 1 << 16
"""Longer boxes are not read where boxes may be nested."""

_HIDDEN = re.compile(
    r"<!--.*?(?:-->|\Z)|\\iffalse\b.*?(?:\\fi\b|\Z)|(?<!~)~~(?!~)[^~]+~~(?!~)"
    r"|(?:^|(?<=\n))[ \t]*(?:%|\[//\]:)[^\n]*|(?<=\})\$?\$?[.,]?[ \t]+%[^\n]*",
    re.DOTALL,
)
"""What Markdown or LaTeX does not show, or strikes out; after a number `%` means percent."""
_COMMENT = re.compile(r"%(?<!\S%)")
"""A percent sign after a space; no other starts a comment."""
_HIDING = ("<!--", "\\iffalse", "~~", "[//]:")
_OWN_LINE = re.compile(
    r"\n[ \t*>_`$\-•]*+(?:"
    r"(?:\#{1,6}[ \t*]*+)?(?:(?:so|thus|hence|therefore),?[ ])?(?:(?:the|my|our)[ ])?"
    r"(?:(?P<final>final)[ ])?(?:correct[ ])?"
    r"(?:answer|答案)\b[^:：\n\[{]{0,40}(?:[:：]|=>?)[ \t*]*(?P<marked>[^\s*][^\n]*)"
    r"|\#{3,4}[ \t]*(?P<heading>(?:yes|no|true|false|[-+]?[0-9][0-9.,/]*|\[[^\n]*\])[.!]?)"
    r"|\[[^\n]*\]|\{[^\n]*\}|\{(?:\n[^\n]*){1,60}?\n\}"
    r"|(?:node[ ]?)?[0-9]{1,4}[ ]?[:=][ ]?[\[(][^\n]*[\])]"
    r"|(?:yes|no|true|false)[.!]?|[0-9(][0-9()+\-*/×÷ \t.]*+"
    r")[ \t*_`$.]*(?=\n|\Z)",
    re.IGNORECASE,
)
"""A line that is an answer and nothing else, or starts with `Answer:`."""
_SETS_AT_WORK = re.compile(r"\s*[-*•][ \t]+\{|[^\n]*[\]}]\s*(?:=|[∩∪∖]|\\c[au]p\b|\\setminus\b)")
"""Sets in a list above an answer in square brackets, or joined, are work: `{a, b} ∩ {b} = {b}`."""
_BLANK = re.compile(r"[\s.…_]*(?:(?:your|the|final|my)? ?answer(?: here)?)?\s*", re.IGNORECASE)
"""What a box holds that only shows the form."""
_MAX_TAIL = 1 << 13
_MARKUP = re.compile(r"\\(?:text|mathrm|math)?(?:bf|it|tt|rm)?(?![a-z])|[\s$*`\\{}\"']")
_THOUGHT = "(?:think|thinking|thought|reasoning)>"
_THOUGHT_START = re.compile(f"<{_THOUGHT}")
_THOUGHT_END = re.compile(f"</{_THOUGHT}")
_TAG = re.compile("</?answer>", re.IGNORECASE)
_ANSWER = re.compile("answer|答案", re.IGNORECASE)
_BOX = re.compile(r"\\?(?:boxed|fbox|framebox)(?![a-zA-Z])\s?")
_BRACE = re.compile(r"\\[\\{}]|[{}]")
_WORDS = re.compile(r"[^\W\d_]")
_LIST = re.compile(r"\[[^\n]*\]|\\?(?:boxed|fbox)\{[^\n]*\}|</?answer>[^\n]*|```[a-z]*")
_DRESS = " \t\r*$`#"
_MAY_END_LEAD = f"{_DRESS}\n:："
_MAX_CLIMB = 8
_GOES_ON = re.compile(r"[$*`]*[ ][*]*[a-z]")
"""The sentence that begins with an answer continues after it."""
_SUSPECT = DISOWNING | RETREATING
_WIDE = re.compile("[一-鿿≠]")
_AHEAD = re.compile(r"\b(?:following|below|next)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A piece of a text and its position, end exclusive.

    Of the answers that end a response, one of greater strength decides between others.
    """

    text: str
    start: int
    end: int
    strength: int = 0

    def shift(self, offset: int) -> "Span":
        """Move the piece by `offset` characters, as in a text that contains this one."""
        if not offset:
            return self
        return replace(self, start=self.start + offset, end=self.end + offset)


def make_span(text: str, start: int, end: int) -> Span:
    """Cut a piece out of a text."""
    return Span(text=text[start:end], start=start, end=end)


def find_thought_end(text: str) -> int | None:
    """Find where the thought ends: 0 without one, None if one is opened and never closed."""
    if "think" not in text and "thought>" not in text and "reasoning>" not in text:
        return 0
    ends = [match.end() for match in _THOUGHT_END.finditer(text)]
    start = ends[-1] if ends else 0
    return None if _THOUGHT_START.search(text, start) else start


def visible_text(text: str) -> str | None:
    """Cut off the thought; None if it is never closed or the response is too long."""
    start = find_thought_end(text) if len(text) <= MAX_CHARS else None
    return None if start is None else text[start:]


def is_same_text(one: str, other: str) -> bool:
    """Whether two answers are the same but for markup, spaces and case."""
    plain = (_MARKUP.sub("", text).rstrip(".").lower() for text in (one, other))
    return len({*plain}) == 1


def decided_text(
    text: str,
    *,
    same: Callable[[str, str], bool] = is_same_text,
    is_part: Callable[[str], bool] = lambda gap: False,
) -> str | None:
    """Cut off the thought and blank out comments; None if the response settles on no answer.

    That is where it ends with different answers and decides for none of them, or takes its answer
    back. `same` compares two answers, `is_part` tells from what stands between two whether they are
    parts of one.

    >>> decided_text("<answer>3</answer> or <answer>4</answer>")
    >>> decided_text("<answer>3</answer> No, wait: <answer>4</answer>") is not None
    True
    """
    shown = visible_text(text)
    if shown is None:
        return None
    if _COMMENT.search(shown) or any(map(shown.__contains__, _HIDING)):
        shown = _HIDDEN.sub(lambda match: " " * len(match[0]), shown)
    shown = _TAG.sub(lambda tag: tag[0].lower(), shown)
    finals = _find_finals(shown)
    may_restate = bool(finals) and _ANSWER.search(shown, finals[-1].end) is not None
    if may_restate and (start := find_restated(shown, finals[-1].text, finals[-1].end, same)):
        return decided_text(" " * start + shown[start:], same=same, is_part=is_part)
    if len(finals) > 1 and _is_undecided(shown, finals, same, is_part):
        return None
    if not finals and _is_plain(shown):
        return shown
    last = finals[-1] if finals else _find_unmarked(shown)
    return None if last is None else _cut_withdrawn(shown, last)


def _cut_withdrawn(text: str, last: Span) -> str | None:
    """Blank out a last answer that is taken back for another; None where it is for no other."""
    leads = _find_leads(text, last.start)
    suspects = [lead for lead in leads if lead.endswith(OF) or _has_word(lead, DISOWNING)]
    is_led_away = any(map(is_disowned, suspects))
    tail = text[last.end : last.end + REMARK_WINDOW].removeprefix("</answer>")
    if not _WORDS.search(tail):
        is_asked = tail.lstrip(_DRESS).startswith("?")
        return None if is_led_away or is_asked else text
    end = None
    is_subject = _GOES_ON.match(tail) is not None and not _has_prose(_line_before(text, last))
    if is_subject or _has_word(tail, RETREATING):
        end = find_replacement(tail, is_predicate=is_subject, answer=last.text)
    if end is None:
        end = find_other_answer(tail, last.text)
    if end is None and not is_led_away:
        return text
    if end is None or end >= len(tail):
        return None
    blank = last.end + end + len(text[last.end : last.end + REMARK_WINDOW]) - len(tail)
    return " " * blank + text[blank:]


def _line_before(text: str, span: Span) -> str:
    return text[text.rfind("\n", 0, span.start) + 1 : span.start]


def _has_word(text: str, words: frozenset[str]) -> bool:
    if not text.isascii() and _WIDE.search(text):
        return True
    return not words.isdisjoint(text.lower().split())


def _find_leads(text: str, start: int) -> Sequence[str]:
    """List the words that lead to an answer: those before it in its line, and the line above.

    A line above counts where it ends in a colon, and without words in the answer's own line also
    where it is no complete sentence, or speaks of what follows. Of several answers in lines of
    their own the words above the first lead to all.
    """
    begin = text.rfind("\n", 0, start) + 1
    line = text[max(begin, start - SENTENCE_WINDOW) : start].removesuffix("<answer>")
    line = line.rstrip(_DRESS)
    if _has_prose(line):
        own = line if "[" in line else line[line.rfind(". ") + 1 :]
        if begin < 2 or text[begin - 2] not in _MAY_END_LEAD:
            return (own,)
        above = text[max(begin - SENTENCE_WINDOW, 0) : begin].rstrip(_DRESS + "\n")
        is_lead = above.endswith((":", "："))
        return (own, above[above.rfind("\n") + 1 :]) if is_lead else (own,)
    is_climbing = bool(line)
    lines = text[max(begin - SENTENCE_WINDOW, 0) : begin].split("\n")
    for line in map(str.rstrip, lines[: -_MAX_CLIMB - 1 : -1], repeat(_DRESS)):
        if _has_prose(line):
            is_complete = is_climbing or line.endswith((".", "!", "?"))
            leads = line.endswith((":", "：")) or not is_complete or _AHEAD.search(line)
            return (line,) if leads else ()
        is_climbing |= bool(line) and not line.lstrip().startswith("```")
    return ()


def _has_prose(line: str) -> bool:
    is_plain = not any(map(line.__contains__, "[`{<"))
    return _WORDS.search(line if is_plain else _LIST.sub("", line)) is not None


def _is_plain(text: str) -> bool:
    """Whether a text without marks ends in a line that has nothing to disown or take back with."""
    end = len(text.rstrip())
    start = text.rfind("\n", 0, end) + 1
    line = text[max(start, end - SENTENCE_WINDOW) : end]
    is_led_to = start > 1 and text[start - 2] in _MAY_END_LEAD
    has_lead = _WORDS.search(line, 0, max(line.rfind(" "), 0)) is not None
    return has_lead and not (is_led_to or "[" in line or "```" in text or _has_word(line, _SUSPECT))


def _find_unmarked(text: str) -> Span | None:
    """Find what ends a text without marks: its last fenced block, or the end of its last line.

    None if its last line says that there is no answer.
    """
    text = text.rstrip()
    closing = text.rfind("```", max(len(text) - _MAX_TAIL, 0))
    opening = text.rfind("```", 0, closing) if closing > 0 else -1
    if opening >= 0 and text.count("```", 0, opening) % 2 == 0:
        return make_span(text, opening, closing + 3)
    start = text.rfind("\n") + 1
    line = text[start:]
    ending = line[-SENTENCE_WINDOW:]
    if _has_word(ending, RETREATING) and takes_back_all(ending, is_alone=start == 0):
        return None
    end = line.rfind("]") + 1
    opened = line.rfind("[", 0, end)
    if opened >= 0:
        return make_span(text, start + opened, start + end)
    word = line.rfind(" ") + 1
    has_lead = _WORDS.search(line, 0, word) is not None
    return make_span(text, start + word if has_lead else start, len(text))


def _find_finals(text: str) -> list[Span]:
    """List the last answers of the strongest form: tags, boxes, or else separate lines."""
    spans = (find_tags(text) or find_boxes(text))[-MAX_MARKS:]
    if spans:
        return [span for span in spans if not _BLANK.fullmatch(span.text)]
    return _find_lines(text[-_MAX_TAIL:], max(len(text) - _MAX_TAIL, 0))[-MAX_MARKS:]


def _find_lines(text: str, offset: int) -> list[Span]:
    """List the lines that are an answer, or announce one; rows of a list or table are one."""
    finals: list[Span] = []
    text = f"\n{text}"  # so that every line follows a line break
    for match in _OWN_LINE.finditer(text):
        content = match["marked"] or match["heading"] or match[0][1:]
        strength = bool(match["heading"]) + 2 * bool(match["marked"]) + bool(match["final"])
        final = Span(text=content, start=match.start() + 1, end=match.end(), strength=strength)
        before = finals[-1] if finals else None
        is_row = before and not strength
        if before and is_row and text[before.end : final.start].count("\n") == 1:
            final = replace(before, text=text[before.start : final.end], end=final.end)
            finals.pop()
        finals.append(final)
    if finals and finals[-1].text.startswith("["):
        finals = [one for one in finals if one is finals[-1] or not _SETS_AT_WORK.match(one.text)]
    return [replace(one, start=one.start + offset - 1, end=one.end + offset - 1) for one in finals]


def _is_undecided(
    text: str,
    finals: Sequence[Span],
    same: Callable[[str, str], bool],
    is_part: Callable[[str], bool],
) -> bool:
    """Whether different answers end a text with few words between them, none of which decides."""
    last = after = finals[-1]
    if len(finals) == MAX_MARKS:
        return False  # a model caught in a loop
    for final in reversed(finals[:-1]):
        gap = text[final.end : after.start]
        are_marked = all(text.startswith("###", one.start) for one in (final, after))
        is_open = leaves_open(gap, are_marked=are_marked)
        if final.strength < last.strength or not is_open or is_part(gap):
            return False
        is_doubted = final.strength > 0 and names_nothing(final.text)
        if is_doubted or is_denied(text[: final.end], final.start, final.end):
            return False
        if not same(final.text, last.text):
            return not decides_for_last(text[last.end :])
        after = final
    return False


def find_tags(text: str, tag: str = "answer") -> list[Span]:
    """List the texts between `<tag>` and `</tag>`, over any number of lines."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    spans: list[Span] = []
    start = 0
    while (end := text.find(closing, start)) >= 0:
        opened = text.rfind(opening, start, end)
        if opened >= 0:
            spans.append(make_span(text, opened + len(opening), end))
        start = end + len(closing)
    return spans


def has_open_tag(text: str) -> bool:
    """Whether the last answer tag is never closed: the response was cut."""
    return text.rfind("<answer>") > text.rfind("</answer>")


@lru_cache(2)  # of a response they are needed twice: to see if it takes one back, and to read one
def find_boxes(text: str, *, nested: bool = False) -> Sequence[Span]:
    r"""List what `\boxed{...}` and its kin hold, in order; a span takes in the command.

    Boxes that are never closed are left out, and so are boxes inside others, unless they are asked
    for: then the last few boxes are listed.

    >>> [box.text for box in find_boxes(r"so \boxed{\frac{1}{2}} and \boxed 3")]
    ['\\frac{1}{2}', '3']
    """
    if "box" not in text:
        return ()
    first = max(text.find("box") - len("\\frame"), 0)
    commands = deque(_BOX.finditer(text, first), maxlen=MAX_NESTED_BOXES if nested else MAX_BOXES)
    closing = match_braces(text, commands[0].start()) if commands else {}
    boxes: list[Span] = []
    end = 0
    for command in commands:
        start, inside = command.span()
        if inside >= len(text) or (start < end and not nested):
            continue
        if inside in closing and not (nested and closing[inside] - inside > MAX_BOX):
            end = closing[inside] + 1
            boxes.append(Span(text=text[inside + 1 : end - 1], start=start, end=end))
        elif text[inside].isalnum() and text[start] == "\\" and text[inside - 1] == " ":
            end = inside + 1
            boxes.append(Span(text=text[inside:end], start=start, end=end))
    return tuple(boxes)


def last_box(text: str) -> Span | None:
    """Find the last box, the command taken in; None without one, or where it is never closed."""
    command = _last_box_command(text)
    start = -1 if command is None else command.end()
    end = match_braces(text, start).get(start) if command else None
    if command is None or end is None:
        return None
    return Span(text=text[start + 1 : end], start=command.start(), end=end + 1)


def has_open_box(text: str) -> bool:
    """Whether the last box is never closed: the response was cut."""
    command = _last_box_command(text)
    return command is not None and command.end() not in match_braces(text, command.end())


def _last_box_command(text: str) -> re.Match[str] | None:
    commands = [one for one in _BOX.finditer(text) if text.startswith("{", one.end())]
    return commands[-1] if commands else None


def match_braces(text: str, start: int = 0) -> dict[int, int]:
    """Match every opening brace with the one that closes it; escaped braces do not count."""
    closing: dict[int, int] = {}
    waiting: list[int] = []
    for match in _BRACE.finditer(text, start):
        if match.group() == "{":
            waiting.append(match.start())
        elif match.group() == "}" and waiting:
            closing[waiting.pop()] = match.start()
    return closing
