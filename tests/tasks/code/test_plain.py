import json
import math
from collections import Counter, OrderedDict, deque, namedtuple
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.tasks.code import plain
from whet.tasks.code.plain import NotPlainError, decode_value, encode_value

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
)
KEYS = st.integers() | st.text() | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner) | st.sets(KEYS)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_plain_data_comes_back_the_same_through_json(value: object) -> None:
    back = decode_value(json.loads(json.dumps(encode_value(value))))

    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        10**400,
        -(2**53),
        math.inf,
        2 + 3j,
        range(1, 9, 3),
        frozenset({1}),
        deque([1, 2]),
        Fraction(1, 3),
        Decimal("0.1"),
    ],
)
def test_rarer_types_come_back_the_same(value: object) -> None:
    assert decode_value(json.loads(json.dumps(encode_value(value)))) == value


def test_subclasses_come_back_as_what_they_are_made_of() -> None:
    class Sly(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    pair = namedtuple("pair", "a b")
    kind = IntEnum("kind", "ONE TWO")
    back = decode_value(
        encode_value(
            [Sly(3), pair(1, 2), kind.TWO, Counter("aab"), OrderedDict(a=1), bytearray(b"x")]
        )
    )

    assert back == [3, (1, 2), 2, {"a": 2, "b": 1}, {"a": 1}, b"x"]
    assert back[0] != 4


def test_a_chain_of_twenty_thousand_nodes_crosses() -> None:
    class Node:
        def __init__(self, value: int, next: object) -> None:
            self.value, self.next = value, next

    chain = None
    for number in range(20_000):
        chain = Node(number, chain)
    back = decode_value(encode_value(chain, {"Node": Node}), {"Node": Node})

    for number in reversed(range(20_000)):
        assert isinstance(back, Node) and back.value == number
        back = back.next
    assert back is None


def test_what_cannot_cross_is_refused_or_kept_under_a_number() -> None:
    with pytest.raises(NotPlainError, match="a object is not plain data"):
        encode_value([object()])
    back = decode_value(encode_value([object()], keep=lambda _: 7))

    assert isinstance(back, list) and isinstance(back[0], plain.Remote)
    assert (back[0].remote_number, back[0].remote_kind, back[0].remote_truth) == (7, "object", True)
    assert encode_value(back) == [["h", 7, "object", 1], ["l", 1]]


def test_a_list_that_holds_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "MAX_ENTRIES", 1000)
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(NotPlainError, match="more than"):
        encode_value(loop)


@pytest.mark.parametrize(
    "entries",
    [
        None,
        {},
        [],
        [1, 2],
        [["l", 1]],
        [["l", -1]],
        [["x", 0]],
        [["l"]],
        [[]],
        [["o", "Node", 0]],
        [["h", "x", 1]],
        [["h", 1, "x"]],
        [["f", "soon"]],
        [["i", "zz"]],
        [["D", "soon"]],
        [["b", "zz"]],
        [1, 0, ["F", 2]],
        [["l", 0], ["s", 1]],
        [1, 2, 0, ["r", 3]],
        [["s", 0], 1, ["d", 1]],
        ["a", "b", ["c", 2]],
        [[["l", 0], 1]],
        [["r", True]],
    ],
)
def test_anything_else_is_not_plain_data(entries: object) -> None:
    with pytest.raises(NotPlainError):
        decode_value(entries)
