"""Compare texts by meaning, such as `1/2` and `0.5`, and cut remarks that restate an answer."""

import re
from collections.abc import Sequence

from whet.answers.doubt import CHOICE, CONTRACTION, DENIAL, FALSE, ROUGH, TURN, UNSURE, any_of
from whet.answers.final_answer import Span, is_same_text, make_span
from whet.answers.sentences import find_formulas, find_numbers
from whet.tasks.math import tree
from whet.tasks.math.compare import same_tree
from whet.tasks.math.numeric import MathConfig
from whet.tasks.math.parser import Reading, readings
from whet.tasks.math.respelling import normal
from whet.tasks.math.tree import Node

_ROUGH = re.compile(rf"{any_of(ROUGH)}|≈|\\approx", re.IGNORECASE)
_CLAUSE_END = re.compile(r"[;)]|[,.](?=\s|$)|$")
_EXACT = MathConfig()
_NEAR = MathConfig(tolerance=0.01)
_MAX_REMARK = 600
_CHECK = re.compile(
    r"\n[ \t*_]*(?:check(?:ing)?|verification|sanity check|verify|test)[ \t*_]*[:—–][^\n]*\s*\Z",
    re.IGNORECASE,
)
_MORE_THAN_CHECK = re.compile(
    any_of(
        DENIAL,
        FALSE,
        CHOICE,
        TURN,
        UNSURE,
        "no|but|only|fails?|failed|so|thus|hence|therefore|then|answer|solutions?|result"
        "|reject(?:ed)?|extraneous|discard(?:ed)?|invalid|contradiction",
    )
    + rf"|{CONTRACTION}|[≠✗✘❌?]|\\neq?(?![a-z])|!=",
    re.IGNORECASE,
)
"""If a line that checks an answer has one of these, it may change the answer."""
_NUMERICALLY = re.compile(
    r"(?:,? (?:which )?is the exact (?:value|answer|result|form))? "
    r"\((?:(?:which is|or),? )?(?:numerically|approximately|approx\.?|about|roughly|as a decimal)\b"
    r"[,:]? ?(?:(?:about|approximately|equal to) )?([^()\n]{1,40})\)[\s.]*\Z",
    re.IGNORECASE,
)
"""After an exact value, its decimal form: ` (numerically ≈ 3.68)`."""
_FROM_TO = re.compile(
    r",? \(?(?:i\.e\.|that is|in words|meaning),? (?:from|between) ([^,;()\n]{1,60})"
    r"(?:[,;)][^\n]{0,80}|\.?)\Z",
    re.IGNORECASE,
)
"""After an interval, its ends in words: `, i.e. from 2 up to 3`."""
_AGAIN = re.compile(r",? \(?(?:i\.e\.|that is\b|in words\b|meaning\b|which means\b)[^0-9$\\]*\Z")
"""At the end, the answer again in words: `, i.e. both are the same`."""
_INTERVAL = re.compile(r"[(\[][^()\[\]\n]{1,40}[)\]]\Z")
_SIGNED = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_ABOUT = re.compile(r"\\approx|[≈~$]")


def meaning_of(text: str) -> object:
    """Reduce a text to its meaning; a mixed number and its fraction have the same one."""
    meanings = readings(text)
    return meanings[0].node._replace(digits=0) if meanings else normal(text)


def are_same(one: str, other: str) -> bool:
    """Whether two answers mean the same: `1/2` and `0.5`."""
    return is_same_text(one, other) or _share_meaning(readings(one), readings(other), _EXACT)


def is_restated(line: str, before: Span, after: Span, words: str) -> bool:
    """Whether two pieces mean the same, the second together with the rest of its clause: `36, or
    6^2`."""
    clause = _CLAUSE_END.search(line, after.end)
    whole = line[after.start : clause.start() if clause else None]
    others = readings(whole) or readings(after.text)
    return _share_meaning(readings(before.text), others, _NEAR if _ROUGH.search(words) else _EXACT)


def _share_meaning(ones: Sequence[Reading], others: Sequence[Reading], rules: MathConfig) -> bool:
    return any(
        same_tree(left, right, rules)
        for one in ones
        for left in _meanings(one.node)
        for other in others
        for right in _meanings(other.node)
    )


def _meanings(node: Node) -> tuple[Node, ...]:
    """Read a percentage as its number and as a fraction of one."""
    if node.kind != "call" or node.name != "percent":
        return (node,)
    return node.args[0], tree.divide(node.args[0], tree.make_number(100))


def cut_remark(text: str) -> str:
    """Cut off a last line that checks the answer, or words that restate it.

    >>> cut_remark("It rises on $[2, 3]$, i.e. from $x=2$ up to $x=3$.")
    'It rises on $[2, 3]$'
    """
    start = max(len(text) - _MAX_REMARK, 0)
    check = _CHECK.search(text, start)
    if check and text[: check.start()].strip() and not _MORE_THAN_CHECK.search(check[0]):
        text = text[: check.start()]
    for pattern, is_same in ((_FROM_TO, _has_ends), (_NUMERICALLY, _is_near)):
        again = pattern.search(text, start)
        stated = again and _last_formula(text[start : again.start()])
        if again and stated and is_same(stated, again[1]):
            return text[: again.start()]
    return text


def cut_words_again(answer: Span) -> Span:
    """Cut off words that restate a formula.

    >>> cut_words_again(Span(text="a = b, i.e. both are the same", start=0, end=29)).text
    'a = b'
    """
    again = _AGAIN.search(answer.text)
    if again is None or not readings(answer.text[: again.start()]):
        return answer
    return make_span(answer.text, 0, again.start()).shift(answer.start)


def _last_formula(text: str) -> str | None:
    """Return the formula or interval that ends a text."""
    formulas = find_formulas(text)
    if formulas and not text[formulas[-1].end :].strip(" $*\\)]"):
        return formulas[-1].text
    interval = _INTERVAL.search(text)
    return interval[0] if interval else None


def _has_ends(interval: str, words: str) -> bool:
    """Whether words name the ends of an interval and no other number."""
    plain = (one.replace("\N{MINUS SIGN}", "-") for one in (interval, words))
    ends, others = map(_SIGNED.findall, plain)
    return len(ends) == 2 and ends == others


def _is_near(exact: str, words: str) -> bool:
    """Whether words have exactly one number, which is close to an exact value."""
    numbers = [one.text for one in find_numbers(_ABOUT.sub(" ", words))]
    return len(numbers) == 1 and any(
        same_tree(one.node, other.node, _NEAR)
        for one in readings(exact)
        for other in readings(numbers[0])
    )
