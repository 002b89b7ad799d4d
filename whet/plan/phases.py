"""The phases of one model in every step of a stage, and their time and memory on a card."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from whet.engine.base import EngineConfig
from whet.engine.native import PREFILL_TOKENS
from whet.models import cost as estimate
from whet.models.cost import GB, Card, Cost
from whet.train.optim import TrainConfig

DRIVER_BYTES = 0.6 * GB
FEWEST_TOKENS = 4096
"""Tokens of a pass below which a GPU has too little to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One model's share of a stage. `prompt` and `new` are the tokens of a sequence.

    `train` is None where nothing is trained, `engine` where nothing is sampled. `reader` is a
    second model that scores the samples: a reference, or a teacher. `beside` are bytes of yet
    others that stay on the card.
    """

    cost: Cost
    train: TrainConfig | None
    engine: EngineConfig | None
    sequences: int
    prompt: int
    new: int
    steps: int
    samples: int = 1
    """Sequences that share a prompt."""
    trained: int | None = None
    """Weights that have gradients; all if left out."""
    reader: Cost | None = None
    reader_bytes: float = 0.0
    """Bytes of the reader that are not the policy's own."""
    beside: float = 0.0

    @property
    def num_trainable(self) -> int:
        return self.cost.parameters if self.trained is None else self.trained

    @property
    def state(self) -> dict[str, float]:
        """Bytes that stay on the card between phases, by name."""
        train = self.train
        offload = train is not None and train.offload
        held = estimate.state_bytes(
            self.cost.parameters,
            self.cost.width,
            trained=self.num_trainable if train is not None else 0.0,
            offload=offload,
        )
        far = train is not None and train.offload_reference
        return held | {"reference": 0.0 if far else self.reader_bytes, "others": self.beside}

    @property
    def host_bytes(self) -> float:
        """Bytes kept in host memory instead."""
        if self.train is None:
            return 0.0
        optimiser = estimate.optimizer_bytes(self.num_trainable, self.cost.width)
        far = optimiser if self.train.offload else 0.0
        return far + (self.reader_bytes if self.train.offload_reference else 0.0)

    def update_bytes(self, train: TrainConfig, checkpointed: int) -> dict[str, float]:
        """Bytes of an update besides the state, with so many layers that run twice."""
        tokens = self.sequences * (self.prompt + self.new)
        size = min(train.micro_tokens, tokens)
        return estimate.update_bytes(
            self.cost,
            micro_tokens=size,
            passes=math.ceil(tokens / size),
            checkpointed=checkpointed,
            trained=self.trained,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPhase:
    """One part of every step: the bytes it holds by name, its seconds, how often it runs."""

    name: str
    held: Mapping[str, float]
    seconds: float
    times: int
    note: str = ""

    @property
    def peak(self) -> float:
        return sum(self.held.values())


def phases(job: Job, card: Card) -> Iterator[StepPhase]:
    """List the phases of a step, in order: sample, score with the second model, update."""
    fit = find_fit(job, card)
    if job.engine is not None and (cache := cache_bytes(job, card)) is not None:
        yield _sampling(job, job.engine, card, cache, wakes=not fit.keeps_cache)
    if job.reader is not None:
        yield _reading(job, job.reader, card, fit)
    if job.train is not None:
        yield _update(job, job.train, card, fit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The memory plan of an update: whether the cache stays, its bytes, checkpointed layers."""

    keeps_cache: bool
    cache: float
    checkpointed: int


def find_fit(job: Job, card: Card) -> Fit:
    """Decide as a run will (`whet/train/memory.py`), from predicted instead of measured bytes."""
    cache = 0.0
    if job.engine is not None and (predicted := cache_bytes(job, card)) is not None:
        rows = min(job.engine.slots, job.sequences)
        cache = predicted + 4.0 * rows * job.cost.cfg.vocab_size
    if job.train is None:
        return Fit(keeps_cache=True, cache=cache, checkpointed=0)
    train = job.train
    layers = job.cost.cfg.num_layers
    free = card.usable - sum(job.state.values())

    def total(checkpointed: int) -> float:
        return sum(job.update_bytes(train, checkpointed).values())

    at_least = layers if train.checkpointing == "on" else 0
    keeps = total(at_least) <= free - cache
    room = free - cache if keeps else free
    count = estimate.layers_to_checkpoint(
        total, free=room, layers=layers, checkpointing=train.checkpointing
    )
    return Fit(keeps_cache=keeps, cache=cache, checkpointed=count)


def suggest_change(job: Job, card: Card) -> str:
    """Try changes until every phase fits, and name the first that does it."""
    for words, changed in _changes(job):
        if fits(changed, card):
            return f"set {words}"
    return "take a larger card, a smaller model, or adapters (model.lora)"


def _changes(job: Job) -> Iterator[tuple[str, Job]]:
    """List settings that need less memory, the cheapest first."""
    if job.train is not None:
        train = job.train

        def change(**settings: object) -> Job:
            return replace(job, train=train.model_copy(update=settings))

        if job.reader_bytes:
            yield "train.offload_reference = true", change(offload_reference=True)
        size = train.micro_tokens // 2
        while size >= max(FEWEST_TOKENS, job.prompt + job.new):
            yield f"train.micro_tokens = {size}", change(micro_tokens=size)
            size //= 2
        if train.checkpointing == "off":
            yield 'train.checkpointing = "auto"', change(checkpointing="auto")
        yield "train.offload = true", change(offload=True)
        least = change(offload=True, offload_reference=True, micro_tokens=FEWEST_TOKENS)
        if least.train != train:
            words = "train.offload = true, train.offload_reference = true and "
            yield f"{words}train.micro_tokens = {FEWEST_TOKENS}", least
    if job.engine is not None and job.engine.slots > 1:
        engine = job.engine.model_copy(update={"slots": job.engine.slots // 2})
        yield f"engine.slots = {engine.slots}", replace(job, engine=engine)


def fits(job: Job, card: Card) -> bool:
    return all(phase.peak <= card.usable for phase in phases(job, card))


def cache_bytes(job: Job, card: Card) -> float | None:
    """Ask the engine's settings for its cache; None where there is none, or no prediction."""
    if job.engine is None:
        return None
    longest = job.cost.cfg.max_positions
    context = min(job.engine.context or longest, longest)
    free = card.memory - DRIVER_BYTES - sum(job.state.values())
    return job.engine.cache_bytes(job.cost.kv_bytes, context=context, free=free)


def _sampling(
    job: Job, engine: EngineConfig, card: Card, cache: float, *, wakes: bool
) -> StepPhase:
    rows = min(engine.slots, job.sequences)
    prefill = min(PREFILL_TOKENS, -(-rows // job.samples) * job.prompt)
    sampling = {"cache": cache} | estimate.sampling_bytes(job.cost, rows=rows, prefill=prefill)
    seconds = estimate.rollout_seconds(
        job.cost, card, requests=job.sequences, rows=rows, prompt=job.prompt, new=job.new
    )
    note = "the cache is given back for the update" if wakes else ""
    seconds += estimate.WAKE_SECONDS if wakes else 0.0
    return StepPhase(
        name="sample", held=job.state | sampling, seconds=seconds, times=job.steps, note=note
    )


def _reading(job: Job, reader: Cost, card: Card, fit: Fit) -> StepPhase:
    far = job.train is not None and job.train.offload_reference
    size = min(
        job.train.micro_tokens if job.train else PREFILL_TOKENS,
        job.sequences * (job.prompt + job.new),
    )
    cfg = reader.cfg
    held = job.state | {
        "cache": fit.cache if fit.keeps_cache else 0.0,
        "pass": float(size * reader.width * (3 * cfg.intermediate_size + 4 * cfg.hidden_size)),
        "logits": 4.0 * min(estimate.LOGITS, size * cfg.vocab_size),
    }
    held |= {"reference": job.reader_bytes}
    seconds = estimate.score_seconds(
        reader,
        card,
        sequences=job.sequences,
        length=job.prompt + job.new,
        scored=job.new,
        offload=far,
    )
    return StepPhase(
        name="read",
        held=held,
        seconds=seconds,
        times=job.steps,
        note="from host memory" if far else "",
    )


def _update(job: Job, train: TrainConfig, card: Card, fit: Fit) -> StepPhase:
    length = job.prompt + job.new
    layers = job.cost.cfg.num_layers
    held = (
        job.state
        | job.update_bytes(train, fit.checkpointed)
        | {"cache": fit.cache if fit.keeps_cache else 0.0}
    )
    seconds = estimate.update_seconds(
        job.cost,
        card,
        sequences=job.sequences,
        length=length,
        scored=job.new,
        passes=max(1, -(-job.sequences * length // train.micro_tokens)),
        checkpointed=fit.checkpointed,
        offload=train.offload,
    )
    notes = [f"{fit.checkpointed} of {layers} layers run twice"] if fit.checkpointed else []
    if job.host_bytes:
        notes.append(f"{job.host_bytes / GB:.1f} GB in host memory")
    return StepPhase(
        name="update", held=held, seconds=seconds, times=job.steps, note=", ".join(notes)
    )
