"""Workers of a fleet: engines with their own weights, in other processes or on other machines.

A worker is controlled by plain calls, and reports completions and faults from its own threads.
`WorkerHost` is the other end of a native worker: it serves an engine by messages, over any
transport.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from whet.engine.base import Detokenize, Engine, EngineConfig, EngineStats, OpenRequests, Request
from whet.engine.weight_files import Weights
from whet.errors import WhetError
from whet.models.config import ModelConfig
from whet.models.transformer import Transformer, rope_table
from whet.types import Completion

CANARY = 0
"""The number of the call that a canary belongs to."""


class WorkerError(Exception):
    """A worker that died, stopped responding or cannot work; the reason follows its name."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FinishedRequest:
    """A completion, and the worker's counters since the call began."""

    call: int
    id: str
    completion: Completion
    stats: EngineStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request that no worker could serve, with the reason."""

    call: int
    reason: str


Report = Callable[[FinishedRequest | Refusal | WorkerError], None]


class Worker(Protocol):
    """One engine of a fleet. Calls that fail raise a WorkerError; `start` starts over."""

    @property
    def name(self) -> str:
        """Its name in messages."""
        ...

    @property
    def num_slots(self) -> int:
        """Largest number of requests that it runs at once."""
        ...

    def start(self, report: Report) -> None:
        """Start or restart the worker; return once weights can be loaded."""
        ...

    def load(self, weights: Weights) -> None:
        """Load weights in place; return once later requests are sampled with them. Running requests
        continue with them too."""
        ...

    def submit(self, call: int, requests: Sequence[Request]) -> None:
        """Start requests; their completions are reported under the number of the call."""
        ...

    def cancel(self) -> None:
        """Drop running requests."""
        ...

    def sleep(self) -> None:
        """Free memory until weights or requests come."""
        ...

    def close(self) -> None:
        """End the worker; `start` may follow."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """An order to load weights: a safetensors file, or its bytes where files are not shared."""

    version: int
    weights: Path | bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Submit:
    """An order to start requests of a call."""

    call: int
    requests: Sequence[Request]


@dataclass(frozen=True, slots=True)
class Cancel:
    """An order to drop all requests."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """An order to free the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A report that weights were loaded."""

    version: int


WorkerOrder = Load | Submit | Cancel | Sleep
WorkerReport = FinishedRequest | Refusal | Loaded | WorkerError


class Inbox(Protocol):
    """Orders as they arrive; None if the sender is gone or, with `wait=False`, none is waiting."""

    def get(self, *, wait: bool) -> WorkerOrder | None: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineSpec:
    """All that a worker needs to build its engine; weights follow."""

    model: ModelConfig
    dtype: torch.dtype
    device: str
    num_threads: int
    engine: EngineConfig
    stop_tokens: frozenset[int]
    detokenize: Detokenize | None

    def build(self) -> Engine:
        """Build the engine, with one more row for a canary."""
        torch.set_num_threads(self.num_threads)
        model = Transformer(self.model, dtype=self.dtype, device="meta")
        model = model.to_empty(device=self.device).requires_grad_(False)
        with torch.device(self.device):
            model.rope_CD = rope_table(self.model)
        engine = self.engine.model_copy(update={"max_num_seqs": self.engine.max_num_seqs + 1})
        return engine.build(model, stop_tokens=self.stop_tokens, detokenize=self.detokenize)


class WorkerHost:
    """Serves an engine: takes orders from an inbox and sends results, in one thread.

    The engine runs up to `num_slots` requests, and a canary besides.
    """

    def __init__(
        self, engine: Engine, inbox: Inbox, send: Callable[[WorkerReport], None], *, num_slots: int
    ) -> None:
        self.engine = engine
        self.inbox = inbox
        self.send = send
        self.num_slots = num_slots
        self._counted = EngineStats()
        self._call = -1

    def run(self) -> None:
        """Execute orders until the sender is gone."""
        following: deque[WorkerOrder] = deque()
        while (
            order := following.popleft() if following else self.inbox.get(wait=True)
        ) is not None:
            following.extend(self._follow(order))

    def _follow(self, order: WorkerOrder) -> Sequence[WorkerOrder]:
        """Execute an order; return orders that arrived meanwhile and are still to be executed."""
        match order:
            case Load():
                self._load(order)
            case Submit():
                return self._generate(order)
            case Sleep():
                self.engine.sleep()
            case Cancel():
                pass
        return ()

    def _load(self, order: Load) -> None:
        try:
            self.engine.load_weights(_read(order.weights), order.version)
        except (WhetError, OSError, SafetensorError) as error:
            self.send(WorkerError(f"cannot take weights: {error}"))
        else:
            self.send(Loaded(version=order.version))

    def _generate(self, order: Submit) -> Sequence[WorkerOrder]:
        arriving = _ArrivingRequests(order, self.inbox, self._load, num_slots=self.num_slots)
        # A call whose requests arrive late takes several calls of the engine.
        before = self._counted if order.call == self._call else EngineStats()
        self._call = order.call
        try:
            for id, completion in self.engine.generate(arriving):
                self._counted = before + self.engine.stats
                if arriving.is_cancelled:
                    break
                call = arriving.end(id)
                self.send(
                    FinishedRequest(call=call, id=id, completion=completion, stats=self._counted)
                )
        except WhetError as error:
            self.send(Refusal(call=order.call, reason=str(error)))
        return arriving.left


class _ArrivingRequests(OpenRequests):
    """The requests of a call as they arrive. Meanwhile, weights may be loaded between two windows,
    and a canary may run in its own row. Any other order ends the call."""

    def __init__(
        self, order: Submit, inbox: Inbox, load: Callable[[Load], None], *, num_slots: int
    ) -> None:
        self.call = order.call
        self.inbox = inbox
        self.load = load
        self.num_slots = num_slots
        self._waiting = deque(order.requests)
        self._canaries: deque[Request] = deque()
        self._running: dict[str, int] = {}
        """The call of each request that runs."""
        self._next_order: WorkerOrder | None = None
        """An order still to be executed; no other is read before it."""

    @property
    def is_cancelled(self) -> bool:
        self._look()
        return self._next_order is not None and not isinstance(self._next_order, Load)

    @property
    def left(self) -> list[WorkerOrder]:
        """The order to execute once the engine has ended."""
        if self._next_order is None:
            return []
        waiting = Submit(call=self.call, requests=list(self._waiting))
        has_waiting = isinstance(self._next_order, Load) and waiting.requests
        return [self._next_order, waiting] if has_waiting else [self._next_order]

    def __next__(self) -> Request:
        self._look()
        if self._next_order is None and self._canaries:
            return self._begin(self._canaries.popleft(), CANARY)
        if self._next_order is None and self._waiting and len(self._running) < self.num_slots:
            return self._begin(self._waiting.popleft(), self.call)
        raise StopIteration

    def end_window(self) -> None:
        self._look()
        while isinstance(self._next_order, Load):
            self.load(self._next_order)
            self._next_order = None
            self._look()

    def end(self, id: str) -> int:
        """Note that a request has ended; return its call."""
        return self._running.pop(id)

    def _begin(self, request: Request, call: int) -> Request:
        self._running[request.id] = call
        return request

    def _look(self) -> None:
        while self._next_order is None and (order := self.inbox.get(wait=False)) is not None:
            if isinstance(order, Submit) and order.call == self.call:
                self._waiting.extend(order.requests)
            elif isinstance(order, Submit) and order.call == CANARY:
                self._canaries.extend(order.requests)
            else:
                self._next_order = order


def _read(weights: Path | bytes) -> Iterable[tuple[str, Tensor]]:
    if isinstance(weights, bytes):
        return safetensors.torch.load(weights).items()
    return safetensors.torch.load_file(weights).items()
