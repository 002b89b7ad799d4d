"""Batches that an engine with its own weights samples while the learner trains."""

import threading

from whet.rollout.collect import RolloutQueue, Sample
from whet.track.metrics import Clock
from whet.types import Group
from whet.world import get_world, world_of_thread


class OverlappedQueue(RolloutQueue):
    """A queue that fills up in a thread: `take` starts it, and `join` waits for its end.

    The batch of step s + lag is sampled with the weights of step s, as in one process. Between
    `take` and `join` no weights may be pushed, and nothing that sampling reads may change, such as
    what the sampler has observed. `clock` counts the seconds that a step waits as sampling;
    `background` is the one that `sample` counts with.
    """

    def __init__(
        self, sample: Sample, *, steps: int, lag: int, clock: Clock, background: Clock
    ) -> None:
        super().__init__(sample, steps=steps, lag=lag)
        self._clock = clock
        self._background = background
        self._world = get_world().for_thread()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def take(self, step: int) -> list[Group]:
        assert self._thread is None, "the batch before is joined first"
        if not self._waiting:
            with self._clock.measure("sample"):
                self._waiting.append(self.sample(step))
        batch = self._waiting.popleft()
        # A second Ctrl-C ends the run without waiting for answers.
        self._thread = threading.Thread(target=self._fill, args=(step + 1,), daemon=True)
        self._thread.start()
        return batch

    def join(self) -> None:
        if self._thread is None:
            return
        with self._clock.measure("sample"):
            self._thread.join()
        self._thread = None
        if self._error is not None:
            raise self._error

    def metrics(self) -> dict[str, float]:
        metrics = self._background.lap()
        seconds = metrics["time/sample"] + metrics["time/grade"]
        engine = {name: value for name, value in metrics.items() if name.startswith("engine/")}
        return engine | {"engine/sample_s": seconds}

    def _fill(self, step: int) -> None:
        try:
            with world_of_thread(self._world):
                while len(self._waiting) < self.lag and step + len(self._waiting) < self.steps:
                    self._waiting.append(self.sample(step + len(self._waiting)))
        except BaseException as error:  # raised again by `join`
            self._error = error
