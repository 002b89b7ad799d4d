"""Look up the nodes of a graph by their names, also as models write them: in another case, without
accents, or without what stands in brackets behind a name.
"""

import re
from collections.abc import Sequence
from unicodedata import combining, normalize

_QUALIFIER = re.compile(r" \([^()]*\)\Z")
"""May be left out: `Han River (Korea)`."""
_DRESS = " \t\r\n\"'`*_$\\.“”‘’"


class Names:
    """Look names up as written, or else loosely, where that leaves one node only."""

    def __init__(self, names: Sequence[str]) -> None:
        self._exact = {_plain(name): number for number, name in enumerate(names)}
        self._loose: dict[str, int | None] = {}
        self._bare: dict[str, int | None] = {}
        for name, number in self._exact.items():
            key = _loosen(name)
            self._loose[key] = None if key in self._loose else number
            bare = _drop_accents(name)
            for key in {bare, _QUALIFIER.sub("", bare)}:
                self._bare[key] = None if key in self._bare else number
        self.most_commas = max((name.count(",") for name in names), default=0)

    def find(self, piece: str) -> int | None:
        """Return the number of the node with this name, or None."""
        name = _plain(piece)
        if name in self._exact:
            return self._exact[name]
        bare = name.strip(_DRESS)
        if (key := _loosen(name)) in self._loose:
            return self._exact.get(bare, self._loose[key])
        return self._exact.get(bare, self._bare.get(_drop_accents(name)))


def _plain(name: str) -> str:
    return " ".join(normalize("NFC", name).split())


def _drop_accents(name: str) -> str:
    return "".join(sign for sign in normalize("NFKD", _loosen(name)) if not combining(sign))


def _loosen(name: str) -> str:
    # Not casefold: it makes one name of Schauß and Schauss, who are two authors in GraphArena.
    return name.strip(_DRESS).lower()
