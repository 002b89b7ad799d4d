"""The values of table answers: a number with its unit, a text, a list of either. Exact, bounded,
never `eval`."""

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

from whet.tasks.qa.stated import strip_markup

MAX_NUMBER_CHARS = 64

_NUMBER = re.compile(
    r"(?P<sign>[-+]?)\s?(?P<currency>[$£€¥₹]|USD|EUR|GBP)?\s?(?P<inner>[-+]?)"
    r"(?P<whole>[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]*)(?P<decimals>\.[0-9]+|\.(?=\s|\Z))?(?:[eE](?P<power>[-+]?[0-9]{1,2}))?"
    r"(?:\s?/\s?(?P<below>[0-9]+))?",
)
_FRACTION = re.compile(r"\\[dt]?frac\s?\{\s?([-+]?[0-9]{1,40})\s?\}\s?\{\s?([0-9]{1,40})\s?\}")
_SCALES = {
    "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12,
    "k": 10**3, "mn": 10**6, "bn": 10**9,
}  # fmt: skip
_UNIT_WORDS = {
    "$": "dollar", "usd": "dollar", "£": "pound", "gbp": "pound", "€": "euro", "eur": "euro", "¥": "yen", "₹": "rupee",
    "%": "percent", "pct": "percent",
}  # fmt: skip
_NO_UNITS = frozenset(
    ("or", "and", "but", "to", "not", "if", "is", "plus", "minus", "times", "than")
)
_SMALL_WORDS = frozenset(("of", "the", "in", "a", "an", "us", "total"))
_DASHES = str.maketrans(dict.fromkeys("‐‑‒–—―−", "-") | {"’": "'", "‘": "'", "“": '"', "”": '"'})
_UNIT = re.compile(r"[^\W\d_][^0-9|,;]{0,60}|%|°[CF]?")
_PARTING = re.compile(r"""(?<=[0-9])["'`*_!?;~{}()\[\]<>\\]+(?=[0-9])""")
_DROPPED = re.compile(
    r"""["'`*_?;~{}()\[\]\\]|[<>!](?!\s?[-=$]?\s?[0-9])|(?<![0-9])[.,:]|[.,:](?![0-9])|(?<=[^\W\d])-|-(?![0-9])"""
)
_ARTICLE = re.compile(r"\b(?:the|a|an)\s+", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number and the words of its unit, none where it is bare."""

    value: Fraction
    unit: frozenset[str]
    is_glued: bool = False
    """The unit stands right behind the digits, as in a name: `8F`."""

    @property
    def is_percent(self) -> bool:
        return "percent" in self.unit


def quantity(text: str) -> Quantity | None:
    """Read a text that is one number, with or without a unit, and nothing else.

    >>> quantity("$3,151.00").value, quantity("5 million people").value
    (Fraction(3151, 1), Fraction(5000000, 1))
    """
    plain = _FRACTION.sub(r"\1/\2", plain_text(text)).strip().rstrip(".")
    found = _NUMBER.match(plain)
    if found is None or found.end() > MAX_NUMBER_CHARS:
        return None
    value = _value(found)
    after = plain[found.end() :]
    if value is None or (after.strip() and not _UNIT.fullmatch(after.strip())):
        return None
    scale, rest = _scaled(after.strip())
    if (rest.split() or [""])[0].lower() in _NO_UNITS:
        return None
    is_glued = bool(after) and after[0].isalpha() and scale == 1
    return Quantity(
        value=value * scale, unit=unit_words(f"{found['currency'] or ''} {rest}"), is_glued=is_glued
    )


def unit_words(text: str) -> frozenset[str]:
    """Reduce a unit to words that must agree: "$" is a dollar, girls are girl, `$, per day` is
    dollar per day."""
    words = (
        text.lower()
        .replace("per cent", "percent")
        .replace(",", " ")
        .replace("%", " % ")
        .replace("$", " $ ")
        .split()
    )
    plain = (_UNIT_WORDS.get(word.strip("."), word.strip(".").removesuffix("s")) for word in words)
    return frozenset(plain) - _SMALL_WORDS


def plain_text(text: str) -> str:
    """Drop markup and tell dashes, quotes and full-width forms alike."""
    latex = text.replace("\\%", "%").replace("\\$", "\ue000").replace("{,}", ",")
    if latex.count("$") % 2:
        latex = re.sub(r"\$(?=\s?-?\s?[0-9.])", "\ue000", latex)
    return (
        unicodedata.normalize("NFKC", strip_markup(latex)).replace("\ue000", "$").translate(_DASHES)
    )


def text_form(text: str) -> str:
    """Reduce a text to what must agree: letters in one case, no articles, no punctuation but inside
    numbers.

    >>> text_form("The 'Red' Team, 3 - 0!") == text_form("red team 3 - 0")
    True
    """
    plain = " ".join(re.sub(r"(?<=[0-9])\s*-\s*(?=[0-9])", "-", plain_text(text)).split())
    plain = re.sub(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", "", plain)
    words = " ".join(
        _ARTICLE.sub("", _DROPPED.sub("", _PARTING.sub(" ", plain))).casefold().split()
    )
    return re.sub(r"(?<=[0-9]) (?=[^\W\d])", "", words)


def listed(text: str) -> list[str]:
    """Split a list at its bars, else at its semicolons, else at the commas that are not inside a
    number or brackets.

    >>> listed("5,118,195, 1218.56"), listed("a | b, c")
    (['5,118,195', '1218.56'], ['a', 'b, c'])
    """
    for mark in ("|", ";"):
        if mark in text:
            return [part.strip() for part in text.split(mark) if part.strip()]
    inner = text.strip()
    if inner[:1] == "[" and inner[-1:] == "]":
        inner = inner[1:-1]
    parts = re.split(r",(?![0-9]{3}(?![0-9]))|(?<![0-9]),|(?<=[0-9]{4}),", inner)
    return [part.strip().removeprefix("and ").strip(" \"'") for part in parts if part.strip()]


def _value(found: re.Match[str]) -> Fraction | None:
    whole = found["whole"].replace(",", "")
    decimals = (found["decimals"] or "").strip(".")
    if not whole and not decimals:
        return None
    value = Fraction(int(whole or "0")) + (
        Fraction(int(decimals), 10 ** len(decimals)) if decimals else 0
    )
    value *= Fraction(10) ** int(found["power"] or 0)
    if found["below"]:
        if int(found["below"]) == 0:
            return None
        value /= int(found["below"])
    return -value if (found["sign"] == "-") != (found["inner"] == "-") else value


def _scaled(rest: str) -> tuple[int, str]:
    """Read "million" and the like at the start of a unit as part of the number."""
    scale = 1
    words = rest.split()
    while words and (factor := _SCALES.get(words[0].lower().rstrip("."))):
        scale *= factor
        words = words[1:]
    if words and words[0].lower() == "of":
        words = words[1:]
    return scale, " ".join(words)
