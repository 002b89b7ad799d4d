"""What a file will take on a named GPU: memory, seconds a step, hours; and what to change where it
does not fit."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from rich.table import Table

from whet.algos.settings import AlgoConfig, resolve_algorithm
from whet.engine.base import EngineConfig
from whet.errors import ConfigError
from whet.models.config import ModelConfig
from whet.models.load import read_shape
from whet.models.sizes import new_config
from whet.models.source import ModelSource
from whet.pipeline.phases import Job, cache_bytes, phases, way_out
from whet.plan.cost import CARDS, GB, Cost
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
NOT_COUNTED = (
    "validation, grading, the start, refills, a critic's updates, greedy answers of eval, "
    "answers that dpo asks for; "
    f"eval and verifications are as if of {EVAL_PROBLEMS} problems"
)


def plan(stages: Mapping[str, StageConfig], *, gpu: str, prompt: int, tokens: int | None) -> bool:
    """Print what each stage with a model will take; says whether all of them fit."""
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
            parts = ", ".join(
                f"{part} {size / GB:.1f}" for part, size in phase.held.items() if size >= 0.05 * GB
            )
            whole = phase.seconds * phase.times / 60
            cells = (
                f"{phase.peak / GB:.1f}",
                f"{phase.seconds:.2f}",
                f"{phase.times:,}",
                f"{whole:.1f}",
            )
            table.add_row(stage, phase.name, parts, *cells)
            notes += [f"{stage}, {phase.name}: {phase.note}"] if phase.note else []
            total += phase.seconds * phase.times
            if phase.peak > card.usable:
                much = f"{phase.peak / GB:.1f} GB do not fit into {card.usable / GB:.1f}"
                unfit.append(f"{stage}, {phase.name}: {much}; {way_out(job, card)}")
    printer.print(table)
    printer.print(f"{total / 3600:.2f} hours in all", style="bold")
    for sentence in [*notes, *unfit, f"not counted: {NOT_COUNTED}"]:
        printer.print(sentence)
    return not unfit


def jobs(
    name: str, stages: Mapping[str, StageConfig], prompt: int, tokens: int | None
) -> Iterator[Job]:
    """What the models of a stage do in each of its steps; a stage without a model has none."""
    stage = stages[name]
    if not isinstance(stage, ModelStageConfig):
        return
    new = tokens or stage.sampling.max_tokens
    job = partial(_job, stages, stage.model, prompt=prompt, new=new)
    if isinstance(stage, EvalConfig | VerificationsConfig):
        yield job(None, stage.engine, groups=EVAL_PROBLEMS, samples=stage.samples, steps=1)
    elif isinstance(stage, SFTConfig):
        yield job(stage.train, None, groups=stage.batch, steps=stage.steps)
    elif isinstance(stage, DPOConfig):
        yield job(stage.train, None, groups=2 * stage.batch, steps=stage.steps)
    elif isinstance(stage, DistillConfig):
        teacher = _cost(stage.teacher, stages, stage.train)
        student = job(
            stage.train,
            stage.engine,
            groups=stage.problems_per_step,
            samples=stage.samples,
            steps=stage.steps,
        )
        size = float(teacher.width * teacher.parameters)
        yield replace(student, reader=teacher, reader_bytes=size)
    elif isinstance(stage, RLConfig):
        policy = job(
            stage.train,
            stage.engine,
            groups=stage.problems_per_step,
            samples=stage.group_size,
            steps=stage.steps,
        )
        yield _add_companions(policy, stage.algo)
    elif isinstance(stage, TangoConfig):
        yield from _sides(stage, stages, prompt, new, tokens or stage.verifier_sampling.max_tokens)


def _sides(
    stage: TangoConfig, stages: Mapping[str, StageConfig], prompt: int, new: int, words: int
) -> Iterator[Job]:
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
    stages: Mapping[str, StageConfig],
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
    """Add what an algorithm brings along: a reference for its KL, a critic that is trained beside
    the policy."""
    cost = job.cost
    trained = cost.parameters if job.trained is None else job.trained
    if algo.kl > 0:
        job = replace(job, reader=cost, reader_bytes=float(cost.width * trained))
    if resolve_algorithm(algo).advantage == "gae" and job.train is not None:
        own = cost.width * trained + (
            0.0 if job.train.offload else (8 + (4 if cost.width < 4 else 0)) * trained
        )
        job = replace(job, beside=job.beside + own)
    return job


def _cost(
    source: ModelSource, stages: Mapping[str, StageConfig], train: TrainConfig | None
) -> Cost:
    return Cost(
        cfg=_shape(source, stages), width=4 if train is not None and train.dtype == "float32" else 2
    )


def _shape(source: ModelSource, stages: Mapping[str, StageConfig]) -> ModelConfig:
    """Find the shape of a stage's model: in its folder, by its size, or as an earlier stage has
    it."""
    if source.new is not None:
        return new_config(source.new, SINGLE_CHARACTERS + source.max_pieces, source.positions)
    earlier = (
        stages.get((source.path or "").removeprefix("@"))
        if (source.path or "").startswith("@")
        else None
    )
    if isinstance(earlier, ModelStageConfig):
        return _shape(earlier.model, stages)
    return read_shape(source.path or "")
