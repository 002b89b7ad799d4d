"""How the fused projection of a layer is divided into heads."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Query heads, key/value heads, and the eps of their norms."""

    queries: int
    groups: int
    eps: float
