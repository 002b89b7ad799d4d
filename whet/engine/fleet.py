"""A fleet: one engine made of several workers, each with its own weights.

Requests go longest first to workers with free slots. New weights are pushed in place between two
calls or during a stream, and a canary prompt checks that each worker has them; a completion carries
the version of its oldest token. A worker that dies, stops responding or has the wrong weights is
reported and restarted with the newest weights; its requests go to others. A native worker's
response depends only on the request and the weights, so faults change no response of a call.

One thread reads reports: the one in `generate` or `stream`, or in `load_weights` between calls.
Other threads reach a stream by messages in the same queue.
"""

import shutil
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue

import torch
from torch import Tensor

from whet.engine.base import EngineStats, Request, check_prompt_tokens
from whet.engine.fleet_member import (
    FleetEvent,
    Member,
    MemberState,
    Prepared,
    Push,
    RequestQueue,
    Running,
    StreamEnd,
    Submission,
)
from whet.engine.weight_files import Weights, make_scratch, store_weights
from whet.engine.worker import CANARY, FinishedRequest, Refusal, Worker, WorkerError
from whet.errors import EngineError
from whet.models.transformer import Transformer
from whet.track.progress import say
from whet.types import Completion

MAX_STARTS = 3
"""Starts of a worker before it is left out until the next push."""
LOOK_SECONDS = 0.1
"""Seconds between checks that a stream still runs, during a push of weights to it."""


class Fleet:
    """An engine of several workers; only the first rank has workers and serves requests.

    `model` is the learner's, which makes the canary. After `wait` seconds of silence a worker
    counts as lost; `scratch` is a folder for weights that workers can read. With `is_collocated`,
    workers share the learner's devices.
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
        """A sentence about each worker that was lost."""
        self.push_seconds = 0.0
        """Seconds that the latest push of weights took, canary included."""
        self.canary_gap = 0.0
        """Largest gap of a canary in the latest push, in nats."""
        self._members = [Member(worker) for worker in workers]
        self._events: SimpleQueue[FleetEvent] = SimpleQueue()
        self._weights: Weights | None = None
        self._call = CANARY
        self._is_running = False
        self._is_streaming = False
        self._is_closed = False
        self._failure: EngineError | None = None
        self._push: Push | None = None
        self._queue = RequestQueue()
        self._scratch = make_scratch(scratch) if workers else Path()
        self._close = weakref.finalize(self, _close_all, list(workers), self._scratch)

    def load_weights(self, named: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Push weights to all workers in place, and wait until the running ones have them.

        A worker that is restarting gets them afterwards; one that was left out is tried again.
        Requests of a stream continue with the new weights.
        """
        if self._is_running and not self._is_streaming:
            raise EngineError(
                "weights cannot change while requests run; finish reading these first"
            )
        if not self._members:
            return
        if self.is_collocated and self.model.device.type == "cuda":
            torch.cuda.empty_cache()  # free what the learner left, for workers that wake up
        began = time.perf_counter()
        before = self._weights
        weights = store_weights(
            named,
            version,
            model=self.model,
            context=self.max_model_len,
            before=before,
            scratch=self._scratch,
        )
        push = Push(weights=weights, before=before)
        if self._is_streaming:
            self._events.put(push)
            while not push.is_done.wait(LOOK_SECONDS):
                if not self._is_streaming:
                    raise self._failure or EngineError("the stream has ended")
        else:
            self._begin_push(push)
            while not push.is_done.is_set():
                self._handle(self._events.get())
            self._await_any()
        self.push_seconds = time.perf_counter() - began

    def generate(self, requests: Iterable[Request]) -> Iterator[tuple[str, Completion]]:
        self._begin_call()
        try:
            yield from self._serve(requests)
        finally:
            self._end_call()

    def stream(self) -> Iterator[tuple[str, Completion]]:
        """Start serving submitted requests, until `end_stream`; weights may change meanwhile."""
        self._begin_call()
        self._queue.start()
        self._failure = None
        self._is_streaming = True
        return self._serve_stream()

    def submit(self, requests: Sequence[Request]) -> None:
        self._events.put(Submission(requests=[self._check(request) for request in requests]))

    def end_stream(self) -> None:
        if self._is_streaming:
            self._events.put(StreamEnd())

    def _begin_call(self) -> None:
        if self._is_running:
            raise EngineError(
                "an earlier call of this engine is still running; finish reading or close it first"
            )
        if self._is_closed:
            raise EngineError("the fleet is closed")
        self._is_running = True
        self._call += 1
        self.stats = EngineStats()
        for member in self._members:
            member.stats = EngineStats()

    def _end_call(self) -> None:
        self._is_running = False
        self._is_streaming = False
        for member in self._members:
            if member.running:
                member.running.clear()
                with suppress(WorkerError):
                    member.worker.cancel()

    def sleep(self) -> None:
        """Free the memory of workers that share the learner's devices."""
        for member in self._members:
            if self.is_collocated and member.state is MemberState.READY:
                with suppress(WorkerError):
                    member.worker.sleep()

    def close(self) -> None:
        """End the workers; a call that still runs in another thread ends with an error."""
        self._is_closed = True
        self._close()
        for member in self._members:
            self._events.put((member, member.life, WorkerError("was closed")))
        self._events.put(StreamEnd())

    def _serve(self, requests: Iterable[Request]) -> Iterator[tuple[str, Completion]]:
        if not self._members:
            return
        slots = sum(member.worker.num_slots for member in self._members)
        self._queue.start(map(self._check, requests), slots=slots)
        while True:
            self._await_any()
            self._deal()
            if not self._queue.has_lost and not any(member.running for member in self._members):
                return
            event = self._next_event()
            finished = self._handle(event) if event is not None else None
            if finished is not None:
                yield finished.id, finished.completion

    def _serve_stream(self) -> Iterator[tuple[str, Completion]]:
        """Serve until the stream ends; requests keep running while workers load weights."""
        try:
            while self._is_streaming:
                self._check_left()
                self._deal()
                event = self._next_event()
                finished = self._handle(event) if event is not None else None
                if finished is not None:
                    yield finished.id, finished.completion
        except EngineError as error:
            self._failure = error
            raise
        finally:
            self._end_call()

    def _check(self, request: Request) -> Request:
        check_prompt_tokens(request, self.max_model_len, self.model.cfg.vocab_size)
        return request

    def _deal(self) -> None:
        """Fill free slots; requests of one prompt go to one worker, which prefills it once."""
        batches: dict[Member, list[Request]] = {}
        last: tuple[Member, bytes] | None = None
        while any(member.num_free > 0 for member in self._members):
            request = self._queue.take()
            if request is None:
                break
            prompt = request.prompt.tobytes()
            is_same = last is not None and last[1] == prompt and last[0].num_free > 0
            if last is None or not is_same:
                last = max(self._members, key=lambda member: member.num_free), prompt
            last[0].running[request.id] = Running(request=request, version=self._version)
            batches.setdefault(last[0], []).append(request)
        for member, batch in batches.items():
            if len(batch) == len(member.running):
                member.heard = time.monotonic()
            try:
                member.worker.submit(self._call, batch)
            except WorkerError as error:
                self._lose(member, str(error))

    @property
    def _version(self) -> int:
        assert self._weights is not None, "requests run only with weights"
        return self._weights.version

    def _next_event(self) -> FleetEvent | None:
        """Wait for an event; None if workers have been silent for too long."""
        busy = [m for m in self._members if m.state is MemberState.READY and m.running]
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

    def _handle(self, event: FleetEvent) -> FinishedRequest | None:
        """Handle a report or a message; return the completion to yield, if any."""
        match event:
            case Submission():
                self._queue.add(event.requests)
            case Push():
                self._begin_push(event)
            case StreamEnd():
                self._is_streaming = False
            case _:
                return self._handle_report(*event)
        return None

    def _handle_report(
        self, member: Member, life: int, report: FinishedRequest | Refusal | WorkerError | Prepared
    ) -> FinishedRequest | None:
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

    def _accept(self, member: Member, finished: FinishedRequest) -> FinishedRequest | None:
        member.heard = time.monotonic()
        version = finished.completion.policy_version
        if finished.id not in member.running:
            return None
        given = member.running[finished.id].version
        if not given <= version <= self._version:
            right = f"{given}" if given == self._version else f"{given} to {self._version}"
            with suppress(WorkerError):
                member.worker.cancel()
            reason = f"answered with weights of version {version}, not {right}"
            self._lose(member, reason, start=False)
            return None
        member.num_starts = 0
        request = member.running.pop(finished.id).request
        self._queue.end(request, len(finished.completion.tokens))
        member.stats = finished.stats
        tokens = self.stats.tokens + len(finished.completion.tokens)
        total = sum((m.stats for m in self._members), EngineStats())
        self.stats = replace(total, tokens=tokens, lost_workers=self.stats.lost_workers)
        return finished

    def _admit(self, member: Member, prepared: Prepared) -> None:
        assert self._weights is not None, "workers are prepared with weights"
        version = prepared.version
        if version != self._weights.version:
            self._prepare(member, start=False)
            return
        self.canary_gap = max(self.canary_gap, prepared.canary_gap)
        member.state = MemberState.READY
        member.heard = time.monotonic()
        self._note_push()
        if member.is_lost:
            member.is_lost = False
            say(f"{member.worker.name} serves again, with version {version}")

    def _lose(self, member: Member, reason: str, *, start: bool = True) -> None:
        """Report a lost worker, requeue its requests, and prepare it again."""
        if self._is_closed:
            raise EngineError("the fleet is closed")
        member.reason = reason
        member.is_lost = True
        num_running = len(member.running)
        clause = f"; its {num_running} requests go to others" if num_running else ""
        fault = f"{member.worker.name} {reason}{clause}"
        self.faults.append(fault)
        say(fault)
        self.stats.lost_workers += 1
        if self._push is not None and {*self._push.waited} - {member}:
            self._push.waited = [other for other in self._push.waited if other is not member]
        self._queue.give_back([running.request for running in member.running.values()], fault)
        member.running.clear()
        member.num_starts += 1
        if member.num_starts > MAX_STARTS:
            member.state = MemberState.OUT
            member.life += 1
        else:
            self._prepare(member, start=start)
        self._note_push()

    def _await_any(self) -> None:
        """Wait until a worker is ready; raise an error if none can be."""
        while not any(member.state is MemberState.READY for member in self._members):
            self._check_left()
            self._handle(self._events.get())

    def _check_left(self) -> None:
        if all(member.state is MemberState.OUT for member in self._members):
            reasons = "; ".join(f"{m.worker.name} {m.reason}" for m in self._members)
            raise EngineError(f"no worker of the fleet is left: {reasons}")

    def _begin_push(self, push: Push) -> None:
        push.waited = [
            m for m in self._members if m.state is MemberState.READY or push.before is None
        ]
        self._push = push
        self._weights = push.weights
        self.canary_gap = 0.0
        for member in self._members:
            if member.state is not MemberState.PREPARING:
                member.num_starts = 0
                self._prepare(member, start=member.state is MemberState.OUT)
        self._note_push()

    def _note_push(self) -> None:
        """End the push once no worker it waits for is still preparing."""
        push = self._push
        if push is None or any(member.state is MemberState.PREPARING for member in push.waited):
            return
        self._check_left()
        self._push = None
        if push.before is not None and push.before.file != push.weights.file:
            shutil.rmtree(push.before.file.parent, ignore_errors=True)
        push.is_done.set()

    def _prepare(self, member: Member, *, start: bool) -> None:
        """Start a worker if needed, push weights and check them, in a thread."""
        assert self._weights is not None, "workers are prepared with weights"
        if start:
            member.life += 1
        member.state = MemberState.PREPARING
        start = start and not self._is_closed
        args = self._weights, self._events, self.wait, member.life, start
        threading.Thread(target=member.prepare, args=args, daemon=True).start()


def _close_all(workers: Sequence[Worker], scratch: Path) -> None:
    for worker in workers:
        with suppress(WorkerError):
            worker.close()
    if workers:
        shutil.rmtree(scratch, ignore_errors=True)
