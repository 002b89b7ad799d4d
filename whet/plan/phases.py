"""The phases of one model in every step of a stage, and their time and memory on a card."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil

from whet.engine.base import EngineConfig
from whet.engine.native import PREFILL_TOKENS
from whet.models import cost
from whet.models.cost import ALONE, GB, GPU, Cost, RankLayout
from whet.train.settings import TrainConfig

DRIVER_BYTES = 0.6 * GB
FEWEST_TOKENS = 4096
"""Tokens of a pass below which a GPU is not fully used."""
PASS_SECONDS = 1e-3
"""Least time of a layer in a pass of a sharded model, forward and backward, for kernel launches and
three collectives. An assumption, which decides only for small models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelJob:
    """One model's part of a stage.

    `train` is None if nothing is trained, `engine` if nothing is sampled. `frozen_model` computes
    log-probabilities of the samples: a reference or a teacher. `layout` is the part of a rank.
    """

    cost: Cost
    train: TrainConfig | None
    engine: EngineConfig | None
    sequences: int
    prompt_tokens: int
    new_tokens: int
    steps: int
    samples: int = 1
    """Sequences that share a prompt."""
    trained: int | None = None
    """Weights that have gradients; all if left out."""
    frozen_model: Cost | None = None
    frozen_model_bytes: float = 0.0
    """Bytes of its weights that are not the policy's own."""
    has_critic: bool = False
    partner: "tuple[str, ModelJob] | None" = None
    """Name and job of the other model of a stage that trains two; both stay on the card."""
    max_new_tokens: int | None = None
    """Tokens of the longest response; `new_tokens` if left out. On one device it is not counted."""
    num_minibatches: int = 1
    layout: RankLayout = ALONE

    @property
    def num_trainable(self) -> int:
        return self.cost.parameters if self.trained is None else self.trained

    @property
    def length(self) -> int:
        """Tokens of a sequence."""
        return self.prompt_tokens + self.new_tokens

    @property
    def num_requests(self) -> int:
        """Sequences that a rank samples."""
        return ceil(self.sequences / self.layout.ranks)

    @property
    def num_updated(self) -> int:
        """Sequences that the ranks of a sequence train on, as many in each mini-batch."""
        if self.layout.ranks == 1:
            return self.sequences
        groups = self.layout.ranks // self.layout.sequence
        return self.num_minibatches * ceil(self.sequences / (self.num_minibatches * groups))

    @property
    def num_passes(self) -> int:
        """Micro-batches of a step."""
        assert self.train is not None, "passes are those of an update"
        if self.layout.ranks == 1:
            return max(1, ceil(self.sequences * self.length / self.train.micro_batch_tokens))
        rows = max(1, self.train.micro_batch_tokens // self.length)
        return self.num_minibatches * ceil(self.num_updated / (self.num_minibatches * rows))

    def on(self, layout: RankLayout) -> "ModelJob":
        """Place the job on other ranks."""
        partner = self.partner and (self.partner[0], self.partner[1].on(layout))
        return replace(self, layout=layout, partner=partner)

    @property
    def state(self) -> dict[str, float]:
        """Bytes that stay on the card between phases, by name."""
        others = (
            {} if self.partner is None else {self.partner[0]: sum(self.partner[1].state.values())}
        )
        if self.layout.shard > 1:
            return self._shards | others
        if self.has_critic and self.train is not None:
            optimizer = cost.optimizer_bytes(self.num_trainable, self.cost.width)
            others["critic"] = self.cost.width * self.num_trainable
            others["critic"] += 0.0 if self.train.offload_optimizer else optimizer
        train = self.train
        held = cost.state_bytes(
            self.cost.parameters,
            self.cost.width,
            trained=self.num_trainable if train is not None else 0.0,
            offload=train is not None and train.offload_optimizer,
        )
        is_offloaded = train is not None and train.offload_reference
        reference = 0.0 if is_offloaded else self.frozen_model_bytes
        return held | {"reference": reference, "others": sum(others.values())}

    @property
    def _shards(self) -> dict[str, float]:
        """State of a rank: whole weights for its engine, and its shards of all else."""
        held = {"weights": float(self.cost.width * self.cost.parameters)}
        if self.train is None:
            return held | {"reference": self.frozen_model_bytes / self.layout.shard}
        trained = self.num_trainable
        frozen = self.cost.width * (self.cost.parameters - trained)
        moments = 0.0 if self.train.offload_optimizer else 8.0 * trained
        parts = {
            "masters": 4.0 * trained + frozen,
            "moments": moments,
            "reference": 0.0 if self.train.offload_reference else self.frozen_model_bytes,
            "critic": 4.0 * trained + moments if self.has_critic else 0.0,
        }
        held |= {name: size / self.layout.shard for name, size in parts.items()}
        return held | {"staging": cost.STAGING if self.train.offload_optimizer else 0.0}

    @property
    def host_bytes(self) -> float:
        """Bytes kept in host memory instead."""
        if self.train is None:
            return 0.0
        optimizer = cost.optimizer_bytes(self.num_trainable, self.cost.width)
        if self.layout.shard > 1:
            # The float32 masters are the shards themselves and stay on the card.
            optimizer = 8.0 * self.num_trainable
        offloaded_bytes = optimizer if self.train.offload_optimizer else 0.0
        offloaded_bytes += self.frozen_model_bytes if self.train.offload_reference else 0.0
        return offloaded_bytes / self.layout.shard

    def update_bytes(self, train: TrainConfig, checkpointed: int) -> dict[str, float]:
        """Bytes of an update besides the state, with `checkpointed` layers that run twice."""
        tokens = self.num_updated * self.length
        size = min(train.micro_batch_tokens, tokens)
        held = cost.update_bytes(
            self.cost,
            micro_batch_tokens=ceil(size / self.layout.sequence),
            passes=ceil(tokens / size),
            checkpointed=checkpointed,
            trained=self.trained,
        )
        if self.layout.shard == 1:
            return held
        return held | {
            "gradients": 4.0 * self.num_trainable / self.layout.shard,
            "gathered": self.cost.gathered_bytes(trains=True),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPhase:
    """One part of every step: the bytes it holds by name, its seconds, how often it runs."""

    name: str
    held: Mapping[str, float]
    seconds: float
    times: int
    note: str = ""
    bound: str = ""
    """What takes most of its time; only set on several ranks."""

    @property
    def peak(self) -> float:
        return sum(self.held.values())


def phases(job: ModelJob, card: GPU) -> Iterator[StepPhase]:
    """List the phases of a step in order: sample, second model's log-probabilities, update."""
    fit = find_fit(job, card)
    if job.engine is not None and (cache := cache_bytes(job, card)) is not None:
        yield _sampling_phase(job, job.engine, card, cache, wakes=not fit.keeps_cache)
        if job.train is not None and job.layout.shard > 1:
            seconds = job.layout.gather_seconds(float(job.cost.width * job.cost.parameters), card)
            bound = "weights for the engine"
            yield StepPhase(
                name="gather", held=job.state, seconds=seconds, times=job.steps, bound=bound
            )
    if job.frozen_model is not None:
        yield _frozen_model_phase(job, job.frozen_model, card, fit)
    if job.train is not None:
        yield _update_phase(job, job.train, card, fit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The memory plan of an update: whether the cache stays, its size, the checkpointed layers."""

    keeps_cache: bool
    cache: float
    checkpointed: int


def find_fit(job: ModelJob, card: GPU) -> Fit:
    """Predict what a run will decide (`whet/train/memory.py`), without measured bytes."""
    cache = 0.0
    if job.engine is not None and (predicted := cache_bytes(job, card)) is not None:
        rows = min(job.engine.max_num_seqs, job.num_requests)
        cache = predicted + 4.0 * rows * job.cost.cfg.vocab_size
    if job.train is None:
        return Fit(keeps_cache=True, cache=cache, checkpointed=0)
    train = job.train
    layers = job.cost.cfg.num_layers
    free = card.usable - sum(job.state.values())

    def total(checkpointed: int) -> float:
        return sum(job.update_bytes(train, checkpointed).values())

    at_least = layers if train.gradient_checkpointing == "on" else 0
    keeps = total(at_least) <= free - cache
    room = free - cache if keeps else free
    count = cost.layers_to_checkpoint(
        total, free=room, layers=layers, checkpointing=train.gradient_checkpointing
    )
    return Fit(keeps_cache=keeps, cache=cache, checkpointed=count)


def suggest_change(job: ModelJob, card: GPU) -> str:
    """Try changes until every phase fits, and name the first that suffices."""
    for setting, changed in _changes(job):
        if fits(changed, card):
            return f"set {setting}"
    return "take a larger card, a smaller model, or adapters (model.lora)"


def _changes(job: ModelJob) -> Iterator[tuple[str, ModelJob]]:
    """List settings that need less memory, the cheapest first."""
    if job.train is not None:
        train = job.train

        def change(**settings: object) -> ModelJob:
            return replace(job, train=train.model_copy(update=settings))

        if job.frozen_model_bytes:
            yield "train.offload_reference = true", change(offload_reference=True)
        size = train.micro_batch_tokens // 2
        while size >= max(FEWEST_TOKENS, job.length):
            yield f"train.micro_batch_tokens = {size}", change(micro_batch_tokens=size)
            size //= 2
        if train.gradient_checkpointing == "off":
            yield 'train.gradient_checkpointing = "auto"', change(gradient_checkpointing="auto")
        yield "train.offload_optimizer = true", change(offload_optimizer=True)
        least = change(
            offload_optimizer=True, offload_reference=True, micro_batch_tokens=FEWEST_TOKENS
        )
        if least.train != train:
            settings = "train.offload_optimizer = true, train.offload_reference = true and "
            yield f"{settings}train.micro_batch_tokens = {FEWEST_TOKENS}", least
    if job.engine is not None and job.engine.max_num_seqs > 1:
        engine = job.engine.model_copy(update={"max_num_seqs": job.engine.max_num_seqs // 2})
        yield f"engine.max_num_seqs = {engine.max_num_seqs}", replace(job, engine=engine)


def fits(job: ModelJob, card: GPU) -> bool:
    return all(phase.peak <= card.usable for phase in phases(job, card))


def cache_bytes(job: ModelJob, card: GPU) -> float | None:
    """Return the cache size by the engine's settings; None if they predict none."""
    if job.engine is None:
        return None
    longest = job.cost.cfg.max_positions
    context = min(job.engine.max_model_len or longest, longest)
    free = card.memory - DRIVER_BYTES - sum(job.state.values())
    return job.engine.cache_bytes(job.cost.kv_bytes, context=context, free=free)


def _sampling_phase(
    job: ModelJob, engine: EngineConfig, card: GPU, cache: float, *, wakes: bool
) -> StepPhase:
    rows = min(engine.max_num_seqs, job.num_requests)
    prefill = min(PREFILL_TOKENS, ceil(rows / job.samples) * job.prompt_tokens)
    sampling = {"cache": cache} | cost.sampling_bytes(job.cost, rows=rows, prefill=prefill)
    batch = {"requests": job.num_requests, "rows": rows, "prompt_tokens": job.prompt_tokens}
    bound = ""
    if job.layout.ranks == 1:
        seconds = cost.rollout_seconds(job.cost, card, new_tokens=job.new_tokens, **batch)
    else:
        longest = max(job.new_tokens, job.max_new_tokens or 0)
        token = job.cost.kv_bytes
        free = card.usable - sum((job.state | sampling).values()) + cache
        sampling["cache"] = max(min(cache, free), float(token * (job.prompt_tokens + longest)))
        batch["rows"] = max(1, min(rows, int(sampling["cache"] / token / job.length)))
        seconds = cost.ragged_rollout_seconds(
            job.cost, card, mean=job.new_tokens, longest=longest, **batch
        )
        alone = longest * cost.step_seconds(job.cost, card, 1, job.prompt_tokens + longest / 2)
        bound = "the longest response" if alone > seconds / 2 else "decoding"
    return StepPhase(
        name="sample",
        held=job.state | sampling,
        seconds=seconds + (cost.WAKE_SECONDS if wakes else 0.0),
        times=job.steps,
        note="the cache is given back for the update" if wakes else "",
        bound=bound,
    )


def _frozen_model_phase(job: ModelJob, frozen_model: Cost, card: GPU, fit: Fit) -> StepPhase:
    is_offloaded = job.train is not None and job.train.offload_reference
    length = job.length
    layout = job.layout
    micro_batch = job.train.micro_batch_tokens if job.train else PREFILL_TOKENS
    size = min(micro_batch, job.num_updated * length)
    cfg = frozen_model.cfg
    widths = 3 * cfg.intermediate_size + 4 * cfg.hidden_size
    tokens = ceil(size / layout.sequence)
    held = job.state | {
        "cache": fit.cache if fit.keeps_cache else 0.0,
        "pass": float(tokens * frozen_model.width * widths),
        "logits": 4.0 * min(cost.LOGITS, tokens * cfg.vocab_size),
        "reference": job.frozen_model_bytes / layout.shard,
    }
    seconds = cost.logprob_seconds(
        frozen_model,
        card,
        sequences=job.num_updated,
        length=length,
        num_targets=job.new_tokens,
        offload=is_offloaded,
        layout=layout,
    )
    bound = ""
    if layout.shard > 1:
        held |= {"gathered": frozen_model.gathered_bytes(trains=False)}
        passes = job.num_passes if job.train else ceil(job.num_updated * length / size)
        bytes_sent = float(passes * frozen_model.width * frozen_model.parameters)
        traffic = layout.gather_seconds(bytes_sent, card)
        seconds, bound = _slowest(seconds, traffic, passes * cfg.num_layers * PASS_SECONDS / 3)
    return StepPhase(
        name="read",
        held=held,
        seconds=seconds,
        times=job.steps,
        note="from host memory" if is_offloaded else "",
        bound=bound,
    )


def _update_phase(job: ModelJob, train: TrainConfig, card: GPU, fit: Fit) -> StepPhase:
    length = job.length
    layers = job.cost.cfg.num_layers
    held = (
        job.state
        | job.update_bytes(train, fit.checkpointed)
        | {"cache": fit.cache if fit.keeps_cache else 0.0}
    )
    layout = job.layout
    seconds = cost.update_seconds(
        job.cost,
        card,
        sequences=job.num_updated,
        length=length,
        num_targets=job.new_tokens,
        passes=job.num_passes,
        checkpointed=fit.checkpointed,
        offload=train.offload_optimizer,
        layout=layout,
        optimizer_steps=1 if layout.ranks == 1 else job.num_minibatches,
    )
    bound = ""
    if layout.ranks > 1:
        # A pass gathers the weights forward and backward, and scatters float32 gradients; replicas
        # sum theirs once an optimizer step.
        moved = 2.0 * job.cost.width * job.cost.parameters + 4.0 * job.num_trainable
        traffic = job.num_passes * layout.gather_seconds(moved, card)
        traffic += job.num_minibatches * layout.reduce_seconds(4.0 * job.num_trainable, card)
        through = 2 + (1 if fit.checkpointed else 0)
        tokens = job.num_updated * length
        seconds += cost.exchange_seconds(job.cost, card, layout, tokens=tokens, passes=through)
        seconds, bound = _slowest(seconds, traffic, job.num_passes * layers * PASS_SECONDS)
    notes = [f"{fit.checkpointed} of {layers} layers run twice"] if fit.checkpointed else []
    if job.host_bytes:
        notes.append(f"{job.host_bytes / GB:.1f} GB in host memory")
    return StepPhase(
        name="update",
        held=held,
        seconds=seconds,
        times=job.steps,
        note=", ".join(notes),
        bound=bound,
    )


def _slowest(computing: float, moving: float, starting: float) -> tuple[float, str]:
    """Return the largest of times that overlap, and what takes it."""
    return max(
        (computing, "arithmetic"),
        (moving, "traffic between ranks"),
        (starting, "short passes: each rank has too little to do"),
    )
