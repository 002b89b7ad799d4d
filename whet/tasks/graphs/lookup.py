"""Find nodes by name: exactly where possible, else without regard to case and quotes."""

from collections.abc import Sequence
from unicodedata import normalize

_DRESS = " \t\r\n\"'`*_$\\.“”‘’"


class Names:
    """Look names up as written, or else loosely, where that leaves one node only."""

    def __init__(self, names: Sequence[str]) -> None:
        self._exact = {_plain(name): number for number, name in enumerate(names)}
        self._loose: dict[str, int | None] = {}
        for name, number in self._exact.items():
            key = _loosen(name)
            self._loose[key] = None if key in self._loose else number
        self.most_commas = max((name.count(",") for name in names), default=0)

    def find(self, piece: str) -> int | None:
        name = _plain(piece)
        if name in self._exact:
            return self._exact[name]
        bare = name.strip(_DRESS)
        return self._exact.get(bare, self._loose.get(_loosen(name)))


def _plain(name: str) -> str:
    return " ".join(normalize("NFC", name).split())


def _loosen(name: str) -> str:
    # Not casefold: it makes one name of Schauß and Schauss, who are two authors in GraphArena.
    return name.strip(_DRESS).lower()
