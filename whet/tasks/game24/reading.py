"""Tell what a line of a response is: a step, a roll back, an answer, or none of these. All formats
at once.

step       `(13) - (1) = 12, left: (13 - 1) = 12, 8, 6`; `13 - 1 = 12, left: 12 8 6`; `13 - 1 = 12
(left: 6 8 12)`;
           `13 - 1 = 12`
roll back  `roll back, left: 13 8 6 1`; `back, left: 13 8 6 1` answer     `reach 24! expression: 6 *
(13 - 1 - 8)`; `Answer: 6 * (13 - 1 - 8) = 24`; `6 * (13 - 1 - 8)`; `no solution`
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from whet.tasks.game24.expression import Expression, parse
from whet.tasks.game24.values import NUMBER, Value, read

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
    """The numbers a line says are left, in a fixed order, and the cards in their expressions where
    it gives these."""

    values: tuple[Value, ...]
    cards: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Step:
    a: Value
    symbol: str
    b: Value
    c: Value
    left: Left | None
    has_left: bool


@dataclass(frozen=True, slots=True)
class RollBack:
    left: Left | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What an answer line claims: an expression (None where it is not one), or that there is no
    solution."""

    text: str
    expression: Expression | None
    is_no_solution: bool


Line = Step | RollBack | Answer | None


def lines_of(text: str) -> list[str]:
    """Split a response into its lines, blank ones left out, printed signs for times, over and minus
    as * / -."""
    if not text.isascii():
        text = text.translate(_SIGNS)
    return [stripped for line in text.split("\n") if (stripped := line.strip())]


@lru_cache(1 << 15)
def read_line(line: str) -> Line:
    """Say what a line is; None where it is nothing a response may hold, or longer than any honest
    line."""
    if len(line) > _MAX_LINE_CHARS:
        return None
    line = _undressed(line) if _DRESS.search(line) else line
    if found := _STEP.fullmatch(line):
        return _step(found)
    if found := _ROLL_BACK.fullmatch(line):
        return RollBack(_left(found[1] or ""))
    return read_answer(line)


def read_answer(line: str) -> Answer | None:
    """Read a line as an answer. An expression without a word before it needs `= 24` behind it or
    four numbers in it."""
    found = _ANSWER.fullmatch(line)
    text = found[1].strip() if found else line
    if text.lower().rstrip(".") == "no solution":
        return Answer("no solution", None, True)
    expression = _claimed(text)
    if found is None and (expression is None or ("=" not in text and len(expression.leaves) < 4)):
        return None
    return Answer(text, expression, False)


def _undressed(line: str) -> str:
    """Take bold, formulas and the words of a sentence from around a line: `The answer is $4 \\times
    6$.`"""
    line = _BOLD.sub(r"\1", line)
    for _ in range(3):
        line = _FRACTION.sub(r"((\1)/(\2))", line)
    line = _TIMES.sub("*", line).replace("\\div", "/")
    line = _WRAPPER.sub(" ", line.replace("\\left", "").replace("\\right", ""))
    line = _SENTENCE.sub("Answer: ", " ".join(line.split()))
    if found := _BOX.fullmatch(line):
        line = f"{found[1] or ''}{found[2]}{found[3] or ''}"
    return line.rstrip(". ")


def _step(found: re.Match[str]) -> Step | None:
    a = read(found[1])
    b = read(found[3])
    c = read(found[4])
    if a is None or b is None or c is None:
        return None
    listed = found[5] if found[6] is None else found[6]
    return Step(a, found[2], b, c, None if listed is None else _left(listed), listed is not None)


def _left(text: str) -> Left | None:
    """Read numbers separated by commas or spaces; `(13 - 1) = 12` is 12 with the expression it came
    from."""
    values: list[Value] = []
    cards: list[int] = []
    for item in text.split(","):
        origin, equals, written = item.rpartition("=")
        found = [read(word) for word in written.split()]
        expression = parse(origin.strip()) if equals else None
        if equals and (expression is None or found != [expression.value]):
            return None
        values += [value for value in found if value is not None]
        cards += (
            expression.leaves if expression else [value[0] for value in found if value is not None]
        )
        if None in found or len(values) > 4:
            return None
    return (
        Left(tuple(sorted(values)), tuple(sorted(cards)) if "=" in text else None)
        if values
        else None
    )


def _claimed(text: str) -> Expression | None:
    """Parse `EXPR` or `EXPR = 24`."""
    body, equals, claim = text.partition("=")
    if equals and claim.strip() != "24":
        return None
    return parse(body.strip())
