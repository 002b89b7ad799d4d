"""The stream of problems: every one once an epoch, and the same from any position."""

import pytest

from whet.data.feed import Feed
from whet.errors import DataError
from whet.testing.fakes import sum_problem

PROBLEMS = [sum_problem(n, 1) for n in range(7)]


def _ids(feed: Feed, count: int) -> list[str]:
    return [problem.id for problem in feed.take(count)]


def test_every_problem_comes_once_an_epoch() -> None:
    ids = _ids(Feed(PROBLEMS, seed=1), 21)

    for epoch in range(3):
        assert sorted(ids[7 * epoch : 7 * epoch + 7]) == sorted(problem.id for problem in PROBLEMS)


def test_epochs_and_seeds_have_their_own_order() -> None:
    ids = _ids(Feed(PROBLEMS, seed=1), 14)

    assert ids[:7] != ids[7:]
    assert ids[:7] != _ids(Feed(PROBLEMS, seed=2), 7)


@pytest.mark.parametrize("size", [1, 3, 5, 14])
def test_how_many_are_taken_at_a_time_does_not_matter(size: int) -> None:
    feed = Feed(PROBLEMS, seed=1)
    pieces = [id for _ in range(0, 28, size) for id in _ids(feed, size)]

    assert pieces[:28] == _ids(Feed(PROBLEMS, seed=1), 28)
    assert feed.position == len(pieces)


def test_a_feed_set_to_a_position_goes_on_from_there() -> None:
    whole = _ids(Feed(PROBLEMS, seed=1), 20)
    resumed = Feed(PROBLEMS, seed=1)
    resumed.position = 12

    assert _ids(resumed, 8) == whole[12:]


def test_no_problems_is_an_error_in_a_sentence() -> None:
    with pytest.raises(DataError, match="no problems to train on"):
        Feed([], seed=1)
