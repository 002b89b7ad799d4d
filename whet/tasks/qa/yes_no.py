"""Questions of yes or no, as in StrategyQA.

A problem's `answer` is "yes" or "no"; true and false mean the same. The last answer the response
commits itself to counts; without one, the word it starts with. "Yes and no" is wrong.
"""

import re
from typing import Literal

from whet.config import Config
from whet.tasks.answers import no_answer, to_score
from whet.tasks.base import FileTask, data_error
from whet.tasks.qa.stated import MAX_SPAN, statements, strip_markup
from whet.text.final_answer import CHOICE, TURN, any_of, visible_text
from whet.types import Problem, Score

Word = Literal["yes", "no", "both"]

_NOTES = {None: "the answer is neither yes nor no", "both": "does not decide"}
_WORDS: dict[str, Word] = {"yes": "yes", "true": "yes", "no": "no", "false": "no"}
_FIRST = re.compile(
    r"(?:(?:therefore|thus|so|hence|clearly|simply|most likely|likely|probably|a|an|definitely)"
    r"[ ,:]+)*[(\[\"'“]?(yes|no|true|false)(?![\w'’-])",
    re.IGNORECASE,
)
_SECOND = re.compile(
    rf"[\"'”)\]]?[\s/,;.:?!(-]*(?P<joined>(?:{any_of(CHOICE, TURN, 'and|but|also')}"
    r"[\s,;:(]*){0,4})[\"'“(\[]?(?<![a-z])"
    r"(?P<word>yes|no|true|false)(?![\w'’-])(?P<more>\s+[a-z])?",
    re.IGNORECASE,
)
_OTHERWISE = re.compile(r"\b(yes|no|true|false)\s+(?:otherwise|if not|else)\b", re.IGNORECASE)
_NOT_AN_ANSWER = re.compile(
    r"\s+(?:one|longer|matter|doubt|more|way|such|evidence|need|idea|information|reason)\b",
    re.IGNORECASE,
)


class YesNoConfig(Config):
    name: Literal["yes_no"] = "yes_no"


class YesNo(FileTask):
    """Grades yes and no; its problems come from files."""

    name = "yes_no"
    config: YesNoConfig

    def score(self, problem: Problem, text: str) -> Score:
        """State whether the response says the right one. Parts: `correct`."""
        gold = _WORDS.get((problem.answer or "").strip().lower())
        if gold is None:
            raise data_error(problem, "yes or no as the answer", problem.answer)
        final = last_word(text)
        if final is None:
            return no_answer()
        shown, word = final
        return to_score(word == gold, {}, word or shown, _NOTES.get(word, f"says {word}"))

    def solve(self, problem: Problem, seed: int) -> str | None:
        return None if problem.answer is None else f"The answer is \\boxed{{{problem.answer}}}."


def last_word(text: str) -> tuple[str, Word | None] | None:
    """Find the last commitment; a tag or box that says neither is an answer all the same."""
    for statement in reversed(statements(text)):
        word = read(statement.text, must_be_whole=statement.form == "conclusion")
        if word is not None or statement.is_explicit:
            return statement.text, word
    opening = (visible_text(text) or "").strip().partition("\n")[0]
    word = read(opening, must_be_whole=False)
    return None if word is None else (opening, word)


def read(text: str, *, must_be_whole: bool) -> Word | None:
    """Read the yes or no a text starts with.

    >>> read("Yes, since whales breathe air.", must_be_whole=False)
    'yes'
    >>> read("yes/no", must_be_whole=False)
    'both'
    """
    words = strip_markup(text[:MAX_SPAN])
    first = _FIRST.match(words)
    if first is None or _NOT_AN_ANSWER.match(words, first.end()):
        return None
    if must_be_whole and words[first.end() :].strip(" .!\"'”)]"):
        return None
    word = _WORDS[first[1].lower()]
    if any(_WORDS[other.lower()] != word for other in _OTHERWISE.findall(words, first.end())):
        return "both"
    second = _SECOND.match(words, first.end())
    while second is not None:
        # "Yes, no animal can" says yes; "yes or no" and "yes, no" say both.
        is_stated = bool(second["joined"] or not second["more"])
        if is_stated and _WORDS[second["word"].lower()] != word:
            return "both"
        second = _SECOND.match(words, second.end("word"))
    return word
