"""Read numbers, arrays and matrices as CLRS-Text prints them, and write them so. Exact, bounded, no
`eval`.

Spaces or commas part the elements, and 0.50, 0.5 and 5e-1 are the same number; nothing else is
forgiven: brackets and order count.
"""

import re
from decimal import Decimal

Item = Decimal | tuple["Item", ...]
"""A number, or an array: 0 for square and 1 for round brackets, then its elements."""

MAX_CHARS = 1 << 16
MAX_DEPTH = 4

_PIECE = re.compile(
    r"\s*([\[\](),]|[-+]?[0-9]{1,30}(?:\.[0-9]{0,30})?(?:[eE][-+]?[0-9]{1,3})?(?![\w.]))"
)
_CLOSING = {"[": "]", "(": ")"}


def parse(text: str) -> tuple[Item, ...] | None:
    """Read the items of a text; None where it holds anything else.

    >>> parse("[1 0.50], 2") == parse("[1, 5e-1] 2.0"), parse("[1 2]") == parse("(1, 2)"), parse("[1 ᧑]")
    (True, False, None)
    """
    text = text.rstrip()
    if len(text) > MAX_CHARS:
        return None
    place = 0
    levels: list[tuple[str, list[Item]]] = [("", [])]
    while place < len(text):
        found = _PIECE.match(text, place)
        if not found:
            return None
        place = found.end()
        piece = found[1]
        if piece in _CLOSING:
            if len(levels) > MAX_DEPTH:
                return None
            levels.append((piece, []))
        elif piece in ("]", ")"):
            opening, items = levels.pop()
            if not levels or _CLOSING.get(opening) != piece:
                return None
            levels[-1][1].append((Decimal("[(".index(opening)), *items))
        elif piece != ",":
            levels[-1][1].append(Decimal(piece))
    return tuple(levels[0][1]) if len(levels) == 1 else None


def matching(told: tuple[Item, ...], gold: tuple[Item, ...]) -> float:
    """State the share of places, of the longer of the two, with the right item; 1 where both are
    empty."""
    longer = max(len(told), len(gold))
    return sum(a == b for a, b in zip(told, gold, strict=False)) / longer if longer else 1.0


def written(values: "Printed") -> str:
    """Print a number, an array or a matrix: `[[0.5 1], [2 3]]`."""
    if not isinstance(values, list):
        return str(values)
    return f"[{(', ' if isinstance(values[0], list) else ' ').join(written(value) for value in values)}]"


Printed = int | float | list["Printed"]
