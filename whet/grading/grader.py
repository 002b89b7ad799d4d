"""Grade answers in worker processes that can be killed, without ever holding up their source.

    with Grader(task, Limits(workers=2, wall=10)) as grader:
        answers = ((rollout.id, rollout.problem, rollout.text) for rollout in rollouts)
        for id, score in grader.grade(answers):
            ...

An answer that takes too long or too much, or ends its process, comes back as UNSCORED with the
reason; the answers that shared its process are graded again in another.
"""

import time
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeVar

from whet.errors import DataError, TrainError
from whet.grading.limits import Limits, with_grace
from whet.grading.worker import State, batch_line, score_safely, unscored_because
from whet.grading.worker_pool import Died, Scored, WorkerPool
from whet.tasks.base import Task
from whet.types import Problem, Score, Verdict

K = TypeVar("K", bound=Hashable)

DEFAULT_WORKERS = 2
BATCH_SECONDS = 0.02
"""A batch holds about this much work: sending it costs little, and batches share out evenly."""
MAX_BATCH = 512
GATHER_SECONDS = 0.002
"""Answers that come slower than a batch in this time are sent as they come."""
MAX_SUSPICIONS = 3
WINDOW = 1000
"""Failures are counted over this many answers."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Job:
    number: int
    problem: Problem
    text: str
    suspicions: int = 0
    """Workers that died with it but at no answer. It is then sent alone; the third is its fault."""


@dataclass(slots=True)
class Pace:
    """A running mean of the seconds per answer, which sets the size of a batch."""

    seconds: float = BATCH_SECONDS

    def update(self, *, seconds: float, count: int) -> None:
        """Take in `count` answers that were graded in `seconds` together."""
        self.seconds += 0.3 * (seconds / count - self.seconds)

    @property
    def batch(self) -> int:
        return max(1, min(MAX_BATCH, int(BATCH_SECONDS / max(self.seconds, 1e-6))))


class Grader:
    """Grades answers to problems of one task or several, told apart by `Problem.task`."""

    def __init__(self, tasks: Task | Sequence[Task], limits: Limits | None = None) -> None:
        listed = tasks if isinstance(tasks, Sequence) else [tasks]
        parts = [part for task in listed for part in task.parts]
        longest = max((task.seconds for task in parts), default=0.0)
        self.limits = with_grace(limits or Limits(), longest)
        self._tasks = {task.name: task for task in parts}
        self.workers = _num_workers(parts, self.limits)
        self._pool = WorkerPool(parts, self.limits, self.workers) if self.workers else None
        self._numbers = count()
        self._is_grading = False
        self._queue: deque[_Job] = deque()
        self._is_slow = False
        self._out: dict[int, dict[int, _Job]] = {slot: {} for slot in range(self.workers)}
        self._idle = set(self._out)
        self._leaving: set[int] = set()
        self._finished: deque[tuple[int, Score]] = deque()
        self._pace = Pace()
        self._recent: deque[bool] = deque(maxlen=WINDOW)
        self.num_lost = 0
        """Workers that were killed or died, each replaced."""

    def __enter__(self) -> "Grader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the grading processes."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def grade(self, answers: Iterable[tuple[K, Problem, str]]) -> Iterator[tuple[K, Score]]:
        """Score each answer and yield it under its key, in the order in which they are finished.

        The source is never kept waiting: answers that no worker is free for queue up, so that an
        engine that makes them goes on while a slow grader catches up. One call at a time.
        """
        if not self.workers:
            for key, problem, text in answers:
                yield key, self._count(score_safely(self._task_of(problem), problem, text))
            return
        assert not self._is_grading, "another call of grade is not read to its end, nor closed"
        self._is_grading = True
        keys: dict[int, K] = {}

        def jobs() -> Iterator[_Job]:
            for key, problem, text in answers:
                self._task_of(problem)
                number = next(self._numbers)
                keys[number] = key
                yield _Job(number=number, problem=problem, text=text)

        source = jobs()
        has_more = True
        try:
            while has_more or keys:
                has_more = has_more and self._gather(source)
                self._share(is_last=not has_more)
                self._collect(wait=bool(keys) and not has_more)
                while self._finished:
                    number, score = self._finished.popleft()
                    # Scores of a call that was given up may still come in.
                    if number in keys:
                        yield keys.pop(number), self._count(score)
        finally:
            self._is_grading = False
            self._queue.clear()
            self._finished.clear()

    def _gather(self, jobs: Iterator[_Job]) -> bool:
        """Pull about a batch of answers from the source; False once there are no more."""
        began = time.perf_counter()
        self._is_slow = False
        for _ in range(self._pace.batch):
            job = next(jobs, None)
            if job is None:
                return False
            self._queue.append(job)
            if time.perf_counter() - began > GATHER_SECONDS:
                self._is_slow = True
                break
        return True

    def _share(self, *, is_last: bool) -> None:
        """Give idle workers batches, full ones while answers come quickly, smaller at the end."""
        assert self._pool is not None, "the grader is closed"
        while self._idle and self._queue:
            size = self._pace.batch
            if is_last:
                size = min(size, -(-len(self._queue) // self.workers))
            if len(self._queue) < size and not self._is_slow:
                return
            slot = self._idle.pop()
            jobs = self._take_batch(size)
            self._out[slot] = {job.number: job for job in jobs}
            self._pool.give(slot, batch_line([(job.number, job.problem, job.text) for job in jobs]))

    def _take_batch(self, size: int) -> list[_Job]:
        jobs = [self._queue.popleft()]
        is_alone = jobs[0].suspicions > 0
        while not is_alone and len(jobs) < size and self._queue and not self._queue[0].suspicions:
            jobs.append(self._queue.popleft())
        return jobs

    def _collect(self, *, wait: bool) -> None:
        assert self._pool is not None, "the grader is closed"
        for event in self._pool.listen(wait=wait):
            if isinstance(event, Scored):
                self._take_scores(event)
            else:
                self._take_death(event)

    def _take_scores(self, event: Scored) -> None:
        out = self._out[event.slot]
        for number, score in event.scores:
            del out[number]
            self._finished.append((number, score))
        if event.scores:
            self._pace.update(seconds=event.seconds, count=len(event.scores))
        if event.state is State.READY:
            self._idle.add(event.slot)
        elif event.state is State.LEAVING:
            self._leaving.add(event.slot)

    def _take_death(self, event: Died) -> None:
        """Leave the answer at fault UNSCORED and queue the rest of the batch again.

        Where a worker died at no answer, as in reading the batch, each is tried alone to find the
        one to blame.
        """
        out = self._out[event.slot]
        self._out[event.slot] = {}
        blamed = event.answer
        if blamed not in out and event.slot not in self._leaving:
            out = {
                number: replace(job, suspicions=job.suspicions + 1) for number, job in out.items()
            }
            guilty = (n for n, job in out.items() if job.suspicions == MAX_SUSPICIONS)
            blamed = next(guilty, None)
        if blamed in out:
            del out[blamed]
            self._finished.append((blamed, unscored_because(event.why)))
        self._queue.extendleft(reversed(out.values()))
        self.num_lost += event.slot not in self._leaving
        self._leaving.discard(event.slot)
        self._idle.add(event.slot)

    def _count(self, score: Score) -> Score:
        """Count failures, and stop where there are too many to go on."""
        self._recent.append(score.verdict is Verdict.UNSCORED)
        if self._recent[-1]:
            num = sum(self._recent)
            of = len(self._recent)
            share = self.limits.unscored_share
            if num >= self.limits.unscored_count and num > share * of:
                raise TrainError(
                    f"{num} of the last {of} answers could not be scored, this one because "
                    f"{score.note}; fix that, or allow more than unscored_share = {share:g} of them"
                )
        return score

    def _task_of(self, problem: Problem) -> Task:
        if problem.task not in self._tasks:
            task = f"problem {problem.id} is of the task {problem.task!r}"
            raise DataError(f"{task}; this grader has {', '.join(sorted(self._tasks))}")
        return self._tasks[problem.task]


def _num_workers(tasks: Sequence[Task], limits: Limits) -> int:
    if limits.workers is None:
        return 0 if all(task.is_bounded for task in tasks) else DEFAULT_WORKERS
    return limits.workers
