"""Read what a text says in words: after a mark, in its last line, after a verb; and its formulas
and numbers, in order. `final_answer` finds tags and boxes.
"""

import re
from collections import deque
from collections.abc import Iterator

from whet.answers.doubt import LEADING, is_denied, is_doubtful
from whet.answers.final_answer import MAX_MARKS, Span, make_span

MAX_MARKED = 2000
"""What follows a mark is read this far."""
MAX_SENTENCE = 400
"""Longer lines state nothing in words."""

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
_SENTENCE_END = re.compile(r"(?<!\bi\.e)(?<!\be\.g)[.。!?](?=[\s$\"')]|$)|\n")
_NEXT_SENTENCE = re.compile(r"(?<!\b[A-Z])[.!]\s+(?=[A-Z*\"'])")
_VERB = re.compile(
    rf"\b(?:(?:is|are|was|were|be)(?: (?:{LEADING}))*|equals"
    r"|(?<=letters )spell|(?<=it )spells|evaluates to|(?:comes|amounts|adds up) to"
    r"|works out (?:to|as|at))\b[\s:*]*(?=\S)",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"[\s*_#>]*(?:(?:so|thus|hence|therefore),? )?(?:the |my |our )?(?:(?:next|final|last|resulting"
    r"|joined|combined|reversed|complete|full|whole|overall|correct|right|new) )*"
    r"(?:step|words?|letters?|string|text|result|value|total|sum|product|number|sequence|list|order"
    r"|expression|output|conclusion)(?: (?:joined|reversed|backwards|together|in order|then))?"
    r"[\s*_]*:[\s*_]*(?=\S)",
    re.IGNORECASE,
)
"""What the answer is called, and a colon: `Next step: `."""
_PLAIN_NUMBER = re.compile(r"[0-9](?:[0-9.,]*[0-9])?")
_PLAIN_WORDS = re.compile(r"[A-Za-z ,'*()-]*")
_SIGN = re.compile(r"(?<![A-Za-z0-9])[-−]?\s?\\?[$£€]?[-−]?\Z")


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
    """Take what follows the last verb of the last sentence; None if the line doubts.

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


def text_after_label(line: str) -> str | None:
    """Take what follows the label that the last sentence starts with; None if the line doubts.

    >>> text_after_label("It follows. Next step: **owl**"), text_after_label("Wrong step: owl")
    ('owl', None)
    """
    if ":" not in line or len(line) > MAX_SENTENCE or is_doubtful(line):
        return None
    sentence = _NEXT_SENTENCE.split(line)[-1]
    label = _LABEL.match(sentence)
    return sentence[label.end() :].strip().rstrip(".!").strip(" *`") or None if label else None


def find_only_number(line: str) -> str | None:
    """Take the one number of a sentence and what follows it: `It was highest in 2008.`"""
    if len(line) > MAX_SENTENCE or is_doubtful(line):
        return None
    numbers = list(_PLAIN_NUMBER.finditer(line))
    if len(numbers) != 1:
        return None
    sign = _SIGN.search(line, 0, numbers[0].start())
    start = sign.start() if sign else numbers[0].start()
    if not _PLAIN_WORDS.fullmatch(line, 0, start) or is_denied(line, start, numbers[0].end()):
        return None
    return line[start:].strip().rstrip("!").replace("**", "")


def find_formulas(text: str) -> list[Span]:
    r"""List the texts between dollar signs, `\(` and `\)`, `\[` and `\]`, in order."""
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
