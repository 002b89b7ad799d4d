import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.tasks.game24.rationals import parse


@pytest.mark.parametrize(
    ("text", "value", "leaves"),
    [
        ("1 + 2 * 3", (7, 1), (1, 2, 3)),
        ("(1 + 2) * 3", (9, 1), (1, 2, 3)),
        ("10 - 4 - 3", (3, 1), (3, 4, 10)),
        ("24 / 4 / 3", (2, 1), (3, 4, 24)),
        ("8 / (3 - 8 / 3)", (24, 1), (3, 3, 8, 8)),
        ("-(3 - 8)", (5, 1), (3, 8)),
        ("-3 * -8", (24, 1), (3, 8)),
        ("5 - -2", (7, 1), (2, 5)),
        ("((((7))))", (7, 1), (7,)),
        ("1 / (2 - 2)", None, (1, 2, 2)),
        ("1 / 0 + 3", None, (0, 1, 3)),
    ],
)
def test_expressions_have_their_exact_value_and_leaves(text, value, leaves):
    found = parse(text)
    assert (found.value, found.leaves) == (value, leaves)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "(",
        "1 +",
        "1 2",
        "(1",
        "1)",
        "()",
        "2 ** 3",
        "2 // 3",
        "1.5",
        "1e4",
        "x",
        "abs(24)",
        "24 # 1 2 3 4",
        "٢ + 2",
        "1\n+ 2",
        "9" * 10,
        "+1",
        "* 2",
        "1 + " * 90 + "1",
        "(" * 100 + "1" + ")" * 100,
        "-" * 200 + "1",
    ],
)
def test_nothing_else_is_an_expression(text):
    assert parse(text) is None


def test_ten_thousand_brackets_cost_nothing():
    start = time.perf_counter()
    assert parse("(" * 10_000 + "1" + ")" * 10_000) is None
    assert time.perf_counter() - start < 0.05


@st.composite
def expressions(draw, depth=3):
    if depth == 0 or draw(st.booleans()):
        leaf = draw(st.integers(1, 13))
        return str(leaf), Fraction(leaf)
    (left, a), (right, b) = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    symbol = draw(st.sampled_from("+-*/"))
    if a is None or b is None or (symbol == "/" and b == 0):
        return f"({left} {symbol} {right})", None
    return f"({left} {symbol} {right})", {
        "+": a + b,
        "-": a - b,
        "*": a * b,
        "/": a / b if b else None,
    }[symbol]


@given(expressions())
def test_values_agree_with_fractions(case):
    text, value = case
    assert parse(text).value == (None if value is None else (value.numerator, value.denominator))
