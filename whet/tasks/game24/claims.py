"""Read the answer of a response to the 24 game whose last line has no form of its own: it stands in
a field of a JSON object, or in the last sentence: `Use 6 * (8 - 8 / 2) instead: 8 / 2 = 4, ...`.
"""

import re

from whet.answers.doubt import is_denied, is_doubtful
from whet.answers.withdrawal import is_disowned
from whet.tasks.game24.expressions import parse_expression
from whet.tasks.game24.lines import (
    EXPRESSIONS,
    MAX_LINE_CHARS,
    SIGNS,
    AnswerLine,
    Line,
    has_hand,
    read_answer_line,
    read_line,
    strip_dress,
)
from whet.tasks.literals import last_object, read_field

_NEXT_SENTENCE = re.compile(r"(?<=[.!]) +(?=[A-Z$\\*])")
_USE = re.compile(
    r"(?:(?:so|then|but),? )?(?:(?:you|we|I) (?:can )?)?(?:use|take|write|play) "
    r"(?P<expression>[0-9(][0-9 ()*/+-]*?)(?: instead)?"
    r"(?:[:;,] (?P<steps>(?:[0-9 ()*/+=,;-]|\b(?:then|and|so|gives|makes|is)\b)*= ?24))?",
    re.IGNORECASE,
)
"""A sentence that says what to use, and perhaps the steps that this takes."""


def write_object(text: str) -> str:
    """Write a JSON object that ends a text as the line of its answer.

    >>> write_object('{"expression": "4 * 6", "value": 24}')
    '{"expression": "4 * 6", "value": 24}'
    >>> write_object('{"expression": "4 * (7 - 8 / 8)", "value": 24}')
    '\\nAnswer: 4 * (7 - 8 / 8)'
    """
    item = last_object(text) if text.rstrip("`\n ").endswith("}") else None
    answer = read_field(item, _read_hand) if item else None
    if item is None or answer is None:
        return text
    start = text.rfind(item)
    lead = text[:start].rstrip("`,;\n ").rpartition("\n")[2]
    is_led_away = "{" in lead or lead.endswith("}") or is_disowned(lead)
    if is_led_away or is_denied(text, start, start + len(item)):
        return text
    return f"{text[:start]}\nAnswer: {answer.text}"


def read_lines(lines: list[str]) -> list[Line]:
    """Read the lines of a response, the last one perhaps by its last sentence."""
    return [*map(read_line, lines[:-1]), read_line(lines[-1]) or _read_sentence(lines[-1])]


def _read_sentence(line: str) -> AnswerLine | None:
    """Read the answer in the last sentence of a line; None if it doubts or says something else."""
    *before, sentence = _NEXT_SENTENCE.split(line)
    start = len(line) - len(sentence)
    is_foreign = before and is_disowned(f"{before[-1].rstrip('.!')}:")
    if len(line) > MAX_LINE_CHARS or is_foreign or is_denied(line, start, len(line)):
        return None
    if start and (answer := _read_hand(sentence)):
        return answer
    use = _USE.fullmatch(strip_dress(sentence).rstrip(".! "))
    if use is None or is_doubtful(use["steps"] or ""):
        return None
    steps = map(parse_expression, map(str.strip, EXPRESSIONS.findall(use["steps"] or "")))
    answer = read_answer_line(use["expression"].strip())
    is_whole = has_hand(answer) and all(len(step.leaves) < 4 for step in steps if step)
    return answer if is_whole else None


def _read_hand(text: str) -> AnswerLine | None:
    answer = read_line(text.translate(SIGNS))
    return answer if isinstance(answer, AnswerLine) and has_hand(answer) else None
