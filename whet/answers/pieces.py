"""List what the last sentence of a text states: the pieces after its verbs, signs and arrows, each
up to a comma, a bracket or a reason. Which of them can be an answer its task decides.
"""

import re
from collections.abc import Callable
from typing import TypeVar

from whet.answers.doubt import (
    CHOICE,
    FALSE,
    LEADING,
    TURN,
    UNSURE,
    any_of,
    cut_remarks,
    is_denied,
    is_doubtful,
)
from whet.answers.sentences import MAX_SENTENCE, last_line
from whet.answers.withdrawal import DISOWNING, RETREATING, is_disowned

T = TypeVar("T")

_SENTENCE = re.compile(r"(?<!\b[A-Z])[.!]\s+(?=[A-Z*\"'])")
_STATES = re.compile(
    r"(?:(?:\b(?:it|that|this)['’]s|\b(?:is|are|was|were|be|becomes?|equals|gives?|giving"
    r"|yields?|yielding|makes?|making"
    r"|spells?(?: out)?|spelling|reads?|leaves?|leaving|gets?|getting|obtains?|have|has|forms?"
    r"|forming|produces?|producing|returns?|results? in|ends? up (?:with|at)|arrives? at|lands? on"
    r"|comes? (?:out )?(?:to|as|at)|works? out (?:to|as|at)|goes? to|go with|so|thus|hence"
    r"|therefore|next|called|namely|(?:joined|turns?|turned|combined?) (?:in)?to|word|string|text"
    r"|letters))\b(?: (?:us|me|you|with)\b)?[,:]?"
    r"|[:→⇒]|=(?=\s*[\[\"“])|->|\\(?:to|rightarrow|Rightarrow)\b)"
    rf"(?:\s+(?:{LEADING}|also|first)\b,?)*"
    r"(?:\s+(?:the )?(?:word|string|text|letters|number|value|sequence|step|result|answer)\b)?"
    r"[\s*`$]*",
    re.IGNORECASE,
)
_END = re.compile(
    r"[.!]?[\s*`$]*\Z|[,;:(](?=\s)|\s\(|\s[–—-]\s|,?\s(?:since|because|as|where|which|by|after|when"
    r"|from|for|in|with|and|so|if you|altogether|first|next)\b|\s?(?:->|→|⇒)",
)
_AT_START = re.compile(r"(?=\S+(?:\s\(|\s[–—]\s|[\s*`$]*\Z))")
_REASON = re.compile(r",? (?:because|since)\b")
_TURNS = re.compile(rf"(?i){any_of(CHOICE, TURN, FALSE, UNSURE)}|\?")
_AROUND = re.compile(r"\b(?:turned|read|way) around\b")
_GOES_ON = re.compile(
    r"[\s*`$\"'”.!)]*(?:\Z|(?:[,;:–—-]\s*|\(|\b)(?:i\.e\.|that(?: is|['’]s)|since|because|as"
    r"|where|which|by|after|when|from|for|in|with|so|one|formed|made|built|being|namely|taken|read"
    r"|reading|joined|the|all|it|this|we|[a-z] (?:from|of|for|is)"
    r"|[0-9]{1,3} (?:letters|characters|signs)|first|if you"
    r"|and that|hence|thus|therefore|at|on|backwards|reversed|→|->|⇒)(?!\w)"
    r"(?!.*\b(?:no|also|another|others?)\b)|\s*(?:→|->|⇒))",
    re.IGNORECASE,
)
"""What may follow a piece: an explanation, but no other piece of its kind."""
_UNEQUAL = re.compile(r"≠|!=|\\neq?\b")
_CLOSING = {"[": "]", "{": "}"}
_OTHERS = re.compile(
    r"['’]s (?:own |next |final )?(?:answer|step|result|guess|reply|word|version)\b"
    r"|(?i:\b(?:one|some|any|either|neither|none) of\b|\b(?:says?|said|claim(?:s|ed)?|writes|wrote"
    r"|thinks|thought|told|believes?|heard)\b)"
)
"""Somebody else's answer."""
_IN_BRACKETS = re.compile(r"\(([^()]{0,200})\)")


def last_sentence(text: str) -> str | None:
    """Take the last sentence of a text; None where it is long, asks or doubts, or is marked."""
    is_marked = "</answer>" in text or "boxed" in text or "```" in text
    line = None if is_marked else last_line(cut_remarks(text))
    if line is None or len(line.text) > MAX_SENTENCE:
        return None
    sentence = _SENTENCE.split(line.text.strip())[-1]
    if _is_disclaimed(sentence) or is_denied(text, max(text.rfind(sentence), 0), len(text)):
        return None
    if not is_doubtful(_AROUND.sub("", sentence)):
        return sentence
    reason = _REASON.search(sentence)
    if reason is None or _TURNS.search(sentence, reason.start()):
        return None
    before = sentence[: reason.start()]
    return None if is_doubtful(before) else before


def _is_disclaimed(sentence: str) -> bool:
    """Whether a sentence quotes others, or denies the answer in brackets."""
    aside = set(" ".join(_IN_BRACKETS.findall(sentence)).lower().split())
    is_taken_back = not (DISOWNING | RETREATING).isdisjoint(aside)
    return is_taken_back or bool(_UNEQUAL.search(sentence) or _OTHERS.search(sentence))


def read_stated(text: str, read: Callable[[str], T | None]) -> tuple[str, T] | None:
    """Read what the last sentence states; None where it states two different things, or nothing.

    >>> read_stated("a + b gives ab, as asked.", lambda piece: piece if len(piece) == 2 else None)
    ('ab', 'ab')
    """
    sentence = last_sentence(text)
    if sentence is None:
        return None
    pieces: list[tuple[str, T]] = []
    place = text.rfind(sentence)
    starts = _AT_START.match(sentence)
    for lead in [*([starts] if starts else []), *_STATES.finditer(sentence)]:
        piece = _cut(sentence[lead.end() :])
        value = read(piece) if piece else None
        if value is None or any(value == other for _, other in pieces):
            continue
        end = sentence.find(piece, lead.end()) + len(piece)
        other = read(sentence[end:].strip(" ,;:.!()\"'*`"))
        if not _GOES_ON.match(sentence, end) or other not in (None, value):
            return None
        start = max(place, 0) + lead.end()
        is_other = is_disowned(sentence[: lead.end()].strip())
        if is_other or is_denied(text, start, start + len(piece)):
            return None
        pieces.append((piece, value))
    return pieces[0] if len(pieces) == 1 else None


def _cut(rest: str) -> str:
    """Cut what follows a verb where it ends, but not inside of brackets or quotes."""
    rest = rest.rstrip("*`$ .!")
    opening = rest[:1]
    if opening in _CLOSING and (end := rest.rfind(_CLOSING[opening])) > 0:
        return rest[: end + 1]
    if opening in ('"', "'", "“") and (end := rest.find("”" if opening == "“" else opening, 1)) > 0:
        return rest[1:end]
    end_of_piece = _END.search(rest)
    return rest[: end_of_piece.start() if end_of_piece else len(rest)].strip("*`$\"' ")
