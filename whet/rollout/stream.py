"""Groups that go to the learner as they finish, while weights change during sampling.

The plan of a run has a number for every group that it trains: those of step s are s × problems per
step and following. A step trains the oldest finished groups, whatever step they were planned for.
It may be up to `lag` steps younger than the weights that sampled the oldest token of a group; an
older group is dropped, and its problem is asked again, with other random numbers. The learner then
waits for such a problem, so that long responses are not left out.

Groups of two to `lag` + 1 steps are in flight: one step more after the learner had to wait, and one
less after the engine ran out of work, since groups that finish early only get old.

Problems are asked and groups chosen only in `take`, so a checkpoint between two steps has them all:
what is finished is stored, and what is not is asked again after a resume. Two threads read answers
and grade them in between.
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
from whet.rollout.collect import (
    ChatEngine,
    engine_requests,
    group_rollouts,
    make_rollout,
    waiting_file,
)
from whet.rollout.stream_ledger import StreamRow
from whet.rollout.stream_plan import StreamPlan, Ticket
from whet.store.rollouts import read_rollouts, write_rollouts
from whet.track.metrics import Clock
from whet.types import Completion, Group, Json, Rollout, read_integer
from whet.world import get_world

MIN_DEPTH = 2
"""Fewest steps whose groups are in flight: one that is trained on, and one that is sampled."""


class StreamQueue:
    """The groups of each step, from an engine that never waits for the learner.

    `log` writes a row of the ledger after each step; `clock` counts the seconds that a step waits
    as sampling. Ranks call it together; rank 0 has the engine and tells the others.
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
        self._tickets: dict[int, Ticket] = {}
        """Groups on their way, by number; the first rank's."""
        self._changed = threading.Condition()
        """Protects tickets, notes and the error, and is notified of new ones."""
        self._error: BaseException | None = None
        self._threads: list[threading.Thread] = []
        self._answers: SimpleQueue[Rollout | None] = SimpleQueue()
        self._notes = _StepNotes()
        self._joined = _StepNotes()
        self._busy = _BusySeconds()
        self._stats = EngineStats()

    def take(self, step: int) -> list[Group]:
        """Request the groups that are due, and return those that a step trains on, once there are
        enough.

        The weights of the step have been published.
        """
        choose = partial(self._take, step)
        groups, num_asked = get_world().run_on_rank_zero(choose, f"the groups of step {step}")
        self._take_problems(num_asked)
        return groups

    def join(self) -> None:
        """Write the ledger; before a pause, wait until nothing runs, and release the engine."""
        if not get_world().is_rank_zero:
            return
        if self.plan.is_pause(self._notes.step + 1):
            with self.clock.measure("sample"):
                self._pause()
        with self._changed:
            self._joined, self._notes = self._notes, _StepNotes()
        self.log(self._joined.to_row())

    def metrics(self) -> dict[str, float]:
        """Measure the last joined step."""
        notes = self._joined
        with self._changed:
            seconds = self._busy.lap()
        stats = self.engine.stats
        row_steps = stats.row_steps - self._stats.row_steps
        useful = stats.tokens - stats.first_tokens
        useful -= self._stats.tokens - self._stats.first_tokens
        self._stats = replace(stats)
        metrics = {
            "stream/age": fmean(notes.ages or [0]),
            "stream/oldest": float(max(notes.ages, default=0)),
            "stream/dropped": float(len(notes.dropped)),
            "stream/waiting": float(notes.num_waiting),
            "stream/overlap": max(0.0, 1 - notes.waited / seconds) if seconds else 0.0,
            "engine/sample_s": seconds,
        }
        if seconds:
            metrics["engine/tokens_per_s"] = notes.tokens / seconds
        if row_steps > 0:
            metrics["engine/slots_busy"] = min(1.0, max(0, useful) / row_steps)
        return metrics

    def drop(self) -> None:
        """Ask everything again, once the weights that sampled it have been replaced."""
        with self._changed:
            for ticket in self._tickets.values():
                self._drop(ticket, "its weights were given up")

    def save(self, folder: Path) -> Json:
        with self._changed:
            tickets = list(self._tickets.values())
            groups = [ticket.group for ticket in tickets if ticket.group is not None]
        if groups:
            write_rollouts(waiting_file(folder, 0), groups)
        rows: list[Json] = [[t.number, t.problem.id, t.num_drops] for t in tickets]
        return {"asked": self._num_asked, "tickets": rows}

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
            ticket = Ticket(
                number=read_integer(number),
                problem=self.plan.problems[str(id)],
                num_drops=read_integer(num_drops),
            )
            ticket.group = group_by_number.get(ticket.number)
            self._tickets[ticket.number] = ticket

    def _take_problems(self, num_asked: int) -> list[Ticket]:
        """Take the problems of the plan up to a number, on every rank alike."""
        tickets: list[Ticket] = []
        while self._num_asked < num_asked:
            for problem in self.plan.take(self._num_asked // self.plan.per_step):
                tickets.append(Ticket(number=self._num_asked, problem=problem))
                self._num_asked += 1
        return tickets

    def _take(self, step: int) -> tuple[list[Group], int]:
        with self._changed:
            self._notes.step = step
            self._adapt_depth()
            fresh = self._take_problems(self.plan.num_asked(step, self._depth))
            self._tickets |= {ticket.number: ticket for ticket in fresh}
        self._start()
        began = time.perf_counter()
        with self.clock.measure("sample"), self._changed:
            while True:
                self._ask(step)
                chosen = self._choose(step)
                if chosen is not None:
                    break
                self._await_change()
            for ticket in chosen:
                del self._tickets[ticket.number]
            notes = self._notes
            notes.trained = [ticket.number for ticket in chosen]
            notes.ages = [step - ticket.version for ticket in chosen]
            notes.num_waiting = sum(t.group is not None for t in self._tickets.values())
            notes.waited = time.perf_counter() - began
        groups = [ticket.group for ticket in chosen if ticket.group is not None]
        return groups, self._num_asked

    def _adapt_depth(self) -> None:
        """Ask further ahead if the learner has to wait, and less far if the engine is idle."""
        num_finished = sum(ticket.group is not None for ticket in self._tickets.values())
        if self._tickets and num_finished < self.plan.per_step:
            self._depth += 1
        elif num_finished == len(self._tickets):
            self._depth -= 1
        self._depth = min(max(self._depth, MIN_DEPTH), self.plan.lag + 1)

    def _ask(self, step: int) -> None:
        """Drop groups that have become too old, and request those that are due."""
        for ticket in self._tickets.values():
            if ticket.group is not None and step - ticket.version > self.plan.lag:
                self._drop(ticket, f"{step - ticket.version} steps old")
        due = [t for t in self._tickets.values() if t.asked_at is None and t.group is None]
        for ticket in due:
            ticket.asked_at = step
            ticket.request = self.plan.request(ticket.number, ticket.problem)
            ticket.prompt = self.chat_engine.chat.encode_problem(ticket.request.problem)
            seed = derive(self.plan.seed, ticket.num_drops)
            self.engine.submit(list(engine_requests(ticket.request, ticket.prompt, seed)))
        self._notes.asked += [ticket.number for ticket in due]
        self._note_busy()

    def _choose(self, step: int) -> list[Ticket] | None:
        """Choose the oldest finished groups; None while there are too few, or one that was asked
        again would get too old by waiting."""
        finished = [t for t in self._tickets.values() if t.group is not None]
        is_missed = any(
            ticket.num_drops > 0
            and ticket.group is None
            and ticket.asked_at is not None
            and ticket.asked_at + self.plan.lag <= step
            for ticket in self._tickets.values()
        )
        if len(finished) < self.plan.per_step or is_missed:
            return None
        finished.sort(key=lambda ticket: (ticket.version, ticket.number))
        return finished[: self.plan.per_step]

    def _drop(self, ticket: Ticket, reason: str) -> None:
        ticket.num_drops += 1
        ticket.reset()
        self._notes.dropped[ticket.number] = reason

    def _await_change(self) -> None:
        if self._error is None:
            self._changed.wait()
        if self._error is not None:
            raise self._error

    def _start(self) -> None:
        if self._threads:
            return
        self._stats = EngineStats()
        answers = self.engine.stream()
        self._threads = [
            threading.Thread(target=self._guard, args=(work,), daemon=True)
            for work in (partial(self._read, answers), self._grade)
        ]
        for thread in self._threads:
            thread.start()

    def _pause(self) -> None:
        """Wait until all that was asked is finished, and end the stream."""
        with self._changed:
            while any(t.asked_at is not None and t.group is None for t in self._tickets.values()):
                self._await_change()
        self.engine.end_stream()
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _guard(self, work: Callable[[], None]) -> None:
        """Do the work of a thread; its error is raised where the learner waits."""
        try:
            work()
        except BaseException as error:
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()

    def _read(self, answers: Iterator[tuple[str, Completion]]) -> None:
        """Pass answers on to the grader as they end."""
        try:
            for id, completion in answers:
                ticket = self._tickets[int(id.partition("/")[0])]
                assert ticket.request is not None and ticket.prompt is not None, "it was asked"
                self._answers.put(
                    make_rollout(self.chat_engine, ticket.request, ticket.prompt, id, completion)
                )
        finally:
            self._answers.put(None)

    def _grade(self) -> None:
        """Grade the completed responses; the grader gets them all in one call, since it returns
        only after the last of its input."""
        is_open = True
        while is_open:
            batch = [self._answers.get()]
            while not self._answers.empty():
                batch.append(self._answers.get())
            is_open = None not in batch
            rollouts = {rollout.id: rollout for rollout in batch if rollout is not None}
            answers = ((one.id, one.problem, one.text) for one in rollouts.values())
            for id, score in self.grader.grade(answers):
                self._add(replace(rollouts[id], score=score))

    def _add(self, rollout: Rollout) -> None:
        with self._changed:
            ticket = self._tickets[_number((rollout,))]
            ticket.graded[rollout.id] = rollout
            self._notes.tokens += len(rollout.completion.tokens)
            assert ticket.request is not None, "it was asked"
            if len(ticket.graded) < len(ticket.request.sample_ids):
                return
            ids = sorted(ticket.graded, key=lambda id: int(id.rpartition("/")[2]))
            ticket.group = self.plan.reward(tuple(ticket.graded[id] for id in ids))
            self._notes.answered.append(ticket.number)
            self._note_busy()
            self._changed.notify_all()

    def _note_busy(self) -> None:
        self._busy.note(any(t.group is None for t in self._tickets.values()))


@dataclass(slots=True, kw_only=True)
class _StepNotes:
    """What happened from the end of one step to the end of the next."""

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
    """Counts the seconds in which something runs."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._since: float | None = None

    def note(self, is_busy: bool) -> None:
        now = time.perf_counter()
        if self._since is not None:
            self._seconds += now - self._since
        self._since = now if is_busy else None

    def lap(self) -> float:
        """Return the seconds since the last lap."""
        self.note(self._since is not None)
        seconds, self._seconds = self._seconds, 0.0
        return seconds


def _number(group: Group) -> int:
    return int(group[0].group_id.rpartition(":")[2])
