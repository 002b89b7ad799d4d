"""What a file will take on a named GPU: memory, seconds a step, hours; and what to change where it does not fit."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.table import Table

from whet.engine.native import EngineConfig
from whet.errors import ConfigError
from whet.models import estimate
from whet.models.config import ModelConfig
from whet.models.cost import Cost
from whet.models.estimate import CARDS, GB, Card
from whet.models.load import read_shape
from whet.models.sizes import new_config
from whet.recipes.evaluate import EvalConfig
from whet.recipes.kinds import Stage
from whet.recipes.rl import RLConfig
from whet.recipes.sft import SFTConfig
from whet.track.progress import console
from whet.train.optim import TrainConfig
from whet.train.policy import ModelSource

SINGLE_CHARACTERS = 103
"""Tokens of a new model's tokenizer besides its pieces."""
Modelled = SFTConfig | RLConfig | EvalConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One thing a stage does over and over: the bytes it holds by name, its seconds, how often, and a way out."""

    stage: str
    name: str
    held: Mapping[str, float]
    seconds: float
    times: int
    advice: str

    @property
    def peak(self) -> float:
        return sum(self.held.values())


def plan(stages: Mapping[str, Stage], *, gpu: str, prompt: int, tokens: int | None) -> bool:
    """Print what each stage with a model will take; says whether all of them fit."""
    if gpu not in CARDS:
        raise ConfigError(f"--gpu is {gpu!r}, expected one of {', '.join(CARDS)}")
    card = CARDS[gpu]
    phases = [phase for name in stages for phase in _phases(name, stages, card, prompt, tokens)]
    table = Table("stage", "phase", "holds", "GB", "seconds", "times", "minutes", title=f"on one {gpu}", box=None)
    for phase in phases:
        parts = ", ".join(f"{part} {size / GB:.1f}" for part, size in phase.held.items() if size >= 0.05 * GB)
        whole = phase.seconds * phase.times / 60
        cells = (f"{phase.peak / GB:.1f}", f"{phase.seconds:.2f}", f"{phase.times:,}", f"{whole:.1f}")
        table.add_row(phase.stage, phase.name, parts, *cells)
    console.print(table)
    total = sum(phase.seconds * phase.times for phase in phases)
    console.print(f"{total / 3600:.2f} hours in all, exams, grading and start not counted", style="bold")
    unfit = [phase for phase in phases if phase.peak > card.memory]
    for phase in unfit:
        much = f"{phase.peak / GB:.1f} GB do not fit into {card.memory / GB:.1f}"
        console.print(f"{phase.stage}, {phase.name}: {much}; {phase.advice}")
    return not unfit


def _phases(name: str, stages: Mapping[str, Stage], card: Card, prompt: int, tokens: int | None) -> Iterator[Phase]:
    stage = stages[name]
    if not isinstance(stage, Modelled):
        return
    shape = _shape(stage.model, stages)
    new = tokens or stage.sampling.max_tokens
    if isinstance(stage, EvalConfig):
        yield _sampling(name, stage.engine, Cost(cfg=shape), card, {}, 512 * stage.samples, prompt, new, 1)
        return
    cost = Cost(cfg=shape, width=4 if stage.train.dtype == "float32" else 2)
    has_reference = isinstance(stage, RLConfig) and stage.algo.kl > 0
    state = estimate.state_bytes(cost, trains=True, offload=stage.train.offload, reference=has_reference)
    if isinstance(stage, SFTConfig):
        yield _update(name, stage.train, cost, card, state, stage.batch, prompt, new, stage.steps)
        return
    requests = stage.problems_per_step * stage.group_size
    yield _sampling(name, stage.engine, cost, card, state, requests, prompt, new, stage.steps)
    yield _update(name, stage.train, cost, card, state, requests, prompt, new, stage.steps, has_reference=has_reference)


def _sampling(
    name: str,
    engine: EngineConfig,
    cost: Cost,
    card: Card,
    state: Mapping[str, float],
    requests: int,
    prompt: int,
    new: int,
    times: int,
) -> Phase:
    context = min(engine.context or cost.cfg.max_positions, cost.cfg.max_positions)
    rows = min(engine.slots, requests)
    held = dict(state or {"weights": float(cost.width * cost.parameters)})
    room = card.memory * 0.9 - sum(held.values())
    found = estimate.sampling_bytes(cost, rows=engine.slots, context=context)
    found["cache"] = min(found["cache"], max(room, 0.0), (engine.kv_gb or float("inf")) * 2**30)
    seconds = estimate.rollout_seconds(cost, card, requests=requests, rows=rows, prompt=prompt, new=new)
    advice = "lower engine.slots or engine.context, or set train.offload = true"
    return Phase(stage=name, name="sample", held=held | found, seconds=seconds, times=times, advice=advice)


def _update(
    name: str,
    train: TrainConfig,
    cost: Cost,
    card: Card,
    state: Mapping[str, float],
    sequences: int,
    prompt: int,
    new: int,
    times: int,
    *,
    has_reference: bool = False,
) -> Phase:
    length = prompt + new
    passes = max(1, -(-sequences * length // train.micro_tokens))
    seconds = estimate.update_seconds(cost, card, sequences=sequences, length=length, scored=new, passes=passes)
    tokens = min(train.micro_tokens, sequences * length)
    held = dict(state) | estimate.update_bytes(cost, micro_tokens=tokens)
    room = card.memory - (sum(held.values()) - held["activations"])
    most = int(room / cost.activation_bytes) // 1024 * 1024
    advice = f"set train.micro_tokens = {most}" if most >= length else "set train.offload = true, or take a larger card"
    return Phase(
        stage=name,
        name="update",
        held=held,
        seconds=seconds * (4 / 3 if has_reference else 1),
        times=times,
        advice=advice,
    )


def _shape(source: ModelSource, stages: Mapping[str, Stage]) -> ModelConfig:
    """Find the shape of a stage's model: in its folder, by its size, or as an earlier stage has it."""
    if source.new is not None:
        return new_config(source.new, SINGLE_CHARACTERS + source.max_pieces, source.positions)
    earlier = stages.get((source.path or "").removeprefix("@")) if (source.path or "").startswith("@") else None
    if isinstance(earlier, Modelled):
        return _shape(earlier.model, stages)
    return read_shape(source.path or "")
