"""The payload of a question about a numbered graph, as a type."""

from collections.abc import Mapping
from dataclasses import dataclass

from whet.errors import DataError
from whet.types import Json

MAX_NODES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """See `kinds` for the layout; what a kind has no use for is empty or 0."""

    kind: str
    n: int
    edges: tuple[tuple[int, ...], ...]
    pair: tuple[int, int]
    weights: tuple[int, ...]
    pattern_n: int
    pattern: tuple[tuple[int, int], ...]
    jobs: int
    embeddings: tuple[tuple[int, int], ...]
    layers: int

    @staticmethod
    def from_payload(payload: Mapping[str, Json]) -> "Table":
        inner = payload.get("pattern")
        pattern = inner if isinstance(inner, dict) else {}
        n = _count(payload, "nodes")
        jobs = _count(payload, "jobs")
        pattern_n = _count(pattern, "nodes")
        right = jobs if payload.get("kind") == "matching" else n
        pairs = _rows(payload, "pair") or [(0, 0)]
        embeddings = _rows(payload, "embeddings")
        return Table(
            kind=str(payload.get("kind")),
            n=n,
            edges=tuple(_within(row, n, right) for row in _rows(payload, "edges")),
            pair=_two(_within(pairs[0], n, n)) if n else (0, 0),
            weights=_padded(next(iter(_rows(payload, "weights")), ()), n),
            pattern_n=pattern_n,
            pattern=tuple(
                _two(_within(row, pattern_n, pattern_n)) for row in _rows(pattern, "edges")
            ),
            jobs=jobs,
            embeddings=tuple(_two(row) for row in embeddings) or ((0, 0),) * n,
            layers=min(_count(payload, "layers"), 8),
        )

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return [(edge[0], edge[1]) for edge in self.edges]

    @property
    def weighted(self) -> list[tuple[int, int, int]]:
        """Edges with their weights; one without a weight has 1."""
        return [(edge[0], edge[1], edge[2] if len(edge) > 2 else 1) for edge in self.edges]


def _count(payload: Mapping[str, Json], key: str) -> int:
    number = payload.get(key, 0)
    if isinstance(number, int) and 0 <= number <= MAX_NODES:
        return number
    raise DataError(f"payload.{key} should be a whole number from 0 to {MAX_NODES}, not {number!r}")


def _rows(payload: Mapping[str, Json], key: str) -> list[tuple[int, ...]]:
    """Read a list of rows of whole numbers; a flat list counts as one row."""
    rows = payload.get(key) or []
    if isinstance(rows, list) and rows and not isinstance(rows[0], list):
        rows = [rows]
    found = []
    for row in rows if isinstance(rows, list) else [None]:
        whole = [part for part in row if isinstance(part, int)] if isinstance(row, list) else []
        if not isinstance(row, list) or len(whole) != len(row) or not whole:
            raise DataError(f"payload.{key} should hold rows of whole numbers, not {row!r}")
        found.append(tuple(whole))
    return found


def _within(row: tuple[int, ...], left: int, right: int) -> tuple[int, ...]:
    if len(row) not in (2, 3) or not (0 <= row[0] < left and 0 <= row[1] < right):
        raise DataError(
            f"an edge or pair names two of {max(left, right)} nodes by number, not {list(row)}"
        )
    return row


def _two(row: tuple[int, ...]) -> tuple[int, int]:
    if len(row) != 2:
        raise DataError(f"expected two whole numbers, not {list(row)}")
    return row[0], row[1]


def _padded(row: tuple[int, ...], n: int) -> tuple[int, ...]:
    return (row + (0,) * n)[:n]
