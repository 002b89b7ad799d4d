import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.tasks.expressions import (
    combine,
    parse_expression,
    read_value,
    write_value,
)
from whet.tasks.game24.lines import (
    AnswerLine,
    Left,
    RollBackLine,
    StepLine,
    lines_of,
    read_line,
)


def test_reading_reduces_and_keeps_the_sign_above():
    assert read_value("-6/4") == (-3, 2)
    assert read_value("12") == (12, 1)
    assert read_value("1.50") == (3, 2)


def test_only_plain_numbers_are_read():
    for text in (
        "",
        "1e400",
        "٣",
        "1/0",
        "1//2",
        "--1",
        "1 ",
        "1_0",
        "0x10",
        "9" * 10,
        "+3",
        "1/2/3",
    ):
        assert read_value(text) is None


def test_division_by_zero_has_no_value():
    assert combine((3, 1), "/", (0, 1)) is None


@given(st.fractions(max_denominator=99), st.sampled_from("+-*/"), st.fractions(max_denominator=99))
def test_operations_agree_with_fractions(a, symbol, b):
    left, right = (a.numerator, a.denominator), (b.numerator, b.denominator)
    expected = {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "/": lambda: a / b if b else None,
    }[symbol]()
    found = combine(left, symbol, right)
    assert found == (None if expected is None else (expected.numerator, expected.denominator))


@given(st.fractions(min_value=-9999, max_value=9999, max_denominator=999))
def test_what_is_written_is_read_back(value: Fraction):
    pair = (value.numerator, value.denominator)
    assert read_value(write_value(pair)) == pair


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
    found = parse_expression(text)
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
    assert parse_expression(text) is None


def test_ten_thousand_brackets_cost_nothing():
    start = time.process_time()
    assert parse_expression("(" * 10_000 + "1" + ")" * 10_000) is None
    assert time.process_time() - start < 0.05


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
    assert parse_expression(text).value == (
        None if value is None else (value.numerator, value.denominator)
    )


@pytest.mark.parametrize(
    "line",
    [
        "13 - 1 = 12, left: 12 8 6",
        "(13) - (1) = 12, left: 12, 8, 6",
        "13-1=12, left: 8 6 12",
        "13 - 1 = 12 (left: 6 8 12)",
    ],
)
def test_a_step_may_be_written_in_every_format(line):
    assert read_line(line) == StepLine(
        (13, 1), "-", (1, 1), (12, 1), Left(((6, 1), (8, 1), (12, 1)), None), True
    )


def test_a_step_without_a_list_has_none():
    assert read_line("6 / 8/3 = 9/4") == StepLine((6, 1), "/", (8, 3), (9, 4), None, False)
    assert read_line("-5 - -2 = -3") == StepLine((-5, 1), "-", (-2, 1), (-3, 1), None, False)


def test_left_items_with_expressions_name_their_cards():
    step = read_line("(13) - (1) = 12, left: (13 - 1) = 12, 8, 6")
    assert isinstance(step, StepLine)
    assert step.left == Left(((6, 1), (8, 1), (12, 1)), (1, 6, 8, 13))


@pytest.mark.parametrize(
    "items",
    ["", " ", "12 8 six", "1 2 3 4 5", "(13 - 1) = 11, 8", "(13 - = 12, 8", "(2 * 6) = 12 8"],
)
def test_a_list_that_cannot_be_read_is_none(items):
    step = read_line(f"13 - 1 = 12, left:{items}")
    assert isinstance(step, StepLine)
    assert step.left is None and step.has_left


def test_roll_backs_come_in_two_words_or_one():
    root = Left(((1, 1), (6, 1), (8, 1), (13, 1)), None)
    assert (
        read_line("roll back, left: 13 8 6 1")
        == read_line("back, left: 13, 8, 6, 1")
        == RollBackLine(root)
    )
    assert read_line("roll back") == RollBackLine(None)


@pytest.mark.parametrize(
    "line",
    [
        "reach 24! expression: (1 + 2 + 3) * 4",
        "expression: (1 + 2 + 3) * 4",
        "ANSWER: (1 + 2 + 3) * 4 = 24",
        "(1 + 2 + 3) * 4",
        "(1 + 2 + 3) * 4 = 24",
    ],
)
def test_an_answer_may_be_written_in_many_ways(line):
    answer = read_line(line)
    assert isinstance(answer, AnswerLine)
    assert answer.expression.value == (24, 1)


@pytest.mark.parametrize(
    "line", ["", "Steps:", "so it is 24", "(6) + (1)", "24", "1 + 2 = x", "1 / 0 = 1/0", "9" * 600]
)
def test_other_lines_are_nothing(line):
    assert read_line(line) is None


def test_printed_signs_are_read_as_plain_ones():
    assert lines_of(
        "  13 \N{MINUS SIGN} 1 = 12 \n\n 6 \N{MULTIPLICATION SIGN} 4 \N{DIVISION SIGN} 1 "
    ) == [
        "13 - 1 = 12",
        "6 * 4 / 1",
    ]
