"""Find where a response states its answer: tags, boxes, marked lines, the last line, sentences.

This is the one reader of final answers. It finds statements and says where they stand; each task
decides which of them it accepts, which is the strongest, and what the text of one means. Every
function reads the text a bounded number of times, whatever is in it, and the regular expressions
have nothing to backtrack into.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from whet.text.doubt import decides_for_last, is_denied, is_doubtful, is_withdrawn, leaves_open

MAX_CHARS = 1 << 22
"""Longer responses are not read."""
MAX_MARKED = 2000
"""What follows a mark is read this far."""
MAX_MARKS = 20
MAX_NESTED_BOXES = 64
MAX_BOX = 1 << 16
"""Longer boxes are not read where boxes may stand in boxes."""
MAX_SENTENCE = 400
"""Longer lines state nothing in words."""

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
_MARK = re.compile(
    r"####[ \t]*:?"
    r"|(?:^|(?<=\n))[ \t]*A:"
    r"|(?<![a-zA-Z])correct (?:option|choice) is(?![a-zA-Z])"
    r"|(?:(?<![a-zA-Z])(?:final[ ]{1,3})?"
    r"(?:answers?|results?|réponse|respuesta|antwort)(?![a-zA-Z])|答案)\**[ \t]{0,3}"
    r"(?::|：|=|(?:is|are|est|es|ist)(?![a-zA-Z])|是|为)[ \t]{0,3}(?::|：)?\**",
    re.IGNORECASE,
)
_MARK_WORDS = ("####", "a:", "correct ", "answer", "result", "respuesta", "antwort")
_FORMULA_SIGN = re.compile(r"\\[\\$]|\\[()\[\]]|\$\$?")
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.])[-+−]?"
    r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+(?:,[0-9]+(?![0-9,]))?|(?=\.[0-9]))(?:\.[0-9]+)?"
    r"(?:[eE][-+]?[0-9]+)?(?:\s?/\s?[0-9]+(?![0-9.]))?(?:\s?\\?%)?"
    r"|[-−]?\\[dtc]?frac\s?\{[^{}]{1,40}\}\s?\{[^{}]{1,40}\}"
)
_SENTENCE_END = re.compile(r"[.。!?](?=[\s$\"')]|$)|\n")
_NEXT_SENTENCE = re.compile(r"(?<!\b[A-Z])[.!]\s+(?=[A-Z*\"'])")
_VERB = re.compile(r"\b(?:is|are|was|were|be|equals)\b[\s:*]*(?=\S)", re.IGNORECASE)
_PLAIN_NUMBER = re.compile(r"[0-9](?:[0-9.,]*[0-9])?")
_PLAIN_WORDS = re.compile(r"[A-Za-z ,'*()-]*")
_SIGN = re.compile(r"(?<![A-Za-z0-9])[-−]?\s?\\?[$£€]?[-−]?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A piece of a text and where it stands, end exclusive.

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
    """Find where the thought ends: 0 without one, None where one is opened and never closed."""
    if "think" not in text and "thought>" not in text and "reasoning>" not in text:
        return 0
    ends = [match.end() for match in _THOUGHT_END.finditer(text)]
    start = ends[-1] if ends else 0
    return None if _THOUGHT_START.search(text, start) else start


def visible_text(text: str) -> str | None:
    """Cut off the thought; None where it is never closed or the response is too long."""
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
    """Cut off the thought and blank out comments; None where the response settles on no answer.

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
    if _COMMENT.search(shown) or any(sign in shown for sign in _HIDING):
        shown = _HIDDEN.sub(lambda match: " " * len(match[0]), shown)
    finals = _find_finals(shown)
    if not finals:
        return shown
    if len(finals) > 1 and _is_undecided(shown, finals, same, is_part):
        return None
    return None if is_withdrawn(shown, finals[-1].start, finals[-1].end) else shown


def _find_finals(text: str) -> list[Span]:
    """List the last answers of the strongest form: tags, boxes, or else lines of their own."""
    spans = (find_tags(text) or find_boxes(text, most=MAX_MARKS))[-MAX_MARKS:]
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
    """List what stands between `<tag>` and `</tag>`, over any number of lines."""
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


def find_boxes(text: str, *, nested: bool = False, most: int | None = None) -> list[Span]:
    r"""List what `\boxed{...}` and its kin hold, in order; a span takes in the command.

    Boxes that are never closed are left out, and so are boxes inside others, unless they are asked
    for: then the last few boxes are listed. With `most` only the last ones are looked at.

    >>> [box.text for box in find_boxes(r"so \boxed{\frac{1}{2}} and \boxed 3")]
    ['\\frac{1}{2}', '3']
    """
    if "box" not in text:
        return []
    first = max(text.find("box") - len("\\frame"), 0)
    commands = deque(_BOX.finditer(text, first), maxlen=MAX_NESTED_BOXES if nested else most)
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
    return boxes


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


def find_marks(text: str) -> list[Span]:
    """List what follows `####`, `the answer is` and the like in its line; the last few only."""
    spans = []
    start = 0
    if text.isascii():  # then lower case has the same length, and only these words make a mark
        lower = text.lower()
        places = [place for word in _MARK_WORDS if (place := lower.find(word)) >= 0]
        if not places:
            return []
        start = text.rfind("\n", 0, min(places)) + 1
    for match in deque(_MARK.finditer(text, start), maxlen=MAX_MARKS):
        limit = min(match.end() + MAX_MARKED, len(text))
        end = text.find("\n", match.end(), limit)
        span = make_span(text, match.end(), limit if end < 0 else end)
        if span.text.strip(" *$:"):
            spans.append(span)
    return spans


def last_line(text: str) -> Span | None:
    """Find the last line that holds more than spaces and marks."""
    end = len(text.rstrip(" \t\r\n*$`"))
    if end == 0:
        return None
    stop = text.find("\n", end)
    return make_span(text, text.rfind("\n", 0, end) + 1, len(text) if stop < 0 else stop)


def first_sentence(span: Span) -> Span:
    """Cut a span after its first sentence; a point inside a number or formula ends none."""
    for match in _SENTENCE_END.finditer(span.text):
        if match.group() == "\n" or span.text.count("$", 0, match.start()) % 2 == 0:
            return make_span(span.text, 0, match.start()).shift(span.start)
    return span


def text_after_verb(line: str) -> str | None:
    """Take what stands after the last verb of the last sentence; None where the line doubts.

    >>> text_after_verb("So the letters are **nda**."), text_after_verb("nda")
    ('nda', None)
    >>> text_after_verb("It is not nda.")
    """
    if len(line) > MAX_SENTENCE or is_doubtful(line):
        return None
    sentence = _NEXT_SENTENCE.split(line)[-1]
    verbs = list(_VERB.finditer(sentence))
    if not verbs:
        return None
    return sentence[verbs[-1].end() :].strip().rstrip(".!").strip(" *`") or None


def find_only_number(line: str) -> str | None:
    """Take the one number of a sentence and what follows it: `It was highest in 2008.`"""
    if len(line) > MAX_SENTENCE or is_doubtful(line):
        return None
    numbers = list(_PLAIN_NUMBER.finditer(line))
    if len(numbers) != 1:
        return None
    sign = _SIGN.search(line, 0, numbers[0].start())
    start = sign.start() if sign else numbers[0].start()
    if not _PLAIN_WORDS.fullmatch(line, 0, start):
        return None
    return line[start:].strip().rstrip("!").replace("**", "")


def find_formulas(text: str) -> list[Span]:
    r"""List what stands between dollar signs, `\(` and `\)`, `\[` and `\]`, in order."""
    spans = []
    opening: tuple[str, int] | None = None
    for match in _FORMULA_SIGN.finditer(text):
        sign = match.group()
        if sign in ("\\\\", "\\$"):
            continue
        if opening is None:
            opening = None if sign in ("\\)", "\\]") else (sign, match.end())
        elif sign == {"\\(": "\\)", "\\[": "\\]"}.get(opening[0], opening[0]):
            spans.append(make_span(text, opening[1], match.start()))
            opening = None
    return spans


def find_numbers(text: str) -> Iterator[Span]:
    """List the numbers and simple fractions, in order."""
    for match in _NUMBER.finditer(text):
        if match.group():
            yield make_span(text, match.start(), match.end())
