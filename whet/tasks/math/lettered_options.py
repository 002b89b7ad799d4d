"""Options with letters: those that a question lists, and one that an answer writes out."""

import re
from collections.abc import Mapping
from functools import lru_cache

from whet.tasks.math.respelling import normal, wording

_WRAPPED_LETTER = re.compile(
    r"^\\(?:text|textbf|mathrm|mathbf|textrm)\s?\{\s?(\(?[A-J][).:]?\s?[^{}]{0,40})\}"
)
_OPTION = re.compile(r"(?:\(([A-J])\)|([A-J])[).:])\s*(\S.*)", re.DOTALL)
SECOND_OPTION = re.compile(r"\W*(?:or|and)\b|[-+*/,;^=]|.*\([A-J]\)", re.IGNORECASE | re.DOTALL)
"""Behind an option it says that the option is not all of the answer."""
NAMED_OPTION = re.compile(r"(?:option|choice) ?\(?([a-j])\)?")
_MARK = re.compile(
    r"(?:(?<=[\s$:?,;])|\A)(?:\\(?:text|textbf|mathrm|mathbf|textrm)\s?\{\s?)?"
    r"(?:\(([A-K])\)|([A-K])[.)](?=[\s}]))[.:]?\s?\}?"
)
_EDGE = re.compile(
    r"\A(?:[\s,;.]|\\[ ,;~]|\\q?quad)+"
    r"|(?<![\s,;.\\])(?:[\s,;.]|\\[ ,;~]|\\q?quad|\\\\)++\Z"
)
_FIRST = ("A", "F")
"""ACT names the options of every other question from F to K, without I."""
_LETTERS = "ABCDEFGHJK"


def split_option(text: str) -> tuple[str, str] | None:
    """Split (C) 27 into its letter and the rest, whether or not a text command wraps the letter."""
    match = _OPTION.fullmatch(_WRAPPED_LETTER.sub(r"\1 ", normal(text), count=1))
    if match is None or ((rest := wording(match[3])).isupper() and len(rest) == 1):
        return None
    return match[1] or match[2], match[3]


@lru_cache(256)
def list_options(prompt: str) -> Mapping[str, str]:
    """List the options of a question by their letters; none unless there are two in order.

    >>> list_options("How many? (A) 10 (B) 12")
    {'A': '10', 'B': '12'}
    """
    marks = list(_MARK.finditer(prompt))
    letters = "".join(mark[1] or mark[2] for mark in marks)
    if len(letters) < 2 or letters[0] not in _FIRST or letters not in _LETTERS:
        return {}
    ends = [mark.start() for mark in marks[1:]] + [len(prompt)]
    texts = (prompt[mark.end() : end] for mark, end in zip(marks, ends, strict=True))
    return {
        letter: _EDGE.sub("", text.strip().partition("\n")[0]).strip("$ ")
        for letter, text in zip(letters, texts, strict=True)
    }
