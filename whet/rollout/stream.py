"""A stream: the learner trains on groups as they finish, and weights change during sampling.

The plan of a run numbers every group that it trains on: those of step s start at s × problems per
step. A step trains on the oldest finished groups, whatever step they were planned for. A group
whose oldest token was sampled more than `lag` steps ago is dropped, and its problem is sampled
again with other random numbers. The learner then waits for that problem, so that long responses are
not left out.

Groups of two to `lag` + 1 steps are in flight: one step more after the learner had to wait, and one
less after the engine ran out of work, since groups that finish early only age.

Groups are requested and chosen only in `take`, so a checkpoint between two steps has them all:
finished groups are stored, and the others are requested again after a resume. Meanwhile, two
threads read and grade responses.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from statistics import fmean

from whet.engine.base import EngineStats, StreamingEngine
from whet.errors import DataError
from whet.grading.grader import Grader
from whet.rng import derive
from whet.rollout.collect import ChatEngine, engine_requests, group_rollouts, make_rollout
from whet.rollout.step_groups import waiting_file
from whet.rollout.stream_plan import PlannedGroup, StreamPlan, StreamRow
from whet.store.rollouts import read_rollouts, write_rollouts
from whet.track.metrics import Clock
from whet.types import Completion, Group, Json, Metrics, Rollout, read_integer
from whet.world import get_world

MIN_DEPTH = 2
"""Fewest steps whose groups are in flight: one being trained on, and one being sampled."""


class StreamQueue:
    """The groups of each step, from an engine that never waits for the learner.

    `log` writes a row of the ledger after each step; `clock` counts the seconds that a step waits
    as sampling. Ranks call it together; rank 0 has the engine and sends groups to the others.
    """

    def __init__(
        self,
        plan: StreamPlan,
        chat_engine: ChatEngine,
        grader: Grader,
        *,
        clock: Clock,
        log: Callable[[StreamRow], None],
    ) -> None:
        engine = chat_engine.engine
        assert isinstance(engine, StreamingEngine), "settings refuse other engines"
        self.plan = plan
        self.engine = engine
        self.chat_engine = chat_engine
        self.grader = grader
        self.clock = clock
        self.log = log
        self._num_asked = 0
        self._depth = MIN_DEPTH
        self._planned_groups: dict[int, PlannedGroup] = {}
        """Groups in flight by number; only on rank 0."""
        self._changed = threading.Condition()
        """Guards the planned groups, the record and the error; notified of groups and errors."""
        self._error: BaseException | None = None
        self._threads: list[threading.Thread] = []
        self._responses: SimpleQueue[Rollout | None] = SimpleQueue()
        self._record = _StepRecord()
        """The current step, which the threads add to."""
        self._joined_record = _StepRecord()
        """The last whole step, which does not change while `metrics` reads it."""
        self._busy = _BusySeconds()
        self._stats = EngineStats()

    def take(self, step: int) -> list[Group]:
        """Request the groups that are due, wait for enough to train on, and return those.

        The weights of the step were published before.
        """
        choose = partial(self._take, step)
        groups, num_asked = get_world().run_on_rank_zero(choose, f"the groups of step {step}")
        self._take_problems(num_asked)
        return groups

    def join(self) -> None:
        """Write the ledger; before a pause, wait until nothing runs, and release the engine."""
        if not get_world().is_rank_zero:
            return
        if self.plan.recipe.is_pause(self._record.step + 1):
            with self.clock.measure("sample"):
                self._pause()
        with self._changed:
            self._joined_record, self._record = self._record, _StepRecord()
        self.log(self._joined_record.to_row())

    def metrics(self) -> Metrics:
        """Measure the last joined step."""
        record = self._joined_record
        with self._changed:
            seconds = self._busy.lap()
        stats = self.engine.stats
        row_steps = stats.row_steps - self._stats.row_steps
        useful = stats.tokens - stats.first_tokens
        useful -= self._stats.tokens - self._stats.first_tokens
        self._stats = replace(stats)
        metrics = {
            "stream/age": fmean(record.ages or [0]),
            "stream/oldest": float(max(record.ages, default=0)),
            "stream/dropped": float(len(record.dropped)),
            "stream/waiting": float(record.num_waiting),
            "stream/overlap": max(0.0, 1 - record.waited / seconds) if seconds else 0.0,
            "engine/sample_s": seconds,
        }
        if seconds:
            metrics["engine/tokens_per_s"] = record.tokens / seconds
        if row_steps > 0:
            metrics["engine/slots_busy"] = min(1.0, max(0, useful) / row_steps)
        return metrics

    def drop(self) -> None:
        """Drop all groups, to sample them again with the restored weights."""
        with self._changed:
            for planned in self._planned_groups.values():
                self._drop(planned, "its weights were given up")

    def save(self, folder: Path) -> Json:
        with self._changed:
            planned_groups = list(self._planned_groups.values())
            groups = [planned.group for planned in planned_groups if planned.group is not None]
        if groups:
            write_rollouts(waiting_file(folder, 0), groups)
        rows: list[Json] = [
            [planned.number, planned.problem.id, planned.num_drops] for planned in planned_groups
        ]
        return {"asked": self._num_asked, "tickets": rows}  # the keys in stored checkpoints

    def load(self, folder: Path, state: Json) -> None:
        match state:
            case {"asked": int(asked), "tickets": list(rows)}:
                self._num_asked = asked
            case _:
                raise DataError(
                    f"checkpoint {folder} does not say which groups are on their way: begin the "
                    "run again"
                )
        if not get_world().is_rank_zero:
            return
        file = waiting_file(folder, 0)
        groups = group_rollouts(read_rollouts(file)) if file.exists() else []
        group_by_number = {_number(group): group for group in groups}
        for row in rows:
            assert isinstance(row, list), "a group on its way is a row"
            number, id, num_drops = row
            if str(id) not in self.plan.problems:
                raise DataError(f"checkpoint {folder} has problem {id}, which is not in `problems`")
            planned = PlannedGroup(
                number=read_integer(number),
                problem=self.plan.problems[str(id)],
                num_drops=read_integer(num_drops),
            )
            planned.group = group_by_number.get(planned.number)
            self._planned_groups[planned.number] = planned

    def _take_problems(self, num_asked: int) -> list[PlannedGroup]:
        """Take the plan's problems up to a number; every rank takes the same."""
        planned_groups: list[PlannedGroup] = []
        while self._num_asked < num_asked:
            for problem in self.plan.recipe.take_problems(self._num_asked // self.plan.per_step):
                planned_groups.append(PlannedGroup(number=self._num_asked, problem=problem))
                self._num_asked += 1
        return planned_groups

    def _take(self, step: int) -> tuple[list[Group], int]:
        with self._changed:
            self._record.step = step
            self._adapt_depth()
            new_groups = self._take_problems(self.plan.num_asked(step, self._depth))
            self._planned_groups |= {planned.number: planned for planned in new_groups}
        self._start()
        began = time.perf_counter()
        with self.clock.measure("sample"), self._changed:
            while True:
                self._ask(step)
                chosen = self._choose(step)
                if chosen is not None:
                    break
                self._await_change()
            for planned in chosen:
                del self._planned_groups[planned.number]
            record = self._record
            record.trained = [planned.number for planned in chosen]
            record.ages = [step - planned.version for planned in chosen]
            record.num_waiting = sum(
                planned.group is not None for planned in self._planned_groups.values()
            )
            record.waited = time.perf_counter() - began
        groups = [planned.group for planned in chosen if planned.group is not None]
        return groups, self._num_asked

    def _adapt_depth(self) -> None:
        """Sample further ahead if the learner has to wait, and less far if the engine is idle."""
        num_finished = sum(planned.group is not None for planned in self._planned_groups.values())
        if self._planned_groups and num_finished < self.plan.per_step:
            self._depth += 1
        elif num_finished == len(self._planned_groups):
            self._depth -= 1
        self._depth = min(max(self._depth, MIN_DEPTH), self.plan.lag + 1)

    def _ask(self, step: int) -> None:
        """Drop groups that have become too old, and request those that are due."""
        for planned in self._planned_groups.values():
            if planned.group is not None and step - planned.version > self.plan.lag:
                self._drop(planned, f"{step - planned.version} steps old")
        due = [
            planned
            for planned in self._planned_groups.values()
            if planned.asked_at is None and planned.group is None
        ]
        for planned in due:
            planned.asked_at = step
            planned.request = self.plan.recipe.build_request(planned.number, planned.problem)
            planned.prompt = self.chat_engine.chat.encode_problem(planned.request.problem)
            seed = derive(self.plan.seed, planned.num_drops)
            self.engine.submit(list(engine_requests(planned.request, planned.prompt, seed)))
        self._record.asked += [planned.number for planned in due]
        self._update_busy()

    def _choose(self, step: int) -> list[PlannedGroup] | None:
        """Choose the oldest finished groups; None while there are too few, or while a group that is
        sampled again would be too old for the next step."""
        finished = [
            planned for planned in self._planned_groups.values() if planned.group is not None
        ]
        is_missed = any(
            planned.num_drops > 0
            and planned.group is None
            and planned.asked_at is not None
            and planned.asked_at + self.plan.lag <= step
            for planned in self._planned_groups.values()
        )
        if len(finished) < self.plan.per_step or is_missed:
            return None
        finished.sort(key=lambda planned: (planned.version, planned.number))
        return finished[: self.plan.per_step]

    def _drop(self, planned: PlannedGroup, reason: str) -> None:
        planned.num_drops += 1
        planned.reset()
        self._record.dropped[planned.number] = reason

    def _await_change(self) -> None:
        if self._error is None:
            self._changed.wait()
        if self._error is not None:
            raise self._error

    def _start(self) -> None:
        if self._threads:
            return
        self._stats = EngineStats()
        completions = self.engine.stream()
        self._threads = [
            threading.Thread(target=self._guard, args=(work,), daemon=True)
            for work in (partial(self._read, completions), self._grade)
        ]
        for thread in self._threads:
            thread.start()

    def _pause(self) -> None:
        """Wait until all requested groups are finished, and end the stream."""
        with self._changed:
            while any(
                planned.asked_at is not None and planned.group is None
                for planned in self._planned_groups.values()
            ):
                self._await_change()
        self.engine.end_stream()
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _guard(self, work: Callable[[], None]) -> None:
        """Run the work of a thread; an error is raised where the learner waits."""
        try:
            work()
        except BaseException as error:
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()

    def _read(self, completions: Iterator[tuple[str, Completion]]) -> None:
        """Pass responses to the grader as they end."""
        try:
            for id, completion in completions:
                planned = self._planned_groups[int(id.partition("/")[0])]
                assert planned.request is not None and planned.prompt is not None, "it was asked"
                self._responses.put(
                    make_rollout(self.chat_engine, planned.request, planned.prompt, id, completion)
                )
        finally:
            self._responses.put(None)

    def _grade(self) -> None:
        """Grade responses as they arrive, all waiting ones in one call: the grader returns only
        after its last input."""
        is_open = True
        while is_open:
            batch = [self._responses.get()]
            while not self._responses.empty():
                batch.append(self._responses.get())
            is_open = None not in batch
            rollouts = {rollout.id: rollout for rollout in batch if rollout is not None}
            to_grade = (
                (rollout.id, rollout.problem, rollout.text) for rollout in rollouts.values()
            )
            for id, score in self.grader.grade(to_grade):
                self._add(replace(rollouts[id], score=score))

    def _add(self, rollout: Rollout) -> None:
        with self._changed:
            planned = self._planned_groups[_number((rollout,))]
            planned.graded[rollout.id] = rollout
            self._record.tokens += len(rollout.completion.tokens)
            assert planned.request is not None, "it was asked"
            if len(planned.graded) < len(planned.request.sample_ids):
                return
            ids = sorted(planned.graded, key=lambda id: int(id.rpartition("/")[2]))
            planned.group = self.plan.recipe.reward(tuple(planned.graded[id] for id in ids))
            self._record.answered.append(planned.number)
            self._update_busy()
            self._changed.notify_all()

    def _update_busy(self) -> None:
        self._busy.set_busy(any(planned.group is None for planned in self._planned_groups.values()))


@dataclass(slots=True, kw_only=True)
class _StepRecord:
    """Events from the end of one step to the end of the next."""

    step: int = -1
    asked: list[int] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    trained: list[int] = field(default_factory=list)
    dropped: dict[int, str] = field(default_factory=dict)
    ages: list[int] = field(default_factory=list)
    num_waiting: int = 0
    waited: float = 0.0
    tokens: int = 0

    def to_row(self) -> StreamRow:
        return StreamRow(
            step=self.step + 1,
            asked=self.asked,
            answered=self.answered,
            trained=self.trained,
            dropped=self.dropped,
        )


class _BusySeconds:
    """Counts busy seconds."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._since: float | None = None

    def set_busy(self, is_busy: bool) -> None:
        now = time.perf_counter()
        if self._since is not None:
            self._seconds += now - self._since
        self._since = now if is_busy else None

    def lap(self) -> float:
        """Return the seconds since the last lap."""
        self.set_busy(self._since is not None)
        seconds, self._seconds = self._seconds, 0.0
        return seconds


def _number(group: Group) -> int:
    return int(group[0].group_id.rpartition(":")[2])
