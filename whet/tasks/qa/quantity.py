"""Read one number of a table answer, with its scale and unit: `$3,151.00`, `5 million people`."""

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

from whet.tasks.qa.stated import strip_markup
from whet.text.doubt import is_doubtful

MAX_NUMBER_CHARS = 64

_NUMBER = re.compile(
    r"(?P<sign>[-+]?)\s?(?P<currency>[$£€¥₹]|USD|EUR|GBP)?\s?(?P<inner>[-+]?)"
    r"(?P<whole>[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]*)(?P<decimals>\.[0-9]+|\.(?=\s|\Z))?"
    r"(?:[eE](?P<power>[-+]?[0-9]{1,2}))?(?:\s?/\s?(?P<below>[0-9]+))?"
)
_FRACTION = re.compile(r"\\[dt]?frac\s?\{\s?([-+]?[0-9]{1,40})\s?\}\s?\{\s?([0-9]{1,40})\s?\}")
_SCALES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_SCALES |= {"trillion": 10**12, "k": 10**3, "mn": 10**6, "bn": 10**9}
_SCALES |= {"lakh": 10**5, "lakhs": 10**5, "crore": 10**7, "crores": 10**7}
_SCALES |= {"millions": 10**6, "billions": 10**9, "thousands": 10**3, "hundreds": 100}
_UNIT_WORDS = {"$": "dollar", "usd": "dollar", "£": "pound", "gbp": "pound", "€": "euro"}
_UNIT_WORDS |= {"eur": "euro", "¥": "yen", "₹": "rupee", "%": "percent", "pct": "percent"}
_NO_UNIT = re.compile(
    r"(?i)\A(?:and|to|of)\b|\b(?:is|are|was|were|equals?|this|that|please|ignore|plus|minus|times"
    r"|over|mod|divided|squared|cubed|factorial|score|gross|half|halves|but|no"
    r"|(?:thir|four|fif|six|seven|eigh|nin|ten|hundred|thousand|million)(?:ds?|ths?))\b"
)
"""With one of these the words behind a number are no unit: `5 squared`, `5 halves`."""
_SMALL_WORDS = frozenset(["of", "the", "in", "a", "an", "us", "total"])
_QUOTES = {"’": "'", "‘": "'", "“": '"', "”": '"'}
_SIGNS = str.maketrans(dict.fromkeys("‐‑‒–—―−", "-") | _QUOTES)
_UNIT = re.compile(r"[^\W\d_][^0-9|,;]{0,60}|%|°[CF]?|[$£€¥₹]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number and the words of its unit, none where it is bare."""

    value: Fraction
    unit: frozenset[str]
    is_glued: bool = False
    """The unit stands right after the digits, as in a name: `8F`."""

    @property
    def is_percent(self) -> bool:
        return "percent" in self.unit


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
    after = plain[match.end() :]
    if value is None or (after.strip() and not _UNIT.fullmatch(after.strip())):
        return None
    scale, rest = _read_scale(after.strip())
    if _NO_UNIT.search(rest) or is_doubtful(rest):
        return None
    is_glued = bool(after) and after[0].isalpha() and scale == 1
    unit = unit_words(f"{match['currency'] or ''} {rest}")
    return Quantity(value=value * scale, unit=unit, is_glued=is_glued)


def unit_words(text: str) -> frozenset[str]:
    """Reduce a unit to words that must agree: `$, per day` is dollar, per, day; girls are girl."""
    spaced = text.lower().replace("per cent", "percent").replace(",", " ")
    words = [word.strip(".") for word in spaced.replace("%", " % ").replace("$", " $ ").split()]
    return frozenset(_UNIT_WORDS.get(word, word.removesuffix("s")) for word in words) - _SMALL_WORDS


def plain_text(text: str) -> str:
    """Drop markup, and make dashes, quotes and full-width forms alike."""
    latex = text.replace("\\%", "%").replace("\\$", "\ue000").replace("{,}", ",")
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
