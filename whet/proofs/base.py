"""A proof: a measurement, its limit, and the fault that exceeds it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from whet.types import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A measured gap and its limit; `text` describes it for the user, with numbers."""

    gap: float
    limit: float
    text: str

    @property
    def ok(self) -> bool:
        return self.gap <= self.limit  # false for NaN


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """One claim about training that takes about a second to check."""

    name: str
    claim: str
    fault: str
    """The fault if the claim does not hold."""
    remedy: str
    measure: Callable[[], Measurement]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofResult:
    """The result of a proof; `error` is set if it raised."""

    proof: Proof
    measure: Measurement | None
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
    """Find the largest gap and its name."""
    return max(gaps.items(), key=lambda item: item[1])


def run_proof(proof: Proof) -> ProofResult:
    """Run a proof; an exception counts as a failure."""
    start = time.monotonic()
    measure = None
    error_text = ""
    try:
        measure = proof.measure()
    except Exception as error:  # a fault may raise anything
        error_text = f"{type(error).__name__}: {error}".strip().partition("\n")[0][:300]
    seconds = time.monotonic() - start
    return ProofResult(proof=proof, measure=measure, error=error_text, seconds=seconds)
