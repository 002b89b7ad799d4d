"""What a proof is: a measurement, the limit it must keep, and the fault where it does not."""

import time
from collections.abc import Callable, Mapping
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
class ProofResult:
    """How a proof came out; `error` is that of one that could not be carried through."""

    proof: Proof
    measure: Measure | None
    error: str
    seconds: float

    @property
    def ok(self) -> bool:
        return self.measure is not None and self.measure.ok

    @property
    def text(self) -> str:
        return self.error if self.measure is None else self.measure.text

    def to_json(self) -> dict[str, Json]:
        gap = None if self.measure is None else self.measure.gap
        return {
            "name": self.proof.name,
            "claim": self.proof.claim,
            "ok": self.ok,
            "measured": self.text,
            "gap": gap if gap is not None and abs(gap) < float("inf") else None,
            "limit": None if self.measure is None else self.measure.limit,
            "fault": None if self.ok else self.proof.fault,
            "remedy": None if self.ok else self.proof.remedy,
            "seconds": round(self.seconds, 3),
        }


def find_worst(gaps: Mapping[str, float]) -> tuple[str, float]:
    """Find the largest gap, and what has it."""
    return max(gaps.items(), key=lambda item: item[1])


def try_proof(proof: Proof) -> ProofResult:
    """Carry a proof out. One that ends in an error has failed like one that measures too much."""
    start = time.monotonic()
    measure = None
    error_text = ""
    try:
        measure = proof.measure()
    except Exception as error:  # what is broken decides how it breaks
        error_text = f"{type(error).__name__}: {error}".strip().partition("\n")[0][:300]
    seconds = time.monotonic() - start
    return ProofResult(proof=proof, measure=measure, error=error_text, seconds=seconds)
