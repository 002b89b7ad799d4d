"""The costs of engines and learner in a simulation: a model on GPUs, by the cost model."""

import heapq
from collections.abc import Sequence

from whet.engine.native import PREFILL_TOKENS
from whet.models.cost import GPU, sampling_bytes, step_seconds
from whet.plan.fleet_events import Engines
from whet.plan.phases import ModelJob, phases
from whet.plan.simulate import SimulatedBatch, SimulatedLearner

PUSH_RATE = 1.5e9
"""Bytes a second from the learner through host memory into all engines. An assumption."""
PAUSED = 0.3
"""Fraction of a push during which streaming engines pause. An assumption."""


def build_engines(
    job: ModelJob, card: GPU, *, gpus: int, tensor_parallel: int = 1, held: float | None = None
) -> Engines | None:
    """Build the engines of these GPUs; None if the longest response does not fit. `held` are the
    bytes that a GPU has in use, an engine's weights if left out."""
    assert job.engine is not None, "engines sample"
    cost = job.cost
    if held is None:
        held = cost.width * cost.parameters / tensor_parallel
    rows = min(job.engine.max_num_seqs, job.sequences)
    prefill = min(PREFILL_TOKENS, -(-rows // job.samples) * job.prompt)
    others = sampling_bytes(cost, rows=rows, prefill=prefill)
    free = card.usable - held - sum(others.values()) / tensor_parallel
    cached = free * tensor_parallel / cost.kv_bytes
    if cached < job.prompt + max(job.new, job.longest or 0):
        return None
    slots = min(rows, int(cached / (job.prompt + job.new)))

    def seconds(num_rows: int, context: float) -> float:
        return step_seconds(cost, card, num_rows, context, tensor_parallel=tensor_parallel)

    return Engines(
        count=gpus // tensor_parallel,
        by_rows=tuple(seconds(num_rows, 0.0) for num_rows in range(slots + 1)),
        per_token=(seconds(1, 1e6) - seconds(1, 0.0)) / 1e6,
        prompt=job.prompt,
    )


def build_learner(
    job: ModelJob, card: GPU, batch: SimulatedBatch, *, is_collocated: bool
) -> SimulatedLearner:
    """Build the learner of a job on its ranks; collocated, a push is the gathering of shards."""
    size = float(job.cost.width * job.cost.parameters)
    update = _time_update(job, card, [length for group in batch for length in group])
    push = job.layout.gather_seconds(size, card)
    if is_collocated:
        return SimulatedLearner(update=update, push=push)
    push += size / PUSH_RATE
    return SimulatedLearner(update=update, push=push, pause=PAUSED * push)


def _time_update(job: ModelJob, card: GPU, lengths: Sequence[int]) -> float:
    """Time a pass of the reference and an update by the phases of the plan, in which responses are
    of equal length: here the rank with most to do decides, longest responses dealt out first."""
    seconds = sum(phase.seconds for phase in phases(job, card) if phase.name in ("read", "update"))
    even = job.num_updated * job.cost.update_flops(job.prompt + job.new, job.new)
    num_parts = job.layout.ranks // job.layout.sequence
    uneven = 0.0
    for minibatch in range(job.num_minibatches):
        parts = [0.0] * num_parts
        for length in sorted(lengths[minibatch :: job.num_minibatches], reverse=True):
            flops = job.cost.update_flops(job.prompt + length, length)
            heapq.heapreplace(parts, parts[0] + flops)
        uneven += max(parts)
    return seconds * uneven / even
