"""Numbers as they are read, and findings no stronger than their intervals."""

import pytest

from whet.evals.stats import Estimate
from whet.reports.formatting import describe_change, duration, number, points, significant

OLD = Estimate(mean=0.18, low=0.16, high=0.2, count=400)
NEW = Estimate(mean=0.34, low=0.31, high=0.37, count=400)


def plain(text: str) -> str:
    return text.replace("\xa0", " ")


def test_a_gain_is_told_with_both_intervals() -> None:
    told = describe_change("RL", "unseen hands", OLD, NEW)
    assert (
        plain(told)
        == "RL raised the share of unseen hands solved from 18 % [16, 20] to 34 % [31, 37]."
    )


def test_a_loss_is_called_a_loss() -> None:
    assert "lowered" in describe_change("RL", "unseen hands", NEW, OLD)


def test_overlapping_intervals_are_no_finding() -> None:
    near = Estimate(mean=0.21, low=0.19, high=0.23, count=400)
    told = plain(describe_change("RL", "hands", OLD, near))
    assert (
        told
        == "RL did not measurably change the share of hands solved: 18 % [16, 20] before, 21 % [19, 23] after."
    )


def test_the_paired_difference_decides_where_it_is_known() -> None:
    near = Estimate(mean=0.21, low=0.19, high=0.23, count=400)
    assert "raised" in describe_change(
        "RL", "hands", OLD, near, Estimate(mean=0.03, low=0.01, high=0.05, count=400)
    )
    assert "did not" in describe_change(
        "RL", "hands", OLD, NEW, Estimate(mean=0.16, low=-0.01, high=0.3, count=3)
    )


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(-0.04, 1, "0.0"), (-1.25, 1, "−1.2"), (12345.6, 0, "12,346"), (0.0, 2, "0.00")],
)
def test_numbers_have_a_true_minus_and_no_minus_zero(value: float, digits: int, text: str) -> None:
    assert number(value, digits) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.5, "0.500"),
        (123.4, "123"),
        (0.00001, "1.0e−05"),
        (-0.0025, "−0.00250"),
        (float("nan"), "not finite"),
    ],
)
def test_three_digits_are_shown_whatever_the_size(value: float, text: str) -> None:
    assert significant(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.96, "10.0 s"),
        (59.6, "1 min 0 s"),
        (42, "42 s"),
        (3599.7, "1 h 0 min"),
        (7260, "2 h 1 min"),
    ],
)
def test_times_are_told_in_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_loss_of_points_has_one_sign() -> None:
    assert (
        plain(points(Estimate(mean=-0.05, low=-0.08, high=-0.02, count=9)))
        == "−5.0 points [−8.0, −2.0]"
    )
