"""Simulated steps of a file on many GPUs: collocated, one step ahead and streamed, each with its
best split into GPUs that sample and GPUs that train."""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

from rich.table import Table

from whet.engine.native import PREFILL_TOKENS
from whet.errors import ConfigError
from whet.models.cost import GPU, sampling_bytes, step_seconds
from whet.plan.cluster import Cluster, choose_layout
from whet.plan.fleet_events import Engines, GroupLengths
from whet.plan.lengths import Lengths, LogNormal, StoredLengths
from whet.plan.phases import ModelJob, fits, phases
from whet.plan.predict import find_card, list_stage_jobs
from whet.plan.simulate import (
    SimulatedBatch,
    SimulatedLearner,
    SimulatedStep,
    find_bound,
    simulate_ahead,
    simulate_collocated,
    simulate_streamed,
)
from whet.rng import make_rng
from whet.stages.stage import Stages
from whet.track.progress import printer

DEFAULT_LAG = 4
"""Steps that a response may be old in a stream, where the file sets no lag."""
_FRACTIONS = 16
"""Parts of all GPUs that learners may have."""
TRIALS = {"one step ahead": 6, "streamed": 2}
"""How many of the most promising splits are simulated for each engine size."""
NUM_BATCHES = 2
"""Batches that are simulated if each one starts from idle engines."""
COLLOCATED = "collocated"
COLUMNS = ("stage", "mode", "sample", "train", "seconds", "oldest", "dropped", "bound by")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitWork:
    """A model's job in each step of a stage, and the lengths of its responses."""

    job: ModelJob
    lengths: Lengths
    lag: int | None
    """Steps between sampling and training; None if the two can only take turns."""

    @property
    def problems(self) -> int:
        return self.job.sequences // self.job.samples

    def draw_groups(self, name: str) -> Callable[[], GroupLengths]:
        """Return a function that draws the lengths of one group after another."""
        return partial(self.lengths.draw, self.job.samples, make_rng(0, "simulate", name))

    def draw_batches(self) -> list[SimulatedBatch]:
        draw = self.draw_groups("batches")
        return [[draw() for _ in range(self.problems)] for _ in range(NUM_BATCHES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUSplit:
    """A division of GPUs, and its step; collocated GPUs sample and train in turns."""

    mode: str
    engine_gpus: int
    learner_gpus: int
    step: SimulatedStep
    tensor_parallel: int = 1


def print_splits(
    stages: Stages,
    cluster: Cluster,
    *,
    prompt_tokens: int,
    new_tokens: int | None,
    stored: StoredLengths | None,
    engine_gpus: int | None,
) -> None:
    """Print the simulated steps of every stage that samples and trains."""
    table = Table(*COLUMNS, title="simulated seconds of a step", box=None)
    notes: list[str] = []
    for name in stages:
        works = list_works(
            stages, name, prompt_tokens=prompt_tokens, new_tokens=new_tokens, stored=stored
        )
        splits = find_splits(works, cluster, engine_gpus=engine_gpus)
        for split in splits:
            table.add_row(name, split.mode, *_write_cells(split))
        if works and not splits:
            notes.append(f"{name}: no split of {cluster.gpus} {cluster.gpu} holds it")
        notes += [f"{name}: {work.lengths}, prompts of {work.job.prompt_tokens}" for work in works]
    if table.row_count:
        printer.print(table)
        notes += [
            "sample and train count GPUs; with TP, that many make one engine, which is a server's",
            "oldest counts steps from a response's first token to its training; dropped are groups "
            "older than lag",
        ]
    for note in notes:
        printer.print(note)


def list_works(
    stages: Stages,
    name: str,
    *,
    prompt_tokens: int,
    new_tokens: int | None,
    stored: StoredLengths | None = None,
) -> list[SplitWork]:
    """List what the models of a stage sample and train in each step; empty unless they do both."""
    works = []
    planned = list_stage_jobs(name, stages, prompt_tokens, new_tokens)
    for work, job in zip(stages[name].list_work(), planned, strict=True):
        if job.engine is None or job.train is None or work.problems is None:
            return []
        lengths: Lengths = LogNormal(
            mean=job.new_tokens, limit=job.max_new_tokens or job.new_tokens
        )
        if stored is not None and not work.reads_responses:
            lengths = replace(stored, limit=min(stored.limit, work.sampling.max_tokens))
        works.append(SplitWork(job=job, lengths=lengths, lag=work.lag))
    return works


def find_splits(
    works: Sequence[SplitWork], cluster: Cluster, *, engine_gpus: int | None = None
) -> list[GPUSplit]:
    """Find the collocated step of all GPUs, and the best splits for a lag and for a stream, of
    those that fit."""
    if not works:
        return []
    splits = [_collocate(works, cluster)]
    if len(works) == 1 and works[0].lag is not None:
        work = works[0]
        lag = work.lag or DEFAULT_LAG
        batches = work.draw_batches()
        candidates = list(_list_candidates(work, batches[0], cluster, engine_gpus))

        def ahead(engines: Engines, learner: SimulatedLearner) -> SimulatedStep:
            return simulate_ahead(engines, learner, batches, lag=1)

        def streamed(engines: Engines, learner: SimulatedLearner) -> SimulatedStep:
            draw = work.draw_groups("stream")
            return simulate_streamed(engines, learner, draw, problems=work.problems, lag=lag)

        splits.append(_find_best("one step ahead", ahead, candidates, batches[0]))
        splits.append(_find_best("streamed", streamed, candidates, batches[0], lag=lag))
    return [split for split in splits if split is not None]


def _write_cells(split: GPUSplit) -> tuple[str, ...]:
    engines = f"{split.engine_gpus:,}"
    if split.tensor_parallel > 1:
        engines += f", TP {split.tensor_parallel}"
    step = split.step
    age = f"{step.oldest}", f"{step.dropped:.0%}"
    return engines, f"{split.learner_gpus:,}", f"{step.seconds:,.0f}", *age, step.bound


def _collocate(works: Sequence[SplitWork], cluster: Cluster) -> GPUSplit | None:
    """Simulate ranks that sample and train in turns; two models do so one after the other."""
    card = find_card(cluster.gpu)
    layout = choose_layout([("", work.job) for work in works], card, cluster)
    steps: list[SimulatedStep] = []
    longest = max(work.job.steps for work in works)
    for work in works:
        job = work.job.on(layout)
        held = sum(job.state.values())
        engines = build_engines(job, card, gpus=cluster.gpus, held=held)
        if engines is None or not fits(job, card):
            return None
        batches = work.draw_batches()
        learner = build_learner(job, card, batches[0], is_collocated=True)
        step = simulate_collocated(engines, learner, batches)
        steps.append(replace(step, seconds=step.seconds * work.job.steps / longest))
    slowest = max(steps, key=lambda step: step.seconds)
    return GPUSplit(
        mode=COLLOCATED,
        engine_gpus=cluster.gpus,
        learner_gpus=cluster.gpus,
        step=replace(slowest, seconds=sum(step.seconds for step in steps)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A split whose engines and learners fit."""

    engine_gpus: int
    learner_gpus: int
    tensor_parallel: int
    engines: Engines
    learner: SimulatedLearner


def _find_best(
    mode: str,
    simulate: Callable[[Engines, SimulatedLearner], SimulatedStep],
    candidates: Sequence[_Candidate],
    batch: SimulatedBatch,
    *,
    lag: int | None = None,
) -> GPUSplit | None:
    """Simulate the most promising splits, and return the fastest."""
    least = [
        (find_bound(candidate.engines, candidate.learner, batch, lag=lag)[0], candidate)
        for candidate in candidates
    ]
    least.sort(key=lambda pair: (pair[0], pair[1].engines.full_seconds(batch)))
    num_trials = Counter[int]()
    best: GPUSplit | None = None
    for seconds, candidate in least:
        num_trials[candidate.tensor_parallel] += 1
        is_hopeless = best is not None and seconds >= best.step.seconds
        if is_hopeless or num_trials[candidate.tensor_parallel] > TRIALS[mode]:
            continue
        step = simulate(candidate.engines, candidate.learner)
        if best is None or step.seconds < best.step.seconds:
            best = GPUSplit(
                mode=mode,
                engine_gpus=candidate.engine_gpus,
                learner_gpus=candidate.learner_gpus,
                tensor_parallel=candidate.tensor_parallel,
                step=step,
            )
    return best


def _list_candidates(
    work: SplitWork, batch: SimulatedBatch, cluster: Cluster, engine_gpus: int | None
) -> Iterator[_Candidate]:
    card = find_card(cluster.gpu)
    job = replace(work.job, engine=None)
    for count in _list_learner_counts(cluster, engine_gpus):
        learners = Cluster(gpu=cluster.gpu, gpus=count, nodes=ceil(count / cluster.node))
        placed = job.on(choose_layout([("", job)], card, learners))
        if not fits(placed, card):
            continue
        learner = build_learner(placed, card, batch, is_collocated=False)
        rest = cluster.gpus - count
        for size in _list_engine_sizes(job, rest):
            engines = build_engines(work.job, card, gpus=rest, tensor_parallel=size)
            if engines is not None:
                yield _Candidate(
                    engine_gpus=rest,
                    learner_gpus=count,
                    tensor_parallel=size,
                    engines=engines,
                    learner=learner,
                )


def _list_learner_counts(cluster: Cluster, engine_gpus: int | None) -> list[int]:
    """List the possible numbers of GPUs that train: parts of a node, or whole nodes."""
    node = cluster.node
    if engine_gpus is None:
        counts = {cluster.gpus * part // _FRACTIONS for part in range(1, _FRACTIONS)} - {0}
        return sorted(count for count in counts if count <= node or count % node == 0)
    count = cluster.gpus - engine_gpus
    if count < 1 or (count > node and count % node):
        raise ConfigError(
            f"--engines is {engine_gpus} of {cluster.gpus} GPUs, which leaves {count} to train: "
            f"leave 1 to {node}, or whole nodes of {node}"
        )
    return [count]


def _list_engine_sizes(job: ModelJob, gpus: int) -> list[int]:
    """List the possible numbers of GPUs per engine: they share its heads, and every GPU is used."""
    cfg = job.cost.cfg
    counts = (cfg.num_heads, cfg.num_kv_heads, gpus)
    return [size for size in (1, 2, 4, 8) if all(count % size == 0 for count in counts)]


PUSH_RATE = 1.5e9
"""Bytes a second from the learner through host memory into all engines. An assumption."""
PAUSED = 0.3
"""Fraction of a push during which streaming engines pause. An assumption."""


def build_engines(
    job: ModelJob, card: GPU, *, gpus: int, tensor_parallel: int = 1, held: float | None = None
) -> Engines | None:
    """Build the engines of these GPUs; None if the longest response does not fit. `held` is the
    memory in use on a GPU, by default an engine's weights."""
    assert job.engine is not None, "engines sample"
    cost = job.cost
    if held is None:
        held = cost.width * cost.parameters / tensor_parallel
    rows = min(job.engine.max_num_seqs, job.sequences)
    prefill = min(PREFILL_TOKENS, ceil(rows / job.samples) * job.prompt_tokens)
    others = sampling_bytes(cost, rows=rows, prefill=prefill)
    free = card.usable - held - sum(others.values()) / tensor_parallel
    cached = free * tensor_parallel / cost.kv_bytes
    if cached < job.prompt_tokens + max(job.new_tokens, job.max_new_tokens or 0):
        return None
    slots = min(rows, int(cached / job.length))

    def seconds(num_rows: int, context: float) -> float:
        return step_seconds(cost, card, num_rows, context, tensor_parallel=tensor_parallel)

    return Engines(
        count=gpus // tensor_parallel,
        by_rows=tuple(seconds(num_rows, 0.0) for num_rows in range(slots + 1)),
        per_token=(seconds(1, 1e6) - seconds(1, 0.0)) / 1e6,
        prompt_tokens=job.prompt_tokens,
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
    """Time a pass of the reference and an update.

    Phases of the plan have responses of equal length. Here the busiest rank decides, with the
    longest responses dealt out first.
    """
    seconds = sum(phase.seconds for phase in phases(job, card) if phase.name in ("read", "update"))
    even = job.num_updated * job.cost.update_flops(job.length, job.new_tokens)
    num_parts = job.layout.ranks // job.layout.sequence
    uneven = 0.0
    for minibatch in range(job.num_minibatches):
        parts = [0.0] * num_parts
        for length in sorted(lengths[minibatch :: job.num_minibatches], reverse=True):
            flops = job.cost.update_flops(job.prompt_tokens + length, length)
            heapq.heapreplace(parts, parts[0] + flops)
        uneven += max(parts)
    return seconds * uneven / even
