"""Curves made ready to draw."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.evals.stats import Estimate
from whet.reports.charts import (
    MAX_POINTS,
    Bar,
    BarRow,
    ForestRow,
    average_seeds,
    draw_bars,
    draw_curves,
    draw_forest,
    draw_legend,
    make_plot,
    make_series,
    ticks,
    tone,
    write_ticks,
)
from whet.reports.report_data import Curve, Unit


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


@pytest.mark.parametrize("value", [1e-9, -7.0, 3e38])
def test_ticks_around_a_flat_line_stand_apart(value: float) -> None:
    found = ticks(value, value, 5)
    assert found[0] < value < found[-1]


@pytest.mark.parametrize("value", [0.0, 5e-324])
def test_an_axis_of_nothing_but_zero_does_not_go_below_it(value: float) -> None:
    found = ticks(value, value, 5)
    assert found[0] == 0.0
    assert found[-1] == 1.0


def test_ticks_are_round() -> None:
    assert ticks(0.0, 0.83, 6) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(0, 299, 6) == [0.0, 100.0, 200.0, 300.0]
    assert ticks(0.0, 0.12, 6) == [0.0, 0.05, 0.1, 0.15]


def test_tick_labels_have_no_more_decimals_than_they_need_and_are_never_cut() -> None:
    assert write_ticks([0.0, 0.05, 0.1], Unit.FRACTION) == ["0\xa0%", "5\xa0%", "10\xa0%"]
    assert write_ticks([-0.5, 0.0, 0.5], Unit.NUMBER) == ["−0.5", "0.0", "0.5"]
    assert write_ticks([-2e-9, 0.0, 2e-9], Unit.NUMBER) == ["−2×10⁻⁹", "0", "2×10⁻⁹"]
    assert write_ticks([0.0, 1e12], Unit.NUMBER) == ["0", "1×10¹²"]
    plot = make_plot("Loss", [curve([-2e-9, 2e-9])])
    assert plot is not None
    longest = max(map(len, plot.y_texts))
    assert plot.left >= 6 * longest + 6, "11 pixel digits are about 6 wide"


def test_steps_are_labelled_by_whole_numbers_once_each() -> None:
    plot = make_plot("c", [curve([1.0, 2.0, 3.0])])
    assert plot is not None
    assert plot.x_ticks == [0.0, 1.0, 2.0]  # not 0.5 and 1.5, which would read 0 and 2


def test_the_mean_of_seeds_has_a_band_from_the_lowest_to_the_highest() -> None:
    one = Curve(name="Reward", stage="rl", steps=[1, 2, 4], values=[1.0, 4.0, 9.0])
    two = Curve(name="Reward", stage="rl", steps=[1, 2, 3], values=[3.0, 0.0, float("nan")])
    mean = average_seeds([one, two], "low rate")
    assert mean is not None
    assert (mean.stage, mean.steps, mean.values) == ("low rate", [1.0, 2.0], [2.0, 2.0])
    assert (mean.low, mean.high) == ([1.0, 0.0], [3.0, 4.0])


def test_a_single_seed_has_no_band_and_seeds_without_a_common_step_no_mean() -> None:
    one = Curve(name="Reward", stage="rl", steps=[1], values=[1.0])
    mean = average_seeds([one], "a")
    assert mean is not None
    assert mean.low == ()
    assert (
        average_seeds([one, Curve(name="Reward", stage="rl", steps=[2], values=[1.0])], "a") is None
    )


def test_each_line_of_a_panel_keeps_its_tone_where_another_cannot_be_drawn() -> None:
    lines = [curve([float("nan"), float("nan")]), curve([1.0, 2.0]), curve([2.0, 1.0])]
    panel = draw_curves("Reward", lines)
    assert panel is not None
    assert 'class="trace tone-0"' not in panel
    assert 'class="trace tone-1"' in panel
    assert 'class="trace tone-2"' in panel
    assert tone(7) == "tone-1 again"


def test_a_forest_plot_says_on_which_side_of_zero_an_interval_is() -> None:
    def row(low: float, high: float) -> ForestRow:
        mean = (low + high) / 2
        return ForestRow(label="a", difference=Estimate(mean=mean, low=low, high=high, count=3))

    assert [row(*ends).tone for ends in ((0.1, 0.2), (-0.2, -0.1), (-0.1, 0.1))] == [
        "good",
        "bad",
        "unsure",
    ]
    drawn = draw_forest([row(-0.1, 0.3)])
    assert 'cx="50.00%"' in drawn  # 10 points on an axis from -10 to 30
    assert 'x1="25.00%" x2="25.00%" y1="0" y2="20" class="zero"' in drawn
    assert ">−10<" in drawn
    assert ">30<" in drawn


def test_names_in_charts_are_text() -> None:
    bad = "<script>alert(1)</script>"
    share = Estimate(mean=0.5, low=0.4, high=0.6, count=3)
    row = BarRow(label=bad, note=bad, bars=[Bar(name=bad, estimate=share, tone="tone-0")])
    named = Curve(name=bad, stage=bad, steps=[0, 1], values=[0.0, 1.0])
    forest = draw_forest([ForestRow(label=bad, difference=share)])
    for drawn in (draw_bars([row]), draw_curves(bad, [named, named]), draw_legend([bad]), forest):
        assert drawn is not None
        assert "<script" not in drawn
        assert "&lt;script&gt;" in drawn
