"""What a proof is: a measurement, the limit it must keep, and the fault where it does not."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from whet.types import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How far off something is. `text` tells a person what was measured, with its numbers."""

    gap: float
    limit: float
    text: str

    @property
    def ok(self) -> bool:
        return self.gap <= self.limit  # false for NaN


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """One claim about training that can be tried in a second."""

    name: str
    claim: str
    fault: str
    """What is wrong where the claim does not hold."""
    remedy: str
    measure: Callable[[], Measure]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """How a proof came out; `broken` is the error of one that could not be carried through."""

    proof: Proof
    measure: Measure | None
    broken: str
    seconds: float

    @property
    def ok(self) -> bool:
        return self.measure is not None and self.measure.ok

    @property
    def text(self) -> str:
        return self.broken if self.measure is None else self.measure.text

    def to_json(self) -> dict[str, Json]:
        gap, limit = (
            (None, None) if self.measure is None else (self.measure.gap, self.measure.limit)
        )
        return {
            "name": self.proof.name,
            "claim": self.proof.claim,
            "ok": self.ok,
            "measured": self.text,
            "gap": gap if gap is not None and abs(gap) < float("inf") else None,
            "limit": limit,
            "fault": None if self.ok else self.proof.fault,
            "remedy": None if self.ok else self.proof.remedy,
            "seconds": round(self.seconds, 3),
        }


def try_proof(proof: Proof) -> Finding:
    """Carry a proof out. One that ends in an error has failed like one that measures too much."""
    start = time.monotonic()
    measure, broken = None, ""
    try:
        measure = proof.measure()
    except Exception as error:  # what is broken decides how it breaks
        broken = f"{type(error).__name__}: {error}".strip().partition("\n")[0][:300]
    return Finding(proof=proof, measure=measure, broken=broken, seconds=time.monotonic() - start)
