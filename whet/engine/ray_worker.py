"""Native engines as actors of a Ray cluster; nothing else in whet imports ray, which is optional.

An actor that dies, or whose node is lost, is created again, on another node if one is free.
"""

import os
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from queue import Empty, SimpleQueue

import ray  # noqa: TID251
from ray.actor import ActorHandle  # noqa: TID251
from ray.exceptions import GetTimeoutError, RayError  # noqa: TID251

from whet.engine.base import Request
from whet.engine.weight_files import Weights
from whet.engine.worker import (
    Cancel,
    EngineSpec,
    Load,
    Loaded,
    Report,
    Sleep,
    Submit,
    WorkerError,
    WorkerHost,
    WorkerOrder,
    WorkerReport,
)
from whet.errors import ConfigError

LISTEN_SECONDS = 1.0
"""Seconds that an actor waits for results before it returns an empty list."""
MAX_RESULTS = 256
WORKER_ORDERS, RESULTS = "orders", "results"
"""Concurrency groups of an actor: calls of one group run one at a time, in order."""
_PUTS = threading.Lock()


def build_ray_workers(
    address: str, specs: Sequence[EngineSpec], *, wait: float
) -> list["RayWorker"]:
    """Join the cluster, and make a worker for each engine; it starts with its first weights."""
    if not ray.is_initialized():
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except (RayError, ConnectionError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise ConfigError(
                f"engine.ray = {address!r} is not a cluster that can be joined: {reason}"
            ) from error
    return [RayWorker(f"worker {number}", spec, wait=wait) for number, spec in enumerate(specs)]


class EngineActor:
    """An engine in a Ray process; a thread serves it, calls bring orders and fetch results."""

    def __init__(self, spec: EngineSpec) -> None:
        self._inbox = _QueueInbox()
        self._results: SimpleQueue[WorkerReport] = SimpleQueue()
        host = WorkerHost(
            spec.build(), self._inbox, self._results.put, num_slots=spec.engine.max_num_seqs
        )
        threading.Thread(target=host.run, daemon=True).start()

    def get_pid(self) -> int:
        """Return the process id, once the actor has started."""
        return os.getpid()

    def tell(self, order: WorkerOrder) -> None:
        """Pass an order to the thread that serves the engine."""
        self._inbox.put(order)

    def load(self, version: int, weights: bytes) -> None:
        """Take weights from Ray's object store."""
        self._inbox.put(Load(version=version, weights=weights))

    def listen(self) -> list[WorkerReport]:
        """Return results as soon as there are some; an empty list after `LISTEN_SECONDS`."""
        try:
            results = [self._results.get(timeout=LISTEN_SECONDS)]
        except Empty:
            return []
        while len(results) < MAX_RESULTS and not self._results.empty():
            results.append(self._results.get())
        return results


class RayWorker:
    """An actor with a native engine; a thread fetches its results."""

    def __init__(self, name: str, spec: EngineSpec, *, wait: float) -> None:
        self.name = name
        self.num_slots = spec.engine.max_num_seqs
        self._spec = spec
        self._wait = wait
        self._actor: ActorHandle | None = None
        self._loaded: SimpleQueue[Loaded | WorkerError] = SimpleQueue()
        self.pid = 0

    def start(self, report: Report) -> None:
        self.close()
        num_gpus = 1 if self._spec.device == "cuda" else 0
        # An engine alone on its node has the most memory and processors.
        make = ray.remote(
            num_cpus=1,
            num_gpus=num_gpus,
            scheduling_strategy="SPREAD",
            concurrency_groups={WORKER_ORDERS: 1, RESULTS: 1},
        )(EngineActor)
        actor = make.remote(self._spec)
        self._actor = actor
        self._loaded = SimpleQueue()
        try:
            self.pid = ray.get(
                actor.get_pid.options(concurrency_group=WORKER_ORDERS).remote(), timeout=self._wait
            )
        except GetTimeoutError:
            raise WorkerError(
                f"has not started within {self._wait:g} s: the Ray cluster may have no node free"
            ) from None
        except RayError as error:
            raise WorkerError(f"has not started: {_explain(error)}") from error
        args = actor, self._loaded, report
        threading.Thread(target=self._listen, args=args, daemon=True).start()

    def load(self, weights: Weights) -> None:
        reference = _put_weights(weights.file)
        if self._actor is None:
            raise WorkerError("is not running")
        load = self._actor.load.options(concurrency_group=WORKER_ORDERS)
        load.remote(weights.version, reference)
        try:
            result = self._loaded.get(timeout=self._wait)
        except Empty:
            raise WorkerError(f"has not taken its weights within {self._wait:g} s") from None
        if isinstance(result, WorkerError):
            raise result

    def submit(self, call: int, requests: Sequence[Request]) -> None:
        self._tell(Submit(call=call, requests=requests))

    def cancel(self) -> None:
        self._tell(Cancel())

    def sleep(self) -> None:
        self._tell(Sleep())

    def close(self) -> None:
        actor, self._actor = self._actor, None
        if actor is not None and ray.is_initialized():
            ray.kill(actor)

    def _tell(self, order: WorkerOrder) -> None:
        """Send an order without waiting for it: orders of one caller arrive in order."""
        if self._actor is None:
            raise WorkerError("is not running")
        self._actor.tell.options(concurrency_group=WORKER_ORDERS).remote(order)

    def _listen(
        self, actor: ActorHandle, loaded: SimpleQueue[Loaded | WorkerError], report: Report
    ) -> None:
        """Pass on results until the actor ends; an unexpected end is a fault."""
        listen = actor.listen.options(concurrency_group=RESULTS)
        while self._actor is actor:
            try:
                results: list[WorkerReport] = ray.get(listen.remote())
            except RayError as error:
                if self._actor is actor:
                    failure = WorkerError(f"has died: {_explain(error)}")
                    loaded.put(failure)
                    report(failure)
                return
            for result in results:
                if isinstance(result, Loaded | WorkerError):
                    loaded.put(result)
                else:
                    report(result)


class _QueueInbox:
    def __init__(self) -> None:
        self._orders: SimpleQueue[WorkerOrder] = SimpleQueue()

    def put(self, order: WorkerOrder) -> None:
        self._orders.put(order)

    def get(self, *, wait: bool) -> WorkerOrder | None:
        try:
            return self._orders.get(block=wait)
        except Empty:
            return None


@lru_cache(maxsize=1)
def _put_file(file: Path) -> ray.ObjectRef:
    return ray.put(file.read_bytes())


def _put_weights(file: Path) -> ray.ObjectRef:
    """Put a file into Ray's object store, once for all workers; the previous one is released."""
    try:
        with _PUTS:
            return _put_file(file)
    except OSError as error:
        raise WorkerError(f"cannot be sent weights that are gone: {error}") from error


def _explain(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__
