"""Normalize the text of an answer: first as people type it, then as the grammar reads it.

`normal` and `wording` change how an answer is typed, never what it means. `respell` rewrites forms
that the grammar lacks as forms that it has. All take linear time and return text.
"""

import re
import unicodedata
from functools import lru_cache

from whet.tasks.math.words import CURRENCIES, ENGLISH, PROSE, is_remark

ROW = "\x02"
"""The row break of a matrix."""


_NAMED_SIGNS = r"""
    × \times · \cdot ⋅ \cdot ∙ \cdot ÷ \div π \pi √ \sqrt ∞ \infty ≤ \le ≥ \ge ≦ \le ≧ \ge
    ≠ \ne ≈ \approx ∪ \cup ∩ \cap ∈ \in ° ^\circ ± \pm ∓ \mp ∅ \emptyset ∖ \setminus … \ldots
    θ \theta α \alpha β \beta λ \lambda μ \mu φ \phi ω \omega σ \sigma Δ \Delta
    ℝ \mathbb{R} ℤ \mathbb{Z}
"""
_SIGNS = {
    **str.maketrans(
        "−–—﹣、【】。′’“”\u00a0\u2009\u202f", "----,[].''\"\"   ", "\u200b\ufeff∠€£¥￥"
    ),
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},
    **{
        ord(sign): name if name.endswith("}") else f"{name} "
        for sign, name in re.findall(r"(\S+) (\S+)", _NAMED_SIGNS)
    },
}
"""Unicode signs and full-width characters, in ASCII or LaTeX."""
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_SCRIPTS = re.compile("([⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+)|([₀₁₂₃₄₅₆₇₈₉]+)|([½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞])")
_SPECIAL = re.compile(r"<\|[^|<>]{1,40}\|>|</s>")
_ROW_GAP = re.compile(r"\\\\(?:\s?\[-?[0-9.]+\s?(?:pt|em|ex|mm|cm|in)\])?")
r"""A row break of a matrix, perhaps with extra space: `\\[2pt]`."""
_DOUBLED = re.compile(r"\\\\(?=[a-zA-Z])")
"""A command whose backslash was escaped twice."""
_LAYOUT = re.compile(
    r"\\(?:left|right|middle|[bB]igg?[lr]?)(?![a-zA-Z])\.?"
    r"|\\(?:(?:display|text|script)style|(?:no)?limits|hfill|hline|phantom\{[^{}]*\})(?![a-zA-Z])"
    r"|\\(?:tiny|small|normalsize|[lL]arge|LARGE|[hH]uge)(?![a-zA-Z])"
    r"|\\(?:text)?color\s?\{[a-zA-Z0-9!]{1,30}\}"
)
"""Commands that change only how a formula looks: `\\left`, `\\displaystyle`, `\\color{red}`."""
_NESTED = re.compile(r"\\text\s?\{\s?(\\text(?:bf|it|rm)\s?\{[^{}]*\})\s?\}")
_OUT_OF = re.compile(r"([0-9]{1,9})\s?(?:\\text\s?\{\s?)?out of\s?(?:\})?\s?([0-9]{1,9})")
"""A fraction in words: `3 out of 5`."""
_UNDERLINED = re.compile(r"\\underline\s?\{([^{}]*[0-9][^{}]*)\}")
_CHOSEN = re.compile(
    r"(?:\{\s?\})?_\s?\{?([0-9]{1,4})\}?\s?(?:C|\\mathrm\{C\})\s?_\s?\{?([0-9]{1,4})\}?"
)
"""Combinations with indices around the letter: {}_{10}C_{3}."""
_GROUPED = re.compile(r"(?<=\d)(?:\s?\{\s?,\s?\}\s?|,\s?\\!\s?|\\!\s?,?\s?|\\,)(?=\d{3}(?!\d))")
r"""A LaTeX separator of thousands: `10{,}000`, `10,\!000`."""
_SPACES = re.compile(
    r"\\[,;:! ]|\\(?:q?quad|thinspace|enspace|space(?![a-zA-Z])|hspace\{[^{}]*\})|~|&nbsp;"
    r"|[ \t\r\n\f\v]+"
)
_FRACTIONS = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
_UNIT_FRACTION = re.compile(
    r"\\frac\s?\{\s?\\(?:text|mathrm)\s?\{\s?([a-zA-Z]+)\s?\}\s?\}"
    r"\s?\{\s?\\(?:text|mathrm)\s?\{\s?([a-zA-Z]+)\s?\}\s?\}"
)
_INFIX = re.compile(r"\{([^{}\\]{1,200})\\(over|choose)(?![a-zA-Z])([^{}\\]{1,200})\}")
r"""A fraction or binomial in TeX's infix form: `{a \over b}`."""
_BARE_INFIX = re.compile(r"([^{}\\]{1,200})\\(over|choose)(?![a-zA-Z])([^{}\\]{1,200})")
_DOLLARS = re.compile(r"\\?\$|\\[()\[\]]")
_ORDINAL = re.compile(
    r"(?<=[0-9])\s?(?:\^\s?\{\s?(?:st|nd|rd|th)\s?\}|(?:st|nd|rd|th)(?![a-zA-Z]))"
)
_EDGES = " \t\n.,;:*`\"'"
_QUOTES = "\"'"
_DOTS = re.compile(r"\.{3,}")
_WORDS = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|normal)?|math(?:rm|bf|it)|mbox|operatorname)\s*\{([^{}]*)\}"
)
_ARTICLE = re.compile(r"^(?:a|an|the) (?=[a-z]{3})", re.IGNORECASE)
_LOOSE_SPACE = re.compile(r"(?<![A-Za-z0-9])\s+|\s+(?![A-Za-z0-9])")
_ANY_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]+")
_SHORT_WORD = re.compile(r"[^aeiou][aeiouy][^aeiou]|[aeiou][^aeiou][aeiou]|[^aeiou]{2}[aeiouy]")
"""Three letters that can be pronounced, such as `sun`; abc and xyz are products."""

_UNIT_IN_BRACKETS = re.compile(r"([-+]?[0-9][0-9.,/ ]*)\(([A-Za-z][A-Za-z ]+)\)")
_RESPELLED = (
    (re.compile(r"(?<=[0-9}])\s?in\.?$"), " inch"),
    (re.compile(r"(?<=[0-9}])\s?\\Omega$"), " ohm"),
    (re.compile(r"(?<=[0-9])\s?\\mu\s?\\(text|mathrm)\s?\{\s?"), r" \\\1{micro"),
    (re.compile(r"\b((?:year|month|day)s?) old$"), r"\1"),
    (re.compile(r"\\hat\s?(\{\s?)?\\?([ijk])(?:math)?(?![a-z])(?(1)\s?\})"), r"\\mathbf{\2}"),
    (re.compile(r"\\(?:mathbf|boldsymbol|bm|vec)\s?\{\s?(\\mathbf\{[ijk]\})\s?\}"), r"\1"),
    (re.compile(r"([A-Za-z])\^(\{[^{}]*\}|\w)_(\{[^{}]*\}|\w)"), r"\1_\3^\2"),
)
"""Units that look like something else, unit vectors, and a power before an index."""
_OUTWARD = re.compile(r"([\[\]])([^\[\]()]{1,100},[^\[\]()]{1,100})([\[\]])")
"""Intervals with open ends written as reversed brackets: ]1, 2] is (1, 2]."""
_TRANSPOSED = re.compile(
    r"^([(\[][^&\x02]{1,200},[^&\x02]{1,200}[)\]])"
    r"\s?\^\s?\{?\s?(?:\\(?:top|mathrm|text|mathsf)\s?)?\{?T?\}*$"
)
"""A row with a transpose sign, which makes it a column."""
_REAL_WORDS = re.compile(r"(?:the set of )?all real numbers|all reals?|any real number")
_WITHOUT = re.compile(
    r"(?:\\text\s?\{\s?)?(?:the set of )?(?:all|any) real (?:numbers?|values?)(?: of [a-z])?,?"
    r" (?:except|but|other than|excluding)(?: for)?:?\s?\}?\s?(?:[a-z]\s?=\s?)?(\S.*)",
    re.IGNORECASE,
)
_EMPTY_WORDS = re.compile(r"empty set|null set")
_FOR_ALL = re.compile(
    r"[\s,]*(?:\\forall|\\text\s?\{\s?,?\s?for (?:all|every|any|each)(?: real| integer| positive"
    r"| natural)?(?: numbers?| integers?| values? of)?\s?\}|\bfor all\b)\s?"
    r"[a-z]?(?:\s?,\s?[a-z])*(?:\s?\\in\s?\\mathbb\s?\{?\s?[RZNQC]\s?\}?)?$"
)
"""What an equation holds for, if that restricts nothing: `for all x`."""


@lru_cache(1 << 12)
def normal(text: str) -> str:
    """Spell an answer plainly. LaTeX keeps its commands, and matrices keep their row breaks.

    >>> normal(r"$\\dfrac{1}{2}$."), normal("10{,}000"), normal("−3 °")
    ('\\\\frac{1}{2}', '10000', '-3 ^\\\\circ')
    """
    text = _SPECIAL.sub(" ", text)
    if not text.isascii():
        text = _SCRIPTS.sub(_from_script, text).translate(_SIGNS)
    text = _plain_latex(text) if "\\" in text or "{" in text else text.replace("$", " ")
    text = _ORDINAL.sub("", text)
    if "out of" in text:
        text = _OUT_OF.sub(r"\\frac{\1}{\2}", text)
    text = " ".join(text.split()) if "  " in text or "\n" in text or "\t" in text else text
    text = _trim(_DOTS.sub(r"\\ldots ", text).strip(" ") if "..." in text else text.strip(" "))
    if text.endswith("\\"):  # what is left of an escaped space
        text = text[:-1]
    return text.lstrip(" *`\"'").rstrip()


def wording(text: str) -> str:
    """Spell an answer in words without text commands, extra spaces and case.

    >>> wording(r"\\text{ Odd }") == wording("odd.")
    True
    """
    text = _spell_out(text)
    return text.casefold() if len(text) > 1 else text


def same_wording(a: str, b: str) -> bool:
    """Whether two answers are the same words; letters of formulas keep their case, words do not.

    >>> same_wording("Odd", r"\\text{odd}"), same_wording("R^2", "r^2"), same_wording("m", "M")
    (True, False, False)
    """
    left = _spell_out(a)
    right = _spell_out(b)
    if not left or left.casefold() != right.casefold():
        return False
    return left == right or _ANY_WORD.sub(_fold_word, left) == _ANY_WORD.sub(_fold_word, right)


def respell(text: str) -> tuple[str, tuple[str, ...]]:
    r"""Spell an answer as the grammar reads it, and list its currencies and the unit in brackets.

    >>> respell("all real numbers except 2"), respell("12 (apples)")
    (('\\mathbb{R}\\setminus\\{2\\}', ()), ('12 ', ('apples',)))
    """
    plain = normal(text)
    spoken = wording(plain)
    if _REAL_WORDS.fullmatch(spoken):
        return r"\mathbb{R}", ()
    if _EMPTY_WORDS.fullmatch(spoken):
        return r"\emptyset", ()
    if without := _WITHOUT.fullmatch(plain):
        plain = rf"\mathbb{{R}}\setminus\{{{without[1]}\}}"
    if "for" in plain and "=" in plain:
        plain = _FOR_ALL.sub("", plain)
    plain = _TRANSPOSED.sub(r"\1", plain)
    for form, spelling in _RESPELLED:
        plain = form.sub(spelling, plain)
    if plain[:1] == "]" or plain[-1:] == "[":
        plain = _OUTWARD.sub(_turn_inward, plain)
    units = tuple(name for sign, name in CURRENCIES.items() if sign in text)
    if (match := _UNIT_IN_BRACKETS.fullmatch(plain)) and not is_remark(match[2]):
        return match[1], (match[2], *units)
    return plain, units


@lru_cache(1 << 12)
def _spell_out(text: str) -> str:
    text = " ".join(_WORDS.sub(r" \1 ", normal(text)).split())
    text = _trim(_LOOSE_SPACE.sub("", text))
    text = text.lstrip(_EDGES if text[1:2].isalpha() else _EDGES.replace(".", ""))
    text = _ARTICLE.sub("", text, count=1) if text[:1] in "aAtT" and text else text
    is_letter = len(text) == 3 and text[0] == "(" and text[2] == ")" and text[1].isalpha()
    return text[1] if is_letter else text


def _fold_word(match: re.Match[str]) -> str:
    word = match.group().lower()
    is_word = len(word) > 3 or word in ENGLISH or word in PROSE or _SHORT_WORD.fullmatch(word)
    return word if is_word else match.group()


def _trim(text: str) -> str:
    """Strip punctuation at the end, and quotes in pairs; a single quote is a prime or an inch."""
    while text and text[-1] in _EDGES:
        if text[-1] in _QUOTES:
            if len(text) < 2 or text[0] != text[-1]:
                break
            text = text[1:]
        text = text[:-1]
    return text


def _plain_latex(text: str) -> str:
    if "\\\\begin" in text or "\\begin" not in text:
        text = _DOUBLED.sub(r"\\", text)
    text = _ROW_GAP.sub(ROW, text).replace("{:}", ":").replace("\\colon", ":")
    text = _LAYOUT.sub(" ", text)
    text = _FRACTIONS.sub(r"\\frac", text).replace("\\surd", "\\sqrt")
    text = _UNIT_FRACTION.sub(r"\\text{\1/\2}", text)
    text = _NESTED.sub(r"\1", text)
    if "\\underline" in text:
        text = _UNDERLINED.sub(r"\1", text)
    if "C" in text:
        text = _CHOSEN.sub(r"\\binom{\1}{\2}", text)
    text = _DOLLARS.sub(" ", text)
    if "\\over" in text or "\\choose" in text:
        text = _INFIX.sub(_from_infix, text)
        text = _from_infix(bare) if (bare := _BARE_INFIX.fullmatch(text)) else text
    text = _GROUPED.sub("", text)
    return _SPACES.sub(" ", text)


def _turn_inward(interval: re.Match[str]) -> str:
    opening = "(" if interval[1] == "]" else "["
    closing = ")" if interval[3] == "[" else "]"
    return f"{opening}{interval[2]}{closing}"


def _from_infix(match: re.Match[str]) -> str:
    return rf"\{'frac' if match[2] == 'over' else 'binom'}{{{match[1]}}}{{{match[3]}}}"


def _from_script(match: re.Match[str]) -> str:
    """Spell Unicode exponents, subscripts and fractions in LaTeX."""
    raised, lowered, fraction = match.groups()
    if fraction:
        top, _, bottom = unicodedata.normalize("NFKC", fraction).partition("\u2044")
        return rf"\frac{{{top}}}{{{bottom}}}"
    return f"^{{{raised.translate(_RAISED)}}}" if raised else f"_{{{lowered.translate(_LOWERED)}}}"
