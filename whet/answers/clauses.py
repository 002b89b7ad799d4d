"""Split a text into clauses, each a list of the stems of its words.

A clause ends at a sign or a conjunction. Contractions are written out, and words lose their endings
the same way in all their forms, so that a list of words holds each of them once.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

_BREAK = re.compile(
    r"[.;:!?](?=[\s)*_\"'”]|\Z)|\n|[,()。，；：！？—–]|(?<=\s)--?(?=\s)|\.\.\.|…"
    r"|\b(?:but|so|and|because|since|hence|thus|therefore|then|although|though|while|whereas"
    r"|yet|(?<!sure )(?<!know )(?<!doubt )if|when|unless|until|except|as)\b",
    re.IGNORECASE,
)
_CONTRACTIONS = (
    (re.compile(r"\bca(?=n['’]?t\b)|\bcan(?=not\b)"), "can "),
    (re.compile(r"\bwo(?=n['’]t\b)"), "will"),
    (re.compile(r"n['’]t\b|\bnt\b|(?<=do|is)nt\b"), " not "),
    (re.compile(r"\bain not\b"), "is not"),
    (re.compile(r"\bno longer\b"), "not"),
    (re.compile(r"['’](?:s|re|m)\b"), " is "),
    (re.compile(r"['’](?:ve|d|ll)\b"), " have "),
)
_MAY_CONTRACT = re.compile(r"['’]|nnot|[aos]nt\b|no longer")
_WORD = re.compile(r"[^\W\d_]+|[0-9]+")


class Clause(NamedTuple):
    """The stems of a clause, and where it stands in its text, end exclusive."""

    words: tuple[str, ...]
    start: int
    end: int
    lead: str
    """The sign or word before it."""
    mark: str
    """The sign or word that ends it."""
    is_gerund: bool
    """Whether its first word ends in -ing."""


def split_clauses(text: str) -> list[Clause]:
    """Split a text at its signs and conjunctions.

    >>> [clause.words for clause in split_clauses("I checked it, but it can't hold.")]
    [('i', 'check', 'it'), ('it', 'can', 'not', 'hold')]
    """
    return list(_clauses(text))


def _clauses(text: str) -> Iterator[Clause]:
    start = 0
    lead = ""
    for end, stop, mark in [
        *((match.start(), match.end(), match[0].lower()) for match in _BREAK.finditer(text)),
        (len(text), len(text), ""),
    ]:
        plain = text[start:end].lower()
        if _MAY_CONTRACT.search(plain):
            for contraction, written in _CONTRACTIONS:
                plain = contraction.sub(written, plain)
        if words := _WORD.findall(plain):
            yield Clause(
                words=tuple(map(stem, words)),
                start=start,
                end=end,
                lead=lead,
                mark=mark,
                is_gerund=any(word.endswith("ing") for word in words[:2]),
            )
        start = stop
        lead = mark


@lru_cache(1 << 12)
def stem(word: str) -> str:
    """Cut off the ending of a verb or noun, the same way for all its forms.

    >>> [stem(word) for word in ("fail", "fails", "failed", "drop", "dropped", "violating")]
    ['fail', 'fail', 'fail', 'drop', 'drop', 'violat']
    """
    if word.startswith("note"):  # not `not`
        return "note"
    for ending in ("ing", "ed", "es", "s", "e"):
        if len(word) > len(ending) + 2 and word.endswith(ending) and word[-2:] != "ss":
            word = word[: -len(ending)]
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word


def to_stems(words: str) -> frozenset[str]:
    return frozenset(map(stem, words.split()))


def to_phrases(phrases: str) -> frozenset[tuple[str, ...]]:
    """Make a set of phrases, which commas divide, each a tuple of stems."""
    return frozenset(tuple(map(stem, phrase.split())) for phrase in phrases.split(","))


def inflect(words: str) -> frozenset[str]:
    """List words in the forms that their stems may stand for.

    >>> sorted(inflect("drop"))
    ['drop', 'dropd', 'droped', 'dropes', 'droping', 'dropped', 'dropping', 'drops']
    """
    forms = set(words.split())
    for word in words.split():
        ends = ("s", "es", "d", "ed", "ing", f"{word[-1]}ed", f"{word[-1]}ing")
        forms |= {f"{word}{end}" for end in ends} | {f"{word.removesuffix('e')}ing"}
    return frozenset(forms)
