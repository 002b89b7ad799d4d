"""The rules of the 24 game: what is wrong with each line of a response, and the verdict on all.

The format is told from the text, so every format is graded whatever was configured. The verdict
rests on the last line: an expression that uses the four numbers once each and makes 24, a step that
completes a right chain from the hand to 24, or `no solution` where there is none. Everything before
it counts for the process only, and the thinking part for nothing. Any text gives a grade.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import exp

from whet.tasks.base import StepNote
from whet.tasks.game24.lines import (
    AnswerLine,
    Left,
    Line,
    RollBackLine,
    StepLine,
    lines_of,
    read_answer,
    read_line,
)
from whet.tasks.game24.rationals import Value, combine, write
from whet.text.final_answer import after_thought
from whet.types import Verdict

State = tuple[Value, ...]

MAX_CHARS = 1 << 16
"""Longer responses are not read."""
TARGET: Value = (24, 1)


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
    if whole and _is_right(whole, board.hand):
        return _grade_answer(whole, board.hand, is_solvable, line, steps)
    if _claims(board, content):
        note = f"ends at {write(content.c)} but not by right steps from the hand to 24"
        return Grade(verdict=Verdict.WRONG, answer=board.chain, note=note, steps=played)
    return _no_answer("the last line is not an answer", played)


def _claims(board: "Board", step: StepLine) -> bool:
    """Take a last step for an answer if it leaves 24 alone, or ends a chain without search."""
    if step.c == TARGET and (step.left is None or len(step.left.values) == 1):
        return True
    return board.depth >= 3 and not board.has_searched


def _grade_answer(
    answer: AnswerLine, hand: tuple[int, ...], is_solvable: bool, line: str, steps: list[StepNote]
) -> Grade:
    if answer.is_no_solution:
        is_right = not is_solvable
        note = "this hand has no solution" if is_right else "this hand has a solution"
    else:
        is_right = _is_right(answer, hand)
        note = _expression_note(answer, hand)
    last = StepNote(line=line, ok=is_right, note=note)
    verdict = Verdict.CORRECT if is_right else Verdict.WRONG
    return Grade(verdict=verdict, answer=answer.text, note=note, steps=(*steps, last))


def _is_right(answer: AnswerLine, hand: tuple[int, ...]) -> bool:
    expression = answer.expression
    return expression is not None and expression.value == TARGET and expression.leaves == hand


def _expression_note(answer: AnswerLine, hand: tuple[int, ...]) -> str:
    expression = answer.expression
    if expression is None:
        return "the answer is not an expression that makes 24"
    if expression.leaves != hand:
        return f"uses {' '.join(map(str, expression.leaves))}, not {' '.join(map(str, hand))}"
    return "uses the hand and makes 24" if expression.value == TARGET else "does not make 24"


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
