"""Read one line of a response, in any format: a step, a roll back, an answer, or none of these.

step       `13 - 1 = 12`; `13 - 1 = 12, left: 12 8 6`; `13 - 1 = 12 (left: 6 8 12)`;
           `(13) - (1) = 12, left: (13 - 1) = 12, 8, 6`
roll back  `roll back, left: 13 8 6 1`; `back, left: 13 8 6 1`
answer     `reach 24! expression: 6 * (13 - 1 - 8)`; `Answer: 6 * (13 - 1 - 8) = 24`;
           `6 * (13 - 1 - 8)`; `no solution`
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from whet.tasks.game24.rationals import NUMBER, Expression, Value, parse, read

_MAX_LINE_CHARS = 512
_EQUATION = rf"\(?({NUMBER})\)? ?([-+*/]) ?\(?({NUMBER})\)? ?= ?({NUMBER})"
_STEP = re.compile(rf"{_EQUATION}(?:, ?left:(.*)| ?\(left:(.*)\))?", re.ASCII)
_ROLL_BACK = re.compile(r"(?:roll )?back\b,? ?(?:left:(.*))?", re.ASCII)
_ANSWER = re.compile(r"(?:reach 24!\s*)?(?:expression|answer):(.*)", re.ASCII | re.IGNORECASE)
_DRESS = re.compile(r"[\\$]|\*\*|\b(?:answer|solution|expression) is\b", re.IGNORECASE)
_BOLD = re.compile(r"\*\*([^*]+)\*\*")
_FRACTION = re.compile(r"\\[dt]?frac\s?\{([^{}]{1,60})\}\s?\{([^{}]{1,60})\}")
_TIMES = re.compile(r"\\(?:times|cdot)(?![a-z])")
_WRAPPER = re.compile(r"\$|\\[()\[\]]")
_SENTENCE = re.compile(
    r"(?:(?:so|thus|therefore|hence),? )?(?:the |one |a |my )?(?:final |possible )?"
    r"(?:answer|solution|expression) is:? ",
    re.IGNORECASE,
)
_BOX = re.compile(r"(Answer: ?)?\\boxed ?\{(.*)\}( ?= ?24)?\.?", re.IGNORECASE)
_SIGNS = str.maketrans(
    {"\N{MULTIPLICATION SIGN}": "*", "\N{DIVISION SIGN}": "/", "\N{MINUS SIGN}": "-"}
)


@dataclass(frozen=True, slots=True)
class Left:
    """The numbers a line lists as left, sorted, and the cards in their expressions, if any."""

    values: tuple[Value, ...]
    cards: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class StepLine:
    a: Value
    symbol: str
    b: Value
    c: Value
    left: Left | None
    has_left: bool


@dataclass(frozen=True, slots=True)
class RollBackLine:
    left: Left | None


@dataclass(frozen=True, slots=True)
class AnswerLine:
    """A claim: an expression (None where it cannot be read), or that there is no solution."""

    text: str
    expression: Expression | None
    is_no_solution: bool


Line = StepLine | RollBackLine | AnswerLine | None


def lines_of(text: str) -> list[str]:
    """Split a response into its lines without blank ones, × ÷ − written as * / -."""
    if not text.isascii():
        text = text.translate(_SIGNS)
    return [stripped for line in text.split("\n") if (stripped := line.strip())]


@lru_cache(1 << 15)
def read_line(line: str) -> Line:
    """Read a line; None where it is nothing a response may hold, or longer than any honest one."""
    if len(line) > _MAX_LINE_CHARS:
        return None
    line = _strip_dress(line) if _DRESS.search(line) else line
    if match := _STEP.fullmatch(line):
        return _read_step(match)
    if match := _ROLL_BACK.fullmatch(line):
        return RollBackLine(_read_rest(match[1] or ""))
    return read_answer(line)


def read_answer(line: str) -> AnswerLine | None:
    """Read a line as an answer; without a word before it, it needs `= 24` or four numbers."""
    match = _ANSWER.fullmatch(line)
    text = match[1].strip() if match else line
    if text.lower().rstrip(".") == "no solution":
        return AnswerLine("no solution", None, True)
    body, equals, claim = text.partition("=")
    expression = None if equals and claim.strip() != "24" else parse(body.strip())
    if match is None and (expression is None or (not equals and len(expression.leaves) < 4)):
        return None
    return AnswerLine(text, expression, False)


def _strip_dress(line: str) -> str:
    """Strip bold, formulas and a sentence from around a line: `The answer is $4 \\times 6$.`"""
    line = _BOLD.sub(r"\1", line)
    for _ in range(3):
        line = _FRACTION.sub(r"((\1)/(\2))", line)
    line = _TIMES.sub("*", line).replace("\\div", "/")
    line = _WRAPPER.sub(" ", line.replace("\\left", "").replace("\\right", ""))
    line = _SENTENCE.sub("Answer: ", " ".join(line.split()))
    if match := _BOX.fullmatch(line):
        line = f"{match[1] or ''}{match[2]}{match[3] or ''}"
    return line.rstrip(". ")


def _read_step(match: re.Match[str]) -> StepLine | None:
    a, symbol, b, c, left, left_in_brackets = match.groups()
    values = read(a), read(b), read(c)
    if values[0] is None or values[1] is None or values[2] is None:
        return None
    text = left if left_in_brackets is None else left_in_brackets
    rest = None if text is None else _read_rest(text)
    return StepLine(values[0], symbol, values[1], values[2], rest, text is not None)


def _read_rest(text: str) -> Left | None:
    """Read numbers between commas or spaces; `(13 - 1) = 12` is 12 with where it came from."""
    values: list[Value] = []
    cards: list[int] = []
    for item in text.split(","):
        origin, equals, numbers = item.rpartition("=")
        expression = parse(origin.strip()) if equals else None
        item_values = [value for word in numbers.split() if (value := read(word)) is not None]
        if len(item_values) < len(numbers.split()):
            return None
        if equals and (expression is None or item_values != [expression.value]):
            return None
        values += item_values
        cards += expression.leaves if expression else [value[0] for value in item_values]
    if not 1 <= len(values) <= 4:
        return None
    return Left(tuple(sorted(values)), tuple(sorted(cards)) if "=" in text else None)
