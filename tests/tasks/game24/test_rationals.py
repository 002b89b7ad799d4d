from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from whet.tasks.game24.rationals import combine, read, write


def test_reading_reduces_and_keeps_the_sign_above():
    assert read("-6/4") == (-3, 2)
    assert read("12") == (12, 1)
    assert read("1.50") == (3, 2)


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
        assert read(text) is None


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
    assert read(write(pair)) == pair
