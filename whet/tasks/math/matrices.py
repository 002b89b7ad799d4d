"""Sums and products that may hold matrices. These are worked out as they are read, since their
order matters."""

from collections.abc import Sequence

from whet.tasks.math import tree
from whet.tasks.math.tree import Node, NotMathError

MAX_CELLS = 400
MAX_DETERMINANT = 4


def plus(a: Node, b: Node) -> Node:
    if not (_is_matrix(a) or _is_matrix(b)):
        return tree.add(a, b)
    left = _cells(a)
    right = _cells(b)
    if [len(row) for row in left] != [len(row) for row in right]:
        raise NotMathError("matrices of different shapes")
    return _matrix(
        [
            [tree.add(x, y) for x, y in zip(r, s, strict=True)]
            for r, s in zip(left, right, strict=True)
        ]
    )


def times(a: Node, b: Node) -> Node:
    if not (_is_matrix(a) or _is_matrix(b)):
        return tree.mul(a, b)
    if not _is_matrix(a) or not _is_matrix(b):
        scale, matrix = (b, a) if _is_matrix(a) else (a, b)
        return _matrix([[tree.mul(scale, cell) for cell in row] for row in _cells(matrix)])
    left = _cells(a)
    right = _cells(b)
    columns = list(zip(*right, strict=True))
    if (
        any(len(row) != len(right) for row in left)
        or len(left) * len(right) * len(columns) > MAX_CELLS
    ):
        raise NotMathError("matrices that cannot be multiplied")
    return _matrix([[_dot(row, column) for column in columns] for row in left])


def negative(node: Node) -> Node:
    return times(tree.MINUS_ONE, node) if _is_matrix(node) else tree.negative(node)


def determinant(rows: Sequence[Sequence[Node]]) -> Node:
    """Work out the determinant that bars around a table stand for."""
    if not rows or len(rows) > MAX_DETERMINANT or any(len(row) != len(rows) for row in rows):
        raise NotMathError("not a determinant")
    if len(rows) == 1:
        return rows[0][0]
    terms = []
    for column, cell in enumerate(rows[0]):
        minor = determinant([[*row[:column], *row[column + 1 :]] for row in rows[1:]])
        terms.append(tree.mul(tree.number((-1) ** column), cell, minor))
    return tree.add(*terms)


def _is_matrix(node: Node) -> bool:
    return node.kind == "seq" and node.name == "matrix"


def _cells(matrix: Node) -> list[tuple[Node, ...]]:
    if not _is_matrix(matrix):
        raise NotMathError("a matrix and something else")
    return [row.args for row in matrix.args]


def _matrix(rows: list[list[Node]]) -> Node:
    return tree.seq("matrix", [tree.seq("row", row) for row in rows])


def _dot(row: tuple[Node, ...], column: tuple[Node, ...]) -> Node:
    return tree.add(*(tree.mul(x, y) for x, y in zip(row, column, strict=True)))
