"""Prove on this machine that training is what it says: small proofs on a tiny model, a line
each."""

import json
import time
from collections.abc import Sequence

import typer

from whet.engine.native import EngineConfig
from whet.errors import visible
from whet.models.source import ModelSource, open_model, torch_device, torch_dtype
from whet.proofs.base import Finding, Proof, try_proof
from whet.proofs.catalog import PROOFS, of_model
from whet.train.policy import build_policy
from whet.types import Json


def examine(place: str | None, *, as_json: bool) -> bool:
    """Carry out all proofs, and two more on a model of the user's; tell whether all hold."""
    start = time.monotonic()
    proofs = [*PROOFS, *(_own(place) if place is not None else ())]
    findings = []
    for proof in proofs:
        findings.append(try_proof(proof))
        if not as_json:
            typer.echo(visible(line(findings[-1])))
    seconds = time.monotonic() - start
    typer.echo(
        json.dumps(_report(findings, seconds), indent=2) if as_json else verdict(findings, seconds)
    )
    return all(finding.ok for finding in findings)


def line(finding: Finding) -> str:
    """Write what a proof measured and its limit; of one that fails also the fault, and what to
    do."""
    limit = "" if finding.measure is None else f" (limit {finding.measure.limit:g})"
    said = f"{'ok' if finding.ok else 'FAULT':<6}{finding.proof.name:<15}{finding.text}{limit}"
    return said if finding.ok else f"{said}\n      {finding.proof.fault}: {finding.proof.remedy}"


def verdict(findings: Sequence[Finding], seconds: float) -> str:
    """Sum up; where several fail, those after the first may only be its consequences."""
    failed = [finding.proof for finding in findings if not finding.ok]
    where = f"{str(torch_dtype('auto')).removeprefix('torch.')} on {torch_device().type}"
    if not failed:
        return f"all {len(findings)} proofs hold, {where}, {seconds:.1f} s"
    names = ", ".join(dict.fromkeys(proof.fault for proof in failed))
    return f"{len(failed)} of {len(findings)} proofs fail, {where}, {seconds:.1f} s; begin with the first: {names}"


def _own(place: str) -> Sequence[Proof]:
    model, tokenizer = open_model(
        ModelSource(path=place), dtype=torch_dtype("auto"), texts=[], seed=0
    )
    return of_model(build_policy(model, tokenizer, EngineConfig(slots=8), name=place))


def _report(findings: Sequence[Finding], seconds: float) -> dict[str, Json]:
    return {
        "ok": all(finding.ok for finding in findings),
        "device": torch_device().type,
        "dtype": str(torch_dtype("auto")).removeprefix("torch."),
        "seconds": round(seconds, 1),
        "proofs": [finding.to_json() for finding in findings],
    }
