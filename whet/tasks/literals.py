"""Read lists and tables a model wrote: JSON, Python literals, or words without quotes.

A reader of our own: bounded, no `eval`. Every leaf is its text, so that 1, 1.0 and "1" stay apart
until a task says what they mean.
"""

import json
import re

Tree = str | list["Tree"] | dict[str, "Tree"]

MAX_CHARS = 1 << 16
MAX_DEPTH = 8

_PIECE = re.compile(
    r"""\s*(?:([\[\]{}(),:])|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|([^\[\]{}(),:"'\s][^\[\]{}(),:"\n]*))""",
    re.DOTALL,
)
_OPENING = re.compile(r"\{(?=\s*[\"'}])")
_CLOSING = {"[": "]", "(": ")", "{": "}"}


def parse(text: str) -> Tree | None:
    """Parse a whole text; None where it is no literal, repeats a key, or is too long or deep.

    >>> parse("{'rows': [[1, 'red'], [2, blue jay]]}")
    {'rows': [['1', 'red'], ['2', 'blue jay']]}
    """
    if len(text) > MAX_CHARS:
        return None
    pieces = _pieces(text)
    if pieces is None:
        return None
    try:
        parser = _Parser(pieces)
        tree = parser.tree(0)
    except _SyntaxError:
        return None
    return tree if parser.is_done else None


def last_object(text: str) -> str | None:
    """Cut out the last complete JSON object, prose in braces aside; None where one is not closed.

    >>> last_object('{so} then {"a": {"b": 1}}.')
    '{"a": {"b": 1}}'
    """
    starts: list[int] = []
    best = None
    is_quoted = False
    is_escaped = False
    objects = {match.start() for match in _OPENING.finditer(text)}
    for index, sign in enumerate(text):
        if is_quoted:
            is_quoted = is_escaped or sign != '"'
            is_escaped = not is_escaped and sign == "\\"
        elif sign == '"':
            is_quoted = bool(starts)
        elif index in objects:
            starts.append(index)
        elif sign == "}" and starts:
            best = (starts.pop(), index + 1)
    return text[slice(*best)] if best and not starts else None


def plain(text: str) -> str:
    """Fold case and spaces, for words that are compared."""
    return " ".join(text.split()).casefold()


class _SyntaxError(Exception):
    """Raised and caught in this file only."""


def _pieces(text: str) -> list[tuple[str, bool]] | None:
    """Cut a text into marks and words; the flag tells that a piece is a word."""
    pieces: list[tuple[str, bool]] = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _PIECE.match(text, position)
        if not match:
            return None
        mark, quoted, bare = match.groups()
        if mark:
            pieces.append((mark, False))
        else:
            pieces.append((_unquote(quoted) if quoted else bare.strip(), True))
        position = match.end()
    return pieces


def _unquote(quoted: str) -> str:
    if quoted[0] == '"':
        try:
            return str(json.loads(quoted, strict=False))
        except ValueError:
            pass
    return re.sub(r"\\(.)", r"\1", quoted[1:-1], flags=re.DOTALL)


class _Parser:
    def __init__(self, pieces: list[tuple[str, bool]]) -> None:
        self._pieces = [*pieces, ("", False)]
        self._position = 0

    @property
    def is_done(self) -> bool:
        return self._position == len(self._pieces) - 1

    def tree(self, depth: int) -> Tree:
        piece, is_word = self._next()
        if is_word:
            return piece
        if depth == MAX_DEPTH or piece not in _CLOSING:
            raise _SyntaxError
        return self._table(depth) if piece == "{" else self._list(_CLOSING[piece], depth)

    def _list(self, closing: str, depth: int) -> list[Tree]:
        items: list[Tree] = []
        while not self._takes(closing):
            items.append(self.tree(depth + 1))
            if not self._takes(",") and self._peek() != closing:
                raise _SyntaxError
        return items

    def _table(self, depth: int) -> dict[str, Tree]:
        items: dict[str, Tree] = {}
        while not self._takes("}"):
            key, is_word = self._next()
            if not is_word or key in items or not self._takes(":"):
                raise _SyntaxError
            items[key] = self.tree(depth + 1)
            if not self._takes(",") and self._peek() != "}":
                raise _SyntaxError
        return items

    def _peek(self) -> str:
        piece, is_word = self._pieces[self._position]
        return "" if is_word else piece

    def _takes(self, mark: str) -> bool:
        if self._peek() != mark:
            return False
        self._position += 1
        return True

    def _next(self) -> tuple[str, bool]:
        if self.is_done:
            raise _SyntaxError
        piece = self._pieces[self._position]
        self._position += 1
        return piece
