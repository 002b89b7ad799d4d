"""Workers of a fleet in threads of this process: real engines with faults chosen by a test."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Literal

from whet.engine.base import Detokenize, Engine, Request
from whet.engine.native import NativeConfig, NativeEngine
from whet.engine.weight_files import Weights
from whet.engine.worker import (
    Cancel,
    FinishedRequest,
    Load,
    Loaded,
    Report,
    Submit,
    WorkerError,
    WorkerHost,
    WorkerOrder,
    WorkerReport,
)
from whet.models.transformer import Transformer
from whet.types import Completion

Fault = Callable[["ThreadWorker", WorkerReport], WorkerReport | None]
"""Changes a result before it is passed on; None drops the result."""


class ThreadWorker:
    """An engine in a thread; `fault` may change, delay or drop each of its results."""

    def __init__(
        self,
        name: str,
        build: Callable[[], Engine],
        *,
        num_slots: int = 4,
        fault: Fault = lambda worker, result: result,
    ) -> None:
        self.name = name
        self.num_slots = num_slots
        self.build = build
        self.fault = fault
        self.num_starts = 0
        self.num_finished = 0
        self.versions: list[int] = []
        """Versions of the weights that it was given."""
        self._file = Path()
        self.stale_loads = 0
        """Number of coming loads that set only the version."""

    def start(self, report: Report) -> None:
        self.num_starts += 1
        self._report = report
        self._inbox = _QueueInbox()
        self._loaded: SimpleQueue[WorkerReport] = SimpleQueue()
        host = WorkerHost(self.build(), self._inbox, self._pass_on, num_slots=self.num_slots)
        threading.Thread(target=host.run, daemon=True).start()

    def load(self, weights: Weights) -> None:
        self.versions.append(weights.version)
        file = weights.file
        if self.stale_loads:
            self.stale_loads -= 1
            file = self._file
        self._file = file
        self._inbox.put(Load(version=weights.version, weights=file))
        result = self._loaded.get()
        if isinstance(result, WorkerError):
            raise result

    def submit(self, call: int, requests: Sequence[Request]) -> None:
        self._inbox.put(Submit(call=call, requests=requests))

    def cancel(self) -> None:
        self._inbox.put(Cancel())

    def sleep(self) -> None:
        """Do nothing: a test's engine has no memory to free."""

    def close(self) -> None:
        if self.num_starts:
            self._inbox.put(None)

    def die(self) -> None:
        """Report a death like that of a killed process."""
        self.close()
        self._report(WorkerError("has died by signal 9"))

    def _pass_on(self, result: WorkerReport) -> None:
        if isinstance(result, Loaded | WorkerError):
            self._loaded.put(result)
            return
        if isinstance(result, FinishedRequest) and result.call:
            self.num_finished += 1
        changed = self.fault(self, result)
        if changed is not None:
            assert not isinstance(changed, Loaded), "loads are not passed on"
            self._report(changed)


def with_version(result: WorkerReport, version: int) -> WorkerReport:
    """Return the result of a request with another policy version."""
    assert isinstance(result, FinishedRequest), "only responses have a version"
    return replace(result, completion=replace(result.completion, policy_version=version))


class _QueueInbox:
    def __init__(self) -> None:
        self._orders: SimpleQueue[WorkerOrder | None] = SimpleQueue()

    def put(self, order: WorkerOrder | None) -> None:
        self._orders.put(order)

    def get(self, *, wait: bool) -> WorkerOrder | None:
        try:
            return self._orders.get(block=wait)
        except Empty:
            return None


class SlowConfig(NativeConfig):
    """A native engine with a fixed delay for each response or decode step."""

    kind: Literal["native"] = "native"
    delay: float = 0.0
    """Seconds after each response."""
    step_delay: float = 0.0
    """Seconds after each decode step."""

    def build(
        self,
        model: Transformer,
        *,
        stop_tokens: frozenset[int],
        detokenize: Detokenize | None = None,
    ) -> NativeEngine:
        return _SlowEngine(model, self, stop_tokens=stop_tokens, detokenize=detokenize)


class _SlowEngine(NativeEngine):
    def generate(self, requests: Iterable[Request]) -> Iterator[tuple[str, Completion]]:
        assert isinstance(self.cfg, SlowConfig), "a slow engine has slow settings"
        for result in super().generate(requests):
            time.sleep(self.cfg.delay)
            yield result

    def _serve(self, requests: Iterable[Request]) -> Iterator[list[tuple[str, Completion]]]:
        assert isinstance(self.cfg, SlowConfig), "a slow engine has slow settings"
        for results in super()._serve(requests):
            time.sleep(self.cfg.step_delay)
            yield results
