"""Read lists and tables a model wrote: JSON, Python literals, or words without quotes. Own reader,
bounded, no `eval`.

Every leaf is its text, so that 1, 1.0 and "1" stay apart until a task says what they mean.
"""

import json
import re

Tree = str | list["Tree"] | dict[str, "Tree"]

MAX_CHARS = 1 << 16
MAX_DEPTH = 8

_PIECE = re.compile(
    r"""\s*(?:([\[\]{}(),:])|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|([^\[\]{}(),:"'\s][^\[\]{}(),:"\n]*))""",
    re.DOTALL,
)
_OPENING = re.compile(r"\{(?=\s*[\"'}])")
_CLOSING = {"[": "]", "(": ")", "{": "}"}


def parse(text: str) -> Tree | None:
    """Parse a whole text; None where it is no literal, says a key twice, or is longer or deeper
    than any honest one.

    >>> parse("{'rows': [[1, 'red'], [2, blue jay]]}")
    {'rows': [['1', 'red'], ['2', 'blue jay']]}
    """
    if len(text) > MAX_CHARS:
        return None
    pieces = _pieces(text)
    if pieces is None:
        return None
    try:
        reader = _Reader(pieces)
        tree = reader.tree(0)
    except _SyntaxError:
        return None
    return tree if reader.is_done else None


def last_object(text: str) -> str | None:
    """Cut out the last complete JSON object; None where one is opened and not closed. Braces of
    prose do not count.

    >>> last_object('{so} then {"a": {"b": 1}}.')
    '{"a": {"b": 1}}'
    """
    starts: list[int] = []
    best = None
    is_quoted = False
    is_escaped = False
    objects = {found.start() for found in _OPENING.finditer(text)}
    for place, sign in enumerate(text):
        if is_quoted:
            is_quoted = is_escaped or sign != '"'
            is_escaped = not is_escaped and sign == "\\"
        elif sign == '"':
            is_quoted = bool(starts)
        elif place in objects:
            starts.append(place)
        elif sign == "}" and starts:
            best = (starts.pop(), place + 1)
    return text[slice(*best)] if best and not starts else None


def plain(text: str) -> str:
    """Fold case and spaces, for words that are compared."""
    return " ".join(text.split()).casefold()


class _SyntaxError(Exception):
    """Raised and caught in this file only."""


def _pieces(text: str) -> list[tuple[str, bool]] | None:
    """Cut a text into marks and words; the flag says that a piece is a word."""
    pieces = []
    place = 0
    text = text.rstrip()
    while place < len(text):
        found = _PIECE.match(text, place)
        if not found:
            return None
        mark, quoted, bare = found.groups()
        pieces.append(
            (mark, False) if mark else (_unquoted(quoted) if quoted else bare.strip(), True)
        )
        place = found.end()
    return pieces


def _unquoted(quoted: str) -> str:
    if quoted[0] == '"':
        try:
            return str(json.loads(quoted, strict=False))
        except ValueError:
            pass
    return re.sub(r"\\(.)", r"\1", quoted[1:-1], flags=re.DOTALL)


class _Reader:
    def __init__(self, pieces: list[tuple[str, bool]]) -> None:
        self._pieces = [*pieces, ("", False)]
        self._place = 0

    @property
    def is_done(self) -> bool:
        return self._place == len(self._pieces) - 1

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
        piece, is_word = self._pieces[self._place]
        return "" if is_word else piece

    def _takes(self, mark: str) -> bool:
        if self._peek() != mark:
            return False
        self._place += 1
        return True

    def _next(self) -> tuple[str, bool]:
        if self.is_done:
            raise _SyntaxError
        piece = self._pieces[self._place]
        self._place += 1
        return piece
