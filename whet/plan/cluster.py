"""The predicted cost of a file on many GPUs: how ranks share its stages, the memory and time of
each rank, the bottleneck, and the fewest GPUs that suffice."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import ceil

from whet.errors import ConfigError
from whet.models.cost import ALONE, GPU, RankLayout
from whet.plan.phases import ModelJob, fits, phases
from whet.plan.predict import find_card, list_jobs, print_phases, print_sentences
from whet.stages.stage import Stages
from whet.track.progress import printer

NODE = 8
MOST_GPUS = 512
"""Where the search for the fewest GPUs ends."""
NEGLIGIBLE = 0.1
"""Fraction of the time that a simpler layout may cost."""
PUBLISHED_FACTOR = 1.6
"""Seconds of a step in RLinf's and verl's published runs of 2025 on 8 and 64 H100s, divided by the
seconds predicted from the rates of one H200 (docs/performance.md)."""
Planned = Sequence[tuple[str, ModelJob]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """GPUs of one kind in equal nodes.

    Without `nodes`, a node has at most `NODE` GPUs. `shard` and `sequence_parallel` are chosen if
    left out. `price` is in dollars per GPU-hour.
    """

    gpu: str
    gpus: int
    nodes: int | None = None
    shard: int | None = None
    sequence_parallel: int | None = None
    price: float | None = None

    @property
    def node(self) -> int:
        """GPUs of a node."""
        nodes = self.nodes or ceil(self.gpus / NODE)
        if self.gpus % nodes:
            raise ConfigError(f"--gpus is {self.gpus}, which {nodes} nodes cannot share equally")
        return self.gpus // nodes


def print_cluster_plan(
    stages: Stages, cluster: Cluster, *, prompt_tokens: int, new_tokens: int | None
) -> bool:
    """Print what each rank of a cluster holds and takes; return whether all stages fit."""
    cluster = _with_settings(cluster, stages)
    card = find_card(cluster.gpu)
    planned = list_jobs(stages, prompt_tokens, new_tokens)
    layout = choose_layout(planned, card, cluster)
    chosen = [(stage, job.on(layout)) for stage, job in planned]
    nodes = f"{cluster.gpus // cluster.node} × {cluster.node}"
    title = (
        f"on each of {nodes} {cluster.gpu}, shard = {layout.shard}, "
        f"sequence_parallel = {layout.sequence}"
    )
    total, notes, unfit = print_phases(chosen, card, title=title)
    hours = total / 3600
    money = "" if cluster.price is None else f", ${hours * cluster.gpus * cluster.price:,.0f}"
    summary = f"{hours:.2f} hours in all, {hours * cluster.gpus:,.0f} GPU-hours{money}"
    printer.print(summary, style="bold")
    fewest = count_fewest(planned, cluster.gpu)
    holds = f"the fewest {cluster.gpu} that hold it: {fewest or f'more than {MOST_GPUS}'}"
    rates = f"published runs of other systems took about {PUBLISHED_FACTOR} times such predictions"
    print_sentences([*_bounds(chosen, card, total), holds, rates, *notes, *unfit])
    return not unfit


def _with_settings(cluster: Cluster, stages: Stages) -> Cluster:
    """Take the layout set in the file; the rest is chosen later."""
    tables = [stage.ranks for stage in stages.values() if stage.ranks is not None]
    shard = next((table.shard for table in tables if table.shard is not None), None)
    sequence = next(
        (table.sequence_parallel for table in tables if table.sequence_parallel > 1), None
    )
    return replace(cluster, shard=shard, sequence_parallel=sequence)


def choose_layout(planned: Planned, card: GPU, cluster: Cluster) -> RankLayout:
    """Choose the simplest layout that fits all stages and is about as fast as the fastest; if none
    fits, the one with the least memory."""
    layouts = list_layouts(planned, cluster)
    fitting = [layout for layout in layouts if _holds(planned, card, layout)]
    if not fitting:
        return max(layouts, key=lambda layout: (layout.shard, layout.sequence))
    seconds = {layout: run_seconds(planned, card, layout) for layout in fitting}
    enough = min(seconds.values()) * (1 + NEGLIGIBLE)
    return next(layout for layout in fitting if seconds[layout] <= enough)


def list_layouts(planned: Planned, cluster: Cluster) -> list[RankLayout]:
    """List layouts, simplest first: nodes share masters, and ranks of a node share sequences."""
    ranks = cluster.gpus
    node = cluster.node
    if ranks == 1:
        return [ALONE]
    shapes = [job.cost.cfg for _, job in planned if job.train is not None]
    if cluster.shard and ranks % cluster.shard:
        raise ConfigError(f"cluster.shard is {cluster.shard}, which does not divide {ranks} GPUs")
    shards = [size for size in range(node, ranks + 1, node) if ranks % size == 0]
    sequences = [
        size
        for size in range(1, node + 1)
        if node % size == 0 and all(shape.can_split_heads(size) for shape in shapes)
    ]
    if cluster.sequence_parallel and cluster.sequence_parallel not in sequences:
        known = ", ".join(map(str, sequences))
        raise ConfigError(
            f"cluster.sequence_parallel is {cluster.sequence_parallel}, possible values here: "
            f"{known}"
        )
    return [
        RankLayout(ranks=ranks, node=node, shard=shard, sequence=sequence)
        for sequence in ([cluster.sequence_parallel] if cluster.sequence_parallel else sequences)
        for shard in ([cluster.shard] if cluster.shard else shards)
    ]


def run_seconds(planned: Planned, card: GPU, layout: RankLayout) -> float:
    return sum(
        phase.seconds * phase.times for _, job in planned for phase in phases(job.on(layout), card)
    )


def count_fewest(planned: Planned, gpu: str) -> int | None:
    """Count the fewest GPUs that hold all stages, in whole nodes above one node; None if even the
    most are too few."""
    card = find_card(gpu)
    for gpus in chain(range(1, NODE), range(NODE, MOST_GPUS + 1, NODE)):
        layouts = list_layouts(planned, Cluster(gpu=gpu, gpus=gpus))
        if any(_holds(planned, card, layout) for layout in layouts):
            return gpus
    return None


def _holds(planned: Planned, card: GPU, layout: RankLayout) -> bool:
    return all(fits(job.on(layout), card) for _, job in planned)


def _bounds(planned: Planned, card: GPU, total: float) -> Iterator[str]:
    """Name the phase that takes most of the time, and its bottleneck."""
    seconds: dict[tuple[str, str, str], float] = {}
    for stage, job in planned:
        for phase in phases(job, card):
            key = (stage, phase.name, phase.bound)
            seconds[key] = seconds.get(key, 0.0) + phase.seconds * phase.times
    if seconds:
        stage, name, bound = most = max(seconds, key=lambda key: seconds[key])
        reason = f", by {bound}" if bound else ""
        yield f"bound by {stage}, {name}{reason}: {seconds[most] / total:.0%} of the time"
