"""Cut a normalised answer into tokens: numbers, names, LaTeX commands, texts, brackets and signs.
Linear time."""

import re
from typing import Literal, NamedTuple

from whet.tasks.math.normal import ROW
from whet.tasks.math.tree import NotMathError
from whet.tasks.math.words import named

TokenKind = Literal[
    "number", "name", "word", "text", "command", "begin", "end", "sign", "join", "chinese"
]

MAX_CHARS = 3000
MAX_TOKENS = 1200

_PIECE = re.compile(
    r"(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+(?![0-9.]))?)"
    r"|(?P<word>[A-Za-z]+)"
    r"|(?P<chinese>[\u4e00-\u9fff]{1,12})"
    r"|\\(?P<frame>begin|end)\s*\{\s*(?P<env>[a-zA-Z]+)\*?\s*\}"
    r"|\\(?P<command>[a-zA-Z]+|[{}|%#&_])"
    r"|(?P<sign>\*\*|<=|>=|!=|==|[-+*/^_=<>(){}\[\]|,;:!%'&" + ROW + r"])"
    r"|(?P<space>\s+)"
)
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:(?:,[0-9]{3})+|(?: [0-9]{3})+)(?![0-9/])(?:\.[0-9]+)?")
_TEXTS = named(
    "text textbf textit textrm textsf texttt textnormal mathrm mathsf mathbf mathit mathbb mathcal mathfrak mathscr "
    "mbox operatorname rm bf vec overrightarrow overline bar hat tilde widehat boldsymbol bm dot ddot underline "
    "textcircled boxed fbox"
)
_DROPPED = named("rm bf it displaystyle")
_JOINS = re.compile(r"\s*(?:,\s*)?(?:and|or|与|和|或)\s*", re.IGNORECASE)
_OVER_ONE = named(
    "mathbb mathcal mathfrak mathscr mathbf mathrm vec overline bar hat tilde dot ddot bm boldsymbol"
)
"""Commands that take the next letter where no braces follow."""
_MATHEMATICS = re.compile(r"-?\\(?:frac|sqrt|pi)(?![a-zA-Z])")
_CHINESE_JOINS = frozenset("与和或")
_OPEN, _CLOSE = "([", ")]"


class Token(NamedTuple):
    kind: TokenKind
    text: str
    is_spaced: bool
    """Whether a space stands before it."""
    detail: str = ""
    """For a text: the command that wraps it."""


def tokens(text: str, *, join_thousands: bool | None) -> tuple[list[Token], bool]:
    """List the tokens, and say whether a comma might have been read either way.

    A comma before three digits joins thousands outside brackets and separates inside them;
    `join_thousands` settles it for both.
    """
    if len(text) > MAX_CHARS:
        raise NotMathError("too long")
    found: list[Token] = []
    place = 0
    depth = 0
    is_spaced = False
    is_doubtful = False
    while place < len(text):
        match = _PIECE.match(text, place)
        if match is None:
            raise NotMathError(f"{text[place]!r} is not read")
        kind = match.lastgroup
        if kind == "space":
            is_spaced = True
            place = match.end()
            continue
        if kind == "number" and (grouped := _THOUSANDS.match(text, place)):
            is_doubtful = True
            if (depth == 0) if join_thousands is None else join_thousands:
                found.append(
                    Token("number", grouped.group().replace(",", "").replace(" ", ""), is_spaced)
                )
                place = grouped.end()
                is_spaced = False
                continue
        token, place = _token(text, match, is_spaced)
        if token is not None:
            depth += (token.text in _OPEN) - (token.text in _CLOSE) if token.kind == "sign" else 0
            depth += (token.text == "{") - (token.text == "}") if token.kind == "command" else 0
            found.append(token)
            is_spaced = False
        if len(found) > MAX_TOKENS:
            raise NotMathError("too many signs")
    return found, is_doubtful


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
            return _wrapped(text, name, end, is_spaced)
        return (None, end) if name in _DROPPED else (Token("command", name, is_spaced), end)
    if kind == "chinese":
        return Token(
            "join" if match.group() in _CHINESE_JOINS else "chinese", match.group(), is_spaced
        ), end
    if kind == "word":
        return _word(match["word"], is_spaced), end
    assert kind in ("number", "sign"), f"a piece of kind {kind}"
    return Token("number" if kind == "number" else "sign", match.group(), is_spaced), end


def _word(word: str, is_spaced: bool) -> Token:
    if word.lower() in ("and", "or"):
        return Token("join", ",", is_spaced)
    if word == "to":
        return Token("sign", ":", is_spaced)
    return Token("name" if len(word) == 1 else "word", word, is_spaced)


def _wrapped(text: str, name: str, place: int, is_spaced: bool) -> tuple[Token | None, int]:
    """Read what a text command wraps; `\\boxed` and bare switches wrap mathematics and leave only
    their braces."""
    while place < len(text) and text[place] == " ":
        place += 1
    if name in _OVER_ONE and text[place : place + 1].isalnum():
        return Token("text", text[place], is_spaced, name), place + 1
    if place >= len(text) or text[place] != "{" or name in ("boxed", "fbox"):
        return None, place
    end = _after_group(text, place)
    content = text[place + 1 : end - 1].strip()
    if name not in _OVER_ONE - {"mathbf", "mathrm"} and _MATHEMATICS.match(content):
        return None, place
    if content == "to":
        return Token("sign", ":", is_spaced), end
    if _JOINS.fullmatch(content):
        return Token("join", ",", is_spaced), end
    return Token("text", content, is_spaced, name), end


def _after_group(text: str, place: int) -> int:
    """Find the end of the brace group that opens at `place`, or of none."""
    while place < len(text) and text[place] == " ":
        place += 1
    if place >= len(text) or text[place] != "{":
        return place
    depth = 0
    for index in range(place, len(text)):
        depth += (text[index] == "{") - (text[index] == "}")
        if depth == 0:
            return index + 1
    raise NotMathError("a brace is not closed")
