"""What ranks do together, with ranks that take turns in one process."""

import pytest

from whet.train.learner import LossSums
from whet.world import T, World


class Ranks(World):
    """One of several ranks; the parts of the others are known."""

    def __init__(self, rank: int, parts: list[list[int]]) -> None:
        self.rank = rank
        self.size = len(parts)
        self.parts = parts

    def all_gather(self, part: T, at: str) -> list[T]:
        return [*self.parts]  # type: ignore[list-item]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_shares_come_back_in_the_order_that_they_were_taken_from(count: int, size: int) -> None:
    items = list(range(count))
    shares = [Ranks(rank, [[]] * size).split_between_ranks(items) for rank in range(size)]
    assert sorted(item for share in shares for item in share) == items
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    for rank in range(size):
        assert Ranks(rank, shares).merge_from_ranks(shares[rank], "here") == items


def test_a_process_by_itself_is_the_first_of_one() -> None:
    world = World()
    assert world.is_rank_zero
    assert world.all_gather("part", "here") == ["part"]
    assert world.run_on_rank_zero(lambda: 3, "here") == 3


def test_sums_of_ranks_add_up_also_where_a_rank_has_none() -> None:
    own = LossSums(loss=1.0, num_losses=2, metrics={"a": 3.0}, stop_signal=0.5)
    other = LossSums(loss=0.25, num_losses=1, metrics={"a": 1.0, "b": 2.0}, stop_signal=0.25)
    nothing = LossSums(loss=0.0, num_losses=0, metrics={})
    total = own + other + nothing
    assert (total.loss, total.num_losses, total.stop_signal) == (1.25, 3, 0.75)
    assert total.metrics == {"a": 4.0, "b": 2.0}
    assert (nothing + nothing).stop_signal is None
