"""One spelling for the many ways the same answer is typed: delimiters, spacing, Unicode signs,
sizes of LaTeX.

Nothing here changes what an answer means. Each rule is a single pass, so a text of any length takes
linear time.
"""

import re
import unicodedata

_SIGNS = {
    "−": "-", "–": "-", "—": "-", "﹣": "-", "-": "-", "＋": "+", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ",
    "∙": r"\cdot ", "÷": r"\div ", "π": r"\pi ", "√": r"\sqrt ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ",
    "≦": r"\le ", "≧": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "°": r"^\circ ", "±": r"\pm ", "∓": r"\mp ", "％": r"\%", "，": ",", "、": ",", "；": ";", "：": ":", "（": "(",
    "）": ")", "【": "[", "】": "]", "。": ".", "′": "'", "’": "'", "“": '"', "”": '"', "\u00a0": " ", "\u2009": " ",
    "\u202f": " ", "\u200b": "", "\ufeff": "", "∅": r"\emptyset ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ",
    "λ": r"\lambda ", "μ": r"\mu ", "φ": r"\phi ", "ω": r"\omega ", "σ": r"\sigma ", "Δ": r"\Delta ", "∠": "", "€": "",
    "£": "", "¥": "", "￥": "", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "∖": r"\setminus ", "…": r"\ldots ",
}  # fmt: skip
_WIDE = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_SCRIPTS = re.compile("([⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+)|([₀₁₂₃₄₅₆₇₈₉]+)|([½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞])")
_SIGN = re.compile("|".join(re.escape(sign) for sign in sorted(_SIGNS, key=len, reverse=True)))
ROW = "\x02"
"""Stands for the row break of a matrix."""
_SPECIAL = re.compile(r"<\|[^|<>]{1,40}\|>|</s>")
_DOUBLED = re.compile(r"\\\\(?=[a-zA-Z])")
_SIZES = re.compile(
    r"\\(?:left|right|bigl|bigr|Bigl|Bigr|biggl|biggr|Biggl|Biggr|big|Big|bigg|Bigg|middle)(?![a-zA-Z])\.?"
    r"|\\(?:displaystyle|textstyle|scriptstyle|limits|nolimits|hfill|hline|phantom\{[^{}]*\})(?![a-zA-Z])"
    r"|\\(?:tiny|small|normalsize|large|Large|LARGE|huge|Huge)(?![a-zA-Z])|\\(?:text)?color\s?\{[a-zA-Z0-9!]{1,30}\}"
)
_NESTED = re.compile(r"\\text\s?\{\s?(\\text(?:bf|it|rm)\s?\{[^{}]*\})\s?\}")
_OUT_OF = re.compile(r"([0-9]{1,9})\s?(?:\\text\s?\{\s?)?out of\s?(?:\})?\s?([0-9]{1,9})")
_UNDERLINED = re.compile(r"\\underline\s?\{([^{}]*[0-9][^{}]*)\}")
_CHOSEN = re.compile(
    r"(?:\{\s?\})?_\s?\{?([0-9]{1,4})\}?\s?(?:C|\\mathrm\{C\})\s?_\s?\{?([0-9]{1,4})\}?"
)
"""Combinations written around the letter, as in {}_{10}C_{3}."""
_GROUPED = re.compile(r"(?<=\d)(?:\{,\}|,\s?\\!\s?|\\!\s?,?\s?|\\,)(?=\d{3}(?!\d))")
_SPACES = re.compile(
    r"\\[,;:! ]|\\(?:qquad|quad|thinspace|enspace|space(?![a-zA-Z])|hspace\{[^{}]*\})|~|&nbsp;|[ \t\r\n\f\v]+"
)
_FRACTIONS = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
_INFIX = re.compile(r"\{([^{}\\]{1,200})\\(over|choose)(?![a-zA-Z])([^{}\\]{1,200})\}")
_BARE_INFIX = re.compile(r"([^{}\\]{1,200})\\(over|choose)(?![a-zA-Z])([^{}\\]{1,200})")
_DOLLARS = re.compile(r"\\?\$|\\[()\[\]]")
_ORDINAL = re.compile(
    r"(?<=[0-9])\s?(?:\^\s?\{\s?(?:st|nd|rd|th)\s?\}|(?:st|nd|rd|th)(?![a-zA-Z]))"
)
_EDGES = " \t\n.,;:*`\"'"
_QUOTES = "\"'"
_DOTS = re.compile(r"\.{3,}")
_WORDS = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|textnormal|mathrm|mathbf|mathit|mbox|operatorname)\s*\{([^{}]*)\}"
)
_ARTICLE = re.compile(r"^(?:a|an|the) (?=[a-z]{3})", re.IGNORECASE)
_LOOSE_SPACE = re.compile(r"(?<![A-Za-z0-9])\s+|\s+(?![A-Za-z0-9])")


def normal(text: str) -> str:
    """Spell an answer plainly. Inside the result, LaTeX keeps its commands and matrices their row
    breaks.

    >>> normal(r"$\\dfrac{1}{2}$."), normal("10{,}000"), normal("−3 °")
    ('\\\\frac{1}{2}', '10000', '-3 ^\\\\circ')
    """
    text = _SPECIAL.sub(" ", text)
    if not text.isascii():
        text = _SCRIPTS.sub(_from_script, text.translate(_WIDE))
        text = _SIGN.sub(lambda match: _SIGNS[match.group()], text)
    text = _plain_latex(text) if "\\" in text or "{" in text else text.replace("$", " ")
    text = _ORDINAL.sub("", text)
    if "out of" in text:
        text = _OUT_OF.sub(r"\\frac{\1}{\2}", text)
    text = " ".join(text.split()) if "  " in text or "\n" in text or "\t" in text else text
    text = _trimmed(_DOTS.sub(r"\\ldots ", text).strip(" ") if "..." in text else text.strip(" "))
    if text.endswith("\\"):  # what is left of a space
        text = text[:-1]
    return text.lstrip(" *`\"'").rstrip()


def wording(text: str) -> str:
    """Spell an answer without the wrappers of text, loose spaces and case, for answers that are
    words.

    >>> wording(r"\\text{ Odd }") == wording("odd.")
    True
    """
    text = _trimmed(_LOOSE_SPACE.sub("", _WORDS.sub(r" \1 ", normal(text))))
    text = text.lstrip(_EDGES if text[1:2].isalpha() else _EDGES.replace(".", ""))
    text = _ARTICLE.sub("", text, count=1) if text[:1] in "aAtT" and text else text
    if len(text) == 3 and text[0] == "(" and text[2] == ")" and text[1].isalpha():
        text = text[1]
    return text.casefold() if len(text) > 1 else text


def _trimmed(text: str) -> str:
    """Cut points and stars at the end, and quotes that were opened before; a lone one is a prime, a
    foot or an inch."""
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
    text = text.replace("\\\\", ROW)
    text = _SIZES.sub(" ", text)
    text = _FRACTIONS.sub(r"\\frac", text).replace("\\surd", "\\sqrt")
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


def _from_infix(match: re.Match[str]) -> str:
    return rf"\{'frac' if match[2] == 'over' else 'binom'}{{{match[1]}}}{{{match[3]}}}"


def _from_script(match: re.Match[str]) -> str:
    """Spell Unicode exponents, subscripts and fractions in LaTeX."""
    raised, lowered, fraction = match.groups()
    if fraction:
        top, _, bottom = unicodedata.normalize("NFKC", fraction).partition("\u2044")
        return rf"\frac{{{top}}}{{{bottom}}}"
    return f"^{{{raised.translate(_RAISED)}}}" if raised else f"_{{{lowered.translate(_LOWERED)}}}"
