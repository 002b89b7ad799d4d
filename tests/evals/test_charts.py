"""Curves made ready to draw."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.evals.html_report import MAX_POINTS, make_series, ticks
from whet.evals.report_data import Curve


def curve(values: list[float], **more: list[float]) -> Curve:
    return Curve(name="c", stage="RL", steps=list(range(len(values))), values=values, **more)


def test_a_short_curve_is_drawn_as_it_is() -> None:
    points = make_series(curve([1.0, 3.0, 2.0]))
    assert points is not None
    assert points.values.tolist() == [1.0, 3.0, 2.0]
    assert (points.window, points.bin_size, points.num_dropped) == (0, 1, 0)


def test_values_that_are_not_finite_are_left_out_and_counted() -> None:
    points = make_series(
        curve([1.0, float("nan"), 2.0, float("inf")], low=[0.0] * 4, high=[3.0] * 4)
    )
    assert points is not None
    assert points.steps.tolist() == [0.0, 2.0]
    assert points.low.tolist() == [0.0, 0.0]
    assert points.num_dropped == 2


def test_a_curve_without_a_finite_value_is_nothing() -> None:
    assert make_series(curve([float("nan")])) is None
    assert make_series(curve([])) is None


def test_a_long_curve_keeps_its_mean_and_its_span_in_fewer_points() -> None:
    points = make_series(curve([float(v) for v in range(3 * MAX_POINTS)]))
    assert points is not None
    assert points.bin_size == 3
    assert len(points.values) == MAX_POINTS
    assert points.values[:2].tolist() == [1.0, 4.0]  # means of 0 1 2 and 3 4 5
    assert points.span == (0.0, 3 * MAX_POINTS - 1)


def test_a_last_bin_that_is_not_full_is_averaged_over_what_it_has() -> None:
    points = make_series(curve([1.0] * (MAX_POINTS + 1)))
    assert points is not None
    assert set(points.values.tolist()) == {1.0}


def test_the_running_mean_of_a_constant_is_the_constant_up_to_the_ends() -> None:
    points = make_series(curve([2.0] * 100))
    assert points is not None
    assert points.window == 5
    np.testing.assert_allclose(points.smooth, 2.0)


def test_a_band_of_another_length_is_refused() -> None:
    with pytest.raises(AssertionError, match="half a band"):
        make_series(curve([1.0, 2.0], low=[1.0, 1.0]))


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6), st.integers(4, 9))
def test_ticks_enclose_the_values_and_are_few(low: float, width: float, most: int) -> None:
    found = ticks(low, low + width, most)
    slack = 1e-6 * max(1e-9, found[-1] - found[0])
    assert found[0] - slack <= low <= low + width <= found[-1] + slack
    assert 2 <= len(found) <= most
    assert found == sorted(set(found))


@pytest.mark.parametrize("value", [0.0, 5e-324, 1e-9, -7.0, 3e38])
def test_ticks_around_a_flat_line_stand_apart(value: float) -> None:
    found = ticks(value, value, 5)
    assert found[0] < value < found[-1]


def test_ticks_are_round() -> None:
    assert ticks(0.0, 0.83, 5) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert ticks(0, 299, 6) == [0.0, 100.0, 200.0, 300.0]
