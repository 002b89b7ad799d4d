"""Whether the last sentence of a response says a yes-or-no question again, as a claim or denied.

It finds a yes or no that the response itself contradicts: `No war lasts forever. This one did last
a month.` It reads no answer where there is no other.
"""

import re
from typing import Literal

from whet.answers.clauses import split_clauses
from whet.answers.doubt import cut_remarks
from whet.answers.sentences import last_line
from whet.tasks.qa.question_words import list_stems
from whet.tasks.qa.stated import strip_markup

_MAX_SENTENCE = 400
_ASKED = re.compile(r"[^.?!\n]*\?")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_CONTRACTION = re.compile(r"n['’]t\b")
_AUXILIARIES = frozenset(
    list_stems("is are was were do does did have has had can ca could will wo would should must")
)
_DO = frozenset(list_stems("do does did"))
_DENIALS = frozenset(list_stems("not never"))
_STANDS_FOR_IT = frozenset(
    list_stems("it they he she this that these those there one him her them its their his the")
)
_SMALL_WORDS = _STANDS_FOR_IT | frozenset(
    list_stems(
        "a an of in on at to for from by with be been being also so thus hence therefore then"
        " indeed clearly certainly definitely actually really still simply fact overall after all"
    )
)
_SUBORDINATE = frozenset(
    ["if", "unless", "although", "though", "while", "whereas", "when", "until", "except", "as"]
)


def restated(text: str, question: str) -> Literal["yes", "no"] | None:
    """Say whether the last sentence claims what a question asks, or denies it; None if neither.

    >>> question = "Would nickel boil in the core of the earth?"
    >>> restated("So nickel would not boil there.", question), restated("It is hot.", question)
    ('no', None)
    """
    asked = _ASKED.findall(question)
    words = list_stems(asked[-1]) if asked else []
    line = last_line(cut_remarks(text))
    if line is None or not words or not _DENIALS.isdisjoint(words):
        return None
    sentence = _SENTENCE_END.split(strip_markup(line.text[-2 * _MAX_SENTENCE :]))[-1]
    said = set()
    for clause in split_clauses(sentence[-_MAX_SENTENCE:]):
        if clause.lead not in _SUBORDINATE and clause.mark != "?":
            part = sentence[-_MAX_SENTENCE:][clause.start : clause.end]
            said.add(_judge(list_stems(_CONTRACTION.sub(" not", part)), words))
    said.discard(None)
    return said.pop() if len(said) == 1 else None


def _judge(words: list[str], asked: list[str]) -> Literal["yes", "no"] | None:
    """Compare the words of a clause with those of the question.

    With the verb of the question a clause may have `it`, `there` or `the` for what it leaves out;
    without, as in `he won` for `did he win`, it leaves out a word at most.
    """
    wanted = set(asked) - _SMALL_WORDS - _AUXILIARIES
    content = set(words) - _SMALL_WORDS - _AUXILIARIES - _DENIALS
    if not content or not content <= wanted:
        return None
    first = next((word for word in asked if word in _AUXILIARIES), "")
    is_asked_verb = first in words or (first in _DO and not _DO.isdisjoint(words))
    left_out = wanted - content
    if is_asked_verb and left_out and _STANDS_FOR_IT.isdisjoint(words):
        return None
    if not is_asked_verb and (first not in _DO or len(left_out) > 1):
        return None
    return "yes" if _DENIALS.isdisjoint(words) else "no"
