"""Training sequences as arrays: examples, and pairs of them for preference training."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from whet.types import Floats, TokenFields, Tokens


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Example(TokenFields[Floats]):
    """One training sequence; per-token arrays cover the response, from `response_start` on."""

    tokens: Tokens
    response_start: int
    """Index of the first response token; at least 1, since something must predict it."""
    group_id: str
    rollout_id: str
    temperature: float = 1.0
    advantage: float | Floats = 0.0
    """One for the whole response, or one per response token."""
    loss_weight: float = 0.0
    """Multiplies the loss of every response token, or of its pair."""
    pair: int | None = None
    """Number of its preference pair within an optimizer step."""
    is_chosen: bool = False
    """Whether it is the better response of its pair."""

    @property
    def num_targets(self) -> int:
        return len(self.tokens) - self.response_start


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreferencePair:
    """Two responses to one prompt; training makes the chosen one more likely."""

    chosen: Example
    rejected: Example


def with_field(
    examples: Sequence[Example], name: str, values: Iterable[float | Floats]
) -> list[Example]:
    """Set the named field of each example to its value."""
    return [
        replace(example, **{name: value})  # type: ignore[arg-type]
        for example, value in zip(examples, values, strict=True)
    ]


ExampleUnit = list[int]
"""Positions of examples that stay together: one example, or the two of a pair."""
