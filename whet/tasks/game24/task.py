"""The 24 game: make 24 from four numbers with + - * /, each once, or say that it cannot be done.

The grader detects the format, so every format is graded, whichever is configured. The verdict
depends on the last line: an expression that uses the four numbers once each and makes 24, a step
that completes a valid chain from the hand to 24, or `no solution` if there is none. Earlier lines
only affect `process` and `progress`, and the thinking part does not count.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Literal

from pydantic import Field

from whet.answers.doubt import cut_remarks, is_denied
from whet.answers.final_answer import decided_text, find_thought_end
from whet.config import Config
from whet.errors import DataError
from whet.rng import make_rng
from whet.tasks.base import ConfiguredTask, LineNote, check_split, data_error
from whet.tasks.expressions import (
    TARGET,
    State,
    Value,
    can_reach,
    combine,
    join,
    write_value,
)
from whet.tasks.game24 import traces
from whet.tasks.game24.hands import HIGHEST_CARD, Hand, rated_hands, winning_plays
from whet.tasks.game24.lines import (
    AnswerLine,
    Left,
    Line,
    RollBackLine,
    StepLine,
    lines_of,
    read_answer_line,
    read_lines,
    without_checks,
    write_no_solution,
    write_object,
)
from whet.tasks.game24.traces import NO_SOLUTION, Length, TraceFormat
from whet.types import Json, Message, Problem, Score, Split, Verdict, content_id

MAX_CHARS = 1 << 16
"""Longer responses are not read."""
_RULES = (
    "Play the 24 game: join the four given numbers with + - * / so that they make exactly 24. "
    "Use each number once. Write one step per line and nothing else. If the numbers cannot make "
    "24, end with the line `no solution`. A step joins two of the remaining numbers and puts the "
    "result in their place."
)
_SEARCH = "When a branch cannot work, go back to earlier numbers with the line"
_CLOSING = "End with the line `reach 24! expression: (6 * ((13 - 1) - 8))`."
_WORDS: dict[TraceFormat, str] = {
    "v0": "For 13 8 6 1 the three lines are `13 - 1 = 12`, `12 - 8 = 4` and `6 * 4 = 24`.",
    "v0l": "List the numbers left after each step. For 13 8 6 1 the first line may be "
    "`13 - 1 = 12, left: 12 8 6` and the third is `6 * 4 = 24, left: 24`.",
    "v1": f"For 13 8 6 1 a line may be `(13) - (1) = 12, left: 12, 8, 6`. {_CLOSING}",
    "v2": "For 13 8 6 1 a line may be `(13) - (1) = 12, left: 12, 8, 6`. "
    f"{_SEARCH} `roll back, left: 13 8 6 1`. {_CLOSING}",
    "v3": "For 13 8 6 1 a line may be `(13) - (1) = 12, left: (13 - 1) = 12, 8, 6`. "
    f"{_SEARCH} `roll back, left: 13 8 6 1`. {_CLOSING}",
    "v4": "List the numbers left in rising order. For 13 8 6 1 a line may be "
    f"`13 - 1 = 12, left: 6 8 12`. {_SEARCH} `back, left: 1 6 8 13`. "
    "Stop after the line that leaves 24 alone.",
}


class Game24Config(Config):
    name: Literal["game24"] = "game24"
    format: TraceFormat = "v0"
    """The format of gold responses, which instructions ask for; every format is graded."""
    unsolvable: bool = False
    """Include hands that cannot make 24; the right answer is then `no solution`."""
    instructions: bool = False
    """Explain the game in a system message; otherwise the prompt is the numbers alone."""
    length: Length | Literal["mixed", "wide"] = "mixed"
    """How many steps gold searches show (v1 to v4): short 6 to 9, medium 10 to 13, long 14 to 17;
    mixed draws among these, wide from 6 to 99, half of them below 25."""
    depth: Literal[2, 3] = 3
    """How deep gold searches go: 2 judges two numbers at once, without trying their operations."""
    highest_card: int = Field(default=HIGHEST_CARD, ge=HIGHEST_CARD, le=24)
    """If above 13, searches (v1 to v4) also train on hands with cards up to this; dev and test
    hands stay the same."""

    def without_effect(self) -> dict[str, str]:
        reason = f'format = "{self.format}" shows no search'
        of_searches = ("length", "depth", "highest_card")
        return dict.fromkeys(of_searches, reason) if self.format in ("v0", "v0l") else {}


class Game24(ConfiguredTask):
    """The fixed splits of the 1,820 hands, an exact grader, and gold responses in any format."""

    name = "game24"
    is_bounded = True
    has_one_answer = False
    config: Game24Config

    def problems(self, split: Split) -> Iterator[Problem]:
        """List the hands of a split, each with its numbers in a fixed random order."""
        check_split(split)
        for hand, rating in rated_hands(self.config.highest_card).items():
            if rating.split == split and (self.config.unsolvable or rating.level is not None):
                yield self.problem(hand)

    def problem(self, hand: Hand, order: int = 0) -> Problem:
        """Make the problem of a hand; another `order` shuffles its numbers but keeps the id."""
        numbers = list(hand)
        make_rng(order, "game24", "order", *hand).shuffle(numbers)
        question = Message(role="user", content=" ".join(str(number) for number in numbers))
        rules = Message(role="system", content=f"{_RULES} {_WORDS[self.config.format]}")
        level, split = rated_hands(self.config.highest_card)[hand]
        is_solvable = level is not None
        return Problem(
            id=content_id(self.name, list(hand)),
            task=self.name,
            prompt=(rules, question) if self.config.instructions else (question,),
            answer="24" if is_solvable else NO_SOLUTION,
            payload={"numbers": list(numbers), "solvable": is_solvable},
            level=level,
            split=split,
            source=self.name,
        )

    def parse_question(self, question: str) -> Problem | None:
        """Read four numbers as a hand, in the order given."""
        words = question.split()
        if len(words) != 4 or not all(_is_card(word, self.config.highest_card) for word in words):
            return None
        numbers = [int(word) for word in words]
        problem = self.problem(self._hand(numbers))
        prompt = (*problem.prompt[:-1], Message(role="user", content=" ".join(words)))
        payload: dict[str, Json] = {**problem.payload, "numbers": [*numbers]}
        return replace(problem, prompt=prompt, payload=payload)

    def vary(self, problem: Problem, seed: int) -> Problem:
        """Make the same problem with its numbers in another order."""
        return self.problem(self._hand(_numbers(problem)), order=seed)

    def score(self, problem: Problem, text: str) -> Score:
        """Grade a response.

        Parts: `correct` 0 or 1; `process`, the fraction of lines that are right, even if not
        needed; `progress`, the fraction of the three steps that are made and leave 24 within reach,
        1 if the answer is right; `length`, 1 up to four lines, then falling, 0 without an answer;
        `lines`, their number; `finished`, 1 if it ends in an answer.
        """
        graded = self._grade(problem, text)
        parts = {
            "correct": float(graded.verdict is Verdict.CORRECT),
            "process": graded.process,
            "progress": 1.0 if graded.verdict is Verdict.CORRECT else graded.progress,
            "length": graded.brevity,
            "lines": float(len(graded.steps)),
            "finished": float(graded.verdict is not Verdict.NO_ANSWER),
        }
        return Score(verdict=graded.verdict, parts=parts, answer=graded.answer, note=graded.note)

    def comment(self, problem: Problem, text: str) -> list[LineNote]:
        """Comment on every line of a response."""
        return list(self._grade(problem, text).steps)

    def solve(self, problem: Problem, seed: int) -> str:
        """Write a gold response in the configured format."""
        cfg = self.config
        numbers = _numbers(problem)
        plays = winning_plays(cfg.highest_card)[self._hand(numbers)]
        rng = make_rng(seed, "game24", "solve", *numbers)
        budget = traces.draw_budget(cfg.length, rng)
        return traces.trace(numbers, plays, rng, format=cfg.format, budget=budget, depth=cfg.depth)

    def _hand(self, numbers: Sequence[int]) -> Hand:
        """Sort four numbers into a hand; raise a DataError for anything else."""
        top = self.config.highest_card
        hand = tuple(sorted(numbers))
        if hand not in rated_hands(top):
            raise DataError(f"a hand is four whole numbers from 1 to {top}, not {list(numbers)}")
        return hand

    def _grade(self, problem: Problem, text: str) -> "Grade":
        hand = _numbers(problem)
        is_solvable = can_reach(tuple(sorted((card, 1) for card in hand)))
        return grade_hand(hand, text, is_solvable=is_solvable)


def _is_card(word: str, highest_card: int) -> bool:
    return word.isascii() and word.isdigit() and 1 <= int(word[:3]) <= highest_card


def _numbers(problem: Problem) -> tuple[int, ...]:
    numbers = problem.payload.get("numbers")
    if isinstance(numbers, list) and len(numbers) == 4:
        whole = tuple(number for number in numbers if type(number) is int)
        if len(whole) == 4:
            return whole
    raise data_error(problem, "four whole numbers in payload.numbers", numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    verdict: Verdict
    answer: str | None
    note: str
    steps: tuple[LineNote, ...]
    progress: float = 0.0

    @property
    def process(self) -> float:
        """The fraction of lines that are right; 0 for an empty response."""
        return sum(step.is_right is True for step in self.steps) / max(len(self.steps), 1)

    @property
    def brevity(self) -> float:
        """1 up to four lines, a half at 24 (LLM4Game24's length reward); 0 without an answer."""
        if self.verdict is Verdict.NO_ANSWER:
            return 0.0
        num_lines = len(self.steps)
        return 1.0 if num_lines <= 4 else 1.0 / (1.0 + exp(min(0.2 * (num_lines - 24), 700.0)))


def grade_hand(hand: tuple[int, ...], text: str, *, is_solvable: bool) -> Grade:
    """Grade a response to the four numbers of a hand."""
    if len(text) > MAX_CHARS:
        return _no_answer(f"a response of more than {MAX_CHARS} characters is not read")
    if find_thought_end(text) is None:
        return _no_answer("the thinking part does not end")
    shown = decided_text(write_no_solution(text))
    if shown is None:
        return _no_answer("the response does not settle on an answer")
    lines = without_checks(lines_of(write_object(cut_remarks(shown))))
    if not lines:
        return _no_answer("the response is empty")
    above = "\n".join([*lines[-2:-1], ""])
    if is_denied(above + lines[-1], len(above), len(above + lines[-1])):
        return _no_answer("the last line is not claimed")
    contents = read_lines(lines)
    has_roll_back = any(isinstance(content, RollBackLine) for content in contents)
    board = Board(hand, may_jump=not has_roll_back)
    steps = [_play(board, *pair) for pair in zip(lines[:-1], contents[:-1], strict=True)]
    graded = _grade_last(board, is_solvable, lines[-1], contents[-1], steps)
    return replace(graded, progress=board.progress)


def _no_answer(note: str, steps: tuple[LineNote, ...] = ()) -> Grade:
    return Grade(verdict=Verdict.NO_ANSWER, answer=None, note=note, steps=steps)


def _play(board: "Board", line: str, content: Line) -> LineNote:
    if content is None:
        fault = "neither a step nor a roll back nor an answer"
    elif isinstance(content, AnswerLine):
        fault = "an answer before the last line"
    elif isinstance(content, StepLine):
        fault = board.step(content)
    else:
        fault = board.roll_back(content.left)
    return LineNote(line=line, is_right=not fault, note=fault or "right")


def _grade_last(
    board: "Board", is_solvable: bool, line: str, content: Line, steps: list[LineNote]
) -> Grade:
    if isinstance(content, AnswerLine):
        return _grade_answer(content, board.hand, is_solvable, line, steps)
    played = (*steps, _play(board, line, content))
    if not isinstance(content, StepLine):
        return _no_answer("the last line is not an answer", played)
    if board.is_won:
        note = "three steps from the hand to 24"
        return Grade(verdict=Verdict.CORRECT, answer=board.chain, note=note, steps=played)
    whole = read_answer_line(line)
    if whole and _judge_answer(whole, board.hand, is_solvable)[0]:
        return _grade_answer(whole, board.hand, is_solvable, line, steps)
    leaves_24 = content.c == TARGET and (content.left is None or len(content.left.values) == 1)
    if leaves_24 or (board.depth >= 3 and not board.has_searched):
        note = f"ends at {write_value(content.c)} but not by right steps from the hand to 24"
        return Grade(verdict=Verdict.WRONG, answer=board.chain, note=note, steps=played)
    return _no_answer("the last line is not an answer", played)


def _grade_answer(
    answer: AnswerLine, hand: tuple[int, ...], is_solvable: bool, line: str, steps: list[LineNote]
) -> Grade:
    is_right, note = _judge_answer(answer, hand, is_solvable)
    last = LineNote(line=line, is_right=is_right, note=note)
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
    """The numbers left while a response is played; each move returns its fault, or "".

    The path has one state per depth: four numbers, three, two, one. A state is None if the line
    that led to it was wrong; nothing that depends on it is right until a roll back to a known
    state.
    """

    def __init__(self, hand: tuple[int, ...], *, may_jump: bool) -> None:
        """With `may_jump`, a step may start from an earlier state without a roll back, as in v1."""
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
    def progress(self) -> float:
        """The fraction of the three steps that are made and leave 24 within reach."""
        return sum(state is not None and can_reach(state) for state in self._path[1:4]) / 3

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
        self._steps[source:] = [str(step)]
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
            value = "undefined" if truth is None else write_value(truth)
            equation = f"{write_value(step.a)} {step.symbol} {write_value(step.b)} is {value}"
            return f"false arithmetic: {equation}, not {write_value(step.c)}"
        if before is None:
            return "rests on a wrong line"
        if after is None:
            a, b = write_value(step.a), write_value(step.b)
            return f"{a} and {b} are not both among {_list(before)}"
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


def _list(state: State) -> str:
    return " ".join(write_value(value) for value in state)
