"""Write a text backwards, letter by letter or word by word.

answer   the text backwards
payload  {"text": "..."}, for reading only
"""

import re
from random import Random
from typing import Literal

from whet.errors import DataError
from whet.tasks.answers import no_answer, read_final, to_score
from whet.tasks.generated import GeneratedConfig, GeneratedTask, fifth, question, split_of
from whet.tasks.logic.vocabulary import PEOPLE, VALUES
from whet.types import Problem, Score, Split

Unit = Literal["letters", "words"]

_LENGTHS: dict[Unit, tuple[tuple[int, int], ...]] = {
    "letters": ((3, 5), (6, 10), (11, 18), (19, 30), (31, 50)),
    "words": ((2, 2), (3, 4), (5, 8), (9, 14), (15, 24)),
}
"""Shortest and longest text in each fifth of difficulty, in its units."""
_POOL = sorted({*PEOPLE, *(value for values in VALUES.values() for value in values)})
_ASK: dict[Unit, str] = {
    "letters": "Write this text backwards, letter by letter: {text}\nEnd with a line of Answer: and what you get.",
    "words": "Write the words of this text in reverse order: {text}\nEnd with a line of Answer: and what you get.",
}
_QUOTES = "\"'`"
_TOLD = re.compile(r"[^\"'`]*\b(?:is|be)\b:?\s+([\"'`])(.+)\1\.?")
"""A sentence that ends in the text in quotes."""


class ReverseConfig(GeneratedConfig):
    name: Literal["reverse"] = "reverse"
    unit: Unit = "letters"
    """What is reversed: the letters, spaces included, or the order of the words."""


class Reverse(GeneratedTask):
    """Generated texts that do not read the same both ways, and a grader that wants every
    character."""

    name = "reverse"
    config: ReverseConfig

    def __init__(self, config: ReverseConfig | None = None) -> None:
        self.config = config or ReverseConfig()

    def score(self, problem: Problem, text: str) -> Score:
        """Compare character by character, outer spaces and one pair of quotes aside.

        Parts: `correct` 0 or 1; `places`, the share of places with the right character.
        """
        gold = problem.answer
        if not gold:
            raise DataError(
                f"problem {problem.id} needs the reversed text as its answer, not {gold!r}"
            )
        found = read_final(text, _unquoted)
        if found is None:
            return no_answer("places")
        told = found[1]
        right = sum(a == b for a, b in zip(told, gold, strict=False))
        note = f"{right} of {len(gold)} places are right"
        return to_score(told == gold, {"places": right / max(len(told), len(gold))}, found[0], note)

    def solve(self, problem: Problem, seed: int) -> str | None:
        return problem.answer and f"Answer: {problem.answer}"

    def draw(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        unit = self.config.unit
        low, high = _LENGTHS[unit][fifth(level)]
        text = _drawn(rng, rng.randint(low, high), unit)
        answer = text[::-1] if unit == "letters" else " ".join(text.split()[::-1])
        home = split_of(self.name, text)
        if answer.casefold() != text.casefold() and split in (None, home):
            asked = _ASK[unit].format(text=text)
            return question(
                self.name, asked, answer=answer, payload={"text": text}, level=level, split=home
            )
        return None


def _drawn(rng: Random, length: int, unit: Unit) -> str:
    if unit == "words":
        return " ".join(rng.choice(_POOL) for _ in range(length))
    text = ""
    while len(text) < length:
        text += f" {rng.choice(_POOL)}" if text else rng.choice(_POOL)
    return text[:length].strip()


def _unquoted(span: str) -> str | None:
    if "\n" in span:
        return None
    told = _TOLD.fullmatch(span)
    if told:
        return told[2]
    is_quoted = len(span) > 2 and span[0] == span[-1] and span[0] in _QUOTES
    return span[1:-1] if is_quoted else span
