"""Read a yes or no to a question about a numbered graph where the last sentence says it in words
of the question: `hence it has no cycle`, `so the nodes are not connected`.

A sentence that doubts, supposes or defines says neither, nor does one that says both, or speaks of
other nodes than those asked about.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from whet.answers.doubt import CHOICE, FALSE, SUPPOSED, TURN, any_of, is_doubtful
from whet.answers.sentences import last_line

_MAX_LINE = 1000
_NOT = r"(?:\bnot|n['’]t|\bcannot|\bnever|\bneither)"
_HAS = (
    r"\b(?:has|have|having|contains?|containing|includes?|there(?: is|['’]s| exists| are)|found"
    r"|finds?|forms?|forming|closes?|closing|creates?|makes?|is|are|gives?|get|exists)\b"
)
_SENTENCE = re.compile(r"(?<!\b[A-Z])[.!]\s+(?=[A-Z*])|\n")
_OPEN = re.compile(
    rf"(?i){any_of('would', 'should', 'whether', 'question', 'asked?', 'asks', 'claims?', 'says?')}"
    r"|\A\W*(?:(?:an?|any|every|each) (?:undirected |directed |simple )?graphs?|graphs|if|when"
    r"|suppose|assum\w+|to (?:find|see|check|tell|decide|determine)|let\b|recall|note that an?)\b"
    r"|\bgraphs\b|\b(?:we|i|us) (?:assume|suppose)\b|\?"
)
"""With it a sentence answers nothing."""
_UNSURE = re.compile(
    rf"(?i){any_of(CHOICE, TURN, FALSE, SUPPOSED)}"
    r"|\b(?:probably|likely|might|may|could|if|unless|unsure|unclear|think|guess|but|except|almost"
    r"|nearly)\b"
)
_CLAUSE = re.compile(r"[,;:–—] ?(?:and |so |hence |thus )?")
_HARMLESS = re.compile(r"(?i)\bbetween\b|\bat least (?:one|an?)\b")
_WORD = re.compile(r"(?i)\b(?:yes|no)\b(?=\W*(?:\Z|[,.;:!)\n]))")
_EDGE = re.compile(r"[(\[{][\d\s,>-]*[)\]}]|\d+(?:\s?(?:-|–|→|->)\s?\d+)+")
_NUMBERS = re.compile(r"[0-9]+")


class _Wording(NamedTuple):
    no: re.Pattern[str]
    yes: re.Pattern[str]


def _wording(no: str, yes: str) -> _Wording:
    return _Wording(re.compile(no, re.IGNORECASE), re.compile(yes, re.IGNORECASE))


_PATH = r"(?:hamilton\w* )?(?:path|route|way|walk|trail)s?"
_WORDINGS: Mapping[str, _Wording] = {
    "cycle": _wording(
        r"\b(?:no|without (?:any |an? )?|free of) (?:\w+ )?cycles?\b|(?<!not )\bacyclic\b"
        r"|\bcycle-free\b|\b(?:is|are) (?:just |simply |indeed )?an? (?:tree|forest)\b"
        rf"|{_NOT} (?:\w+ )?(?:an? |any |one )?(?:cyclic|cycles?)\b",
        rf"{_HAS} (?:at least )?(?:\w+ )?(?:\w+ )?cycles?\b|\bcycle (?:found|exists|detected)"
        r"|(?<!not )\bcyclic\b|\bnot acyclic\b|\bcycle:? [0-9]",
    ),
    "connectivity": _wording(
        rf"{_NOT} (?:\w+ )?(?:connected|reachable|linked|joined)\b|\b(?:dis|un)connected\b"
        rf"|\bno {_PATH}\b|\bunreachable\b|{_NOT} (?:be )?reach(?:ed)?\b"
        r"|\b(?:different|separate|distinct|two) (?:connected )?(?:components?|parts)\b"
        rf"|{_NOT} (?:\w+ )?in the same (?:connected )?(?:component|part)\b"
        rf"|{_NOT} (?:an? )?{_PATH}",
        r"(?<!not )(?<!n't )\b(?:is|are) (?:\w+ )?(?:connected|reachable|linked)\b"
        rf"|\bcan (?:be )?reach(?:ed)?\b|\bsame (?:connected )?(?:component|part)\b"
        rf"|{_HAS} (?:indeed )?a {_PATH}\b|\b{_PATH}[^a-z.,;]{{0,60}} exists\b",
    ),
    "bipartite": _wording(
        rf"{_NOT} (?:an? )?(?:bipartite|(?:2|two)-colou?rable)\b|\bno bipartite\b"
        r"|\bnon-?bipartite\b",
        r"\b(?:bipartite|(?:2|two)-colou?rable)\b",
    ),
    "hamilton": _wording(
        rf"\bno (?:such )?{_PATH}\b|{_NOT} (?:have |contain )?(?:an? |any )?(?:such )?{_PATH}\b",
        rf"{_HAS} an? (?:such )?{_PATH}\b|\b{_PATH} exists\b|\bsuch a {_PATH}\b",
    ),
    "substructure": _wording(
        rf"{_NOT} (?:an? |the |be )?(?:\w+ )?(?:subgraph|substructure|contained?|found|present"
        r"|occur\w*|contain the pattern|matche?d?)\b"
        r"|\bno (?:such )?(?:match|subgraph|copy|embedding|assignment|occurrence|mapping)\b",
        r"\b(?:is|are|as) an? subgraph\b|\bcontains? the (?:pattern|subgraph|substructure)\b"
        r"|\b(?:pattern|subgraph|substructure) (?:occurs|exists"
        r"|is (?:there|found|present|contained|a subgraph))\b",
    ),
}
_PAIRED = ("connectivity",)


def read_statement(kind: str, pair: tuple[int, int] | None, text: str) -> str | None:
    """Read yes or no from the last sentence of a text, for a kind of question.

    >>> read_statement("cycle", None, "Leaves go first. It is a forest – no cycle.")
    'no'
    >>> read_statement("cycle", None, "If it has a cycle, we find it.")
    """
    wording = _WORDINGS.get(kind)
    line = last_line(text)
    if wording is None or line is None or len(line.text) > _MAX_LINE or _WORD.search(text):
        return None
    sentence = _SENTENCE.split(line.text.strip())[-1].replace("**", "").strip("*#> ")
    if _OPEN.search(sentence):
        return None
    rest = _cut_behind(sentence, wording.no)
    is_no = rest != sentence
    stated = wording.no.search(sentence) or wording.yes.search(sentence)
    if (
        stated is None
        or (is_no and wording.yes.search(rest))
        or _UNSURE.search(wording.no.sub(" ", sentence))
    ):
        return None
    lead = _CLAUSE.split(sentence[: stated.start()])[-1]
    if is_doubtful(_HARMLESS.sub(" ", lead)):
        return None
    numbers = {int(number) for number in _NUMBERS.findall(_EDGE.sub(" ", sentence))}
    if pair is not None and kind in _PAIRED and numbers and not {*pair} <= numbers:
        return None
    return "no" if is_no else "yes"


def _cut_behind(sentence: str, pattern: re.Pattern[str]) -> str:
    """Leave out what a pattern matches and the rest of its clause."""
    return re.sub(rf"(?i)(?:{pattern.pattern})[^,.;:]*", " ", sentence)
