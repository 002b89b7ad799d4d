"""Values of table answers: read numbers with their scale and unit (`$3,151.00`, `5 million
people`), and compare numbers, texts and lists."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from whet.answers.doubt import is_doubtful
from whet.tasks.base import data_error
from whet.tasks.qa.stated import strip_markup
from whet.types import Problem

_CHAIN = re.compile(r"\s+(?:>|->|→|\\to\b|\\rightarrow\b|\\gt\b)\s+")
"""An arrow between the items of a list."""
_PARTING = re.compile(r"""(?<=[0-9])["'`*_!?;~{}()\[\]<>\\]+(?=[0-9])""")
"""Signs that separate two numbers."""
_DROPPED = re.compile(
    r"""["'`*_?;~{}()\[\]\\]|[<>!](?!\s?[-=$]?\s?[0-9])"""
    r"""|(?<![0-9])[.,:]|[.,:](?![0-9])|(?<=[^\W\d])-(?=\w)|(?<![A-Z0-9])-(?![0-9])"""
)
"""Punctuation that does not matter when texts are compared."""
_HYPHEN = re.compile(r"(?<=[^\W\d_])-(?=[^\W\d_])")
_ARTICLE = re.compile(r"\bthe\s+|\A(?:a|an)\s+(?=\w{2})", re.IGNORECASE)
_INITIAL = re.compile(r"\W*An?\b\W+(?=[^\W\da-z_]\w)")
"""An initial at the start of a name: `A Telford`."""
_COLON = re.compile(r"\{:\}|\\colon(?![a-z])\s?")
_CELL_END = re.compile(r"[|\t\n,;\"\[\]]")
_MAX_PARTS = 256
MAX_NUMBER_CHARS = 64
_NUMBER = re.compile(
    r"(?P<sign>[-+]?)\s?(?P<currency>[$£€¥₹]|USD|EUR|GBP)?\s?(?P<inner>[-+]?)"
    r"(?P<whole>[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]*)(?P<decimals>\.[0-9]+|\.(?=\s|\Z))?"
    r"(?:[eE](?P<power>[-+]?[0-9]{1,2}))?(?:\s?/\s?(?P<below>[0-9]+))?"
)
"""A number with its sign and currency: `-$3,151.00`, `5e6`, `3/4`."""
_FRACTION = re.compile(r"\\[dt]?frac\s?\{\s?([-+]?[0-9]{1,40})\s?\}\s?\{\s?([0-9]{1,40})\s?\}")
_EXACT = re.compile(
    r"(?:[A-Za-z](?:\([^()=]{1,60}\))?\s?=\s?)?(?P<value>-?[0-9]{1,15}\s?/\s?[0-9]{1,15})"
    r"(?:\s?(?:≈|\\approx|=)\s?(?P<decimal>-?[0-9]{1,15}(?:\.(?P<decimals>[0-9]{1,15}))?)"
    r"(?P<percent>\s?%)?)?"
)
"""A fraction, perhaps with its name before it and its decimal after it."""
_SCALES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_SCALES |= {"trillion": 10**12, "k": 10**3, "mn": 10**6, "bn": 10**9}
_SCALES |= {"lakh": 10**5, "lakhs": 10**5, "crore": 10**7, "crores": 10**7}
_SCALES |= {"millions": 10**6, "billions": 10**9, "thousands": 10**3, "hundreds": 100}
_GLUED = {"M": " million", "B": " billion"}
_GLUED_SCALE = re.compile(r"\A[MB](?![^\W_])")
"""Right after a number: `$10M`."""
_UNIT_WORDS = {"$": "dollar", "usd": "dollar", "£": "pound", "gbp": "pound", "€": "euro"}
_UNIT_WORDS |= {"eur": "euro", "¥": "yen", "₹": "rupee", "%": "percent", "pct": "percent"}
_NO_UNIT = re.compile(
    r"(?i)\A(?:and|to|of)\b|\b(?:is|are|was|were|equals?|this|that|please|ignore|plus|minus|times"
    r"|over|mod|divided|short|squared|cubed|factorial|score|gross|half|halves|but|no"
    r"|(?:thir|four|fif|six|seven|eigh|nin|ten|hundred|thousand|million)(?:ds?|ths?))\b"
)
"""If the words after a number have one of these, they are not a unit: `5 squared`, `5 halves`."""
_ABOVE = re.compile(
    r"(?<=\w)\s(?:longer|more|higher|greater|larger|older|taller|heavier) than (?:the )?"
    r"(?:overall )?(?:average|mean|median)(?: of all)?[\s.}$]*\Z"
)
"""After a number and its unit, this marks a difference rather than a limit."""
_FALLS_SHORT = re.compile(
    r"(?i)\b(?:short(?:er|est)?|less|fewer|lower|smaller|younger|lighter|below|under)\b"
)
_SMALL_WORDS = frozenset(["of", "the", "in", "a", "an", "us", "total"])
_QUOTES = {"’": "'", "‘": "'", "“": '"', "”": '"'}
_SIGNS = str.maketrans(dict.fromkeys("‐‑‒–—―−", "-") | _QUOTES)
_UNIT = re.compile(r"[^\W\d_][^0-9|,;]{0,60}|%|°[CF]?|[$£€¥₹]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number and the words of its unit, which are empty for a bare number."""

    value: Fraction
    unit: frozenset[str]
    is_glued: bool = False
    """The unit directly follows the digits, as in a name: `8F`."""

    @property
    def is_percent(self) -> bool:
        return "percent" in self.unit


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRule:
    """How values are compared for one problem."""

    unit: frozenset[str] = frozenset()
    tolerance: Fraction = Fraction(0)
    is_free: bool = False
    is_ordered: bool = False
    needs_percent: bool = False
    question: str = ""
    """The question, including its table."""


def list_references(problem: Problem) -> list[str]:
    """List the references: the answer, and any others in the payload."""
    more = problem.payload.get("answers")
    texts = [problem.answer, *(more if isinstance(more, list) else [])]
    golds = dict.fromkeys(str(text) for text in texts if text is not None and str(text).strip())
    if not golds:
        raise data_error(problem, "an answer", problem.answer)
    return list(golds)


def agrees(gold: str, answer: str, rule: ComparisonRule) -> bool:
    """Compare two answers: as texts, as quantities, then as lists of both."""
    if _is_same(gold, answer, rule):
        return True
    golds = split_list(gold)
    if not 2 <= len(golds) <= _MAX_PARTS:
        return False
    answers = split_list(answer)
    if len(answers) != len(golds):
        answers = [part for answer in answers for part in answer.split(" and ")]
    if len(answers) != len(golds):
        return False
    if rule.is_free or ("|" in gold and not rule.is_ordered):
        return _match_all(golds, answers, rule)
    return all(_is_same(left, right, rule) for left, right in zip(golds, answers, strict=True))


def _match_all(golds: Sequence[str], answers: Sequence[str], rule: ComparisonRule) -> bool:
    """Pair every reference with an answer of its own."""
    left = list(answers)
    for gold in golds:
        match = next((answer for answer in left if _is_same(gold, answer, rule)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _is_same(gold: str, answer: str, rule: ComparisonRule) -> bool:
    form = "" if answer.rstrip(" *")[-1:] == "?" != gold.strip()[-1:] else text_form(gold)
    if gold.strip() == answer.strip():
        return True
    if form and (form == text_form(answer) or _open_form(gold) == _open_form(answer)):
        return not _is_other_name(gold, answer, rule.question)
    left = quantity(gold)
    right = quantity(answer if _FALLS_SHORT.search(rule.question) else _ABOVE.sub("", answer))
    if left is None or right is None or left.is_glued:
        return False
    return _is_equal(left, right, rule)


def _open_form(text: str) -> str:
    """Reduce a text as `text_form` does, with hyphenated words split."""
    return text_form(_HYPHEN.sub(" ", plain_text(text)))


def _is_other_name(gold: str, answer: str, question: str) -> bool:
    """Whether an article makes it another name: as an initial, or because the table has both."""
    names = {text_form(name, has_articles=True) for name in (gold, answer)}
    if len(names) == 1:
        return False
    cells = {text_form(cell, has_articles=True) for cell in _CELL_END.split(question)}
    return adds_initial(gold, answer) or names <= cells


def adds_initial(gold: str, answer: str) -> bool:
    """Whether an answer names an `A Telford` where the reference is `Telford`."""
    is_name = gold.strip()[:1].isupper() and not _INITIAL.match(gold)
    return is_name and _INITIAL.match(plain_text(answer)) is not None


def _is_equal(gold: Quantity, answer: Quantity, rule: ComparisonRule) -> bool:
    if gold.is_percent != answer.is_percent:
        return _is_equal_in_percent(gold, answer, rule)
    wanted = gold.unit | rule.unit
    fits = not wanted or not answer.unit or answer.unit <= wanted or wanted <= answer.unit
    return fits and _is_near(gold.value, answer.value, rule)


def _is_equal_in_percent(gold: Quantity, answer: Quantity, rule: ComparisonRule) -> bool:
    """Compare a percentage with a plain number: by value, or unchanged if the sign is optional."""
    if gold.is_percent:
        is_bare = not answer.unit and not rule.needs_percent
        is_same_number = is_bare and _is_near(gold.value, answer.value, rule)
        return is_same_number or _is_near(gold.value / 100, answer.value, rule)
    if "percent" in rule.unit:
        return _is_near(gold.value, answer.value, rule)
    return not (gold.unit | rule.unit) and _is_near(gold.value, answer.value / 100, rule)


def _is_near(gold: Fraction, answer: Fraction, rule: ComparisonRule) -> bool:
    return abs(gold - answer) <= rule.tolerance * abs(gold)


def text_form(text: str, *, has_articles: bool = False) -> str:
    """Reduce a text to what must agree: one case, no articles, punctuation only inside numbers.

    >>> text_form("The 'Red' Team, 3 - 0!") == text_form("red team 3 - 0")
    True
    """
    plain = " ".join(re.sub(r"(?<=[0-9])\s*-\s*(?=[0-9])", "-", plain_text(text)).split())
    plain = re.sub(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", "", plain)
    plain = _DROPPED.sub("", _PARTING.sub(" ", plain))
    words = " ".join((plain if has_articles else _ARTICLE.sub("", plain)).casefold().split())
    return re.sub(r"(?<=[0-9]) (?=[^\W\d])", "", words)


def split_list(text: str) -> list[str]:
    """Split a list at its bars, else its semicolons, else its commas outside numbers or its arrows.

    >>> split_list("5,118,195, 1218.56"), split_list("a | b, c")
    (['5,118,195', '1218.56'], ['a', 'b, c'])
    """
    for mark in ("|", ";"):
        if mark in text:
            return [part.strip() for part in text.split(mark) if part.strip()]
    inner = text.strip()
    if "," not in inner and _CHAIN.search(inner):
        return [part.strip(" *$") for part in _CHAIN.split(inner)]
    if inner[:1] == "[" and inner[-1:] == "]":
        inner = inner[1:-1]
    parts = re.split(r",(?![0-9]{3}(?![0-9]))|(?<![0-9]),|(?<=[0-9]{4}),", inner)
    return [part.strip().removeprefix("and ").strip(" \"'") for part in parts if part.strip()]


def quantity(text: str) -> Quantity | None:
    """Read a text that is one number, with or without a unit, and nothing else.

    >>> quantity("$3,151.00").value, quantity("5 million people").value
    (Fraction(3151, 1), Fraction(5000000, 1))
    """
    plain = _FRACTION.sub(r"\1/\2", plain_text(text)).strip().rstrip(".")
    match = _NUMBER.match(plain)
    if match is None or match.end() > MAX_NUMBER_CHARS:
        return None
    value = _value(match)
    after = _GLUED_SCALE.sub(lambda sign: _GLUED[sign[0]], plain[match.end() :], count=1)
    if value is None or (after.strip() and not _UNIT.fullmatch(after.strip())):
        return None
    scale, rest = _read_scale(after.strip())
    if _NO_UNIT.search(rest) or is_doubtful(rest):
        return None
    is_glued = bool(after) and after[0].isalpha() and scale == 1
    unit = unit_words(f"{match['currency'] or ''} {rest}")
    return Quantity(value=value * scale, unit=unit, is_glued=is_glued)


def read_forms(text: str) -> list[str]:
    r"""List the forms of one value in `P = \frac{5}{13} \approx 0.385`, if the decimal rounds it.

    >>> read_forms("P = 5/13 ≈ 0.385"), read_forms("5/13 = 38.5%")
    (['5/13', '0.385'], ['5/13', '38.5%'])
    >>> read_forms("5/13 ≈ 0.39"), read_forms("0.385")
    ([], [])
    """
    match = _EXACT.fullmatch(_FRACTION.sub(r"\1/\2", plain_text(text)).strip().rstrip("."))
    exact = quantity(match["value"]) if match else None
    if match is None or exact is None:
        return []
    if not match["decimal"]:
        return [match["value"]]
    scale = 100 if match["percent"] else 1
    step = Fraction(1, 10 ** len(match["decimals"] or ""))
    is_rounding = 2 * abs(exact.value * scale - Fraction(match["decimal"])) <= step
    return [match["value"], match["decimal"] + (match["percent"] or "")] if is_rounding else []


def unit_words(text: str) -> frozenset[str]:
    """Reduce a unit to words that must agree: `$, per day` to dollar, per, day; girls to girl."""
    spaced = text.lower().replace("per cent", "percent").replace(",", " ")
    words = [word.strip(".") for word in spaced.replace("%", " % ").replace("$", " $ ").split()]
    return frozenset(_UNIT_WORDS.get(word, word.removesuffix("s")) for word in words) - _SMALL_WORDS


def plain_text(text: str) -> str:
    """Drop markup, and normalize dashes, quotes and full-width forms."""
    latex = text.replace("\\%", "%").replace("\\$", "\ue000").replace("{,}", ",")
    latex = _COLON.sub(":", latex)
    if latex.count("$") % 2:
        latex = re.sub(r"\$(?=\s?-?\s?[0-9.])|(?<=[0-9])\s?\$(?=[\s.]*\Z)", "\ue000", latex)
    plain = unicodedata.normalize("NFKC", strip_markup(latex))
    return plain.replace("\ue000", "$").translate(_SIGNS)


def _value(match: re.Match[str]) -> Fraction | None:
    whole = match["whole"].replace(",", "")
    decimals = (match["decimals"] or "").strip(".")
    if not whole and not decimals:
        return None
    value = Fraction(f"{whole or 0}.{decimals}e{match['power'] or 0}")
    if match["below"]:
        if int(match["below"]) == 0:
            return None
        value /= int(match["below"])
    return -value if (match["sign"] == "-") != (match["inner"] == "-") else value


def _read_scale(rest: str) -> tuple[int, str]:
    """Read "million" and the like at the start of a unit as part of the number."""
    scale = 1
    words = rest.split()
    while words and (factor := _SCALES.get(words[0].lower().rstrip("."))):
        scale *= factor
        words = words[1:]
    if words and words[0].lower() == "of":
        words = words[1:]
    return scale, " ".join(words)
