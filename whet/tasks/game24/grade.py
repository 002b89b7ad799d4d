"""Grade a response to a hand: the verdict by exact rules, and a word on every line. Any text gives
a grade.

The format is told from the text, so every format grades whatever was configured. The verdict rests
on the last line: an expression that uses the four numbers once each and makes 24, a step that
completes a right chain from the hand to 24, or `no solution` where there is none. Everything before
it counts for the process only, and the thinking part for nothing.
"""

from dataclasses import dataclass
from math import exp

from whet.tasks.base import StepNote
from whet.tasks.game24.board import TARGET, Board
from whet.tasks.game24.reading import Answer, Line, RollBack, Step, lines_of, read_answer, read_line
from whet.tasks.game24.values import write
from whet.text.final_answer import after_thought
from whet.types import Verdict

MAX_CHARS = 1 << 16
"""Longer responses are not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    verdict: Verdict
    answer: str | None
    note: str
    steps: tuple[StepNote, ...]

    @property
    def process(self) -> float:
        """The share of lines that are right; 0 for an empty response."""
        return sum(step.ok is True for step in self.steps) / len(self.steps) if self.steps else 0.0

    @property
    def brevity(self) -> float:
        """1 up to four lines, then falling to a half at 24 (the length reward of LLM4Game24); 0
        without an answer."""
        if self.verdict is Verdict.NO_ANSWER:
            return 0.0
        num_lines = len(self.steps)
        return 1.0 if num_lines <= 4 else 1.0 / (1.0 + exp(min(0.2 * (num_lines - 24), 700.0)))


def grade(hand: tuple[int, ...], text: str, *, is_solvable: bool) -> Grade:
    """Grade a response to the four numbers of a hand."""
    if len(text) > MAX_CHARS:
        note = f"a response of more than {MAX_CHARS} characters is not read"
        return Grade(verdict=Verdict.NO_ANSWER, answer=None, note=note, steps=())
    start = after_thought(text)
    if start is None:
        return Grade(
            verdict=Verdict.NO_ANSWER, answer=None, note="the thinking part does not end", steps=()
        )
    lines = lines_of(text[start:])
    read = [read_line(line) for line in lines]
    board = Board(hand, may_jump=not any(isinstance(line, RollBack) for line in read))
    steps = [
        _before_last(board, line, content)
        for line, content in zip(lines[:-1], read[:-1], strict=True)
    ]
    if not lines:
        return Grade(verdict=Verdict.NO_ANSWER, answer=None, note="the response is empty", steps=())
    return _last(board, tuple(sorted(hand)), is_solvable, lines[-1], read[-1], steps)


def _before_last(board: Board, line: str, content: Line) -> StepNote:
    if isinstance(content, Answer):
        return StepNote(line=line, ok=False, note="an answer before the last line")
    return _moved(board, line, content)


def _moved(board: Board, line: str, content: Step | RollBack | None) -> StepNote:
    if content is None:
        fault = "neither a step nor a roll back nor an answer"
    elif isinstance(content, Step):
        fault = board.step(content)
    else:
        fault = board.roll_back(content.left)
    return StepNote(line=line, ok=not fault, note=fault or "right")


def _last(
    board: Board,
    hand: tuple[int, ...],
    is_solvable: bool,
    line: str,
    content: Line,
    steps: list[StepNote],
) -> Grade:
    if isinstance(content, Answer):
        return _answered(content, hand, is_solvable, line, steps)
    moved = _moved(board, line, content)
    if board.is_won and isinstance(content, Step):
        note = "three steps from the hand to 24"
        return Grade(verdict=Verdict.CORRECT, answer=board.chain, note=note, steps=(*steps, moved))
    if isinstance(content, Step):
        whole = read_answer(line)
        if whole and _is_right(whole, hand):
            return _answered(whole, hand, is_solvable, line, steps)
        if _claims(board, content):
            note = f"ends at {write(content.c)} but not by right steps from the hand to 24"
            return Grade(
                verdict=Verdict.WRONG, answer=board.chain, note=note, steps=(*steps, moved)
            )
    return Grade(
        verdict=Verdict.NO_ANSWER,
        answer=None,
        note="the last line is not an answer",
        steps=(*steps, moved),
    )


def _claims(board: Board, step: Step) -> bool:
    """A last step is an answer when it says 24 and that nothing else is left, or ends a chain
    without search."""
    if step.c == TARGET and (step.left is None or len(step.left.values) == 1):
        return True
    return board.depth >= 3 and not board.has_searched


def _answered(
    answer: Answer, hand: tuple[int, ...], is_solvable: bool, line: str, steps: list[StepNote]
) -> Grade:
    if answer.is_no_solution:
        right = not is_solvable
        note = "this hand has no solution" if not is_solvable else "this hand has a solution"
    else:
        right = _is_right(answer, hand)
        note = _expression_note(answer, hand)
    last = StepNote(line=line, ok=right, note=note)
    verdict = Verdict.CORRECT if right else Verdict.WRONG
    return Grade(verdict=verdict, answer=answer.text, note=note, steps=(*steps, last))


def _is_right(answer: Answer, hand: tuple[int, ...]) -> bool:
    expression = answer.expression
    return expression is not None and expression.value == TARGET and expression.leaves == hand


def _expression_note(answer: Answer, hand: tuple[int, ...]) -> str:
    expression = answer.expression
    if expression is None:
        return "the answer is not an expression that makes 24"
    if expression.leaves != hand:
        return f"uses {' '.join(map(str, expression.leaves))}, not {' '.join(map(str, hand))}"
    return "uses the hand and makes 24" if expression.value == TARGET else "does not make 24"
