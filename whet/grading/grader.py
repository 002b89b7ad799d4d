"""Grade responses in worker processes that can be killed; the source of responses never waits.

    with Grader(task, GradingConfig(workers=2, wall=10)) as grader:
        responses = ((rollout.id, rollout.problem, rollout.text) for rollout in rollouts)
        for id, score in grader.grade(responses):
            ...

A response that exceeds a limit or crashes its worker gets a score with the reason: WRONG if one of
whet's own graders raised, crashed or ran out of processor time on it, UNSCORED otherwise. The rest
of its batch is graded again by another worker.
"""

import time
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import ceil
from typing import TypeVar

from whet.errors import DataError, TrainError
from whet.grading.limits import GradingConfig, extend_wall_limit
from whet.grading.worker_pool import (
    BatchGraded,
    WorkerDied,
    WorkerPool,
    WorkerState,
    describe_setup,
    encode_batch,
)
from whet.tasks.base import Task, grade_safely, is_builtin, make_unscored, score_failure
from whet.types import Problem, Score, Verdict

K = TypeVar("K", bound=Hashable)

DEFAULT_WORKERS = 2
BATCH_SECONDS = 0.02
"""Seconds of work in a batch: sending stays cheap, and workers finish together."""
MAX_BATCH = 512
FEW_RESPONSES = 4
"""Up to this many responses, one worker is enough."""
GATHER_SECONDS = 0.002
"""Time to fill a batch, after which responses are sent as they arrive."""
MAX_CRASHES = 3
FAILURE_WINDOW = 1000
"""Number of recent responses over which failures are counted."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradingJob:
    """A response to grade; `number` is unique within the grader."""

    number: int
    problem: Problem
    text: str
    num_crashes: int = 0
    """Number of workers that died with this response in their batch but not being graded. After the
    first, it is sent alone, at most twice."""


@dataclass(slots=True)
class BatchSizer:
    """Chooses the batch size by a running mean of the seconds per response."""

    seconds: float = BATCH_SECONDS

    def update(self, *, seconds: float, count: int) -> None:
        """Add `count` responses that were graded in `seconds` together."""
        self.seconds += 0.3 * (seconds / count - self.seconds)

    @property
    def size(self) -> int:
        """Return the number of responses that take about `BATCH_SECONDS`."""
        return max(1, min(MAX_BATCH, int(BATCH_SECONDS / max(self.seconds, 1e-6))))


class Grader:
    """Grades responses to problems of one or several tasks; `Problem.task` names the task.

    Its processes start when it is entered, or at the first response, so that one that is never used
    leaves none behind.
    """

    def __init__(
        self,
        tasks: Task | Sequence[Task],
        limits: GradingConfig | None = None,
        num_responses: int | None = None,
    ) -> None:
        """Grade under `limits`; `num_responses` is the expected number, if known."""
        listed = tasks if isinstance(tasks, Sequence) else [tasks]
        subtasks = [subtask for task in listed for subtask in task.subtasks]
        longest = max((task.max_seconds for task in subtasks), default=0.0)
        self.limits = extend_wall_limit(limits or GradingConfig(), longest)
        self._tasks = {task.name: task for task in subtasks}
        self.workers = _num_workers(subtasks, self.limits)
        if num_responses is not None and num_responses <= FEW_RESPONSES:
            self.workers = min(self.workers, 1)
        self._setup = describe_setup(subtasks, self.limits) if self.workers else None
        self._pool: WorkerPool | None = None
        self._numbers = count()
        self._is_grading = False
        self._queue: deque[GradingJob] = deque()
        self._is_slow = False
        self._in_flight: dict[int, dict[int, GradingJob]] = {
            slot: {} for slot in range(self.workers)
        }
        self._idle = set(self._in_flight)
        self._exiting: set[int] = set()
        self._finished: deque[tuple[int, Score]] = deque()
        self._batch_sizer = BatchSizer()
        self._failures: deque[bool] = deque(maxlen=FAILURE_WINDOW)
        self.num_lost = 0
        """Workers that were killed or died, each replaced."""

    def __enter__(self) -> "Grader":
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        if self._setup is not None and self._pool is None:
            self._pool = WorkerPool(self._setup, self.limits, self.workers)

    def close(self) -> None:
        """End the grading processes; the next response would start others."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def grade(self, responses: Iterable[tuple[K, Problem, str]]) -> Iterator[tuple[K, Score]]:
        """Score each response, and yield keys and scores as they finish.

        The source never waits: responses queue while all workers are busy, so that an engine can
        continue sampling. Calls must not overlap.
        """
        if not self.workers:
            for key, problem, text in responses:
                yield key, self._count(grade_safely(self._task_of(problem), problem, text))
            return
        assert not self._is_grading, (
            "an earlier call of grade is neither read to its end nor closed"
        )
        self._start()
        self._is_grading = True
        keys: dict[int, K] = {}

        def jobs() -> Iterator[GradingJob]:
            for key, problem, text in responses:
                self._task_of(problem)
                number = next(self._numbers)
                keys[number] = key
                yield GradingJob(number=number, problem=problem, text=text)

        source = jobs()
        has_more = True
        try:
            while has_more or keys:
                has_more = has_more and self._enqueue(source)
                self._dispatch(is_last=not has_more)
                self._handle_events(wait=bool(keys) and not has_more)
                while self._finished:
                    number, score = self._finished.popleft()
                    # Scores of an earlier call that was abandoned may still arrive.
                    if number in keys:
                        yield keys.pop(number), self._count(score)
        finally:
            self._is_grading = False
            self._queue.clear()
            self._finished.clear()

    def _enqueue(self, jobs: Iterator[GradingJob]) -> bool:
        """Pull about a batch of responses from the source; False if it is exhausted."""
        began = time.perf_counter()
        self._is_slow = False
        for _ in range(self._batch_sizer.size):
            job = next(jobs, None)
            if job is None:
                return False
            self._queue.append(job)
            if time.perf_counter() - began > GATHER_SECONDS:
                self._is_slow = True
                break
        return True

    def _dispatch(self, *, is_last: bool) -> None:
        """Send batches to idle workers: full if responses arrive quickly, smaller at the end."""
        assert self._pool is not None, "the grader is closed"
        while self._idle and self._queue:
            size = self._batch_sizer.size
            if is_last:
                size = min(size, ceil(len(self._queue) / self.workers))
            if len(self._queue) < size and not self._is_slow:
                return
            slot = self._idle.pop()
            jobs = take_jobs(self._queue, size)
            self._in_flight[slot] = {job.number: job for job in jobs}
            self._pool.send_batch(
                slot, encode_batch([(job.number, job.problem, job.text) for job in jobs])
            )

    def _handle_events(self, *, wait: bool) -> None:
        assert self._pool is not None, "the grader is closed"
        for event in self._pool.poll(wait=wait):
            if isinstance(event, BatchGraded):
                self._handle_scores(event)
            else:
                self._handle_death(event)

    def _handle_scores(self, event: BatchGraded) -> None:
        in_flight = self._in_flight[event.slot]
        for number, score in event.scores:
            del in_flight[number]
            self._finished.append((number, score))
        if event.scores:
            self._batch_sizer.update(seconds=event.seconds, count=len(event.scores))
        if event.state is WorkerState.READY:
            self._idle.add(event.slot)
        elif event.state is WorkerState.EXITING:
            self._exiting.add(event.slot)

    def _handle_death(self, event: WorkerDied) -> None:
        """Score the response at fault, and queue the rest of the batch again.

        If a worker died between responses, such as while reading the batch, each response is tried
        alone to find the one at fault.
        """
        in_flight = self._in_flight[event.slot]
        self._in_flight[event.slot] = {}
        blamed = event.job
        if blamed not in in_flight and event.slot not in self._exiting:
            in_flight = {
                number: replace(job, num_crashes=job.num_crashes + 1)
                for number, job in in_flight.items()
            }
            at_fault = (n for n, job in in_flight.items() if job.num_crashes == MAX_CRASHES)
            blamed = next(at_fault, None)
        if blamed in in_flight:
            problem = in_flight.pop(blamed).problem
            score = make_unscored(event.why)
            if event.by_response:
                score = score_failure(self._task_of(problem), problem, event.why)
            self._finished.append((blamed, score))
        self._queue.extendleft(reversed(in_flight.values()))
        self.num_lost += event.slot not in self._exiting
        self._exiting.discard(event.slot)
        self._idle.add(event.slot)

    def _count(self, score: Score) -> Score:
        """Count a failure, and raise if there are too many."""
        self._failures.append(score.verdict is Verdict.UNSCORED)
        if self._failures[-1]:
            num = sum(self._failures)
            num_recent = len(self._failures)
            limit = self.limits.unscored_fraction
            if num >= self.limits.unscored_count and num > limit * num_recent:
                raise TrainError(
                    f"{num} of the last {num_recent} responses could not be scored, this one "
                    f"because {score.note}; fix that, or allow more than unscored_fraction = "
                    f"{limit:g} of them"
                )
        return score

    def _task_of(self, problem: Problem) -> Task:
        if problem.task not in self._tasks:
            task = f"problem {problem.id} is of the task {problem.task!r}"
            raise DataError(f"{task}; this grader has {', '.join(sorted(self._tasks))}")
        return self._tasks[problem.task]


def take_jobs(queue: deque[GradingJob], size: int) -> list[GradingJob]:
    """Take up to `size` jobs from the front of a queue; a job that was in a crash goes alone."""
    jobs = [queue.popleft()]
    is_alone = jobs[0].num_crashes > 0
    while not is_alone and len(jobs) < size and queue and not queue[0].num_crashes:
        jobs.append(queue.popleft())
    return jobs


def _num_workers(tasks: Sequence[Task], limits: GradingConfig) -> int:
    if limits.workers is None:
        # A user's class may inherit `is_bounded` from a task whose grading it replaces.
        is_safe_here = all(task.is_bounded and is_builtin(task) for task in tasks)
        return 0 if is_safe_here else DEFAULT_WORKERS
    return limits.workers
