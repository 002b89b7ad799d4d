"""What holds for any numbers: equal ones are equal in every spelling, others never are."""

import random
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
from math_problems import is_right, verdict

from whet.types import Verdict

numbers = st.fractions(min_value=-2000, max_value=2000, max_denominator=400)
whole = st.integers(min_value=-5000, max_value=5000)


def spellings(value: Fraction) -> list[str]:
    sign, top, bottom = "-" if value < 0 else "", abs(value.numerator), value.denominator
    forms = [
        rf"{sign}\frac{{{top}}}{{{bottom}}}",
        rf"\dfrac{{{value.numerator}}}{{{bottom}}}",
        f"{sign}{top}/{bottom}",
        rf"$ {sign} \tfrac {{{3 * top}}} {{{3 * bottom}}} $",
        f"x = {sign}{top}/{bottom}",
        rf"\left({sign}\frac{{{top}}}{{{bottom}}}\right)",
    ]
    if top > bottom > 1:
        forms.append(rf"{sign}{top // bottom}\frac{{{top % bottom}}}{{{bottom}}}")
        forms.append(f"{sign}{top // bottom} {top % bottom}/{bottom}")
    if bottom == 1:
        forms += [
            f"{value.numerator:,}",
            f"{value.numerator}.0",
            rf"{value.numerator} \text{{ units}}",
        ]
    if 10**6 % bottom == 0:
        forms.append(f"{float(value):.6f}")
    return forms


@given(numbers, st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_a_rational_is_itself_in_every_spelling(value: Fraction, choice: random.Random) -> None:
    gold, answer = choice.choice(spellings(value)), choice.choice(spellings(value))

    assert is_right(gold, answer), (gold, answer)


@given(numbers, numbers, st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_different_rationals_are_never_the_same(
    a: Fraction, b: Fraction, choice: random.Random
) -> None:
    gold, answer = choice.choice(spellings(a)), choice.choice(spellings(b))

    assert is_right(gold, answer) == (a == b), (gold, answer)


@given(st.lists(whole, min_size=2, max_size=6, unique=True), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_sets_may_be_reordered_and_tuples_may_not(items: list[int], choice: random.Random) -> None:
    shuffled = choice.sample(items, len(items))
    listed, other = (", ".join(map(str, row)) for row in (items, shuffled))

    assert is_right(rf"\{{{listed}\}}", rf"\{{{other}\}}")
    assert is_right(listed, other)
    assert is_right(f"({listed})", f"({other})") == (items == shuffled)
    assert not is_right(rf"\{{{listed}\}}", rf"\{{{listed}, 9999\}}")


@given(
    st.lists(st.tuples(st.integers(1, 9), st.sampled_from("abxyz")), min_size=2, max_size=5),
    st.randoms(),
)
@settings(max_examples=60, deadline=None)
def test_sums_and_products_commute(terms: list[tuple[int, str]], choice: random.Random) -> None:
    written = [f"{number}{letter}" for number, letter in terms]
    shuffled = choice.sample(written, len(written))

    assert is_right("+".join(written), "+".join(shuffled))
    assert is_right(r"\cdot ".join(written), " ".join(f"({term})" for term in shuffled))
    assert not is_right("+".join(written), "+".join(shuffled) + "+1")


@given(
    whole,
    whole,
    st.sampled_from(["()", "[]", "(]", "[)"]),
    st.sampled_from(["()", "[]", "(]", "[)"]),
)
@settings(max_examples=60, deadline=None)
def test_intervals_are_the_same_only_with_the_same_ends(a: int, b: int, one: str, two: str) -> None:
    gold, answer = f"{one[0]}{a}, {b}{one[1]}", f"{two[0]}{a}.0, {b}{two[1]}"

    assert is_right(gold, answer) == (one == two)


@given(st.integers(1, 60), st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_roots_are_compared_by_value(a: int, b: int) -> None:
    assert is_right(rf"\sqrt{{{a * a * b}}}", rf"{a}\sqrt{{{b}}}")
    assert is_right(rf"\sqrt{{{a}}}", rf"\sqrt{{{b}}}") == (a == b)


@given(st.text(alphabet="0123456789+-*/^()[]{}\\$.,;:!%|&=<> fracsqtboxedpinm_\n√π²", max_size=80))
@settings(max_examples=300, deadline=None)
def test_any_text_gets_a_verdict_and_garbage_is_never_right(text: str) -> None:
    assert verdict(r"\frac{12345677}{98765}", text) in (Verdict.WRONG, Verdict.NO_ANSWER)
    assert verdict(text, r"\boxed{\frac{12345677}{98765}}") is not Verdict.CORRECT


@given(st.integers(1, 10**6), st.sampled_from("xyt"))
@settings(max_examples=30, deadline=None)
def test_a_corner_is_seen_wherever_it_is(corner: int, name: str) -> None:
    distance = f"|{name}-{corner}|"

    assert is_right(distance, f"|{corner}-{name}|")
    assert is_right(distance, rf"\sqrt{{({name}-{corner})^2}}")
    assert not is_right(distance, f"{corner}-{name}")
    assert not is_right(distance, f"{name}-{corner}")


@given(st.integers(2, 10**6), st.integers(0, 50))
@settings(max_examples=30, deadline=None)
def test_a_floor_with_any_denominator_is_told_from_its_neighbour(bottom: int, start: int) -> None:
    floor = rf"\lfloor\frac{{n+{start}}}{{{bottom}}}\rfloor"

    assert is_right(floor, rf"\lceil\frac{{n+{start}-{bottom - 1}}}{{{bottom}}}\rceil")
    assert not is_right(floor, rf"\lfloor\frac{{n+{start + 1}}}{{{bottom}}}\rfloor")


@given(st.integers(30, 900))
@settings(max_examples=30, deadline=None)
def test_a_tiny_value_is_nothing_but_itself(exponent: int) -> None:
    assert is_right(f"e^{{-{exponent}}}", rf"\frac{{1}}{{e^{{{exponent}}}}}")
    assert not is_right(f"e^{{-{exponent}}}", "0")
    assert not is_right(rf"\sqrt{{10^{{{2 * exponent}}}+1}}", f"10^{{{exponent}}}")
