"""The predicted cost of a file on a GPU: memory, seconds, hours; and changes that make it fit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from rich.table import Table

from whet.algos.algorithm import needs_critic
from whet.algos.settings import AlgoConfig, resolve_preset
from whet.errors import ConfigError
from whet.models.config import ModelConfig
from whet.models.cost import GB, GPU, GPUS, Cost
from whet.models.load import read_shape
from whet.models.sizes import ModelSize, new_config
from whet.models.source import ModelSource
from whet.plan.phases import ModelJob, cache_bytes, phases, suggest_change
from whet.stages.stage import ModelWork, Stages
from whet.track.progress import printer
from whet.train.settings import TrainConfig

_QWEN_1_5B = ModelSize(28, 1536, 12, 2, 128, 8960)
_QWEN_7B = ModelSize(28, 3584, 28, 4, 128, 18944)
_QWEN3_8B = ModelSize(36, 4096, 32, 8, 128, 12288)
_QWEN_32B = ModelSize(64, 5120, 40, 8, 128, 27648)
PUBLISHED: Mapping[str, tuple[str, ModelSize, int, int, bool]] = MappingProxyType(
    {
        "Qwen/Qwen2.5-0.5B": ("qwen2", ModelSize(24, 896, 14, 2, 64, 4864), 151936, 32768, True),
        "Qwen/Qwen2.5-1.5B": ("qwen2", _QWEN_1_5B, 151936, 131072, True),
        "Qwen/Qwen2.5-Math-1.5B": ("qwen2", _QWEN_1_5B, 151936, 4096, True),
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": ("qwen2", _QWEN_1_5B, 151936, 131072, False),
        "agentica-org/DeepScaleR-1.5B-Preview": ("qwen2", _QWEN_1_5B, 151936, 131072, False),
        "Qwen/Qwen2.5-7B": ("qwen2", _QWEN_7B, 152064, 131072, False),
        "Qwen/Qwen2.5-7B-Instruct": ("qwen2", _QWEN_7B, 152064, 32768, False),
        "Qwen/Qwen2.5-Math-7B": ("qwen2", _QWEN_7B, 152064, 4096, False),
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": ("qwen2", _QWEN_7B, 152064, 131072, False),
        "Qwen/Qwen3-8B-Base": ("qwen3", _QWEN3_8B, 151936, 32768, False),
        "Qwen/Qwen2.5-32B": ("qwen2", _QWEN_32B, 152064, 131072, False),
    }
)
"""Family, size, vocabulary, positions and tied head of the models in `experiments/`, so that they
are planned without their files."""
SINGLE_CHARACTERS = 103
"""Tokens of a new model's tokenizer besides its pieces."""
EVAL_PROBLEMS = 512
DEFAULT_PROMPT_TOKENS = 64
COLUMNS = ("stage", "phase", "holds", "GB", "seconds", "times", "minutes")
NOT_COUNTED = (
    "validation, grading, the start, refills, a critic's updates, greedy responses of eval, "
    f"responses that dpo asks for; difficulty, eval and verifications are as if of {EVAL_PROBLEMS} "
    "problems"
)


def print_plan(stages: Stages, *, gpu: str, prompt_tokens: int, new_tokens: int | None) -> bool:
    """Print the cost of each stage that has a model; return whether all of them fit."""
    card = find_card(gpu)
    planned = list_jobs(stages, prompt_tokens, new_tokens)
    total, sentences, unfit = print_phases(planned, card, title=f"on one {gpu}")
    printer.print(f"{total / 3600:.2f} hours in all", style="bold")
    print_sentences([*sentences, *unfit])
    return not unfit


def predict_seconds(stages: Stages, name: str, gpu: str) -> float:
    """Predict how long a stage takes if all responses reach their limit."""
    card = find_card(gpu)
    planned = list_stage_jobs(name, stages, DEFAULT_PROMPT_TOKENS, None)
    return sum(phase.seconds * phase.times for job in planned for phase in phases(job, card))


def find_card(gpu: str) -> GPU:
    if gpu not in GPUS:
        raise ConfigError(f"--gpu is {gpu!r}, expected one of {', '.join(GPUS)}")
    return GPUS[gpu]


def print_phases(
    planned: Sequence[tuple[str, ModelJob]], card: GPU, *, title: str
) -> tuple[float, list[str], list[str]]:
    """Print a table of all phases; return their seconds, the notes, and phases that do not fit."""
    total = 0.0
    notes: list[str] = []
    unfit: list[str] = []
    table = Table(*COLUMNS, title=title, box=None)
    for stage, job in planned:
        if job.engine is not None and cache_bytes(job, card) is None:
            kind = job.engine.kind
            notes.append(f"{stage}, sample: not counted, engine.kind = {kind!r} predicts nothing")
        if not job.steps:
            notes.append(f"{stage}: time not counted, its epochs are of responses not there yet")
        for phase in phases(job, card):
            held = {part: size / GB for part, size in phase.held.items() if size >= 0.05 * GB}
            parts = ", ".join(f"{part} {size:.1f}" for part, size in held.items())
            total_seconds = phase.seconds * phase.times
            times = (f"{phase.seconds:.2f}", f"{phase.times:,}", f"{total_seconds / 60:.1f}")
            table.add_row(stage, phase.name, parts, f"{phase.peak / GB:.1f}", *times)
            notes += [f"{stage}, {phase.name}: {phase.note}"] if phase.note else []
            total += total_seconds
            if phase.peak > card.usable:
                excess = f"{phase.peak / GB:.1f} GB do not fit into {card.usable / GB:.1f}"
                unfit.append(f"{stage}, {phase.name}: {excess}; {suggest_change(job, card)}")
    printer.print(table)
    return total, notes, unfit


def print_sentences(sentences: Iterable[str]) -> None:
    for sentence in [*sentences, f"not counted: {NOT_COUNTED}"]:
        printer.print(sentence)


def list_jobs(
    stages: Stages, prompt_tokens: int, new_tokens: int | None
) -> list[tuple[str, ModelJob]]:
    """List the jobs of all stages, each with the name of its stage."""
    return [
        (name, job)
        for name in stages
        for job in list_stage_jobs(name, stages, prompt_tokens, new_tokens)
    ]


def list_stage_jobs(
    name: str, stages: Stages, prompt_tokens: int, new_tokens: int | None
) -> list[ModelJob]:
    """List the jobs of a stage, one for each of its models; two models both stay on the card."""
    works = stages[name].list_work()
    planned = []
    for work in works:
        read = (new_tokens or works[0].sampling.max_tokens) if work.reads_responses else 0
        planned.append(
            _job(stages, work, prompt_tokens=prompt_tokens + read, new_tokens=new_tokens)
        )
    if len(planned) != 2:
        return planned
    names = [work.name for work in works]
    return [replace(planned[i], partner=(names[1 - i], planned[1 - i])) for i in (0, 1)]


def _job(
    stages: Stages, work: ModelWork, *, prompt_tokens: int, new_tokens: int | None
) -> ModelJob:
    cost = _cost(work.source, stages, work.train)
    lora = work.source.lora if work.train is not None else None
    problems = EVAL_PROBLEMS if work.problems is None else work.problems
    job = ModelJob(
        cost=cost,
        train=work.train,
        engine=work.engine,
        sequences=problems * work.samples,
        samples=work.samples,
        prompt_tokens=prompt_tokens,
        new_tokens=new_tokens or work.sampling.max_tokens,
        max_new_tokens=work.sampling.max_tokens,
        steps=work.steps,
        trained=None if lora is None else cost.adapters(lora.rank, lora.targets),
    )
    if work.teacher is not None:
        teacher = _cost(work.teacher, stages, work.train)
        size = float(teacher.width * teacher.parameters)
        job = replace(job, frozen_model=teacher, frozen_model_bytes=size)
    return job if work.algo is None else _add_companions(job, work.algo)


def _add_companions(job: ModelJob, algo: AlgoConfig) -> ModelJob:
    """Add the other models of an algorithm: a reference for the KL penalty, and a critic."""
    cost = job.cost
    trained = cost.parameters if job.trained is None else job.trained
    is_served = job.train is not None and job.train.reference_url is not None
    if algo.kl_coef > 0 and not is_served:
        job = replace(job, frozen_model=cost, frozen_model_bytes=float(cost.width * trained))
    return replace(
        job,
        has_critic=needs_critic(resolve_preset(algo)) and job.train is not None,
        num_minibatches=algo.num_minibatches,
    )


def _cost(source: ModelSource, stages: Stages, train: TrainConfig | None) -> Cost:
    width = 4 if train is not None and train.dtype == "float32" else 2
    return Cost(cfg=shape_of(source, stages), width=width)


def shape_of(source: ModelSource, stages: Stages) -> ModelConfig:
    """Find the shape of a stage's model: by size, from its folder, or from an earlier stage."""
    if source.new is not None:
        return new_config(source.new, SINGLE_CHARACTERS + source.max_pieces, source.positions)
    path = source.path or ""
    earlier = stages.get(path[1:]) if path.startswith("@") else None
    if earlier is not None and "model" in earlier.models:
        return shape_of(earlier.models["model"], stages)
    if path not in PUBLISHED:
        return read_shape(path)
    family, size, vocab_size, positions, tied = PUBLISHED[path]
    return ModelConfig(
        family=family,
        vocab_size=vocab_size,
        max_positions=positions,
        rope_theta=1e6,
        norm_eps=1e-6,
        tied=tied,
        **size._asdict(),
    ).with_family(family)
