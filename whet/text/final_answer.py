"""Find where a response states its answer, and whether it later takes it back: tags, boxes, last
lines.

This is the one reader of final answers. It finds statements and their positions; each task decides
which of them it accepts, which is the strongest, and what the text of one means. `sentences` reads
answers in words. Every function reads the text a bounded number of times, whatever is in it, and
the regular expressions have nothing to backtrack into.
"""

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from whet.text.doubt import SENTENCE_WINDOW, decides_for_last, is_denied, is_doubtful, leaves_open

MAX_CHARS = 1 << 22
"""Longer responses are not read."""
MAX_MARKS = 20
MAX_BOXES = 1024
MAX_NESTED_BOXES = 64
"""Of more boxes than these the last are read."""
MAX_BOX = 1 << 16
"""Longer boxes are not read where boxes may be nested."""

_HIDDEN = re.compile(
    r"<!--.*?(?:-->|\Z)|\\iffalse\b.*?(?:\\fi\b|\Z)|~~[^~\n]+~~"
    r"|(?:^|(?<=\n))[ \t]*(?:%|\[//\]:)[^\n]*|(?<=\})\$?\$?[.,]?[ \t]+%[^\n]*",
    re.DOTALL,
)
"""What Markdown or LaTeX does not show, or strikes out; behind a number `%` means percent."""
_COMMENT = re.compile(r"%(?<!\S%)")
"""A percent sign behind a space: only such a one may start a comment."""
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
_BLANK = re.compile(r"[\s.…_]*(?:(?:your|the|final|my)? ?answer(?: here)?)?\s*", re.IGNORECASE)
"""What a box holds that only shows the form."""
_MAX_TAIL = 1 << 13
_MARKUP = re.compile(r"\\(?:text|mathrm|math)?(?:bf|it|tt|rm)?(?![a-z])|[\s$*`\\{}\"']")
_THOUGHT = "(?:think|thinking|thought|reasoning)>"
_THOUGHT_START = re.compile(f"<{_THOUGHT}")
_THOUGHT_END = re.compile(f"</{_THOUGHT}")
_BOX = re.compile(r"\\?(?:boxed|fbox|framebox)(?![a-zA-Z])\s?")
_BRACE = re.compile(r"\\[\\{}]|[{}]")
_LETTER = re.compile(r"[^\W\d_]")


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
        """Give the same piece its place in a text that has this one `offset` characters in."""
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
    finals = _find_finals(shown)
    if not finals:
        return shown
    if len(finals) > 1 and _is_undecided(shown, finals, same, is_part):
        return None
    return None if is_withdrawn(shown, finals[-1].start, finals[-1].end) else shown


def _find_finals(text: str) -> list[Span]:
    """List the last answers of the strongest form: tags, boxes, or else separate lines."""
    spans = (find_tags(text) or find_boxes(text))[-MAX_MARKS:]
    if spans:
        return [span for span in spans if not _BLANK.fullmatch(span.text)]
    return _find_lines(text[-_MAX_TAIL:], max(len(text) - _MAX_TAIL, 0))[-MAX_MARKS:]


def _find_lines(text: str, offset: int) -> list[Span]:
    """List the lines that are an answer, or announce one; rows of a list or table are one."""
    finals: list[Span] = []
    text = f"\n{text}"  # so that every line starts behind a line break
    for match in _OWN_LINE.finditer(text):
        content = match["marked"] or match["heading"] or match[0][1:]
        strength = 0
        if match["marked"]:
            strength = 2 if match["final"] else 1
        final = Span(text=content, start=match.start() + 1, end=match.end(), strength=strength)
        before = finals[-1] if finals else None
        is_row = before and not strength and not match["heading"]
        if before and is_row and text[before.end : final.start].count("\n") == 1:
            whole = text[before.start : final.end]
            final = replace(before, text=whole, end=final.end)
            finals.pop()
        finals.append(final)
    return [replace(one, start=one.start + offset - 1, end=one.end + offset - 1) for one in finals]


def _is_undecided(
    text: str,
    finals: Sequence[Span],
    same: Callable[[str, str], bool],
    is_part: Callable[[str], bool],
) -> bool:
    """Whether different answers end a text with few words between them, none of which decides."""
    last = finals[-1]
    after = last
    if len(finals) == MAX_MARKS:  # a model caught in a loop
        return False
    for final in reversed(finals[:-1]):
        gap = text[final.end : after.start]
        are_marked = all(text.startswith("###", one.start) for one in (final, after))
        is_open = leaves_open(gap, are_marked=are_marked)
        if final.strength < last.strength or not is_open or is_part(gap):
            return False
        is_doubted = final.strength > 0 and is_doubtful(final.text)
        if is_doubted or is_denied(text[: final.end], final.start, final.end):
            return False
        if not same(final.text, last.text):
            return not decides_for_last(text[last.end :])
        after = final
    return False


def find_tags(text: str, tag: str = "answer") -> list[Span]:
    """List the texts between `<tag>` and `</tag>`, over any number of lines."""
    opening = f"<{tag}>"
    closing = f"</{tag}>"
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


@lru_cache(
    2
)  # the boxes of a response are needed twice: to see whether it takes one back, and to read one
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
    last = None
    for command in _BOX.finditer(text):
        if text.startswith("{", command.end()):
            last = command
    return last


def match_braces(text: str, start: int = 0) -> dict[int, int]:
    """Match every opening brace with the one that closes it; escaped braces are none."""
    closing: dict[int, int] = {}
    waiting: list[int] = []
    for match in _BRACE.finditer(text, start):
        if match.group() == "{":
            waiting.append(match.start())
        elif match.group() == "}" and waiting:
            closing[waiting.pop()] = match.start()
    return closing


_NO_GOOD = (
    r"(?:void|false|wrong|incorrect|invalid|untrue|bogus|nonsense|mistaken|impossible|rubbish"
    r"|an? (?:\w+ )?(?:mistake|error|joke|trap|guess|sample|example|illustration|placeholder"
    r"|template|dummy|decoy)|(?:only|just|merely) (?:an?|the) (?:\w+ )?(?:sample|example"
    r"|illustration|placeholder|template|format)|to be (?:ignored|disregarded)"
    r"|not (?:right|correct|true|valid|it|mine"
    r"|(?:my|our|the)(?: \w+)? (?:answer|solution|reply)))\b"
)
_THIS = (
    r"(?:that|this|it|which|(?:the |my )?(?:line|list|answer|result|box|tag|one|value)?(?: ?above)"
    r"|the (?:line|list|answer|result|box|one)|my (?:answer|result|list|solution))(?: \w+)?"
)
_WITHDRAWN_AFTER = re.compile(
    rf"\b(?:{_THIS} (?:"
    rf"(?:is|was|are)(?: (?:also|clearly|obviously|certainly|just|actually|now))? {_NO_GOOD}"
    r"|(?:can(?:not|['’]t| not)|could(?:n['’]t| not)) be (?:right|correct|true|it|the)\b)"
    r"|(?:I|we)(?: hereby| must| have to| would| now)?(?: (?:take|took) (?:it|that|this|\w+ \w+)"
    r" back| (?:retract|withdraw|disown|reject|discard)\b)"
    r"|(?:ignore|disregard|forget|strike|scrap|delete)"
    r" (?:that|this|it|the (?:above|line|answer))\b"
    r"|not my (?:own )?(?:answer|solution|reply|result|conclusion|submission)\b"
    r"|(?:no|any) (?:answer|solution|reply|result) of my own\b"
    r"|marked (?:as )?(?:wrong|incorrect|false)\b|cannot (?:confirm|vouch)\b"
    r"|(?:leads? to|is|gives|yields|reach|get|have) an? contradiction\b"
    r"|is what (?:the|an?|my|some|another)\b[^\n]{0,40}\b(?:wrote|said|claimed|got|gave|had)\b"
    r"|(?:I|we) (?:could|can|did|do)(?: not|n['’]t|not) (?:find|have|get) (?:one|an?y?|it)\b)"
    r"|\A\W{0,12}(?:alternatively|equally)\b[^\n\\\[]{0,60}\["
    r"|\A\W{0,12}(?:false|wrong|incorrect|void|erratum|not true)\b"
    r"|以上(?:答案)?(?:是)?(?:错|不对)|(?:错误|不对|不正确)",
    re.IGNORECASE,
)
"""Behind the last answer of a response it takes the answer back."""
_GOES_ON = re.compile(r":|\n\s*\S|[0-9]|\b(?:answer|it|result|value|solution) (?:is|should)\b")
"""Behind that it goes on, perhaps with another answer."""
_WITHDRAWN_BEFORE = re.compile(
    r"(?:\b(?:(?:(?:anything|everything|all) but|(?:every(?:one|body|thing)|all|any(?:one|thing))"
    r"(?: \w+){0,3} (?:except|excluding|other than))\b(?![^\n]*, (?:so|thus|hence|therefore)\b)"
    r"|(?:mistake|wrong|error|incorrect|false|tempting|premature) to"
    r" (?:conclude|say|answer|write|claim|think|state|give|submit)\b"
    r"|(?:sample|example|illustration|template) of (?:the |an? )?(?:\S+ )?"
    r"(?:format|layout|reply|answer|response|output)\b|contradiction\b"
    r"|(?:told|heard|rumou?r|allegedly|supposedly|somebody|someone)\b"
    r"|(?:wrong|incorrect|rejected|discarded|false) (?:answer|list|solution|result|reply)\b"
    r"|(?:following|below|next)\b[^\n]{0,30}\b(?:is|are) (?:wrong|incorrect|false|not)\b)"
    r"|(?:错误|不是|并非|不正确)(?![^\n]*而是))[^\n.!?。]{0,60}\Z",
    re.IGNORECASE,
)
"""Before an answer, in the words that lead to it, it says that the answer is another."""
_WITHDRAWING = (
    *(" but", "except", "excluding", "other than", "mistake", "wrong", "error", "incorrect"),
    *("false", "tempting", "premature", "sample", "example", "illustration", "template"),
    *("contradiction", "told", "heard", "rumo", "allegedly", "supposedly", "somebody", "someone"),
    *("rejected", "discarded", "following", "below", "next", "错误", "不是", "并非", "不正确"),
)
"""Without one of these, in lower case, there is nothing to match: a check that costs little."""


def is_withdrawn(text: str, start: int, end: int) -> bool:
    r"""Whether the words before or behind the last answer, end exclusive, take it back.

    >>> [is_withdrawn(text, 0, 1) for text in ("4\n\nI take it back.", "4. This is a maximum.")]
    [True, False]
    """
    lead = text[max(start - SENTENCE_WINDOW, 0) : start].removesuffix("<answer>")
    lead = lead.rstrip(" \t\r\n*$`:：#")
    lead = lead[lead.rfind("\n") + 1 :]
    lower = lead.lower()
    if any(map(lower.__contains__, _WITHDRAWING)) and _WITHDRAWN_BEFORE.search(lead):
        return True
    tail = text[end : end + 2 * SENTENCE_WINDOW].removeprefix("</answer>")
    if not _LETTER.search(tail):
        return False
    ends = [match.end() for match in _WITHDRAWN_AFTER.finditer(tail, 0, SENTENCE_WINDOW)]
    return bool(ends) and not _GOES_ON.search(tail, ends[-1])
