"""Find the formula in plain text that ends a line: `the n-th term is 3n + 2`, `so x = **√2**`.

It searches backwards from the end of the line to the last word that is not part of a formula.
Numbers with or without a unit do not count as formulas here; `prose` finds those. Of aligned lines
that end a text, the last one counts.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from whet.answers.doubt import CONTRACTION, DENIAL, FALSE, SUPPOSED, UNSURE, any_of, is_doubtful
from whet.answers.final_answer import Span, make_span
from whet.answers.sentences import find_formulas
from whet.tasks.math.parser import readings
from whet.tasks.math.words import NUMBER_WORDS, UNIT_WORDS

_MAX_FORMULA = 200
_MAX_PARTS = 8
_FUNCTIONS = (
    "sqrt|cbrt|root|sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|sinh|cosh|tanh|log|ln|exp|pi|theta"
    "|alpha|beta|lambda|dx|dy|dt|mod|gcd|lcm"
)
_SMALL_WORDS = (
    "is|as|at|by|be|do|go|he|if|in|it|me|my|no|of|on|or|so|to|up|us|we|an|am|cm|mm|km|kg|ml|ft|th"
    "|nd|rd|st|pm"
)
_PROSE = re.compile(
    rf"(?<![A-Za-z_\\])(?!(?:{_FUNCTIONS})(?![A-Za-z]))(?:[A-Za-z][A-Za-z'’-]+[A-Za-z]"
    rf"|(?i:{_SMALL_WORDS}))(?![A-Za-z_(])"
    r"|(?<![A-Za-z0-9_)\]}+*/^√-] )(?<![A-Za-z0-9_)\]}+*/^√-])\b[aAI](?= )"
)
"""A word of three letters or more that is not a function, a common short word, or an article."""
_JOINER = re.compile(r"(?:,\s*)?\b(?:and|or)\s*\Z")
_REASON = re.compile(
    r",? (?:by|using|via|from|since|because|as|for|where|when|which|after|valid)\b[^=\n0-9+²³]*\Z"
    r"|, (?:since|because|where|when|which|valid for|by|for|with|having|whose) [^\n]*\Z"
    r"| \((?:by|using|via|from|since|because|as|where|when|for|after)\b[^()=\n]*\)\Z",
    re.IGNORECASE,
)
"""A reason or condition that ends a line: ` by symmetry`, `, where n is odd`."""
_UNITS = sorted(word for word in {*UNIT_WORDS} - {"in"} if word.isascii() and len(word) > 1)
_CLOSING_UNIT = re.compile(
    rf"\s(?:(?:square|cubic) )?(?:units?|{'|'.join(_UNITS)})(?:\^?[23²³])?\Z", re.IGNORECASE
)
"""A unit that ends a line: ` square cm`, ` meters^2`."""
_SENTENCE_END = re.compile(r"[.!] +(?=[A-Z])")
_JOINT = re.compile(r"(?<![<>!≠])=(?!=)|:|→|⇒|->|=>|∈")
"""What a formula may follow: `=`, `:`, an arrow."""
_NAME = re.compile(
    r"[A-Za-z](?:_?\{?\w{1,3}\}?|['’]{1,3})?(?:\([A-Za-z0-9, ]{1,9}\))?|d[A-Za-z]/d[a-z]"
)
"""The left side of an equation: `x_{1}`, `f(n)`, `dy/dx`."""
_SYMBOL = re.compile(rf"(?<![A-Za-z])(?:[A-Za-z]|{_FUNCTIONS})(?![A-Za-z])|[πθφαβλ√]")
"""A symbol: a letter by itself, a function, a Greek letter."""
_WORKS = re.compile(r"[-+−*·×/^√²³⁴⁵ⁿ()<>≤≥±!]|[0-9)]\s?[a-zπθ√]|(?:ln|log|sin|cos|tan|exp) ")
"""A sign that the text is more than a name or number."""
_SUM = re.compile(r"[0-9)]\s+[-−/]\s+[0-9(]|[0-9)]\s*[+*·×^]\s*[0-9(]")
_UNFINISHED = re.compile(r"[-−]?[0-9][0-9.,]*(?:\s*[-+−*·×/]\s*[0-9][0-9.,]*)+")
"""A sum or product of numbers that is not worked out."""
_LIST = re.compile(r"[\[({][^\[\](){}]*,[^\[\](){}]*[\])}]")
_WITH_UNIT = re.compile(
    r"[-+−]?[0-9][0-9.,]*(?:/[0-9]+)?(?:\s?[gmshLNJWVAKCF]|\st)(?:[/·][gmshLNJWVAKt])?"
    r"(?:\^?[23²³])?"
    r"|[0-9:.]+\s?[ap]\.?m\.?"
)
"""A number with a unit or a time of day: `5 m/s`, `3:30 pm`."""
_HINDERS = re.compile(r"[$\\°?≠≈~|#@]|https?:")
"""Signs that plain formulas do not have."""
_BEFORE_LIST = re.compile(r"(?:\bare|:|=)\s*\Z", re.IGNORECASE)
_NO_LEAD = re.compile(
    r"\b(?:and|or|plus|minus|times|over|per|of|than|from|between|about|not|times)\s*\Z",
    re.IGNORECASE,
)
"""A word before a formula that shows the formula is incomplete."""
_DENIED = re.compile(rf"{any_of(DENIAL, FALSE, UNSURE, SUPPOSED)}|{CONTRACTION}", re.IGNORECASE)
_CLAUSE = re.compile(r"[,;:.!]\s|\b(?:so|thus|hence|therefore|then)\b", re.IGNORECASE)
_EQUATION = re.compile(
    r"\b(?:equation|circle|line|plane|ellipse|parabola|hyperbola|sphere|curve|tangent|locus)\b",
    re.IGNORECASE,
)
_NUMBER_WORD = rf"\b(?:{'|'.join(word for word, value in NUMBER_WORDS.items() if value > 1)})\b"
_SPOKEN = re.compile(
    r"(?:\A|[.!] )(?:(?:so|thus|hence|therefore),? )?(?:so|thus|hence|therefore|in total|in all"
    rf"|altogether|overall),? (?:(?!{_NUMBER_WORD})[^.!?0-9$\\,;:])*?(?<!\bthe )(?<!\bthese )"
    rf"(?<!\bthose )(?<!\ball )(?<!\bother )(?<!\bfirst )(?<!\blast )({_NUMBER_WORD})(?= [a-z])"
    rf"(?:(?!{_NUMBER_WORD})[^.!?0-9$\\,;:])*[.!]?\Z",
    re.IGNORECASE,
)
"""A last sentence that sums up with one number word: `In total she reads five books.`"""
_MARKS = re.compile(r"\*\*|`")

_MAX_ALIGNED = 4000
_ENVIRONMENT = r"(?:align|aligned|alignat|gather|gathered|eqnarray|split|multline|equation)"
_BEGIN = re.compile(rf"\\begin\{{({_ENVIRONMENT})(\*?)\}}(?:\[[a-z]\])?")
_END = re.compile(rf"\\end\{{{_ENVIRONMENT}\*?\}}[\s$.,*`]*(?:\\[\])])?[\s*$`.]*\Z")
_ROW_END = re.compile(r"\\\\(?:\[[^\]\n]{0,12}\])?|\\cr(?![a-z])")
_REMARK = re.compile(
    r"\\(?:nonumber|notag|hfill|qed|square|blacksquare)(?![a-z])"
    rf"|\\(?:tag\*?|label)\s?\{{[^{{}}]*\}}|\\end\{{{_ENVIRONMENT}\*?\}}"
)
_EDGE = re.compile(r"\A[\s&]*=(?!=)|[\s.,;&]+\Z|&")
_INNER = re.compile(
    r"\\begin\{(?:[a-zA-Z]{0,8}matrix|array|cases)\}.*?"
    r"\\end\{(?:[a-zA-Z]{0,8}matrix|array|cases)\}",
    re.DOTALL,
)
_KEPT = re.compile("\ue000([0-9]+)\ue001")
_DISPLAY_END = re.compile(r"\n[ \t]*(?:\\[\])]|\$\$)[\s*$`.]*\Z")
"""The end of a formula on separate lines."""


def closing_formula(line: Span) -> Span | None:
    """Find the formula that ends the last sentence of a line, or several joined by `and`.

    If the formula is a sum or product of numbers that is not worked out, the whole line is
    returned, which is not a right answer.

    >>> closing_formula(Span(text="So the term is **3n + 2**.", start=0, end=26)).text
    '3n + 2'
    >>> closing_formula(Span(text="The roots are 1 + i and 1 - i", start=0, end=29)).text
    '1 + i , 1 - i'
    >>> closing_formula(Span(text="The length is 5 m.", start=0, end=18))
    """
    plain = _MARKS.sub(lambda mark: " " * len(mark[0]), line.text)
    begin = max((end.end() for end in _SENTENCE_END.finditer(plain)), default=0)
    text = plain[begin:].rstrip(" .!,;*")
    text = _REASON.sub("", text).rstrip(" .!,;")
    last = _ending_formula(text)
    if last is None or not _is_formula(_last_side(last.text)):
        return None if last is None else _closing_equation(text, begin, line)
    if _UNFINISHED.fullmatch(_last_side(last.text)):
        return line
    parts = [last]
    while len(parts) < _MAX_PARTS and (joiner := _JOINER.search(text, 0, parts[0].start)):
        before = _ending_formula(text[: joiner.start()])
        if before is None:
            return None
        parts.insert(0, before)
    lead = text[: parts[0].start]
    is_denied = _NO_LEAD.search(lead) or _DENIED.search(_CLAUSE.split(lead)[-1])
    if is_denied or (len(parts) > 1 and not _are_alike(parts, text)):
        return None
    formula = " , ".join(part.text for part in parts)
    return Span(text=formula, start=parts[0].start + begin, end=begin + len(text)).shift(line.start)


def closing_number_word(line: Span) -> Span | None:
    """Find the one number word in a last sentence that sums up.

    >>> closing_number_word(Span(text="In total she reads five books.", start=0, end=30)).text
    'five'
    """
    number = _SPOKEN.search(line.text)
    if number is None or is_doubtful(number[0]):
        return None
    return make_span(line.text, *number.span(1)).shift(line.start)


def _closing_equation(text: str, begin: int, line: Span) -> Span | None:
    """Return an equation that ends in a number, if the text calls it an equation."""
    start = max((word.end() for word in _PROSE.finditer(text)), default=0)
    equation = text[start:].strip(" :")
    is_one = _EQUATION.search(text, 0, start) is not None and equation.count("=") == 1
    left = equation.partition("=")[0].strip()
    if not is_one or not _WORKS.search(left) or _HINDERS.search(equation) or not readings(equation):
        return None
    if _NO_LEAD.search(text, 0, start) or _DENIED.search(_CLAUSE.split(text[:start])[-1]):
        return None
    end = begin + len(text)
    return Span(text=equation, start=end - len(equation), end=end).shift(line.start)


def _ending_formula(text: str) -> Span | None:
    """Return the last formula or number of a text, with its name if it has one: `x = 2 + √3`."""
    start = max((word.end() for word in _PROSE.finditer(_without_unit(text))), default=0)
    start = max(start, len(text) - _MAX_FORMULA)
    if _HINDERS.search(text, start):
        return None
    for joint in reversed([None, *_JOINT.finditer(text, start)]):
        place = joint.end() if joint else start
        formula = text[place:].strip()
        if not formula or not readings(formula):
            continue
        lead = text[start : joint.start()] if joint and joint[0] == "=" else ""
        name = re.split(r"[:→⇒=,]", lead)[-1].strip()
        if _NAME.fullmatch(name) and readings(f"{name} = {formula}"):
            formula = text[text.rindex(name, start, joint.start() if joint else None) :].strip()
        end = len(text.rstrip())
        return Span(text=formula, start=end - len(formula), end=end)
    return None


def _are_alike(parts: Sequence[Span], text: str) -> bool:
    """Whether adjacent formulas are one answer: all after the same name, or all after `are`."""
    names = {part.text.partition("=")[0].strip() if "=" in part.text else "" for part in parts}
    is_choice = any("or" in text[one.end : two.start].split() for one, two in pairwise(parts))
    if len(names) > 1:
        return False
    return names != {""} or (
        not is_choice and _BEFORE_LIST.search(text, 0, parts[0].start) is not None
    )


def _last_side(formula: str) -> str:
    return formula.rpartition("=")[2].strip()


def _without_unit(text: str) -> str:
    unit = _CLOSING_UNIT.search(text)
    return text[: unit.start()] if unit else text


def _is_formula(text: str) -> bool:
    """Whether a text is more than a number with a unit: it has symbols, a sum, or a list."""
    core = _without_unit(text).strip()
    if _WITH_UNIT.fullmatch(core):
        return False
    if _LIST.fullmatch(core) or ("," not in core and _SUM.search(core)):
        return True
    return "," not in core and _SYMBOL.search(core) is not None and _WORKS.search(core) is not None


def last_display(text: str) -> Span | None:
    r"""Take a formula over several lines that ends a text, or the last of aligned lines.

    >>> last_display(r"\begin{align*} x &= 40 + 2 \\ &= 42. \end{align*}").text
    '42'
    """
    if aligned := _last_aligned(text):
        return aligned
    if not text.rstrip(" \t\n.*`").endswith(("$", "\\]", "\\)")):
        return None
    formulas = find_formulas(text)
    if not formulas or "\n" not in formulas[-1].text.strip():
        return None
    formula = formulas[-1]
    if text[formula.end :].strip(" \t\n.$*`\\)]") or not readings(formula.text):
        return None
    return formula


def cut_display_end(text: str) -> str:
    """Cut off a line that only closes a formula."""
    display = _DISPLAY_END.search(text, max(0, len(text) - 40))
    return text[: display.start()] if display else text


def _last_aligned(text: str) -> Span | None:
    end = _END.search(text, max(0, len(text) - 80))
    begins = end and [*_BEGIN.finditer(text, max(0, end.start() - _MAX_ALIGNED), end.start())]
    if not end or not begins:
        return None
    rows = _split_rows(text[begins[-1].end() : end.start()])
    whole = make_span(text, begins[-1].start(), end.start())
    return replace(whole, text=rows[-1]) if rows else None


def _split_rows(body: str) -> list[str]:
    """Split aligned lines at their ends, those of matrices in them aside, and drop the marks."""
    inner: list[str] = []

    def keep(match: re.Match[str]) -> str:
        inner.append(match[0])
        return f"\ue000{len(inner) - 1}\ue001"

    rows = _ROW_END.split(_INNER.sub(keep, _REMARK.sub("", body.replace("\ue000", ""))))
    plain = (_EDGE.sub(" ", row.strip()).strip(" .,;") for row in rows)
    return [_KEPT.sub(lambda place: inner[int(place[1])], row) for row in plain if row]
