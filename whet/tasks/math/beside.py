"""Words beside a number that make another number of it, or only relate to it: `twice 42`, `42
squared`, `a multiple of 42`, `42 less than 100`, `42+`.

A unit, a noun after the number, an article, a name or an adverb leaves it as it is. `prose` chooses
the number; behind a mark more words rule it out than in a last line, which may be any sentence.
"""

import re

from whet.answers.final_answer import Span
from whet.tasks.math.words import NUMBER_WORDS

_WINDOW = 120
_MARKUP = re.compile(r"\\text(?:bf|it|rm)?(?![a-z])|\\[()\[\],;:! ]|[*$`_{}(\[~]|boxed")
_NUMBER_WORD = "|".join(NUMBER_WORDS)
_NUMERAL = rf"(?:[-−$\\(*]*[0-9]|\b(?:{_NUMBER_WORD}|itself)\b)"
_FILLER = (
    r"(?:\s+(?:a|an|the|this|that|its|just|only|exactly|whole|positive|natural|numbers?|integers?"
    r"|values?|primes?|total|result|amount))*\s*\Z"
)
"""What may stand between an operator or a preposition and the number: `twice the number 42`."""
_ENDS = r"-?(?:st|nd|rd|th)\b"
_SHARES = "thirds?|quarters?|fourths?|fifths?|sixths?|eighths?|tenths?|hundredths?"
_FUNCTIONS = (
    rf"hal(?:f|ves)|{_SHARES}|(?:square |cube |[a-z0-9]+th )?roots?|squares?|cubes?|reciprocals?"
    r"|inverses?|opposites?|negatives?|negation|absolute value|(?:natural )?log(?:arithm)?s?|sine"
    r"|cosine|tangent|factorials?|totient|digits?|divisors?|factors?|multiples?|powers?"
    r"|successor|predecessor|complement|conjugate|floor|ceiling|sign|percent|doubles?"
    r"|triples?|neighbou?rs?"
)
_BEFORE = re.compile(
    r"\b(?:twice|thrice|(?<!the )(?<!ordered )(?:double|triple|quadruple)|half|plus|times|over"
    r"|mod(?:ulo)?|sqrt|sin|cos|tan|log|ln|exp"
    rf"|(?:square|cube) root|(?:{_FUNCTIONS})(?: [a-z]+)? of"
    r"|(?:divisible|divided|multiplied|bounded|followed|preceded|limited) by"
    r"|(?:prime|coprime|close|closer|closest|near|nearest|congruent|proportional|next|adjacent"
    r"|unequal|inequal|related|compared|opposed|superior|inferior|prior) to"
    r"|(?:different|differs?|distinct|away|apart|subtracted|deviates?) from|near|unlike)" + _FILLER,
    re.IGNORECASE,
)
"""With it before a number the answer is another one, whatever the sentence."""
_NEGATED = re.compile(r"(?:(?<![\w-])(?:negative|minus)\s+|负\s*)\Z", re.IGNORECASE)
_SUBTRACTED = re.compile(r"(?:[0-9)%]|(?<![a-zA-Z])[b-zB-Z]|\bplus or|\btimes|\bby)[\s\\)]*\Z")
"""Before `minus` it is no sign but an operator."""
_CLAUSE = re.compile(
    r"[,;:.!?=)]\s|=|:|(?i:\b(?:is|are|was|were|be|equals|has|have|had|gives?|gets?|becomes?|that"
    r"|so|thus|hence|therefore|and)\b)"
)
"""Where the words that lead to a number begin."""
_MEASURES = (
    "total|amount|value|price|cost|distance|length|area|volume|count|speed|rate|velocity"
    "|probability|chance|maximum|minimum|max|min|height|width|depth|weight|mass|time|period"
    "|duration|profit|loss|age|angle|temperature|score|radius|diameter|perimeter|circumference"
    "|size|quantity|result|answer|solution|figure|percentage|capacity|balance|salary|income|fee"
    "|discount|payment"
)
_OF = re.compile(rf"\bof{_FILLER}", re.IGNORECASE)
_MEASURE_OF = re.compile(
    rf"\b(?:an? (?:[a-z]+ ){{0,3}}[a-z]+|{_MEASURES}) of{_FILLER}", re.IGNORECASE
)
"""What a number may be of: `a total of 42`, `a detour of 42 miles`."""
_TO = re.compile(r"(?:\A|\s)(?:([a-z]+)\s+)?to" + _FILLER, re.IGNORECASE)
_LEADS_ON = re.compile(r"equal|equivalent|up|down|out|back|on|get|[a-z]{2,}(?:s|ed|ing)|go|come")
"""The word before `to` where that leads to a number: `comes to`, `adds up to`."""
_RELATED = re.compile(
    r"\b(?:from|after|before|beyond|past|under|against|like|excluding|including|without|despite"
    r"|following|preceding|succeeding|one of|some of|part of)" + _FILLER,
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"(?:,? ?squared|,? ?cubed|factorial|hal(?:f(?!-)|ves)|tenths?|hundredths?"
    r"|thousandths?|lakhs?|crores?|reversed)\b|(?:below|under) zero\b"
    r"|的\s?(?:.{0,3}倍|.{0,3}分之|平方|立方|阶乘|倒数|相反数|一半|绝对值|因数|约数)",
    re.IGNORECASE,
)
"""Right after a number it makes another one of it, whatever the sentence."""
_WORKED_ON = re.compile(
    r"(?:plus|minus|divided|multiplied|raised|to the (?:\w+ )?power|(?:in|de)creased by"
    r"|reduced by)\b",
    re.IGNORECASE,
)
_COMPARED = re.compile(
    rf"{_ENDS}(?!\s(?:day|hour|minute|week|month|year|grade|place|floor|page|row|century)\b)"
    r"|(?:dozens?|score|gross|short of)\b"
    r"|(?:times|choose|less|(?:more|less|fewer|greater|smaller|larger|bigger|higher|lower) than"
    rf"|away from)\s*{_NUMERAL}"
    rf"|(?:over|from|off|above|below|beyond|past|after|before)\s*{_NUMERAL}[0-9.,$)]*[\s.]*\Z",
    re.IGNORECASE,
)
_SHARE = re.compile(rf"of\s*{_NUMERAL}[0-9.,$)]*[\s.]*\Z")
_COUNTED = re.compile(r"\s*[-−]?[0-9][0-9,]*(?:\.[0-9]+)?,?\s?(?=[a-z的])")
_WITH_UNIT = re.compile(r"[0-9}\s]\s?[A-Za-zµ]{1,20}\Z|[%°]\Z")
_REMAINDER = re.compile(r"\(?(?:mod|modulo)\s*([0-9]{1,9})\b", re.IGNORECASE)
_OPEN = re.compile(
    r"(?!/-)(?:[-+/×÷·^=−]|\\(?:times|cdot|div|pm)(?![a-z]))(?:[-+/×÷·^=−\s.?…$*)\]}]|\\[)\]])*\Z"
)
"""An operator at the end with nothing to apply to; `42/-` is a price."""


def negated(text: str, answer: Span) -> Span:
    """Put the sign before a number that a word gives it.

    >>> negated("It is minus 42.", Span(text="42", start=12, end=14)).text
    '-42'
    """
    before = _before(text, answer)
    sign = _NEGATED.search(before)
    value = answer.text.strip()
    if sign is None or value[:1] in "-+−" or "=" in value:
        return answer
    if _SUBTRACTED.search(before, 0, sign.start()):
        return answer
    start = answer.start - len(before) + sign.start()
    negative = f"-{value}" if _is_bare(value) else f"-({value})"
    return Span(text=negative, start=start, end=answer.end)


def is_operand(text: str, answer: Span, *, is_marked: bool) -> bool:
    """Whether the words beside a number of a text make another number of it, or relate to it.

    >>> texts = ("twice 42", "a multiple of 42", "42 squared", "42 apples", "a total of 42")
    >>> starts = [text.index("42") for text in texts]
    >>> [is_operand(text, Span(text="42", start=start, end=start + 2), is_marked=True)
    ...  for text, start in zip(texts, starts, strict=True)]
    [True, True, True, False, False]
    """
    before = _before(text, answer)
    after = _plain(text[answer.end : answer.end + _WINDOW].partition("\n")[0])
    rest = after.lstrip(" )*\\")
    if _BEFORE.search(before) or _NEGATED.search(before) or _AFTER.match(rest):
        return True
    counted = _COUNTED.match(answer.text)
    if counted and _AFTER.match(answer.text, counted.end()):
        return True
    if _is_bare(answer.text) and _OPEN.match(after.lstrip()):
        return True
    return is_marked and (_relates(before, answer) or _goes_on(answer, rest))


def _relates(before: str, answer: Span) -> bool:
    """Whether a preposition leads to a number after a mark, so that it is not what is stated."""
    clause = _CLAUSE.split(before)[-1]
    if _OF.search(clause):
        return _MEASURE_OF.search(clause) is None
    if goal := _TO.search(clause):
        return goal[1] is None or _LEADS_ON.fullmatch(goal[1].lower()) is None
    return _is_bare(answer.text) and _RELATED.search(clause) is not None


def _goes_on(answer: Span, rest: str) -> bool:
    """Whether what follows a number after a mark is arithmetic, an ending or a comparison."""
    if modulus := _REMAINDER.match(rest):
        digits = re.sub(r"[^0-9]", "", answer.text)
        return digits == "" or int(modulus[1]) <= int(digits[:12])
    if answer.text.endswith(("%", "percent")):
        return _SHARE.match(rest) is not None
    is_worked_on = _WORKED_ON.match(rest.lstrip(", ")) is not None
    return is_worked_on or (_is_bare(answer.text) and _COMPARED.match(rest) is not None)


def _is_bare(text: str) -> bool:
    """Whether a number or formula has no unit of its own."""
    return _WITH_UNIT.search(text.strip().strip("$")) is None


def _before(text: str, answer: Span) -> str:
    """Take the words before a number in its line, with its markup blanked out."""
    start = max(text.rfind("\n", 0, answer.start) + 1, answer.start - _WINDOW)
    return _plain(text[start : answer.start])


def _plain(text: str) -> str:
    return _MARKUP.sub(lambda sign: " " * len(sign[0]), text)
