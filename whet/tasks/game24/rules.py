"""The rules of the 24 game: what is wrong with each line of a response, and the verdict on all.

The format is told from the text, so every format is graded whatever was configured. The verdict
rests on the last line: an expression that uses the four numbers once each and makes 24, a step that
completes a right chain from the hand to 24, or `no solution` where there is none. Everything before
it counts for the process only, and the thinking part for nothing. Any text gives a grade.

    step       `13 - 1 = 12`; `13 - 1 = 12, left: 12 8 6`; `13 - 1 = 12 (left: 6 8 12)`;
               `(13) - (1) = 12, left: (13 - 1) = 12, 8, 6`
    roll back  `roll back, left: 13 8 6 1`; `back, left: 13 8 6 1`
    answer     `reach 24! expression: 6 * (13 - 1 - 8)`; `Answer: 6 * (13 - 1 - 8) = 24`;
               `6 * (13 - 1 - 8)`; `no solution`
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from math import exp

from whet.tasks.base import StepNote
from whet.tasks.game24.rationals import NUMBER, Expression, Value, combine, parse, read, write
from whet.text.final_answer import after_thought
from whet.types import Verdict

State = tuple[Value, ...]

MAX_CHARS = 1 << 16
"""Longer responses are not read."""
TARGET: Value = (24, 1)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    verdict: Verdict
    answer: str | None
    note: str
    steps: tuple[StepNote, ...]

    @property
    def process(self) -> float:
        """The share of lines that are right; 0 for an empty response."""
        return sum(step.ok is True for step in self.steps) / max(len(self.steps), 1)

    @property
    def brevity(self) -> float:
        """1 up to four lines, a half at 24 (the length reward of LLM4Game24); 0 unanswered."""
        if self.verdict is Verdict.NO_ANSWER:
            return 0.0
        num_lines = len(self.steps)
        return 1.0 if num_lines <= 4 else 1.0 / (1.0 + exp(min(0.2 * (num_lines - 24), 700.0)))


def grade(hand: tuple[int, ...], text: str, *, is_solvable: bool) -> Grade:
    """Grade a response to the four numbers of a hand."""
    if len(text) > MAX_CHARS:
        return _no_answer(f"a response of more than {MAX_CHARS} characters is not read")
    start = after_thought(text)
    if start is None:
        return _no_answer("the thinking part does not end")
    lines = lines_of(text[start:])
    if not lines:
        return _no_answer("the response is empty")
    contents = [read_line(line) for line in lines]
    has_roll_back = any(isinstance(content, RollBackLine) for content in contents)
    board = Board(hand, may_jump=not has_roll_back)
    steps: list[StepNote] = []
    for line, content in zip(lines[:-1], contents[:-1], strict=True):
        if isinstance(content, AnswerLine):
            steps.append(StepNote(line=line, ok=False, note="an answer before the last line"))
        else:
            steps.append(_play(board, line, content))
    return _grade_last(board, is_solvable, lines[-1], contents[-1], steps)


def _no_answer(note: str, steps: tuple[StepNote, ...] = ()) -> Grade:
    return Grade(verdict=Verdict.NO_ANSWER, answer=None, note=note, steps=steps)


def _play(board: "Board", line: str, content: StepLine | RollBackLine | None) -> StepNote:
    if content is None:
        fault = "neither a step nor a roll back nor an answer"
    elif isinstance(content, StepLine):
        fault = board.step(content)
    else:
        fault = board.roll_back(content.left)
    return StepNote(line=line, ok=not fault, note=fault or "right")


def _grade_last(
    board: "Board", is_solvable: bool, line: str, content: Line, steps: list[StepNote]
) -> Grade:
    if isinstance(content, AnswerLine):
        return _grade_answer(content, board.hand, is_solvable, line, steps)
    played = (*steps, _play(board, line, content))
    if not isinstance(content, StepLine):
        return _no_answer("the last line is not an answer", played)
    if board.is_won:
        note = "three steps from the hand to 24"
        return Grade(verdict=Verdict.CORRECT, answer=board.chain, note=note, steps=played)
    whole = read_answer(line)
    if whole and _judge_answer(whole, board.hand, is_solvable)[0]:
        return _grade_answer(whole, board.hand, is_solvable, line, steps)
    leaves_24 = content.c == TARGET and (content.left is None or len(content.left.values) == 1)
    if leaves_24 or (board.depth >= 3 and not board.has_searched):
        note = f"ends at {write(content.c)} but not by right steps from the hand to 24"
        return Grade(verdict=Verdict.WRONG, answer=board.chain, note=note, steps=played)
    return _no_answer("the last line is not an answer", played)


def _grade_answer(
    answer: AnswerLine, hand: tuple[int, ...], is_solvable: bool, line: str, steps: list[StepNote]
) -> Grade:
    is_right, note = _judge_answer(answer, hand, is_solvable)
    last = StepNote(line=line, ok=is_right, note=note)
    verdict = Verdict.CORRECT if is_right else Verdict.WRONG
    return Grade(verdict=verdict, answer=answer.text, note=note, steps=(*steps, last))


def _judge_answer(answer: AnswerLine, hand: tuple[int, ...], is_solvable: bool) -> tuple[bool, str]:
    if answer.is_no_solution:
        return not is_solvable, f"this hand has {'a' if is_solvable else 'no'} solution"
    expression = answer.expression
    if expression is None:
        return False, "the answer is not an expression that makes 24"
    if expression.leaves != hand:
        leaves = " ".join(map(str, expression.leaves))
        return False, f"uses {leaves}, not {' '.join(map(str, hand))}"
    is_right = expression.value == TARGET
    return is_right, "uses the hand and makes 24" if is_right else "does not make 24"


class Board:
    """The numbers left while a response is played; each move returns what is wrong with it, or "".

    The path holds one state per depth: four numbers, three, two, one. A state is None where the
    line that led to it was wrong; nothing that rests on it is right until a roll back returns to a
    known state.
    """

    def __init__(self, hand: tuple[int, ...], *, may_jump: bool) -> None:
        """With `may_jump` a step may start from an earlier state without a roll back, as in v1."""
        self.hand = tuple(sorted(hand))
        self._may_jump = may_jump
        self._path: list[State | None] = [tuple((card, 1) for card in self.hand)]
        self._steps: list[str] = []
        self._taken: set[tuple[State, Value, str, Value]] = set()
        self.has_searched = False

    @property
    def depth(self) -> int:
        """Count the steps from the hand to here."""
        return len(self._path) - 1

    @property
    def is_won(self) -> bool:
        return self._path[-1] == (TARGET,)

    @property
    def chain(self) -> str:
        """Write the steps from the hand to here."""
        return "; ".join(self._steps)

    def step(self, step: StepLine) -> str:
        source = self.depth
        if self._may_jump and step.left is not None and 3 - len(step.left.values) < source:
            source = max(3 - len(step.left.values), 0)
            self.has_searched = True
        before = self._path[source]
        after = None if before is None else join(before, step.a, step.symbol, step.b)
        fault = self._fault(step, before, after)
        is_true = combine(step.a, step.symbol, step.b) == step.c
        self._path[source + 1 :] = [after if is_true else None]
        self._steps[source:] = [f"{write(step.a)} {step.symbol} {write(step.b)} = {write(step.c)}"]
        return fault

    def roll_back(self, left: Left | None) -> str:
        self.has_searched = True
        if left is None:
            return "the numbers left cannot be read"
        target = 4 - len(left.values)
        if 0 <= target < self.depth and self._path[target] == left.values:
            del self._path[target + 1 :], self._steps[target:]
            return self._origin_fault(left)
        if self._path[-1] == left.values:
            return "rolls back to where it already is"
        keep = max(target, 1)
        self._path[keep:] = [None]
        del self._steps[keep:]
        return "rolls back to numbers that were not on this path"

    def _fault(self, step: StepLine, before: State | None, after: State | None) -> str:
        truth = combine(step.a, step.symbol, step.b)
        if truth != step.c:
            value = "undefined" if truth is None else write(truth)
            equation = f"{write(step.a)} {step.symbol} {write(step.b)} is {value}"
            return f"false arithmetic: {equation}, not {write(step.c)}"
        if before is None:
            return "rests on a wrong line"
        if after is None:
            return f"{write(step.a)} and {write(step.b)} are not both among {_list(before)}"
        move = (before, step.a, step.symbol, step.b)
        if move in self._taken:
            return "repeats an earlier step from the same numbers"
        self._taken.add(move)
        if step.has_left and (step.left is None or step.left.values != after):
            return f"left should be {_list(after)}"
        return self._origin_fault(step.left)

    def _origin_fault(self, left: Left | None) -> str:
        if left is None or left.cards is None or left.cards == self.hand:
            return ""
        return "the expressions left do not use the four numbers once each"


@lru_cache(1 << 16)
def join(before: State, a: Value, symbol: str, b: Value) -> State | None:
    """Put the result of a step in place of its operands; None where they are missing."""
    result = combine(a, symbol, b)
    rest = list(before)
    if result is None or a not in rest:
        return None
    rest.remove(a)
    if b not in rest:
        return None
    rest.remove(b)
    return tuple(sorted([*rest, result]))


def _list(state: State) -> str:
    return " ".join(write(value) for value in state)


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
