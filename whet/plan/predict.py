"""The predicted cost of a file on a named GPU: memory, seconds per step, hours; and changes that
make it fit."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from rich.table import Table

from whet.algos.settings import AlgoConfig, resolve_algorithm
from whet.engine.base import EngineConfig
from whet.errors import ConfigError
from whet.models.config import ModelConfig
from whet.models.cost import CARDS, GB, Cost, optimizer_bytes
from whet.models.load import read_shape
from whet.models.sizes import new_config
from whet.models.source import ModelSource
from whet.plan.phases import Job, cache_bytes, phases, suggest_change
from whet.recipes.distill import DistillConfig
from whet.recipes.dpo import DPOConfig
from whet.recipes.evaluate import EvalConfig
from whet.recipes.rl import RLConfig
from whet.recipes.sft import SFTConfig
from whet.recipes.tango import Side, TangoConfig, num_steps
from whet.recipes.training import ModelStageConfig, StageConfig
from whet.recipes.verifications import VerificationsConfig
from whet.track.progress import printer
from whet.train.optim import TrainConfig

SINGLE_CHARACTERS = 103
"""Tokens of a new model's tokenizer besides its pieces."""
EVAL_PROBLEMS = 512
COLUMNS = ("stage", "phase", "holds", "GB", "seconds", "times", "minutes")
Stages = Mapping[str, StageConfig]
NOT_COUNTED = (
    "validation, grading, the start, refills, a critic's updates, greedy answers of eval, "
    "answers that dpo asks for; "
    f"eval and verifications are as if of {EVAL_PROBLEMS} problems"
)


def print_plan(stages: Stages, *, gpu: str, prompt: int, tokens: int | None) -> bool:
    """Print the cost of each stage with a model; return whether all of them fit."""
    if gpu not in CARDS:
        raise ConfigError(f"--gpu is {gpu!r}, expected one of {', '.join(CARDS)}")
    card = CARDS[gpu]
    total = 0.0
    notes: list[str] = []
    unfit: list[str] = []
    table = Table(*COLUMNS, title=f"on one {gpu}", box=None)
    planned = [(name, job) for name in stages for job in jobs(name, stages, prompt, tokens)]
    for stage, job in planned:
        if job.engine is not None and cache_bytes(job, card) is None:
            kind = job.engine.kind
            notes.append(f"{stage}, sample: not counted, engine.kind = {kind!r} predicts nothing")
        for phase in phases(job, card):
            held = {part: size / GB for part, size in phase.held.items() if size >= 0.05 * GB}
            parts = ", ".join(f"{part} {size:.1f}" for part, size in held.items())
            whole = phase.seconds * phase.times
            times = (f"{phase.seconds:.2f}", f"{phase.times:,}", f"{whole / 60:.1f}")
            table.add_row(stage, phase.name, parts, f"{phase.peak / GB:.1f}", *times)
            notes += [f"{stage}, {phase.name}: {phase.note}"] if phase.note else []
            total += whole
            if phase.peak > card.usable:
                much = f"{phase.peak / GB:.1f} GB do not fit into {card.usable / GB:.1f}"
                unfit.append(f"{stage}, {phase.name}: {much}; {suggest_change(job, card)}")
    printer.print(table)
    printer.print(f"{total / 3600:.2f} hours in all", style="bold")
    for sentence in [*notes, *unfit, f"not counted: {NOT_COUNTED}"]:
        printer.print(sentence)
    return not unfit


def jobs(name: str, stages: Stages, prompt: int, tokens: int | None) -> Iterator[Job]:
    """List the jobs of a stage's models in each of its steps."""
    stage = stages[name]
    if not isinstance(stage, ModelStageConfig):
        return
    new = tokens or stage.sampling.max_tokens
    job = partial(_job, stages, stage.model, prompt=prompt, new=new)
    if isinstance(stage, EvalConfig | VerificationsConfig):
        yield job(None, stage.engine, groups=EVAL_PROBLEMS, samples=stage.samples, steps=1)
    elif isinstance(stage, SFTConfig | DPOConfig):
        groups = stage.batch if isinstance(stage, SFTConfig) else 2 * stage.batch
        yield job(stage.train, None, groups=groups, steps=stage.steps)
    elif isinstance(stage, DistillConfig | RLConfig):
        samples = stage.group_size if isinstance(stage, RLConfig) else stage.samples
        groups = stage.problems_per_step
        policy = job(stage.train, stage.engine, groups=groups, samples=samples, steps=stage.steps)
        if isinstance(stage, RLConfig):
            yield _add_companions(policy, stage.algo)
        else:
            teacher = _cost(stage.teacher, stages, stage.train)
            size = float(teacher.width * teacher.parameters)
            yield replace(policy, reader=teacher, reader_bytes=size)
    elif isinstance(stage, TangoConfig):
        yield from _sides(stage, stages, prompt, new, tokens or stage.verifier_sampling.max_tokens)


def _sides(stage: TangoConfig, stages: Stages, prompt: int, new: int, words: int) -> Iterator[Job]:
    """Plan for both models, which stay on the card in every turn; a verifier reads a solution and
    writes about it."""
    solve = _job(
        stages,
        stage.model,
        stage.train,
        stage.engine,
        groups=stage.problems_per_step,
        samples=stage.group_size,
        prompt=prompt,
        new=new,
        steps=num_steps(stage, Side.GENERATOR, stage.steps),
    )
    verify = _job(
        stages,
        stage.verifier,
        stage.verifier_train,
        stage.verifier_engine,
        groups=stage.problems_per_step,
        samples=stage.verifier_group_size,
        prompt=prompt + new,
        new=words,
        steps=num_steps(stage, Side.VERIFIER, stage.steps),
    )
    solve = _add_companions(solve, stage.algo)
    verify = _add_companions(verify, stage.verifier_algo)
    yield replace(solve, beside=sum(verify.state.values()))
    yield replace(verify, beside=sum(solve.state.values()))


def _job(
    stages: Stages,
    source: ModelSource,
    train: TrainConfig | None,
    engine: EngineConfig | None,
    *,
    groups: int,
    samples: int = 1,
    prompt: int,
    new: int,
    steps: int,
) -> Job:
    cost = _cost(source, stages, train)
    lora = source.lora if train is not None else None
    return Job(
        cost=cost,
        train=train,
        engine=engine,
        sequences=groups * samples,
        samples=samples,
        prompt=prompt,
        new=new,
        steps=steps,
        trained=None if lora is None else cost.adapters(lora.rank, lora.targets),
    )


def _add_companions(job: Job, algo: AlgoConfig) -> Job:
    """Add the other models of an algorithm: a reference for its KL, a critic trained beside the
    policy."""
    cost = job.cost
    trained = cost.parameters if job.trained is None else job.trained
    if algo.kl > 0:
        job = replace(job, reader=cost, reader_bytes=float(cost.width * trained))
    if resolve_algorithm(algo).needs_values and job.train is not None:
        optimiser = 0.0 if job.train.offload else optimizer_bytes(trained, cost.width)
        job = replace(job, beside=job.beside + cost.width * trained + optimiser)
    return job


def _cost(source: ModelSource, stages: Stages, train: TrainConfig | None) -> Cost:
    width = 4 if train is not None and train.dtype == "float32" else 2
    return Cost(cfg=_shape(source, stages), width=width)


def _shape(source: ModelSource, stages: Stages) -> ModelConfig:
    """Find the shape of a stage's model: in its folder, by its size, or as an earlier stage has
    it."""
    if source.new is not None:
        return new_config(source.new, SINGLE_CHARACTERS + source.max_pieces, source.positions)
    path = source.path or ""
    earlier = stages.get(path[1:]) if path.startswith("@") else None
    return (
        _shape(earlier.model, stages) if isinstance(earlier, ModelStageConfig) else read_shape(path)
    )
