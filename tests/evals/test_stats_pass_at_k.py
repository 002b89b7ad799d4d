"""pass@k against hand counts and against counting every subset."""

from fractions import Fraction
from itertools import combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.evals.stats import pass_at_k


def test_two_right_of_five_give_seven_tenths_for_two_draws() -> None:
    assert pass_at_k(5, 2, 2) == pytest.approx(0.7)  # 1 - C(3, 2) / C(5, 2) = 1 - 3 / 10


def test_pass_at_1_is_the_share_of_right_answers() -> None:
    assert pass_at_k(8, 3, 1) == pytest.approx(3 / 8)


def test_more_draws_than_wrong_answers_always_hit() -> None:
    assert pass_at_k(8, 1, 8) == 1.0
    assert pass_at_k(8, 6, 3) == 1.0


def test_no_right_answer_gives_exactly_zero() -> None:
    assert pass_at_k(8, 0, 8) == 0.0


@given(
    st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))
)
def test_it_equals_the_share_of_subsets_with_a_right_answer(case: tuple[int, int, int]) -> None:
    n, correct, k = case
    hits = sum(any(index < correct for index in subset) for subset in combinations(range(n), k))
    assert pass_at_k(n, correct, k) == pytest.approx(hits / comb(n, k))


@given(
    st.integers(1, 256).flatmap(
        lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))
    )
)
def test_it_equals_exact_combinatorics_to_twelve_digits(case: tuple[int, int, int]) -> None:
    n, correct, k = case
    exact = 1 - Fraction(comb(n - correct, k), comb(n, k))
    assert abs(Fraction(pass_at_k(n, correct, k)) - exact) < Fraction(1, 10**12)


def test_huge_counts_stay_accurate() -> None:
    n, correct, k = 20_000, 10, 1_000
    assert pass_at_k(n, correct, k) == pytest.approx(
        1 - comb(n - correct, k) / comb(n, k), rel=1e-12
    )


@pytest.mark.parametrize(
    ("n", "correct", "k"), [(4, 1, 5), (4, 1, 0), (4, 5, 1), (4, -1, 1), (0, 0, 1)]
)
def test_impossible_counts_are_refused(n: int, correct: int, k: int) -> None:
    with pytest.raises(ValueError, match="must lie between"):
        pass_at_k(n, correct, k)
