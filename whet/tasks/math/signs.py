"""The tokens of an answer by the part they play in its grammar: brackets, signs, relations."""

from whet.tasks.math import tree, words
from whet.tasks.math.respelling import ROW

TokenKey = tuple[str, str]
"""The kind and text of a token."""


def _keys(names: str) -> set[TokenKey]:
    r"""Spell tokens briefly: `+` is a sign, `\pm` a command, `in` a word."""
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
"""Bars that open: what closes them, and the function they mean."""
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
"""Letters that name functions: before a number in brackets they are no factors."""
LEAD_WORDS = words.word_set("approximately about roughly exactly nearly around usd eur rmb rs")
