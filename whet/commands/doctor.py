"""Prove on this machine that training computes correctly: small proofs on a tiny model.

Each proof relies on those before it: if several fail, fix the first.
"""

import json
import time
from collections.abc import Sequence
from functools import partial

import typer

from whet.commands.show_responses import load_run_policy
from whet.errors import visible
from whet.models.source import torch_device, torch_dtype
from whet.proofs import learner_proofs, policy_proofs
from whet.proofs.base import Proof, ProofResult, run_proof
from whet.train.policy import Policy
from whet.types import Json
from whet.world import ClusterConfig, get_world

PROOFS = (
    Proof(
        name="divisor",
        claim="token weights come from the lengths of the whole step, whatever the rule",
        fault="wrong divisor",
        remedy=(
            "compare the weights in whet/algos/losses.py with the formulas in docs/algorithms.md"
        ),
        measure=learner_proofs.measure_divisor,
    ),
    Proof(
        name="rewards",
        claim="a reward stays with its rollout, in whatever order responses finish",
        fault="shifted rewards",
        remedy=(
            "look for a changed order in whet/rollout/collect.py, whet/rewards/spec.py and "
            "whet/train/rl_step.py"
        ),
        measure=policy_proofs.measure_rewards,
    ),
    Proof(
        name="pass@k",
        claim="pass@k is what enumeration gives, and its mean is the chance it estimates",
        fault="biased pass@k",
        remedy="use 1 - C(n - c, k) / C(n, k) in whet/evals/stats.py",
        measure=learner_proofs.measure_pass_at_k,
    ),
    Proof(
        name="stop token",
        claim="a response keeps the stop token of its chat format, token for token",
        fault="dropped stop token",
        remedy=(
            "a model trained this way never ends its turn: look at whet/text/chat.py, and at what "
            "ends a completion"
        ),
        measure=policy_proofs.measure_stop_tokens,
    ),
    Proof(
        name="kl",
        claim=(
            "k1, k2 and k3 have the values and gradients they are meant to, and the penalty is "
            "applied once"
        ),
        fault="KL applied wrongly or twice",
        remedy=(
            "look at whet/algos/losses.py, and whether the KL is in the loss and in the reward "
            "(algo.kl_in)"
        ),
        measure=learner_proofs.measure_kl,
    ),
    Proof(
        name="targets",
        claim="every target of a step is seen once, the last micro-batch included",
        fault="dropped micro-batch",
        remedy="look at pack in whet/batching/examples.py and the loop of LocalLearner.accumulate",
        measure=learner_proofs.measure_targets,
    ),
    Proof(
        name="packing",
        claim="the loss of packed sequences is the sum of their losses alone",
        fault="packed sequences see each other",
        remedy=(
            "look at the starts that whet/models/transformer.py gives attention, and at positions "
            "in to_batch"
        ),
        measure=learner_proofs.measure_packing,
    ),
    Proof(
        name="gradient",
        claim="micro-batches, accumulation, packing and order change nothing in the gradient",
        fault="gradient depends on the split",
        remedy=(
            "fix the proofs above first; otherwise look for a mean over a micro-batch in a loss "
            "or in the learner"
        ),
        measure=learner_proofs.measure_splits,
    ),
    Proof(
        name="ratio",
        claim="the ratio of the first mini-batch is exactly 1",
        fault="first ratio is not 1",
        remedy=(
            "look at what whet/algos/losses.py compares with where no old log-probabilities are "
            "given"
        ),
        measure=learner_proofs.measure_ratio,
    ),
    Proof(
        name="engine",
        claim="engine and learner give what was sampled the same log-probabilities",
        fault="engine and learner disagree",
        remedy=(
            'set algo.old_logprobs = "learner", and nothing is lost; on a GPU report the card, '
            "torch and triton versions"
        ),
        measure=policy_proofs.measure_engine,
    ),
    Proof(
        name="publish",
        claim=(
            "after an update the engine samples from the learner's current weights, under their "
            "version"
        ),
        fault="stale weights",
        remedy="the engine must share the learner's weights, or copy them in Policy.publish",
        measure=policy_proofs.measure_publish,
    ),
    Proof(
        name="resume",
        claim="a step after loading a checkpoint equals the step of an uninterrupted run",
        fault="resumed run diverges",
        remedy=(
            "look for state that whet/train/training_state.py does not write; on a GPU, for sums "
            "in no fixed order"
        ),
        measure=policy_proofs.measure_resume,
    ),
)


def model_proofs(policy: Policy) -> tuple[Proof, ...]:
    """List the proofs that can be run on the user's own model."""
    return (
        Proof(
            name="your template",
            claim="the model's chat template keeps the stop token",
            fault="dropped stop token",
            remedy=(
                "fix chat_template in the model folder: an assistant's turn ends with the token "
                "the model stops at"
            ),
            measure=partial(policy_proofs.measure_model_stops, policy.chat),
        ),
        Proof(
            name="your engine",
            claim="engine and learner give the model's own samples the same log-probabilities",
            fault="engine and learner disagree",
            remedy=(
                'set algo.old_logprobs = "learner", and nothing is lost; report the model, card, '
                "torch and triton versions"
            ),
            measure=partial(policy_proofs.measure_engine, policy),
        ),
    )


def rank_proofs() -> tuple[Proof, ...]:
    """List the proofs that ranks run together."""
    from whet.proofs import rank_proofs  # noqa: PLC0415 - one process needs none of it

    return (
        Proof(
            name="ranks",
            claim="the gradient that ranks add up is that of one device",
            fault="gradient depends on the ranks",
            remedy="look at FSDPLearner.accumulate, and at what shard_model sets for FSDP",
            measure=rank_proofs.measure_rank_gradient,
        ),
        Proof(
            name="shards",
            claim="a sharded model gives the log-probabilities of the plain one, bit for bit",
            fault="sharded model computes another function",
            remedy="report the cards, torch and triton versions; ratios are off by the gap",
            measure=rank_proofs.measure_sharded_logprobs,
        ),
        Proof(
            name="whole",
            claim="after an update every rank's engine samples from the weights of the shards",
            fault="stale weights",
            remedy="look at gather_weights in whet/train/shards.py",
            measure=rank_proofs.measure_gathered_weights,
        ),
    )


def run_rank_proofs(*, as_json: bool) -> bool:
    """Run the proofs of ranks, as one of them; return whether all hold."""
    from whet.cluster.ranks import joined_ranks  # noqa: PLC0415

    with joined_ranks(ClusterConfig(timeout=120.0)):
        return _run(rank_proofs(), as_json=as_json)


def run_proofs(model: str | None, *, as_json: bool) -> bool:
    """Run all proofs, and two more on the user's model; return whether all hold."""
    own = model_proofs(load_run_policy(model, slots=8)) if model is not None else ()
    return _run([*PROOFS, *own], as_json=as_json)


def _run(proofs: Sequence[Proof], *, as_json: bool) -> bool:
    start = time.monotonic()
    results = []
    for proof in proofs:
        results.append(run_proof(proof))
        if not as_json and get_world().is_rank_zero:
            typer.echo(visible(format_result(results[-1])))
    seconds = time.monotonic() - start
    if get_world().is_rank_zero:
        summary = summarise_checks(results, seconds)
        typer.echo(json.dumps(_to_json(results, seconds), indent=2) if as_json else summary)
    return all(result.ok for result in results)


def format_result(result: ProofResult) -> str:
    """Write a proof's measurement and limit; for a failed one also the fault and the remedy."""
    limit = "" if result.measure is None else f" (limit {result.measure.limit:g})"
    text = f"{'ok' if result.ok else 'FAULT':<6}{result.proof.name:<15}{result.text}{limit}"
    return text if result.ok else f"{text}\n      {result.proof.fault}: {result.proof.remedy}"


def summarise_checks(results: Sequence[ProofResult], seconds: float) -> str:
    """Sum up; if several fail, those after the first may only be its consequences."""
    failed = [result.proof for result in results if not result.ok]
    where = f"{str(torch_dtype('auto')).removeprefix('torch.')} on {torch_device().type}"
    if not failed:
        return f"all {len(results)} proofs hold, {where}, {seconds:.1f} s"
    names = ", ".join(dict.fromkeys(proof.fault for proof in failed))
    count = f"{len(failed)} of {len(results)} proofs fail"
    return f"{count}, {where}, {seconds:.1f} s; begin with the first: {names}"


def _to_json(results: Sequence[ProofResult], seconds: float) -> dict[str, Json]:
    return {
        "ok": all(result.ok for result in results),
        "device": torch_device().type,
        "dtype": str(torch_dtype("auto")).removeprefix("torch."),
        "seconds": round(seconds, 1),
        "proofs": [result.to_json() for result in results],
    }
