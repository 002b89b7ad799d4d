"""Letters and words: join the last letter of each word, or write a text backwards.

`last_letter`, with gold steps for verifiers answer the letters, joined payload {"words": [...],
"steps": [...]}; the grader needs only the words

`reverse`, letter by letter or word by word answer the text backwards payload {"text": "..."}, only
for reading
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Literal

from whet.answers.doubt import strip_lead
from whet.answers.final_answer import decided_text
from whet.answers.pieces import read_stated
from whet.answers.sentences import text_after_label, text_after_verb
from whet.level_bands import level_band
from whet.tasks.answers import no_answer, read_final, to_score
from whet.tasks.base import LineNote, data_error
from whet.tasks.generated import GeneratedConfig, GeneratedTask
from whet.tasks.logic.vocabulary import PEOPLE, VALUES
from whet.types import Json, Problem, Score, Split

_Unit = Literal["letters", "words"]

_POOL = sorted({*PEOPLE, *(value for values in VALUES.values() for value in values)})

_SIZES = ((2, 2), (3, 4), (5, 7), (8, 12), (13, 20))
"""Fewest and most words in each fifth of difficulty."""
_ASK = (
    "Take the last letter of each word and join them in order: {words}\n"
    'Write one line a word, such as: The last letter of "ABC" is "C". '
    "End with a line of Answer: and the letters."
)
_STEP = re.compile(
    r'the last letter of "?([^\s"]{1,60}?)"? is "?([^\s"]{1,60}?)"?\.?', re.IGNORECASE
)
_EQUALS = re.compile(r"=>|->|[=→]")
_BETWEEN_LETTERS = re.compile(r"[\s+,&\"'`*-]")
_LEAD = re.compile(r"(?:<step>|\d{1,3}[.)] |\(\d{1,3}\) |[-*] )")


class LastLetterConfig(GeneratedConfig):
    name: Literal["last_letter"] = "last_letter"
    layout: Literal["lines", "steps"] = "lines"
    """How to write gold responses: plain lines, or steps in tags, for RL-Tango's verifiers."""


class LastLetter(GeneratedTask):
    """Generated word lists, an exact grader, gold steps, and a comment on every step."""

    name = "last_letter"
    config: LastLetterConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Compare the letters, ignoring case.

        Parts: `correct` 0 or 1; `steps`, the fraction of words with a right step of their own;
        wrong and repeated steps count against it.
        """
        words = _words(problem)
        gold = "".join(word[-1] for word in words).casefold()
        steps = _steps_right(words, text)
        answer = read_final(text, _letters)
        if answer is None and (shown := decided_text(text)):
            answer = read_stated(shown, lambda piece: _letters_of_size(piece, len(words)))
        if answer is None:
            return replace(no_answer(), parts={"correct": 0.0, "steps": steps})
        is_right = answer[1] == gold
        note = f"not the last letters of the {len(words)} words"
        note = "the letters are right" if is_right else note
        return to_score(is_right, {"steps": steps}, answer[0], note)

    def solve(self, problem: Problem, seed: int) -> str:
        """Write the gold steps and the letters, in the configured layout."""
        steps = write_gold_steps(_words(problem))
        letters = "".join(word[-1] for word in _words(problem))
        if self.config.layout == "lines":
            return "\n".join((*steps, f"Answer: {letters}"))
        tagged = "\n".join(f"<step>{step}</step>" for step in steps)
        return f"<think>\n{tagged}\n</think>\n<answer>\\boxed{{{letters}}}</answer>"

    def comment(self, problem: Problem, text: str) -> Sequence[LineNote]:
        """Judge every line that states a last letter; other lines have no comment."""
        words = {word.casefold() for word in _words(problem)}
        return [_note(line, words) for line in _lines(text)]

    def draw(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        words = rng.sample(_POOL, rng.randint(*_SIZES[level_band(level)]))
        asked = _ASK.format(words=" ".join(words))
        answer = "".join(word[-1] for word in words)
        payload: dict[str, Json] = {"words": list(words), "steps": [*write_gold_steps(words)]}
        return self.make_problem(asked, answer, payload, level, core=list(words))


def write_gold_steps(words: Sequence[str]) -> list[str]:
    """Write the gold steps.

    >>> write_gold_steps(["Ada"])
    ['The last letter of "Ada" is "a".']
    """
    return [f'The last letter of "{word}" is "{word[-1]}".' for word in words]


def _lines(text: str) -> list[str]:
    return [line for line in text[: 1 << 16].splitlines() if line.strip()]


def _read_step(line: str) -> tuple[str, str] | None:
    """Read the word and the letter that a line states."""
    step = _LEAD.sub("", line.strip().removesuffix("</step>"), count=1)
    match = _STEP.fullmatch(step) if len(line) < 200 else None
    return (match[1], match[2].casefold()) if match else None


def _note(line: str, words: set[str]) -> LineNote:
    step = _read_step(line)
    if step is None:
        return LineNote(line=line, is_right=None, note="")
    word, letter = step
    last = word.casefold()[-1]
    if word.casefold() not in words:
        return LineNote(line=line, is_right=False, note=f"{word} is not one of the words")
    note = "right" if letter == last else f"the last letter of {word} is {last}"
    return LineNote(line=line, is_right=letter == last, note=note)


def _steps_right(words: Sequence[str], text: str) -> float:
    steps = [step for line in _lines(text) if (step := _read_step(line)) is not None]
    right = Counter(word.casefold() for word, letter in steps if letter == word.casefold()[-1])
    needed = Counter(word.casefold() for word in words)
    return (right & needed).total() / max(len(words), len(steps))


def _letters(span: str) -> str | None:
    """Read letters, or an equation that joins them: `g + a = ga`."""
    if "=" in span or "→" in span or "->" in span:
        parts, *joined = (_BETWEEN_LETTERS.sub("", side) for side in _EQUALS.split(span))
        if joined != [parts]:
            return None
        span = parts
    letters = span.strip("\"'`*")
    letters = letters.removesuffix(".").strip("\"'`*")
    return letters.casefold() if letters.isalpha() and len(letters) <= 1000 else None


def _letters_of_size(piece: str, size: int) -> str | None:
    letters = _letters(piece)
    return letters if letters and len(letters) == size else None


def _words(problem: Problem) -> list[str]:
    words = problem.payload.get("words")
    if isinstance(words, list):
        known = [word for word in words if isinstance(word, str) and word]
        if known and len(known) == len(words):
            return known
    raise data_error(problem, "a list of words in payload.words", words)


_LENGTHS: dict[_Unit, tuple[tuple[int, int], ...]] = {
    "letters": ((3, 5), (6, 10), (11, 18), (19, 30), (31, 50)),
    "words": ((2, 2), (3, 4), (5, 8), (9, 14), (15, 24)),
}
"""Shortest and longest text in each fifth of difficulty, in its units."""
_ASK_REVERSED: dict[_Unit, str] = {
    "letters": "Write this text backwards, letter by letter: {text}\n",
    "words": "Write the words of this text in reverse order: {text}\n",
}
_ASK_END = "End with a line of Answer: and what you get."
_QUOTES = "\"'`"
_QUOTED_END = re.compile(r"[^\"'`]*\b(?:is|be)\b:?\s+([\"'`])(.+)\1\.?")
"""A sentence that ends with the text in quotes."""
_SENTENCE = re.compile(
    r"(?:(?:so|thus|therefore|hence),? )?(?:(?:the|my|your) [a-z ]{0,40}\b|it )(?:is|reads)\b",
    re.IGNORECASE,
)
"""The start of a sentence about the answer, which no reversed text starts with."""


class ReverseConfig(GeneratedConfig):
    name: Literal["reverse"] = "reverse"
    unit: _Unit = "letters"
    """What to reverse: the letters, including spaces, or the order of the words."""


class Reverse(GeneratedTask):
    """Generated texts that are not palindromes, compared character by character."""

    name = "reverse"
    config: ReverseConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Compare character by character, ignoring outer spaces and one pair of quotes.

        Parts: `correct` 0 or 1; `places`, the fraction of positions with the right character.
        """
        gold = problem.answer
        if not gold:
            raise data_error(problem, "the reversed text as its answer", gold)
        gold = _unquote(gold, keeps_stop=True) or gold
        answer = read_final(text, lambda span: _unquote(span, keeps_stop=gold.endswith(".")))
        if (answer is None or len(answer[1]) > len(gold) + 2) and (shown := decided_text(text)):
            # A longer text is a sentence around the answer, or wrong.
            answer = (
                read_stated(shown, lambda one: one if len(one) == len(gold) else None) or answer
            )
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
        low, high = _LENGTHS[unit][level_band(level)]
        text = _draw_text(rng, rng.randint(low, high), unit)
        answer = text[::-1] if unit == "letters" else " ".join(text.split()[::-1])
        if answer.casefold() == text.casefold():
            return None
        asked = _ASK_REVERSED[unit].format(text=text) + _ASK_END
        payload: dict[str, Json] = {"text": text}
        return self.make_problem(asked, answer, payload, level, core=text)


def _draw_text(rng: Random, length: int, unit: _Unit) -> str:
    if unit == "words":
        return " ".join(rng.choice(_POOL) for _ in range(length))
    text = ""
    while len(text) < length:
        text += f" {rng.choice(_POOL)}" if text else rng.choice(_POOL)
    return text[:length].strip()


def _unquote(span: str, *, keeps_stop: bool) -> str | None:
    if "\n" in span:
        return None
    span = strip_lead(span).strip("*")
    span = span if keeps_stop else span.removesuffix(".").strip("*")
    if match := _QUOTED_END.fullmatch(span):
        return match[2]
    if _SENTENCE.match(span):
        return text_after_verb(span) or text_after_label(span)
    if (labelled := text_after_label(span)) is not None:
        return labelled
    is_quoted = len(span) > 2 and span[0] == span[-1] and span[0] in _QUOTES
    return span[1:-1] if is_quoted else span
