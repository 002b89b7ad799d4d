"""Write a text backwards, letter by letter or word by word.

answer   the text backwards
payload  {"text": "..."}, for reading only
"""

import re
from random import Random
from typing import Literal

from whet.tasks.answers import no_answer, read_final, to_score
from whet.tasks.base import data_error
from whet.tasks.generated import GeneratedConfig, GeneratedTask, fifth
from whet.tasks.logic.vocabulary import PEOPLE, VALUES
from whet.types import Json, Problem, Score, Split

Unit = Literal["letters", "words"]

_LENGTHS: dict[Unit, tuple[tuple[int, int], ...]] = {
    "letters": ((3, 5), (6, 10), (11, 18), (19, 30), (31, 50)),
    "words": ((2, 2), (3, 4), (5, 8), (9, 14), (15, 24)),
}
"""Shortest and longest text in each fifth of difficulty, in its units."""
_POOL = sorted({*PEOPLE, *(value for values in VALUES.values() for value in values)})
_ASK: dict[Unit, str] = {
    "letters": "Write this text backwards, letter by letter: {text}\n",
    "words": "Write the words of this text in reverse order: {text}\n",
}
_ASK_END = "End with a line of Answer: and what you get."
_QUOTES = "\"'`"
_QUOTED_END = re.compile(r"[^\"'`]*\b(?:is|be)\b:?\s+([\"'`])(.+)\1\.?")
"""A sentence that ends in the text in quotes."""


class ReverseConfig(GeneratedConfig):
    name: Literal["reverse"] = "reverse"
    unit: Unit = "letters"
    """What is reversed: the letters, spaces included, or the order of the words."""


class Reverse(GeneratedTask):
    """Generated texts that do not read the same both ways, compared character by character."""

    name = "reverse"
    config: ReverseConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Compare character by character, outer spaces and one pair of quotes aside.

        Parts: `correct` 0 or 1; `places`, the share of positions with the right character.
        """
        gold = problem.answer
        if not gold:
            raise data_error(problem, "the reversed text as its answer", gold)
        answer = read_final(text, _unquote)
        if answer is None:
            return no_answer("places")
        span, reversed_text = answer
        num_right = sum(a == b for a, b in zip(reversed_text, gold, strict=False))
        parts = {"places": num_right / max(len(reversed_text), len(gold))}
        note = f"{num_right} of {len(gold)} places are right"
        return to_score(reversed_text == gold, parts, span, note)

    def solve(self, problem: Problem, seed: int) -> str | None:
        return problem.answer and f"Answer: {problem.answer}"

    def draw(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        unit = self.config.unit
        low, high = _LENGTHS[unit][fifth(level)]
        text = _draw_text(rng, rng.randint(low, high), unit)
        answer = text[::-1] if unit == "letters" else " ".join(text.split()[::-1])
        if answer.casefold() == text.casefold():
            return None
        asked = _ASK[unit].format(text=text) + _ASK_END
        payload: dict[str, Json] = {"text": text}
        return self.make_problem(asked, answer, payload, level, core=text)


def _draw_text(rng: Random, length: int, unit: Unit) -> str:
    if unit == "words":
        return " ".join(rng.choice(_POOL) for _ in range(length))
    text = ""
    while len(text) < length:
        text += f" {rng.choice(_POOL)}" if text else rng.choice(_POOL)
    return text[:length].strip()


def _unquote(span: str) -> str | None:
    if "\n" in span:
        return None
    if match := _QUOTED_END.fullmatch(span):
        return match[2]
    is_quoted = len(span) > 2 and span[0] == span[-1] and span[0] in _QUOTES
    return span[1:-1] if is_quoted else span
