"""Simulated steps, worked by hand: engines that decode rows together, and a learner."""

from dataclasses import replace

import pytest

from whet.plan.fleet_events import Engines, SimulatedFleet, sampling_seconds
from whet.plan.simulate import (
    Bound,
    SimulatedLearner,
    find_bound,
    simulate_ahead,
    simulate_collocated,
    simulate_streamed,
)


def engines(count: int, *by_rows: float, per_token: float = 0.0, prompt: int = 0) -> Engines:
    return Engines(count=count, by_rows=(0.0, *by_rows), per_token=per_token, prompt_tokens=prompt)


def test_rows_decode_together_and_each_step_takes_the_time_of_the_rows_that_are_left() -> None:
    # Both run for 4 steps of 2 s, then the longer one alone for 6 of 1 s.
    assert sampling_seconds(engines(1, 1.0, 2.0), [[4, 10]]) == 4 * 2 + 6 * 1


def test_a_row_that_ends_makes_room_for_the_next_answer() -> None:
    # 5 s on the first slot, then 7; the second slot ends after 9.
    assert sampling_seconds(engines(1, 1.0, 1.0), [[5, 9, 7]]) == 5 + 7


def test_tokens_in_the_cache_cost_time_as_an_answer_grows() -> None:
    # A prompt of 10 and an answer of 4: 4 steps of 1 s, and 0.5 s a token at 10 to 14 tokens.
    alone = engines(1, 1.0, per_token=0.5, prompt=10)
    assert sampling_seconds(alone, [[4]]) == pytest.approx(4 + 0.5 * (4 * 10 + 4**2 / 2))
    assert alone.response_seconds(4) == pytest.approx(sampling_seconds(alone, [[4]]))


def test_a_request_that_joins_slows_down_what_is_left_of_the_others() -> None:
    fleet = SimulatedFleet(engines(1, 1.0, 2.0))
    fleet.ask(0, [4])
    fleet.deal(0.0)
    fleet.ask(1, [4])
    fleet.deal(2.0)
    # Two of its four steps are done; the others take 2 s each, and then two of 1 s remain.
    assert fleet.next_end() == 2 + 2 * 2
    assert fleet.finish_next() == 0
    assert fleet.next_end() == 6 + 2 * 1


def test_a_request_that_joins_finds_the_tokens_that_were_decoded_by_then() -> None:
    fleet = SimulatedFleet(engines(1, 1.0, 2.0, per_token=1.0))
    fleet.ask(0, [4])
    fleet.deal(0.0)
    fleet.ask(1, [4])
    # Two steps take 2 · 1 s, and 2² / 2 for the tokens that they add.
    fleet.deal(4.0)
    # Two more of 2 + 2 s, and 2 · 2² / 2 for the tokens of two rows.
    assert fleet.next_end() == pytest.approx(4 + 2 * 4 + 4)


def test_two_engines_share_groups_and_keep_each_together() -> None:
    two = engines(2, 1.0, 1.0, 1.0, 1.0)
    # A group of three on each engine, in parallel: the longest of all decides.
    assert sampling_seconds(two, [[3, 4, 5], [6, 1, 2]]) == 6
    # With rows that slow each other down, one group of three is not spread over both engines.
    slow = engines(2, 1.0, 2.0, 3.0, 4.0)
    assert sampling_seconds(slow, [[5, 5, 5]]) == 5 * 3


def test_a_few_requests_wait_at_an_engine_for_its_next_slot() -> None:
    # Each engine of one slot also takes one request to wait, so that the last answer waits for the
    # one of 9 although the other engine is free after 2.
    assert sampling_seconds(engines(2, 1.0), [[9], [1], [4], [1]]) == 9 + 4


def test_ranks_have_equal_shares_and_a_fleet_gives_the_next_answer_to_who_is_free() -> None:
    batch = [[8], [8], [1], [1], [1], [1]]
    learner = SimulatedLearner(update=3.0, push=0.5)
    # Shares of two: 16, 2 and 2 s on one slot.
    shared = simulate_collocated(engines(3, 1.0), learner, [batch])
    assert (shared.seconds, shared.oldest) == (16 + 3.5, 0)
    # First round 8, 8, 1; each engine holds one more that waits: 1, 1, 1; the last after two of 1.
    assert sampling_seconds(engines(3, 1.0), batch) == 9


def test_the_longest_response_is_the_floor_of_a_step_whatever_the_engines() -> None:
    batches = [[[2, 3], [40, 2]], [[2, 2], [2, 50]]]
    steps = [
        simulate_ahead(engines(count, 1.0, 1.0), SimulatedLearner(update=1.0), batches, lag=1)
        for count in (2, 100)
    ]
    assert [step.seconds for step in steps] == [45, 45]
    assert {step.bound for step in steps} == {Bound.LONGEST}


def test_one_step_ahead_takes_the_longer_of_sampling_and_training_and_then_pushes() -> None:
    batches = [[[10]], [[20]], [[36]]]
    step = simulate_ahead(engines(1, 1.0), SimulatedLearner(update=20.0, push=2.0), batches, lag=1)
    assert step.seconds == pytest.approx(2 + (20 + 20 + 36) / 3)
    assert (step.oldest, step.bound) == (1, Bound.LONGEST)
    fast = simulate_ahead(engines(1, 1.0), SimulatedLearner(update=99.0), batches, lag=2)
    assert (fast.seconds, fast.oldest, fast.bound) == (99, 2, Bound.UPDATE)


@pytest.mark.parametrize(
    ("slots", "update", "lag", "seconds", "bound"),
    [
        # One slot and two answers of 10 s: the engine is never idle.
        (1, 5.0, 2, 20.0, Bound.DECODING),
        # Slots for all answers: the learner decides.
        (64, 25.0, 2, 25.0, Bound.UPDATE),
        # Or the age: 10 s of an answer and 1 s of its update take lag + 1 steps.
        (64, 1.0, 2, 11 / 3, Bound.LONGEST),
        (64, 1.0, 4, 11 / 5, Bound.LONGEST),
    ],
)
def test_a_stream_is_bound_by_engines_learner_or_age(
    slots: int, update: float, lag: int, seconds: float, bound: Bound
) -> None:
    step = simulate_streamed(
        engines(1, *[1.0] * slots),
        SimulatedLearner(update=update),
        lambda: [10, 10],
        problems=1,
        lag=lag,
    )
    assert step.seconds == pytest.approx(seconds)
    assert step.bound == bound


def test_engines_that_stream_stand_still_in_the_pause_of_a_push() -> None:
    learner = SimulatedLearner(update=5.0, push=1.0, pause=0.5)
    step = simulate_streamed(engines(1, 1.0), learner, lambda: [10], problems=1, lag=3)
    # Ten seconds of decoding and one pause for each of the pushes in a step of one answer.
    assert step.seconds == pytest.approx(10.5)


@pytest.mark.parametrize("lag", [1, 2, 3])
def test_groups_that_end_older_than_the_lag_are_dropped_and_asked_anew(lag: int) -> None:
    lengths = iter([[3, 200 if number % 7 == 0 else 5] for number in range(1000)])
    step = simulate_streamed(
        engines(4, *[1.0] * 32),
        SimulatedLearner(update=1.0),
        lambda: next(lengths),
        problems=4,
        lag=lag,
    )
    assert step.oldest == lag and step.dropped > 0


def test_nothing_is_dropped_where_every_answer_ends_within_the_lag() -> None:
    lengths = iter([[3, 20 if number % 7 == 0 else 5] for number in range(1000)])
    step = simulate_streamed(
        engines(4, *[1.0] * 32),
        SimulatedLearner(update=10.0),
        lambda: next(lengths),
        problems=4,
        lag=3,
    )
    # The longest answer takes two steps of the learner, which never waits.
    assert (step.seconds, step.oldest, step.dropped) == (10, 3, 0)


def test_a_step_takes_at_least_its_update_all_tokens_on_full_engines_or_the_longest_response() -> (
    None
):
    two = engines(2, 1.0, 1.5, per_token=0.01, prompt=5)
    batch = [[4, 8], [12, 8]]
    # 32 tokens on 4 slots, at 5 + (4² + 8² + 12² + 8²) / 32 / 2 = 9.5 tokens on average.
    full = 32 / 4 * (1.5 + 0.01 * 2 * 9.5)
    assert find_bound(two, SimulatedLearner(update=1.0), batch) == (
        pytest.approx(full),
        Bound.DECODING,
    )
    assert find_bound(two, SimulatedLearner(update=40.0, push=2.0), batch) == (42, Bound.UPDATE)
    assert find_bound(two, SimulatedLearner(update=20.0, push=22.0), batch) == (42, Bound.PUSH)
    many = replace(two, count=100)
    alone = 12 * (1.0 + 0.01 * (5 + 6))
    assert find_bound(many, SimulatedLearner(update=1.0), batch) == (
        pytest.approx(alone),
        Bound.LONGEST,
    )
    pushed = SimulatedLearner(update=1.0, push=2.0)
    assert find_bound(many, pushed, batch) == (pytest.approx(alone + 2), Bound.LONGEST)
    streamed = find_bound(many, pushed, batch, lag=3)
    assert streamed == (pytest.approx((alone + 3) / 4), Bound.LONGEST)
