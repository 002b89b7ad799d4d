"""The engine interface: requests in, completions out as they finish. Requests start longest first,
so that no call ends waiting for one long response."""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import groupby, islice
from typing import Protocol, Self, runtime_checkable
from zlib import crc32

from pydantic import Field
from torch import Tensor

from whet.config import CONSTANT, Config
from whet.errors import EngineError
from whet.models.transformer import Transformer
from whet.types import Completion, Tokens

Detokenize = Callable[[Tokens], str]
LOOK_AHEAD = 4
"""Waiting requests to sort by length, in multiples of the slots."""
MAX_PROMPTS = 100_000
"""Prompts whose response lengths are remembered; the least recently answered one is dropped."""


class SamplingParams(Config):
    """Settings of one completion.

    Log-probabilities are those before top_k, top_p and min_p, in training too: see
    docs/sampling.md, Truncation.
    """

    temperature: float = Field(default=1.0, ge=0.0)
    """Divides the logits; 0 takes the most likely token, with the log-probability at 1."""
    top_k: int = Field(default=0, ge=0, le=1_000_000)
    """Draw from the k most likely tokens; 0 draws from all."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Draw from the smallest set of most likely tokens whose probability reaches p; 1 draws from
    all."""
    min_p: float = Field(default=0.0, ge=0.0, lt=1.0, json_schema_extra=CONSTANT)
    """Drop tokens less likely than this fraction of the most likely one; 0 keeps all."""
    max_tokens: int = Field(default=256, ge=1)
    """Longest completion, stop token included."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion, and stay in it."""

    def without_effect(self) -> dict[str, str]:
        reason = "temperature = 0 always takes the most likely token"
        return dict.fromkeys(("top_k", "top_p"), reason) if self.temperature == 0 else {}

    @property
    def is_truncated(self) -> bool:
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """One completion to sample; its random numbers follow from its seed alone."""

    id: str
    prompt: Tokens
    sampling: SamplingParams
    seed: int


class OpenRequests(ABC):
    """Requests in the order in which they start; more may arrive while others run.

    `next` may raise StopIteration and later return a request; an engine keeps asking while any
    request runs.
    """

    def __iter__(self) -> Self:
        return self

    @abstractmethod
    def __next__(self) -> Request: ...

    @abstractmethod
    def end_window(self) -> None:
        """Act between two decode windows. `load_weights` may be called here; running requests
        continue with the new weights."""


@dataclass(slots=True)
class EngineStats:
    """Counters of one `generate` call; 0 where an engine cannot measure."""

    prefill_tokens: int = 0
    windows: int = 0
    steps: int = 0
    """Decode steps; each adds one token to every row."""
    row_steps: int = 0
    """Rows times steps, including rows that pad the batch to the size of a CUDA graph."""
    first_tokens: int = 0
    """Tokens sampled from a prefill, one per row that started."""
    tokens: int = 0
    """Tokens of returned completions."""
    preemptions: int = 0
    """Rows that were preempted; they restart later."""
    captured_graphs: int = 0
    """Decode steps captured as CUDA graphs."""
    copies_to_device: int = 0
    """Copies to the device."""
    copies_to_host: int = 0
    """Copies to the host, one per window; the host waits for nothing else."""
    lost_workers: int = 0
    """Workers of a fleet that died, stopped responding or had the wrong weights."""

    def __add__(self, other: "EngineStats") -> "EngineStats":
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return EngineStats(*(left + right for left, right in pairs))


class Engine(Protocol):
    """Samples completions; `check_engine` in `whet/testing/contracts.py` tests one."""

    @property
    def max_model_len(self) -> int:
        """Longest prompt and completion together, in tokens."""
        ...

    @property
    def stats(self) -> EngineStats:
        """Counters of the latest `generate` call so far."""
        ...

    def generate(self, requests: Iterable[Request]) -> Iterator[tuple[str, Completion]]:
        """Sample every request; yield each completion when it ends, with its id, in any order.

        Requests are pulled as slots become free; closing the generator drops unfinished ones. A
        prompt that is empty, fills the context or has an unknown token raises an EngineError
        (`check_prompt_tokens`).
        """
        ...

    def load_weights(self, named: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Load weights by their Hugging Face names, and stamp later completions with `version`.

        An engine that shares the model's memory reads only the first item of `named`. An empty
        `named` changes only the version.
        """
        ...

    def sleep(self) -> None:
        """Free the memory of the cache until the next request."""
        ...

    def close(self) -> None:
        """Free everything; the engine is not used again."""
        ...


def check_prompt_tokens(request: Request, context: int, vocab_size: int) -> None:
    """Refuse a prompt that is empty, leaves no room for a token, or has an unknown token."""
    length = len(request.prompt)
    if length == 0:
        raise EngineError(f"request {request.id} has an empty prompt; give at least one token")
    if length >= context:
        raise EngineError(
            f"request {request.id} has a prompt of {length} tokens, which leaves no room in a "
            f"context of {context}; shorten it or raise engine.max_model_len"
        )
    for token in (int(request.prompt.min()), int(request.prompt.max())):
        if not 0 <= token < vocab_size:
            raise EngineError(
                f"request {request.id} has token {token} in its prompt, but the model knows "
                f"{vocab_size} tokens; use the tokenizer that belongs to the model"
            )


@runtime_checkable
class StreamingEngine(Engine, Protocol):
    """An engine that accepts more requests and new weights while requests run.

    A completion then carries the version of its oldest token, and each token's log-probability when
    it was sampled. One thread reads the stream; another may call the other methods.
    """

    def stream(self) -> Iterator[tuple[str, Completion]]:
        """Start an open-ended call: yield completions of submitted requests until `end_stream`.
        `load_weights` changes the weights of running requests."""
        ...

    def submit(self, requests: Sequence[Request]) -> None:
        """Add requests to the stream."""
        ...

    def end_stream(self) -> None:
        """End the stream, and drop running requests."""
        ...


class EngineConfig(Config):
    """Base class of engine settings.

    A subclass sets `kind` to its own Literal and is listed in `whet/engine/registry.py`.
    """

    kind: str

    max_num_seqs: int = Field(default=256, ge=1, le=65536)
    """Largest number of requests that run at once."""
    max_model_len: int | None = Field(default=None, ge=2)
    """Longest prompt and completion together; none takes the model's own limit."""

    @property
    def is_central(self) -> bool:
        """Whether rank 0 has the only engine and samples for all ranks."""
        return False

    @property
    def can_overlap(self) -> bool:
        """Whether the engine has its own weights and devices, to sample while a learner trains:
        `lag` then hides sampling time, and the engine is a `StreamingEngine`."""
        return False

    @abstractmethod
    def build(
        self,
        model: Transformer,
        *,
        stop_tokens: frozenset[int],
        detokenize: Detokenize | None = None,
    ) -> Engine:
        """Build the engine that samples for the learner of `model`.

        An engine in this process may share the memory of `model`. An engine elsewhere reads only
        `model.cfg`; `load_weights` is always called before the first request. `detokenize` is
        needed for requests with stop strings.
        """

    def cache_bytes(self, token_bytes: int, *, context: int, free: float) -> float | None:
        """Predict the bytes of the KV cache on the learner's GPU, where `free` bytes are free.

        `token_bytes` is the size of the keys and values of one token. None, the default, means
        unknown: `whet plan` then leaves sampling out and says so.
        """
        return None


def length_limit(request: Request) -> float:
    """Return the largest length of a request's completion in tokens."""
    return request.sampling.max_tokens


def longest_first(
    requests: Iterable[Request], *, ahead: int, length: Callable[[Request], float] = length_limit
) -> Iterator[Request]:
    """Sort requests longest first, `ahead` at a time; ties keep their order.

    Consecutive requests of one prompt stay together, since they share its prefill.
    """
    heap: list[tuple[float, int, list[Request]]] = []
    waiting = 0
    for number, group in enumerate(_group_by_prompt(requests, most=ahead)):
        longest = max(length(request) for request in group)
        heapq.heappush(heap, (-longest, number, group))
        waiting += len(group)
        while waiting >= ahead:
            first = heapq.heappop(heap)[2]
            waiting -= len(first)
            yield from first
    while heap:
        yield from heapq.heappop(heap)[2]


def _group_by_prompt(requests: Iterable[Request], *, most: int) -> Iterator[list[Request]]:
    """Group consecutive requests of one prompt, at most `most`: the stream may be endless."""
    for _, same in groupby(requests, key=lambda request: request.prompt.tobytes()):
        while group := list(islice(same, most)):
            yield group


class ExpectedLengths:
    """Running mean length of the responses to each prompt; a new prompt counts with its limit."""

    def __init__(self) -> None:
        self._means: dict[int, float] = {}

    def expect(self, request: Request) -> float:
        """Predict the length of the response to a request."""
        limit = float(request.sampling.max_tokens)
        return min(limit, self._means.get(crc32(request.prompt.tobytes()), limit))

    def add(self, request: Request, length: int) -> None:
        """Record the length of a response."""
        key = crc32(request.prompt.tobytes())
        mean = self._means.pop(key, float(length))
        self._means[key] = mean + 0.5 * (length - mean)
        if len(self._means) > MAX_PROMPTS:
            del self._means[next(iter(self._means))]
