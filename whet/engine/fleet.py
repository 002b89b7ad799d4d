"""A fleet: one engine made of several workers, each with weights of its own.

Requests are dealt out long ones first, as workers have slots free. New weights are pushed in place
between two calls, and a canary prompt shows whether each worker has them; every completion carries
their version. A worker that dies, falls silent or has other weights is named, its requests go to
others, and it is started again with the newest weights. What a native worker answers follows from
the request alone, so faults change no answer.
"""

import shutil
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue

from torch import Tensor

from whet.engine.base import EngineStats, Request, check_prompt
from whet.engine.fleet_member import CANARY, Event, Member, Prepared, State
from whet.engine.request_order import ExpectedLengths, longest_first
from whet.engine.weight_files import Weights, make_scratch, store_weights
from whet.engine.worker import Answer, Refusal, Worker, WorkerError
from whet.errors import EngineError
from whet.models.transformer import Transformer
from whet.track.progress import say
from whet.types import Completion

LOOK_AHEAD = 4
"""Requests that are put in order, per slot."""
MAX_STARTS = 3
"""How often a worker is started before it is left out until the next push."""
MAX_LOSSES = 5
"""Workers that may be lost with one request before it counts as their cause."""


class Fleet:
    """An engine of several workers; on other ranks than the first it has none and serves nothing.

    `model` is the learner's, which the canary is compared with. After `wait` seconds of silence a
    worker counts as lost; `scratch` is a folder for weights that workers can read. Workers that are
    `collocated` share the learner's devices.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        model: Transformer,
        *,
        context: int | None = None,
        wait: float = 600.0,
        scratch: str | None = None,
        is_collocated: bool = False,
    ) -> None:
        self.model = model
        self.wait = wait
        self.is_collocated = is_collocated
        self.max_model_len = min(context or model.cfg.max_positions, model.cfg.max_positions)
        self.stats = EngineStats()
        self.faults: list[str] = []
        """Sentences on workers that were lost."""
        self.push_seconds = 0.0
        """Of the latest push, canary included."""
        self.canary_gap = 0.0
        """Largest of the latest push, in nats."""
        self._members = [Member(worker) for worker in workers]
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._weights: Weights | None = None
        self._call = CANARY
        self._is_running = False
        self._is_closed = False
        self._again: deque[Request] = deque()
        self._num_losses: dict[str, int] = {}
        self._lengths = ExpectedLengths()
        self._scratch = make_scratch(scratch) if workers else Path()
        self._close = weakref.finalize(self, _close_all, list(workers), self._scratch)

    def load_weights(self, named: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Push weights to all workers in place, and wait until those that run have them.

        One that is being started again gets them when it has; one that was left out is tried
        again.
        """
        if self._is_running:
            raise EngineError("weights cannot change while requests run; read them to their end")
        if not self._members:
            return
        began = time.perf_counter()
        before = self._weights
        self._weights = store_weights(
            named,
            version,
            model=self.model,
            context=self.max_model_len,
            before=before,
            scratch=self._scratch,
        )
        self.canary_gap = 0.0
        waited = [m for m in self._members if m.state is State.READY or before is None]
        for member in self._members:
            if member.state is not State.PREPARING:
                member.num_starts = 0
                self._prepare(member, start=member.state is State.OUT)
        while any(member.state is State.PREPARING for member in waited):
            self._handle(self._events.get())
        self._await_any()
        if before is not None and before.file != self._weights.file:
            shutil.rmtree(before.file.parent, ignore_errors=True)
        self.push_seconds = time.perf_counter() - began

    def generate(self, requests: Iterable[Request]) -> Iterator[tuple[str, Completion]]:
        if self._is_running:
            raise EngineError(
                "an earlier call of this engine still runs; read it to its end or close it first"
            )
        if self._is_closed:
            raise EngineError("the fleet is closed")
        self._is_running = True
        self._call += 1
        self._again.clear()
        self._num_losses.clear()
        self.stats = EngineStats()
        for member in self._members:
            member.stats = EngineStats()
        try:
            yield from self._serve(requests)
        finally:
            self._is_running = False
            for member in self._members:
                if member.running:
                    member.running.clear()
                    with suppress(WorkerError):
                        member.worker.cancel()

    def sleep(self) -> None:
        """Free the workers' memory, where they share the learner's devices."""
        for member in self._members:
            if self.is_collocated and member.state is State.READY:
                with suppress(WorkerError):
                    member.worker.sleep()

    def close(self) -> None:
        """End the workers; a call that still runs in another thread ends with an error."""
        self._is_closed = True
        self._close()
        for member in self._members:
            self._events.put((member, member.life, WorkerError("was closed")))

    def _serve(self, requests: Iterable[Request]) -> Iterator[tuple[str, Completion]]:
        if not self._members:
            return
        slots = sum(member.worker.num_slots for member in self._members)
        checked = map(self._check, requests)
        ordered = longest_first(checked, ahead=LOOK_AHEAD * slots, length=self._lengths.expect)
        while True:
            self._await_any()
            self._deal(ordered)
            if not self._again and not any(member.running for member in self._members):
                return
            event = self._next_event()
            answer = self._handle(event) if event is not None else None
            if answer is not None:
                yield answer.id, answer.completion

    def _check(self, request: Request) -> Request:
        check_prompt(request, self.max_model_len, self.model.cfg.vocab_size)
        return request

    def _deal(self, requests: Iterator[Request]) -> None:
        """Fill free slots; requests of one prompt go to one worker, which computes it once."""
        batches: dict[Member, list[Request]] = {}
        last: tuple[Member, bytes] | None = None
        while any(member.num_free > 0 for member in self._members):
            request = self._again.popleft() if self._again else next(requests, None)
            if request is None:
                break
            prompt = request.prompt.tobytes()
            is_same = last is not None and last[1] == prompt and last[0].num_free > 0
            if last is None or not is_same:
                last = max(self._members, key=lambda member: member.num_free), prompt
            last[0].running[request.id] = request
            batches.setdefault(last[0], []).append(request)
        for member, batch in batches.items():
            if len(batch) == len(member.running):
                member.heard = time.monotonic()
            try:
                member.worker.submit(self._call, batch)
            except WorkerError as error:
                self._lose(member, str(error))

    def _next_event(self) -> Event | None:
        """Wait for a report; None where workers have been silent for too long."""
        busy = [m for m in self._members if m.state is State.READY and m.running]
        deadline = min((member.heard + self.wait for member in busy), default=None)
        try:
            if deadline is None:
                return self._events.get()
            return self._events.get(timeout=max(deadline - time.monotonic(), 0.0))
        except Empty:
            for member in busy:
                if time.monotonic() >= member.heard + self.wait:
                    self._lose(member, f"has not answered for {self.wait:g} s")
            return None

    def _handle(self, event: Event) -> Answer | None:
        """Take note of a report; return an answer that counts."""
        member, life, report = event
        if life != member.life:
            return None
        if isinstance(report, Prepared):
            self._admit(member, report)
        elif isinstance(report, WorkerError):
            self._lose(member, str(report))
        elif report.call != self._call or not self._is_running:
            return None
        elif isinstance(report, Refusal):
            raise EngineError(report.reason)
        else:
            return self._accept(member, report)
        return None

    def _accept(self, member: Member, answer: Answer) -> Answer | None:
        assert self._weights is not None, "requests run only with weights"
        member.heard = time.monotonic()
        version = answer.completion.policy_version
        if answer.id not in member.running:
            return None
        if version != self._weights.version:
            reason = f"answered with weights of version {version}, not {self._weights.version}"
            self._lose(member, reason, start=False)
            return None
        member.num_starts = 0
        request = member.running.pop(answer.id)
        self._lengths.add(request, len(answer.completion.tokens))
        member.stats = answer.stats
        tokens = self.stats.tokens + len(answer.completion.tokens)
        total = sum((m.stats for m in self._members), EngineStats())
        self.stats = replace(total, tokens=tokens, lost_workers=self.stats.lost_workers)
        return answer

    def _admit(self, member: Member, prepared: Prepared) -> None:
        assert self._weights is not None, "workers are prepared with weights"
        version = prepared.version
        if version != self._weights.version:
            self._prepare(member, start=False)
            return
        self.canary_gap = max(self.canary_gap, prepared.canary_gap)
        member.state = State.READY
        if member.is_lost:
            member.is_lost = False
            say(f"{member.worker.name} serves again, with version {version}")

    def _lose(self, member: Member, reason: str, *, start: bool = True) -> None:
        """Name a lost worker, give its requests to others, and start it again."""
        if self._is_closed:
            raise EngineError("the fleet is closed")
        member.reason = reason
        member.is_lost = True
        num_running = len(member.running)
        words = f"; its {num_running} requests go to others" if num_running else ""
        fault = f"{member.worker.name} {reason}{words}"
        self.faults.append(fault)
        say(fault)
        self.stats.lost_workers += 1
        for request in reversed(member.running.values()):
            self._num_losses[request.id] = self._num_losses.get(request.id, 0) + 1
            if self._num_losses[request.id] > MAX_LOSSES:
                raise EngineError(
                    f"request {request.id} was with {MAX_LOSSES + 1} workers when they were lost, "
                    f"and may be the cause; the last: {fault}"
                )
            self._again.appendleft(request)
        member.running.clear()
        member.num_starts += 1
        if member.num_starts > MAX_STARTS:
            member.state = State.OUT
            member.life += 1
        else:
            self._prepare(member, start=start)

    def _await_any(self) -> None:
        """Wait while no worker is ready, but some may become so."""
        while not any(member.state is State.READY for member in self._members):
            if all(member.state is State.OUT for member in self._members):
                reasons = "; ".join(f"{m.worker.name} {m.reason}" for m in self._members)
                raise EngineError(f"no worker of the fleet is left: {reasons}")
            self._handle(self._events.get())

    def _prepare(self, member: Member, *, start: bool) -> None:
        """Start a worker where needed, push weights and check them, in a thread."""
        assert self._weights is not None, "workers are prepared with weights"
        if start:
            member.life += 1
        member.state = State.PREPARING
        start = start and not self._is_closed
        args = self._weights, self._events, self.wait, member.life, start
        threading.Thread(target=member.prepare, args=args, daemon=True).start()


def _close_all(workers: Sequence[Worker], scratch: Path) -> None:
    for worker in workers:
        with suppress(WorkerError):
            worker.close()
    if workers:
        shutil.rmtree(scratch, ignore_errors=True)
