"""The stream of problems a run trains on: every problem once an epoch, in an order fixed by the seed."""

from collections.abc import Sequence

from whet.errors import DataError
from whet.rng import stream
from whet.types import Problem


class Feed:
    """Where the stream stands is one number, so that a resumed run takes the same problems."""

    def __init__(self, problems: Sequence[Problem], seed: int) -> None:
        if not problems:
            raise DataError("there are no problems to train on; check the task's split and filters")
        self.problems, self.seed, self.position = tuple(problems), seed, 0
        self._orders: dict[int, list[int]] = {}

    def take(self, count: int) -> list[Problem]:
        """Take the next problems; an epoch's end is crossed without repeating or leaving out any."""
        taken = [self._at(self.position + index) for index in range(count)]
        self.position += count
        return taken

    def _at(self, position: int) -> Problem:
        epoch, index = divmod(position, len(self.problems))
        return self.problems[self._order(epoch)[index]]

    def _order(self, epoch: int) -> list[int]:
        if epoch not in self._orders:
            order = list(range(len(self.problems)))
            stream(self.seed, "epoch", epoch).shuffle(order)
            self._orders = {epoch: order}
        return self._orders[epoch]
