"""The seam between sampling and everything else: requests in, completions out as they finish."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pydantic import Field
from torch import Tensor

from whet.config import CONSTANT, Config
from whet.errors import EngineError
from whet.models.transformer import Transformer
from whet.types import Completion, Tokens

Detokenize = Callable[[Tokens], str]


class Sampling(Config):
    """Settings of one completion.

    Its log-probabilities are those before top_k, top_p and min_p, also in training: see
    docs/sampling.md, Truncation.
    """

    temperature: float = Field(default=1.0, ge=0.0)
    """Divides the logits; 0 takes the most likely token, whose log-probability counts as at 1."""
    top_k: int = Field(default=0, ge=0, le=1_000_000)
    """Draw from the k most likely tokens; 0 draws from all."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Draw from the smallest set of most likely tokens whose probability reaches p; 1 draws from
    all."""
    min_p: float = Field(default=0.0, ge=0.0, lt=1.0, json_schema_extra=CONSTANT)
    """Drop tokens less likely than this share of the most likely one; 0 keeps all."""
    max_tokens: int = Field(default=256, ge=1)
    """Longest completion, stop token included."""
    stop: tuple[str, ...] = ()
    """Texts that end a completion; the text itself is kept in it."""

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
    sampling: Sampling
    seed: int


@dataclass(slots=True)
class Counts:
    """Count what one call of an engine did; an engine leaves at 0 what it cannot see."""

    prefill_tokens: int = 0
    prefills: int = 0
    """Forward passes over prompts."""
    windows: int = 0
    steps: int = 0
    """Decode steps, each one token further for all rows."""
    row_steps: int = 0
    """Rows times steps, padding to a recorded size included."""
    begun: int = 0
    """Rows that began, each with a first token that no step decoded."""
    tokens: int = 0
    """Tokens handed out."""
    preemptions: int = 0
    """Rows that gave way to others; they begin again."""
    recordings: int = 0
    """Decode steps recorded as graphs."""
    sends: int = 0
    """Copies to the device."""
    fetches: int = 0
    """Copies to the host, one per window; the host waits for nothing else."""

    @property
    def row_step_waste(self) -> int:
        """Row steps that gave no token: after the end of a row, or padding to a recorded size."""
        return self.row_steps - (self.tokens - self.begun)


class Engine(Protocol):
    """Samples completions; `check_engine` in `whet/testing/contracts.py` tests one."""

    @property
    def context(self) -> int:
        """Longest prompt and completion together, in tokens."""
        ...

    @property
    def counts(self) -> Counts:
        """What the latest call of `generate` has done so far."""
        ...

    def generate(self, requests: Iterable[Request]) -> Iterator[tuple[str, Completion]]:
        """Sample every request and yield each with its id when it ends, in no promised order.

        Requests are pulled as slots fall free; closing the generator drops what is unfinished. A
        prompt that is empty, fills the context or holds an unknown token raises an EngineError
        (`check_prompt`).
        """
        ...

    def load_weights(self, named: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Take weights under their Hugging Face names, and stamp later completions with `version`.

        `named` is read only as far as it must be: not beyond the first where memory is shared. An
        empty one changes the version only.
        """
        ...

    def sleep(self) -> None:
        """Give the cache memory back until the next request."""
        ...

    def close(self) -> None:
        """Give everything back; the engine is not used again."""
        ...


def check_prompt(request: Request, context: int, vocab_size: int) -> None:
    """Refuse a prompt that is empty, leaves no room for a token, or holds one that is unknown."""
    length = len(request.prompt)
    if length == 0:
        raise EngineError(f"request {request.id} has an empty prompt; give at least one token")
    if length >= context:
        raise EngineError(
            f"request {request.id} has a prompt of {length} tokens, which leaves no room in a "
            f"context of {context}; shorten it or raise engine.context"
        )
    for token in (int(request.prompt.min()), int(request.prompt.max())):
        if not 0 <= token < vocab_size:
            raise EngineError(
                f"request {request.id} has token {token} in its prompt, but the model knows "
                f"{vocab_size} tokens; use the tokenizer that belongs to the model"
            )


class EngineConfig(Config):
    """The base of an engine's settings: what is asked of any engine before it is built.

    A subclass sets `kind` to a Literal of its own and stands in `whet/engine/registry.py`.
    """

    kind: str

    slots: int = Field(default=256, ge=1, le=65536)
    """Most requests that run at once."""
    context: int | None = Field(default=None, ge=2)
    """Longest prompt and completion together; None takes the model's own limit."""

    @abstractmethod
    def build(
        self,
        model: Transformer,
        *,
        stop_tokens: frozenset[int],
        detokenize: Detokenize | None = None,
    ) -> Engine:
        """Build the engine that samples for the learner of `model`.

        An engine in this process may compute with `model` itself and share its memory. One that
        runs elsewhere reads `model.cfg` alone and waits for `load_weights`, which always comes
        before the first request. `detokenize` is needed for requests with stop strings.
        """

    def cache_bytes(self, token_bytes: int, *, context: int, free: float) -> float | None:
        """Predict the KV cache on the learner's GPU, which has `free` bytes for it.

        `token_bytes` are the keys and values of one token. None, the default, says that nothing
        can be predicted: `whet plan` leaves sampling out and says so.
        """
        return None
