"""Last letters: join the last letter of each word. Every step has a gold one, for verifiers that
judge step by step.

answer   the letters, joined payload  {"words": [...], "steps": [...]}: the gold steps are for
verifiers, the grader needs the words only
"""

import re
from collections.abc import Sequence
from random import Random
from typing import Literal

from whet.errors import DataError
from whet.tasks.answers import no_answer, read_final, to_score
from whet.tasks.base import StepNote
from whet.tasks.generated import GeneratedConfig, GeneratedTask, fifth, question, split_of
from whet.tasks.logic.vocabulary import PEOPLE, VALUES
from whet.types import Json, Problem, Score, Split

_SIZES = ((2, 2), (3, 4), (5, 7), (8, 12), (13, 20))
"""Fewest and most words in each fifth of difficulty."""
_POOL = sorted({*PEOPLE, *(value for values in VALUES.values() for value in values)})
_ASK = (
    "Take the last letter of each word and join them in order: {words}\n"
    'Write one line a word, such as: The last letter of "ABC" is "C". End with a line of Answer: and the letters.'
)
_STEP = re.compile(
    r'the last letter of "?([^\s"]{1,60}?)"? is "?([^\s"]{1,60}?)"?\.?', re.IGNORECASE
)
_TEXT = re.compile(r"\\(?:text|textbf|mathrm|texttt)\{([^{}]{1,1000})\}")
_LEAD = re.compile(r"(?:<step>|\d{1,3}[.)] |\(\d{1,3}\) |[-*] )")


class LastLetterConfig(GeneratedConfig):
    name: Literal["last_letter"] = "last_letter"
    layout: Literal["lines", "steps"] = "lines"
    """How gold responses are written: plain lines, or the steps in tags as RL-Tango's verifiers
    read them."""


class LastLetter(GeneratedTask):
    """Generated word lists, an exact grader, gold steps, and a word on every step."""

    name = "last_letter"
    config: LastLetterConfig

    def __init__(self, config: LastLetterConfig | None = None) -> None:
        self.config = config or LastLetterConfig()

    def score(self, problem: Problem, text: str) -> Score:
        """Compare the letters, case aside.

        Parts: `correct` 0 or 1; `steps`, the share of words with a right step of their own, a wrong
        step counting against it.
        """
        words = _words(problem)
        gold = "".join(word[-1] for word in words).casefold()
        steps = _steps_right(words, self.notes(problem, text))
        found = read_final(text, _letters)
        if found is None:
            score = no_answer()
            return Score(
                verdict=score.verdict, parts={**score.parts, "steps": steps}, note=score.note
            )
        note = (
            "the letters are right"
            if found[1] == gold
            else f"not the last letters of the {len(words)} words"
        )
        return to_score(found[1] == gold, {"steps": steps}, found[0], note)

    def solve(self, problem: Problem, seed: int) -> str:
        """Write the gold steps and the letters, in the layout of the settings."""
        steps = steps_of(_words(problem))
        letters = "".join(word[-1] for word in _words(problem))
        if self.config.layout == "lines":
            return "\n".join((*steps, f"Answer: {letters}"))
        tagged = "\n".join(f"<step>{step}</step>" for step in steps)
        return f"<think>\n{tagged}\n</think>\n<answer>\\boxed{{{letters}}}</answer>"

    def notes(self, problem: Problem, text: str) -> Sequence[StepNote]:
        """Judge every line that states a last letter; other lines have no word on them."""
        words = {word.casefold() for word in _words(problem)}
        return [_note(line, words) for line in text[: 1 << 16].splitlines() if line.strip()]

    def draw(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        words = rng.sample(_POOL, rng.randint(*_SIZES[fifth(level)]))
        home = split_of(self.name, list(words))
        if split in (None, home):
            asked = _ASK.format(words=" ".join(words))
            answer = "".join(word[-1] for word in words)
            payload: dict[str, Json] = {"words": list(words), "steps": [*steps_of(words)]}
            return question(
                self.name, asked, answer=answer, payload=payload, level=level, split=home
            )
        return None


def steps_of(words: Sequence[str]) -> list[str]:
    """Write the gold steps.

    >>> steps_of(["Ada"])
    ['The last letter of "Ada" is "a".']
    """
    return [f'The last letter of "{word}" is "{word[-1]}".' for word in words]


def _note(line: str, words: set[str]) -> StepNote:
    told = _LEAD.sub("", line.strip().removesuffix("</step>"), count=1)
    found = _STEP.fullmatch(told) if len(line) < 200 else None
    if not found:
        return StepNote(line=line, ok=None, note="")
    word = found[1].casefold()
    letter = found[2].casefold()
    if word not in words:
        return StepNote(line=line, ok=False, note=f"{found[1]} is not one of the words")
    is_right = letter == word[-1]
    return StepNote(
        line=line,
        ok=is_right,
        note="right" if is_right else f"the last letter of {found[1]} is {word[-1]}",
    )


def _steps_right(words: Sequence[str], notes: Sequence[StepNote]) -> float:
    right = sum(note.ok is True for note in notes)
    wrong = sum(note.ok is False for note in notes)
    return min(right, len(words)) / max(len(words), right + wrong)


def _letters(span: str) -> str | None:
    wrapped = _TEXT.fullmatch(span.strip())
    letters = (
        (wrapped[1] if wrapped else span).strip().strip("\"'`*").removesuffix(".").strip("\"'`*")
    )
    return letters.casefold() if letters.isalpha() and len(letters) <= 1000 else None


def _words(problem: Problem) -> list[str]:
    words = problem.payload.get("words")
    if isinstance(words, list):
        known = [word for word in words if isinstance(word, str) and word]
        if known and len(known) == len(words):
            return known
    raise DataError(f"problem {problem.id} needs a list of words in payload.words, not {words!r}")
