"""The seam between sampling and everything else: requests in, completions out as each one
finishes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pydantic import Field

from whet.config import CONSTANT, Config
from whet.types import Completion, Tokens


class Sampling(Config):
    """How the next token is chosen. Stored log-probabilities are of softmax(logits / temperature),
    before any cut."""

    temperature: float = Field(default=1.0, ge=0.0)
    """Divides the logits; 0 takes the most likely token, whose log-probability counts as at 1."""
    top_k: int = Field(default=0, ge=0, le=1_000_000)
    """Keep the k most likely tokens; 0 keeps all."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Keep the smallest set of most likely tokens whose probability reaches p; 1 keeps all."""
    min_p: float = Field(default=0.0, ge=0.0, lt=1.0, json_schema_extra=CONSTANT)
    """Drop tokens less likely than this share of the most likely one; 0 keeps all."""
    max_tokens: int = Field(default=256, ge=1)
    """Longest completion, stop token included."""
    stop: tuple[str, ...] = Field(default=(), json_schema_extra=CONSTANT)
    """Texts that end a completion; the text itself is kept in it."""

    def without_effect(self) -> dict[str, str]:
        reason = "temperature = 0 always takes the most likely token"
        return dict.fromkeys(("top_k", "top_p"), reason) if self.temperature == 0 else {}

    @property
    def has_cuts(self) -> bool:
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """One completion to sample. Its seed alone decides its random numbers, whatever runs beside
    it."""

    id: str
    prompt: Tokens
    sampling: Sampling
    seed: int


class Engine(Protocol):
    """Requests are pulled as slots fall free; closing the generator drops what is unfinished."""

    def generate(self, requests: Iterable[Request]) -> Iterator[tuple[str, Completion]]: ...

    def sleep(self) -> None:
        """Give the cache memory back until the next request."""
        ...
