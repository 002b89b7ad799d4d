"""Read the text of an answer without a grammar: plain numbers, times, dates and tokens.

`exact`, `time_of` and `date_of` read text that has only one meaning. `tokens` splits the rest for
the parser, and the tables below say what role each token has in its grammar. All take linear time.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple

from whet.tasks.math import tree, words
from whet.tasks.math.respelling import ROW, wording
from whet.tasks.math.tree import NotMathError
from whet.tasks.math.words import word_set

TokenKind = Literal[
    "number", "name", "word", "text", "command", "begin", "end", "sign", "join", "chinese"
]

MAX_CHARS = 3000
MAX_TOKENS = 1200
MAX_EXPONENT = 2000

_PLAIN = re.compile(
    r"\s*\\?\$?\s*(?P<sign>[-+]?)\s*(?:"
    r"([0-9]{1,300}(?:\.[0-9]{0,300})?|\.[0-9]{1,300})"
    r"|([0-9]{1,300})\s?/\s?([0-9]{1,300})"
    r"|\\[dtc]?frac\s?(?:\{\s?(?P<minus>-?)\s?([0-9]{1,300})\s?\}\s?\{\s?([0-9]{1,300})\s?\}"
    r"|([0-9])\s?([0-9]))"
    r")\s*\$?\s*\.?\s*"
)
"""A number by itself: `-3.5`, `3/4`, `$\\frac{1}{2}$`."""
_TIME = re.compile(r"([0-9]{1,2})(?::([0-5][0-9])(?::([0-5][0-9]))?)?(?: ?([ap])\.?m\.?)?")
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec"
_MONTH = r"([a-z]{3})[a-z]{0,6}\.?"
_DATES = (
    re.compile(rf"{_MONTH} ([0-9]{{1,2}})(?:,? ?([0-9]{{4}}))?"),
    re.compile(rf"(?:the )?([0-9]{{1,2}})(?: of)? {_MONTH}(?:,? ?([0-9]{{4}}))?"),
)
"""A day, with the month first or the day first, with or without a year."""
_PIECE = re.compile(
    r"(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+(?![0-9.]))?)"
    r"|(?P<word>[A-Za-z]+)"
    r"|(?P<chinese>[\u4e00-\u9fff]{1,12})"
    r"|\\(?P<frame>begin|end)\s*\{\s*(?P<env>[a-zA-Z]+)\*?\s*\}"
    r"|\\(?P<command>[a-zA-Z]+|[{}|%#&_])"
    r"|(?P<sign>\*\*|<=|>=|!=|==|[-+*/^_=<>(){}\[\]|,;:!%'&" + ROW + r"])"
    r"|(?P<space>\s+)"
)
"""One token: `12.5`, `cos`, `\\frac`, `<=`."""
_THOUSANDS = re.compile(r"[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?: [0-9]{3})+)(?![0-9/])(?:\.[0-9]+)?")
"""Groups of thousands: `1,234,567.8`, `12 000`."""
_ZERO_GROUP = re.compile("[, ]0")
_TEXTS = word_set(
    "text textbf textit textrm textsf texttt textnormal mathrm mathsf mathbf mathit mathbb mathcal "
    "mathfrak mathscr mbox operatorname rm bf vec overrightarrow overline bar hat tilde widehat "
    "boldsymbol bm dot ddot underline textcircled boxed fbox"
)
_DROPPED = word_set("rm bf it displaystyle")
_JOINS = re.compile(r"\s*(?:,\s*)?(?:and|or|与|和|或)\s*", re.IGNORECASE)
_OVER_ONE = word_set(
    "mathbb mathcal mathfrak mathscr mathbf mathrm vec overline bar hat tilde dot ddot bm "
    "boldsymbol"
)
"""Commands that apply to the next letter if no braces follow."""
_MATHEMATICS = re.compile(r"-?\\(?:frac|sqrt|pi)(?![a-zA-Z])")
_DEPTHS = {"sign": {"(": 1, "[": 1, ")": -1, "]": -1}, "command": {"{": 1, "}": -1}}


@lru_cache(1 << 14)
def exact(text: str) -> Fraction | None:
    """Read a number that has only one meaning.

    >>> exact(r"\\dfrac{6}{4}"), exact("-.5"), exact("$12$"), exact("1,234")
    (Fraction(3, 2), Fraction(-1, 2), Fraction(12, 1), None)
    """
    match = _PLAIN.fullmatch(text) if len(text) < 1000 else None
    if match is None:
        return None
    top, *rest = (Fraction(part) for part in match.groups() if part and part not in "+-")
    bottom = rest[0] if rest else Fraction(1)
    if bottom == 0:
        return None
    return -top / bottom if (match["sign"] == "-") != (match["minus"] == "-") else top / bottom


def decimal(text: str) -> tuple[Fraction, int]:
    """Read a number, and count its significant digits if it has decimals."""
    mantissa, _, exponent = text.lower().partition("e")
    is_long = len(mantissa) > 2000 or len(exponent) > 5 or abs(int(exponent or 0)) > MAX_EXPONENT
    if is_long or mantissa == ".":
        raise NotMathError("a number too long to read, or a point")
    whole, point, decimals = mantissa.partition(".")
    num_digits = len((whole + decimals).lstrip("0")) if point and decimals else 0
    return Fraction(text), num_digits


def repeating_decimal(text: str, tail: str | None = None) -> Fraction:
    """Read a decimal that repeats `tail`, or its own ending, without end: 0.1666... is 1/6."""
    decimals = text.partition(".")[2]
    if tail is None:
        ends = (decimals[-period:] for period in range(1, len(decimals) // 2 + 1))
        tail = next((end for end in ends if decimals.endswith(end * max(2, 4 - len(end)))), "")
    if not tail.isdecimal() or len(tail) > 50:
        raise NotMathError("not a repeating decimal")
    return decimal(text)[0] + Fraction(int(tail), (10 ** len(tail) - 1) * 10 ** len(decimals))


def time_of(text: str) -> int | None:
    """Read a time of day as seconds after midnight; None for a bare 7:32, which may be a ratio.

    >>> time_of("8:34 p.m.") == time_of("20:34:00")
    True
    """
    match = _TIME.fullmatch(wording(text)) if len(text) < 60 else None
    if match is None or not (match[2] or match[4]):
        return None
    hours = int(match[1])
    if match[4]:
        if not 1 <= hours <= 12:
            return None
        hours = hours % 12 + (12 if match[4] == "p" else 0)
    elif hours > 24 or not (match[3] or len(match[1]) == 2):
        return None
    return 3600 * hours + 60 * int(match[2] or 0) + int(match[3] or 0)


def date_of(text: str) -> tuple[str, int, str] | None:
    """Read a date as month, day and year; the year may be empty."""
    words = wording(text) if len(text) < 60 else ""
    for form, (month, day) in zip(_DATES, ((1, 2), (2, 1)), strict=True):
        match = form.fullmatch(words)
        if match and match[month] in _MONTHS:
            return match[month], int(match[day]), match[3] or ""
    return None


class Token(NamedTuple):
    kind: TokenKind
    text: str
    is_spaced: bool
    """Whether a space comes before it."""
    detail: str = ""
    """For a text: the command that wraps it."""


def tokens(text: str, *, join_thousands: bool | None) -> tuple[list[Token], bool]:
    """List the tokens, and say whether a comma could be read either way.

    A comma before three digits joins thousands outside brackets and separates items inside them;
    `join_thousands` forces one reading for both.
    """
    if len(text) > MAX_CHARS:
        raise NotMathError("too long")
    result: list[Token] = []
    position = 0
    depth = 0
    is_spaced = False
    is_ambiguous = False
    while position < len(text):
        match = _PIECE.match(text, position)
        if match is None:
            raise NotMathError(f"{text[position]!r} is not read")
        kind = match.lastgroup
        if kind == "space":
            is_spaced = True
            position = match.end()
            continue
        token: Token | None = None
        if kind == "number" and (thousands := _THOUSANDS.match(text, position)):
            is_number = bool(_ZERO_GROUP.search(thousands.group()))  # 2,003 is not a list
            is_ambiguous = is_ambiguous or not is_number
            if is_number or ((depth == 0) if join_thousands is None else join_thousands):
                digits = thousands.group().replace(",", "").replace(" ", "")
                token = Token("number", digits, is_spaced)
                position = thousands.end()
        if token is None:
            token, position = _token(text, match, is_spaced)
        if token is not None:
            if token.kind in _DEPTHS:
                depth += _DEPTHS[token.kind].get(token.text, 0)
            result.append(token)
            is_spaced = False
        if len(result) > MAX_TOKENS:
            raise NotMathError("too many signs")
    return result, is_ambiguous


def _token(text: str, match: re.Match[str], is_spaced: bool) -> tuple[Token | None, int]:
    kind = match.lastgroup
    end = match.end()
    if kind == "env":
        is_begin = match["frame"] == "begin"
        if is_begin and match["env"] in ("array", "tabular"):
            end = _after_group(text, end)
        return Token("begin" if is_begin else "end", match["env"], is_spaced), end
    if kind == "command":
        name = match["command"]
        if name in _TEXTS:
            return _text_token(text, name, end, is_spaced)
        return (None if name in _DROPPED else Token("command", name, is_spaced)), end
    if kind == "word":
        return _word_token(match["word"], is_spaced), end
    piece = match.group()
    if kind == "chinese":
        return Token("join" if piece in {*"与和或"} else "chinese", piece, is_spaced), end
    assert kind in ("number", "sign"), f"a piece of kind {kind}"
    return Token("number" if kind == "number" else "sign", piece, is_spaced), end


def _word_token(word: str, is_spaced: bool) -> Token:
    if word.lower() in ("and", "or"):
        return Token("join", ",", is_spaced)
    if word == "to":
        return Token("sign", ":", is_spaced)
    return Token("name" if len(word) == 1 else "word", word, is_spaced)


def _text_token(text: str, name: str, start: int, is_spaced: bool) -> tuple[Token | None, int]:
    """Read the content of a text command; boxes and bare switches leave their braces to the
    parser."""
    start = _after_spaces(text, start)
    if name in _OVER_ONE and text[start : start + 1].isalnum():
        return Token("text", text[start], is_spaced, name), start + 1
    if text[start : start + 1] != "{" or name in ("boxed", "fbox"):
        return None, start
    end = _after_group(text, start)
    content = text[start + 1 : end - 1].strip()
    if name not in _OVER_ONE - {"mathbf", "mathrm"} and _MATHEMATICS.match(content):
        return None, start
    if content == "to":
        return Token("sign", ":", is_spaced), end
    if _JOINS.fullmatch(content):
        return Token("join", ",", is_spaced), end
    return Token("text", content, is_spaced, name), end


def _after_group(text: str, start: int) -> int:
    """Find the end of the brace group that opens at `start`; if there is none, the next
    non-space."""
    start = _after_spaces(text, start)
    if text[start : start + 1] != "{":
        return start
    depth = 0
    for index in range(start, len(text)):
        depth += (text[index] == "{") - (text[index] == "}")
        if depth == 0:
            return index + 1
    raise NotMathError("a brace is not closed")


def _after_spaces(text: str, start: int) -> int:
    return len(text) - len(text[start:].lstrip(" "))


TokenKey = tuple[str, str]
"""The kind and text of a token."""


def _keys(names: str) -> set[TokenKey]:
    r"""Read tokens from short names: `+` is a sign, `\pm` a command, `in` a word."""
    keys = set()
    for name in names.split():
        kind = "word" if name.isalpha() else "sign"
        keys.add(("command", name[1:]) if name[0] == "\\" else (kind, name))
    return keys


def _table(rows: dict[str, str]) -> dict[TokenKey, str]:
    return {key: meaning for meaning, names in rows.items() for key in _keys(names)}


BRACKET_COMMANDS = words.word_set("lvert lfloor lceil langle lbrace lbrack vert")
OPENING = _keys(r"( [ { | \{ \|") | {("command", name) for name in BRACKET_COMMANDS}
BAR_SIGNS = _keys(r"| \| \vert")
_ROUND_OR_SQUARE = _table({")": ")", "]": "]"})
BRACKET_ENDS = {
    "(": _ROUND_OR_SQUARE,
    "[": _ROUND_OR_SQUARE,
    "{": _table({"}": "}"}),
    "\\{": _table({"}": r"\} \rbrace"}),
    "<": _table({")": r"\rangle >"}),
}
SPELLINGS = {"{": "\\{", "|": "\\|", "langle": "<", "lbrace": "\\{", "lbrack": "["}
SIDES = {
    "|": ("|", "abs"),
    "\\|": ("|", "abs"),
    "lvert": ("rvert", "abs"),
    "vert": ("vert", "abs"),
    "lfloor": ("rfloor", "floor"),
    "lceil": ("rceil", "ceil"),
}
"""Opening bars: what closes each, and the function it means."""
SUCH_THAT = _keys(r"| \mid : \| \vert")
SEPARATORS = _keys(f", ; {ROW}")
PREFIX_SIGNS = {("sign", "+"): 1, ("sign", "-"): -1}
PLUS_MINUS = {("command", "pm"): tree.symbol("±"), ("command", "mp"): tree.symbol("∓")}
TIMES = _keys(r"* \cdot \times \ast")
OVER = _keys(r"/ \div")
MODULO = _keys(r"\pmod \mod mod")
CARETS = _keys("^ **")
SCRIPT_SIGNS = _keys("_ ^")
NAME_ENDINGS = _keys("_ '")
POSTFIX = _table({"factorial": "!", "percent": r"% \%", "degree": r"\degree \circ"})
TRANSPOSE = _keys(r"\top") | {("name", "T"), ("text", "T")}
RAISED_MARKS = _keys(r"\circ \degree \prime")
RELATIONS = _table(
    {
        "=": r"= == \approx \simeq \doteq \equiv \eq",
        "<": r"< \lt",
        ">": r"> \gt",
        "<=": r"<= \le \leq \leqslant",
        ">=": r">= \ge \geq \geqslant",
        "!=": r"!= \ne \neq",
        "in": r"\in in",
    }
)
SET_OPERATIONS = _table({"union": r"\cup", "intersection": r"\cap", "without": r"\setminus"})
BINOMIALS = words.word_set("binom dbinom tbinom")
NAMED_SYMBOLS = {name: name for name in words.GREEK} | words.CONSTANT_WORDS
LEAF_COMMANDS = {*words.FUNCTIONS, *words.OPAQUE, *NAMED_SYMBOLS, *BINOMIALS, "frac", "cbrt"}
LEAF_KINDS = ("number", "name", "word", "text", "begin")
MATRICES = words.word_set("matrix pmatrix bmatrix Bmatrix vmatrix Vmatrix array smallmatrix")
FUNCTION_NAMES = frozenset("fghpqFGHIPQRSTV")
"""Letters that name functions; before a number in brackets they are not factors."""
LEAD_WORDS = words.word_set("approximately about roughly exactly nearly around usd eur rmb rs")
