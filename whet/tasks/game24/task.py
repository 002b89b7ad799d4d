"""The 24 game: make 24 from four numbers with + - * /, each once, or say that it cannot be done."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Literal

from whet.config import Config
from whet.rng import stream
from whet.tasks.base import ConfiguredTask, StepNote, data_error
from whet.tasks.game24 import traces
from whet.tasks.game24.hands import Hand, all_hands, hand_of, is_solvable, level, split_of
from whet.tasks.game24.rules import Grade, grade
from whet.tasks.game24.traces import NO_SOLUTION, Format, Length
from whet.types import Json, Message, Problem, Score, Split, Verdict, content_id

_RULES = (
    "Play the 24 game: join the four given numbers with + - * / so that they make exactly 24. "
    "Use each number once. Write one line a step and nothing else. If the numbers cannot make 24, "
    "end with the line `no solution`."
)
_STEPS = "A step joins two of the numbers at hand and puts the result in their place."
_SEARCH = "When a branch cannot work, go back to earlier numbers with the line"
_CLOSING = "End with the line `reach 24! expression: (6 * ((13 - 1) - 8))`."
_WORDS: dict[Format, str] = {
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
    format: Format = "v0"
    """How gold responses are written, and what instructions ask for; every format is graded."""
    unsolvable: bool = False
    """Also ask hands that cannot make 24; the right answer is `no solution`."""
    instructions: bool = False
    """Explain the game in a system message; otherwise the numbers stand alone."""
    length: Length | Literal["mixed", "wide"] = "mixed"
    """How many steps gold searches show (v1 to v4): short 6 to 9, medium 10 to 13, long 14 to 17;
    mixed draws among these, wide from 6 to 99, half of them below 25."""
    depth: Literal[2, 3] = 3
    """How deep gold searches go: 2 judges two numbers at a glance instead of trying all joins."""

    def without_effect(self) -> dict[str, str]:
        reason = f'format = "{self.format}" shows no search'
        return dict.fromkeys(("length", "depth"), reason) if self.format in ("v0", "v0l") else {}


class Game24(ConfiguredTask):
    """The fixed splits of the 1,820 hands, an exact grader, and gold responses in any format."""

    name = "game24"
    is_bounded = True
    config: Game24Config

    def problems(self, split: Split) -> Iterator[Problem]:
        """List the hands of a split, each with its numbers in a fixed random order."""
        for hand in all_hands():
            if split_of(hand) == split and (self.config.unsolvable or is_solvable(hand)):
                yield self.problem(hand)

    def problem(self, hand: Hand, order: int = 0) -> Problem:
        """Ask a hand; another `order` shuffles its numbers, and the id stays the same."""
        numbers = list(hand)
        stream(order, "game24", "order", *hand).shuffle(numbers)
        question = Message(role="user", content=" ".join(str(number) for number in numbers))
        rules = Message(role="system", content=f"{_RULES} {_STEPS} {_WORDS[self.config.format]}")
        return Problem(
            id=content_id(self.name, list(hand)),
            task=self.name,
            prompt=(rules, question) if self.config.instructions else (question,),
            answer="24" if is_solvable(hand) else NO_SOLUTION,
            payload={"numbers": list(numbers), "solvable": is_solvable(hand)},
            level=level(hand),
            split=split_of(hand),
            source=self.name,
        )

    def parse_question(self, question: str) -> Problem | None:
        """Read four numbers as a hand, in the order given."""
        words = question.split()
        if len(words) != 4 or not all(map(_is_card, words)):
            return None
        numbers = [int(word) for word in words]
        problem = self.problem(hand_of(numbers))
        prompt = (*problem.prompt[:-1], Message(role="user", content=" ".join(words)))
        payload: dict[str, Json] = {**problem.payload, "numbers": [*numbers]}
        return replace(problem, prompt=prompt, payload=payload)

    def vary(self, problem: Problem, seed: int) -> Problem:
        """Ask the same hand with its numbers in another order."""
        return self.problem(hand_of(_numbers(problem)), order=seed)

    def score(self, problem: Problem, text: str) -> Score:
        """State what is right about a response.

        Parts: `correct` 0 or 1; `process`, the share of lines that are right; `length`, 1 up to
        four lines and falling after that, 0 without an answer; `lines`, their number; `finished`, 1
        where the last line is an answer.
        """
        graded = self._grade(problem, text)
        parts = {
            "correct": float(graded.verdict is Verdict.CORRECT),
            "process": graded.process,
            "length": graded.brevity,
            "lines": float(len(graded.steps)),
            "finished": float(graded.verdict is not Verdict.NO_ANSWER),
        }
        return Score(verdict=graded.verdict, parts=parts, answer=graded.answer, note=graded.note)

    def notes(self, problem: Problem, text: str) -> list[StepNote]:
        """Comment on every line of a response."""
        return list(self._grade(problem, text).steps)

    def solve(self, problem: Problem, seed: int) -> str:
        """Write a gold response in the configured format."""
        numbers = _numbers(problem)
        rng = stream(seed, "game24", "solve", *numbers)
        cfg = self.config
        budget = _budget(cfg.length, rng)
        return traces.trace(numbers, rng, format=cfg.format, budget=budget, depth=cfg.depth)

    def _grade(self, problem: Problem, text: str) -> Grade:
        return grade(_numbers(problem), text, is_solvable=problem.answer != NO_SOLUTION)


def _budget(length: Length | Literal["mixed", "wide"], rng: Random) -> int:
    if length == "wide":
        return int(traces.SHORTEST * (traces.WIDEST / traces.SHORTEST) ** rng.random())
    spans = [span for name, span in traces.BUDGETS.items() if length in (name, "mixed")]
    return rng.choice([steps for span in spans for steps in span])


def _is_card(word: str) -> bool:
    return word.isascii() and word.isdigit() and 1 <= int(word[:3]) <= 13


def _numbers(problem: Problem) -> tuple[int, ...]:
    numbers = problem.payload.get("numbers")
    if isinstance(numbers, list) and len(numbers) == 4:
        whole = tuple(number for number in numbers if type(number) is int)
        if len(whole) == 4:
            return whole
    raise data_error(problem, "four whole numbers in payload.numbers", numbers)
