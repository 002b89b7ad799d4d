"""Read what a question asks for besides a value: a unit, an order of parts, percent, an option.

Any unit is right unless the question mentions units. If it asks for one (`how many seconds`, `in
dollars`), another unit is wrong. If it only uses some units of a dimension, a unit of that
dimension that it does not use is wrong: metres in a question about centimetres.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from whet.tasks.math import tree
from whet.tasks.math.numeric import same_value
from whet.tasks.math.parser import Reading, readings
from whet.tasks.math.respelling import normal, wording
from whet.tasks.math.words import CURRENCIES, DIMENSIONS, PREFIXED_UNITS, UNIT_NAMES, UNIT_WORDS

QuantityUnit = tuple[str, ...]
"""The parts of a unit in a normal spelling and order: `("/h", "km")`, `("^2", "cm")`."""

_CHINESE_POWER = re.compile("平方|立方")
_WRITTEN_POWER = re.compile(r"\^\{?([23])\}?")
_PREFIXED_OHM = re.compile(r"\b([mkMG])\s?(?:\\Omega|ohm)(?![a-z])")
_POWERS = {"square": "^2", "sq": "^2", "平方": "^2", "cubic": "^3", "立方": "^3"}
KNOWN_UNITS = frozenset([*UNIT_NAMES.values(), *PREFIXED_UNITS.values(), "^2", "^3"])
_PLURALS = sorted(
    word
    for word, name in UNIT_WORDS.items()
    if word.isascii()
    and name in DIMENSIONS
    and (word[-1] == "s" or word in ("feet", "inches") or len(word) == 2)
)
_ASKED = re.compile(
    r"\b(?:how many|in(?: units of)?|number of|what|convert\b[^.?\n]{0,60}? to)\s+"
    rf"((?:(?:square|cubic|sq)\s+)?(?:{'|'.join(_PLURALS)}|percent|percentage)\b"
    r"(?:\^\{?[23]|[²³])?(?:\s?(?:per\s|/\s?)[a-z]+)?)",
    re.IGNORECASE,
)
"""A unit that a question asks for."""
_SYMBOLS = sorted({*PREFIXED_UNITS, "eV", "Hz", "Pa"}, key=len, reverse=True)
_ASKED_SYMBOL = re.compile(
    r"\b(?:in|how many|convert\b[^.?\n]{0,60}? to)\s+(?:(?:the )?units? of\s+)?[\s$\\(]*"
    rf"(?:\\(?:text|mathrm)\s?\{{[\s~]*)?({'|'.join(_SYMBOLS)})(?![A-Za-z])"
    r"(?!\s?[\^·⋅*-]|\s?\\c?dot|\s?[²³])",
)
"""A requested unit whose case matters, alone or first in a quotient: `in units of keV`."""
_WORD = re.compile(r"(?!in\b)[A-Za-z]{2,}|[一-龥]", re.IGNORECASE)
_LETTER = re.compile(r"[0-9](?:\s|\\[,; ]|\\(?:text|mathrm)\s?\{[\s~]*)?([mgshlL]|in)\b")
"""A one-letter unit after a number."""
_UPRIGHT = re.compile(r"\\(?:text|mathrm)\s?\{[\s~]*([a-zA-Z])\s?\}")
_ORDINAL = re.compile(r"(?<!per )(?<!a )(?<![0-9] )\bsecond\b", re.IGNORECASE)
"""`second` as an ordinal rather than a unit of time."""
_DOLLARS = re.compile(r"\\\$|(?<![\\0-9A-Za-z])\$[0-9](?![0-9,.]*\$)")
"""A dollar sign that is money rather than the start of a formula."""
_COINS = re.compile(r"¢|\b(?:pennies|dimes|nickels|quarters|coins)\b", re.IGNORECASE)
_AGES = re.compile(r"\b(?:age|aged|old|older|younger)\b", re.IGNORECASE)
_PERCENT = re.compile(
    r"%|\bper\s?cent|\bpct\b|百分|[成折]|\b(?:interest|rate|margin|growth|discount)\b",
    re.IGNORECASE,
)
"""Words and signs that mention percent."""
_SHARE = re.compile(
    r"\b(?:probability|what (?:fraction|proportion)|chance|likelihood)\b", re.IGNORECASE
)
_ASKS_PERCENT = re.compile(
    r"\b(?:what|how many|which)(?: is the| are the)? per\s?cent(?:age)?\b|\b(?:as|in|(?:to|closest)"
    r"(?: the)? nearest|to)(?: (?:an?|the|whole|integer|tenth of an?))* per\s?cent(?:age)?\b"
    r"|\bper\s?cent(?:age)? (?:chance|probability|likelihood)\b",
    re.IGNORECASE,
)
"""A question for a percentage, perhaps of a chance."""
_MARGIN = re.compile(
    r"\A(?:\\[ ,;:!]|\\q?quad(?![a-z])|[\s,;])+|(?<![\s,;\\])(?:\\q?quad|[\s,;\\])++\Z"
)
"""Spaces and separators around an answer to one part."""
_BLANK = re.compile(
    r"_{2,}|(?:\\_){2,}|[(（][\s$]*(?:\\q?quad[\s$]*)+[)）]|\\underline\{(?:[\s~]|\\q?quad"
    r"|\\hspace\{[^{}]*\})*\}|[(（][ \u3000]{2,}[)）]"
)
r"""A blank to fill: `____`, `( )`, `\underline{\quad}`."""
_BESIDE = re.compile(r"[\s$,.;，、。；]|\b(?:and|or)\b|[和与或及]")
"""What may stand between blanks that can be filled in any order."""
_NUMBER_LABEL = re.compile(r"(?<![A-Za-z0-9_^)}])[(（]([1-9])[)）][.:]?")
_LABEL = re.compile(r"(?:\\text(?:bf|rm)?\s?\{\s?)?(?<![A-Za-z0-9_^])\(([a-h])\)[.:]?\s?\}?")
_RESIDUE = re.compile(r"\$?\s?([0-9]+)\s?\(?\\?p?mod\s?\{?\s?([0-9]+)\s?\}?\)?\s?\$?")
"""A remainder with its modulus: `1 (mod 5)`."""
_BASED = re.compile(r"\$?\s?([0-9A-Z]+)\s?_\s?\{?\(?([0-9]{1,2})\)?\}?\s?\$?")
"""A numeral with its base: `52_8`."""


_TO_WORK_OUT = re.compile(r"(?:d/d[a-z]|\\frac\{d\}\{d[a-z]\}|(?:\\int|∫|\\lim|lim)(?![a-z]))")
"""The start of something that a question asks to evaluate."""
_DOTS = re.compile(r"[+·*]\s*(?:\.\.\.|…|\\[cl]?dots(?![a-z]))\s*[+·*]")
"""A sum or product with an ellipsis."""
_REWRITE = re.compile(
    r"(?i)\b(?:factor|expand|simplif|multiply|rewrite|write|express|complet|combine|reduce)"
)
_VALUE_OF = r"\b(?:value of|find|compute|calculate|determine|evaluate|what is)(?: the value of)?"
_MAX_ASKED = 60
_LISTS = re.compile(r"[,;]|\band\b")
_SUM = re.compile(r"[A-Za-z0-9)²³]\s*[-+−/*]\s*[A-Za-z0-9(]")
_VECTOR = re.compile(r"\([^()=]*,[^()=]*\)")
_SPACE = re.compile(r"[\s${}]+|\\[,;! ]")
_WRAPPED_LETTER = re.compile(
    r"^\\(?:text|textbf|mathrm|mathbf|textrm)\s?\{\s?(\(?[A-J][).:]?\s?[^{}]{0,40})\}"
)
r"""An option letter in a text command: `\text{(C) 27}`."""
_OPTION = re.compile(r"(?:\(([A-J])\)|([A-J])[).:])\s*(\S.*)", re.DOTALL)
SECOND_OPTION = re.compile(r"\W*(?:or|and)\b|[-+*/,;^=]|.*\([A-J]\)", re.IGNORECASE | re.DOTALL)
"""If this follows an option, the option is not the whole answer."""
NAMED_OPTION = re.compile(r"(?:option|choice) ?\(?([a-j])\)?")
_MARK = re.compile(
    r"(?:(?<=[\s$:?,;])|\A)(?:\\(?:text|textbf|mathrm|mathbf|textrm)\s?\{\s?)?"
    r"(?:\(([A-K])\)|([A-K])[.)](?=[\s}]))[.:]?\s?\}?"
)
r"""The letter before an option in a question: `(A)`, `B.`, `\textbf{(C)}`."""
_EDGE = re.compile(
    r"\A(?:[\s,;.]|\\[ ,;~]|\\q?quad)+"
    r"|(?<![\s,;.\\])(?:[\s,;.]|\\[ ,;~]|\\q?quad|\\\\)++\Z"
)
"""Spaces and punctuation around the text of an option."""
_FIRST = ("A", "F")
"""ACT labels the options of every other question F to K, without I."""
_LETTERS = "ABCDEFGHJK"


class Question(NamedTuple):
    """What a prompt asks for."""

    asked: frozenset[QuantityUnit]
    """The requested units, without the part after `per`."""
    named: frozenset[str]
    """The units that it uses anywhere."""
    has_percent: bool
    """Whether it mentions percent where a number may be a percentage."""
    num_parts: int
    """How many parts (a), (b), ... or (1), (2), ... it has; 0 if they are not in order."""
    num_blanks: int
    """How many blanks it has; 0 if two stand side by side and may be filled in any order."""


@lru_cache(256)
def read_question(prompt: str) -> Question:
    """Find the units, parts and percent signs of a prompt."""
    asked = {
        _counted(spell_unit((match[1],)))
        for pattern in (_ASKED, _ASKED_SYMBOL)
        for match in pattern.finditer(prompt)
    }
    if re.search(r"\bpounds?\b", prompt, re.IGNORECASE) and ("lb",) in asked:
        asked.add(("sterling",))
    labels = [match[1] for match in _LABEL.finditer(prompt)]
    numbers = [match[1] for match in _NUMBER_LABEL.finditer(prompt)]
    if not labels and numbers == list("123456789"[: len(numbers)]):
        labels = list("abcdefghi"[: len(numbers)])
    return Question(
        asked=frozenset(asked),
        named=frozenset(_names(prompt)),
        has_percent=_ASKS_PERCENT.search(prompt) is not None
        or (not _SHARE.search(prompt) and _PERCENT.search(prompt) is not None),
        num_parts=len(labels) if labels == list("abcdefghi"[: len(labels)]) else 0,
        num_blanks=_count_blanks(prompt),
    )


def _names(prompt: str) -> set[str]:
    words = _WORD.findall(_ORDINAL.sub(" ", prompt)) + _LETTER.findall(prompt)
    words += _UPRIGHT.findall(prompt)
    names = {part.removeprefix("/") for part in spell_unit(tuple(words))}
    names |= {name for sign, name in CURRENCIES.items() if sign != "\\$" and sign in prompt}
    names |= {"dollar"} if _DOLLARS.search(prompt) else set()
    names |= {"cent"} if _COINS.search(prompt) else set()
    names |= {"year"} if _AGES.search(prompt) else set()
    return names & DIMENSIONS.keys()


def spell_unit(words: tuple[str, ...]) -> QuantityUnit:
    """Spell a unit in one normal form: square centimeters as cm ^2, and km per hour as km /h."""
    parts: list[str] = []
    below = ""
    text = _WRITTEN_POWER.sub(r" ^\1", normal(" ".join(words))).replace("/", " per ")
    text = _PREFIXED_OHM.sub(r"\1ohm", text)
    for word in _CHINESE_POWER.sub(r" \g<0> ", text).split():
        lower = word.lower()
        if lower == "per":
            below = "/"
        elif lower in _POWERS:
            parts.append(_POWERS[lower])
        elif lower in ("mph", "kmh", "kph"):
            parts += ["mi" if lower == "mph" else "km", "/h"]
        elif word in ("Mg", "MG"):
            parts.append(below + "t")
        elif lower not in ("of", "the", "unit", "units"):
            parts.append(below + (PREFIXED_UNITS.get(word) or UNIT_NAMES.get(lower, lower)))
    return tuple(sorted(parts))


def has_wrong_unit(answer: str, gold: str, prompt: str) -> bool:
    """Whether an answer has a unit that the question rules out; never if the gold answer has one.

    >>> [has_wrong_unit(text, "90", "How many minutes is that?") for text in ("90 hours", "90")]
    [True, False]
    """
    units = [unit for reading in readings(answer)[:1] if (unit := _unit_of(reading))]
    if not units or any(_unit_of(reading) for reading in readings(gold)):
        return False
    unit = units[0]
    if not all(part.removeprefix("/") in KNOWN_UNITS for part in _counted(unit) or unit):
        return False
    question = read_question(prompt)
    if question.asked and readings(answer)[0].node.kind == "relation":  # 1 h = 60 min
        return not any(set(unit).issuperset(asked) for asked in question.asked)
    if question.asked:
        return _counted(unit) not in question.asked
    return any(_is_foreign(part.removeprefix("/"), question.named) for part in unit)


def _unit_of(reading: Reading) -> QuantityUnit:
    """Spell the unit of a reading, including percent and degree signs."""
    signs = [name for name in ("percent", "degree") if tree.has_call(reading.node, name)]
    if signs == ["degree"] and "π" in tree.names(reading.node):
        return ()
    return spell_unit((*reading.units, *signs))


def _counted(unit: QuantityUnit) -> QuantityUnit:
    return tuple(part for part in unit if part[0] != "/")


def _is_foreign(name: str, named: frozenset[str]) -> bool:
    """Whether a unit is not named although others of its dimension are."""
    dimension = DIMENSIONS.get(name)
    return name not in named and any(DIMENSIONS[other] == dimension for other in named)


def has_parts(prompt: str, golds: list[str]) -> bool:
    """Whether a gold answer lists an answer for each part of the question."""
    if "(b)" not in prompt and "(2)" not in prompt and "（2）" not in prompt:
        return False
    return _has_length(golds, read_question(prompt).num_parts)


def has_blanks(prompt: str, golds: list[str]) -> bool:
    """Whether a gold answer lists one value for each blank of a question: sin a = ( ), cos a = (
    )."""
    is_list = any("," in gold or ";" in gold or "，" in gold for gold in golds)
    return is_list and _has_length(golds, read_question(prompt).num_blanks)


def _has_length(golds: list[str], length: int) -> bool:
    return length > 1 and any(
        len(reading.node.args) == length and reading.node.kind == "seq"
        for gold in golds
        for reading in readings(gold)
    )


def _count_blanks(prompt: str) -> int:
    blanks = list(_BLANK.finditer(prompt))
    gaps = (prompt[one.end() : two.start()] for one, two in pairwise(blanks))
    return len(blanks) if all(_BESIDE.sub("", gap) for gap in gaps) else 0


def drop_labels(answer: str) -> str:
    """Put the answers to (a), (b), ... or (1), (2), ... in order and remove the labels.

    >>> drop_labels("(b) 11, (a) 5"), drop_labels("5, 11")
    ('5, 11', '5, 11')
    """
    labels = list(_LABEL.finditer(answer)) or list(_NUMBER_LABEL.finditer(answer))
    names = [label[1] for label in labels]
    if (
        not names
        or "".join(sorted(names)) not in ("abcdefgh"[: len(names)], "123456789"[: len(names)])
        or answer[: labels[0].start()].strip(" $")
    ):
        return answer
    ends = [label.start() for label in labels[1:]] + [len(answer)]
    parts = {
        label[1]: _MARGIN.sub("", answer[label.end() : end])
        for label, end in zip(labels, ends, strict=True)
    }
    return ", ".join(parts[name] for name in sorted(parts))


def drop_question(answer: str, prompt: str) -> str:
    """Drop the left side of an equation if it is what the question asks to rewrite or evaluate.

    >>> drop_question("x^2 - 1 = (x-1)(x+1)", "Factor $x^2-1$.")
    '(x-1)(x+1)'
    >>> drop_question("a - b = 2", "Find $a-b$."), drop_question("b - a = 2", "Find $a-b$.")
    ('2', 'b - a = 2')
    """
    sides = answer.strip(" $.").split("=")
    first, last = sides[0], sides[-1]
    if (_TO_WORK_OUT.match(first) or _DOTS.search(first)) and last.strip():
        return last.strip()
    formula = _SPACE.sub("", first if first.isascii() else normal(first))
    is_asked = len(formula) > 2 and f"${formula}$" in re.sub(r"[\s.,{}]", "", prompt)
    if (is_asked and last.strip() and _REWRITE.search(prompt)) or _is_worked_out(first, last):
        return last.strip()
    is_one = len(sides) > 1 and not _LISTS.search(answer) and 2 < len(formula) <= _MAX_ASKED
    value = "=".join(sides[1:]).strip() if is_one and _asks_value(formula, prompt) else ""
    return value or answer


def _asks_value(formula: str, prompt: str) -> bool:
    """Whether a question asks for the value of a formula, given without spaces and braces."""
    spelled = r"[\s{}]*".join(map(re.escape, formula))
    asks = rf"(?:{_VALUE_OF})[\s$\\(]*{spelled}[\s}}]*(?=\$|\\\)|[.?,;:_]|is\b|i[fn]\b|when\b|\Z)"
    return re.search(asks, prompt, re.IGNORECASE) is not None


def _is_worked_out(first: str, last: str) -> bool:
    """Whether an equation holds for all values of its unknowns, so that its last side is the
    result."""
    if _VECTOR.fullmatch(last.strip()) and _SUM.search(first):
        return True
    if not _SUM.search(first):
        return False
    return any(
        same_value(one.node, other.node) is True
        for one in readings(first)[:1]
        for other in readings(last)[:1]
        if tree.symbols(one.node)
    )


def is_unfactored(answer: str, gold: str) -> bool:
    """Whether an answer has fewer factors than the gold answer, or lacks its leading number.

    >>> is_unfactored("(2x-4)(x+2)", "2(x-2)(x+2)"), is_unfactored("(x+2)*2(x-2)", "2(x-2)(x+2)")
    (True, False)
    """
    number = re.match(r"[\s$-]*([0-9]+)\s?\(", gold)
    outside = re.sub(r"\([^()]*\)", " ", answer)
    is_missing = number is not None and number[1] not in re.findall(r"[0-9]+", outside)
    return is_missing or answer.count("(") < gold.count("(")


def drop_modulus(answer: str, prompt: str) -> str:
    """Return 1 for 1 (mod 5) if the question names the modulus 5."""
    match = _RESIDUE.fullmatch(answer)
    is_asked = match and re.search(rf"(?:divided by|mod[a-z]*)\W{{0,6}}{match[2]}\b", prompt)
    return match[1] if match and is_asked else answer


def shorter_golds(golds: list[str], prompt: str) -> list[str]:
    """Shorten gold answers as the question allows: 52_8 without the base that it asks for."""
    plain = prompt.replace("$", "")
    based = (_BASED.fullmatch(gold) for gold in golds)
    return [match[1] for match in based if match and re.search(rf"base {match[2]}\b", plain)]


def restates(answer: str, gold: str, prompt: str) -> bool:
    """Whether an answer is a sentence about the gold answer in words of the question.

    >>> restates("Ann is the tallest.", "Ann", "Who is the tallest?")
    True
    """
    subject, verb, rest = wording(answer).partition(" is ")
    asked = set(re.findall(r"[a-z]+", prompt.lower()))
    return bool(verb) and subject == wording(gold) and asked.issuperset(rest.split())


def split_option(text: str) -> tuple[str, str] | None:
    """Split (C) 27 into its letter and the rest, even if a text command wraps the letter."""
    match = _OPTION.fullmatch(_WRAPPED_LETTER.sub(r"\1 ", normal(text), count=1))
    if match is None or ((rest := wording(match[3])).isupper() and len(rest) == 1):
        return None
    return match[1] or match[2], match[3]


@lru_cache(256)
def list_options(prompt: str) -> Mapping[str, str]:
    """List the options of a question by their letters; empty unless there are two or more in order.

    >>> list_options("How many? (A) 10 (B) 12")
    {'A': '10', 'B': '12'}
    """
    marks = list(_MARK.finditer(prompt))
    letters = "".join(mark[1] or mark[2] for mark in marks)
    if len(letters) < 2 or letters[0] not in _FIRST or letters not in _LETTERS:
        return {}
    ends = [mark.start() for mark in marks[1:]] + [len(prompt)]
    texts = (prompt[mark.end() : end] for mark, end in zip(marks, ends, strict=True))
    return {
        letter: _EDGE.sub("", text.strip().partition("\n")[0]).strip("$ ")
        for letter, text in zip(letters, texts, strict=True)
    }
