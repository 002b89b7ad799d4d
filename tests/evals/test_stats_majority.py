"""maj@k against hand counts and against counting every subset."""

from collections import Counter
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.evals import stats
from whet.evals.stats import majority_at_k, pass_at_k


def test_two_equal_answers_outvote_a_third() -> None:
    assert majority_at_k(["4", "4", "7"], [False, False, True], 3) == 0.0
    assert majority_at_k(["4", "4", "7"], [True, True, False], 3) == 1.0


def test_a_tie_is_drawn_by_lot() -> None:
    assert majority_at_k(["4", "7"], [True, False], 2) == 0.5


def test_silent_answers_do_not_vote() -> None:
    assert majority_at_k([None, None, "7"], [False, False, True], 3) == 1.0
    assert majority_at_k([None, None], [False, False], 2) == 0.0


def test_one_vote_is_pass_at_1() -> None:
    answers, right = ["1", "1", "2", None, "3"], [True, True, False, False, False]
    assert majority_at_k(answers, right, 1) == pytest.approx(pass_at_k(5, 2, 1), abs=1e-15)


@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=8), st.data())
def test_it_equals_the_mean_over_all_subsets(
    answers: list[str | None], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(answers)))
    right = [answer in ("a", "b") for answer in answers]
    subsets = list(combinations(answers, k))
    expected = sum((_chance(subset) for subset in subsets), Fraction(0)) / len(subsets)
    assert majority_at_k(answers, right, k) == pytest.approx(float(expected), abs=1e-12)


def test_drawn_subsets_agree_with_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ["a"] * 12 + ["b"] * 10 + ["c"] * 6 + [None] * 4
    right = [answer == "a" for answer in answers]
    exact = majority_at_k(answers, right, 9)
    monkeypatch.setattr(stats, "MAX_VOTE_PRODUCTS", 0)
    drawn = majority_at_k(answers, right, 9)
    assert drawn != exact
    assert drawn == pytest.approx(exact, abs=0.02)
    assert drawn == majority_at_k(answers, right, 9)


@pytest.mark.parametrize("k", [0, 3])
def test_impossible_k_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match="must lie between"):
        majority_at_k(["a", "b"], [True, False], k)


def _chance(subset: tuple[str | None, ...]) -> Fraction:
    votes = Counter(answer for answer in subset if answer is not None)
    first = [answer for answer, count in votes.items() if count == max(votes.values())]
    return Fraction(sum(answer in ("a", "b") for answer in first), len(first) or 1)
