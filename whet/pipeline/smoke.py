"""Smoke runs: every stage, algorithm, reward and task of a pipeline, with tiny models and a few
problems. They show that a recipe runs, not that it learns.

`shrink` makes the settings small, and replaces outside inputs (hub ids, data files, a task's own
problems) with generated ones below one folder. `write_smoke_inputs` writes these: models with
random weights, and problems and responses made by the task. Each reward gets a random term, so that
rewards of a group differ and every step has a gradient.
"""

import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from whet.config import to_table
from whet.data.problems import write_problems
from whet.level_bands import NUM_LEVELS
from whet.models.config import FAMILIES
from whet.models.save import save_model
from whet.models.sizes import new_config
from whet.models.source import ModelSource, load_model, torch_device, torch_dtype
from whet.models.transformer import Transformer, init_weights
from whet.recipes.teach import TeachConfig, write_groups
from whet.rng import derive
from whet.stages.stage import StageConfig
from whet.store.rollouts import write_rollouts
from whet.tasks.base import Task, list_problems
from whet.tasks.generated import Generator
from whet.tasks.task_config import build_task
from whet.tasks.warmup.arithmetic import Arithmetic
from whet.toml import Table, flatten, look_up, with_value
from whet.types import SPLITS, Group, Json, Problem, Split, content_id

STAND_INS = "stand-ins"
"""The folder of generated inputs in that of a smoke run."""
LIMITS: Mapping[str, int] = {
    "steps": 3,
    "batch_size": 4,
    "problems_per_step": 2,
    "group_size": 3,
    "samples": 2,
    "validation.samples": 1,
    "algo.num_minibatches": 2,
    "sampling.max_tokens": 16,
    "train.warmup_steps": 1,
    "engine.max_num_seqs": 8,
    "model.lora.rank": 2,
}
"""Upper limits of settings that kinds share; each kind adds its own, `StageConfig.smoke_limits`."""
MUST_EXCEED: Mapping[str, Sequence[str]] = {
    "steps": ("warmup", "critic.warmup_steps"),
    "group_size": ("dynamic_sampling.first_samples",),
}
"""Settings that must be larger than others, which a flag may have set."""
RANDOM_TERM: Table = {"kind": "random"}
"""Added to every reward: responses of random weights are all wrong, and groups of equal reward have
no gradient."""
REPLACED_SETTINGS: Mapping[str, Json] = {
    "grading.workers": 0,
    "verify.layout": "lines",  # random weights write no tags
    "engine.max_model_len": None,
}
"""Settings that are replaced in a smoke run."""
NUM_PROBLEMS = 2
"""Problems per split in place of all of a task; more if a curriculum or mix needs them."""
_POSITIONS = 8192
"""The longest prompts, of graphs with names, have 7,000 characters; a token is about a word or
three characters."""
_RESPONSES = "answers.parquet"
_SEEDS = {"model": 0, "teacher": 1, "verifier": 2}
"""Seeds of random weights by the setting of the model: a student cannot learn from a teacher with
the same weights."""
ARITHMETIC = Arithmetic()


def shrink(stages: Mapping[str, StageConfig], folder: Path, fixed: Collection[str] = ()) -> Table:
    """Return the smoke form of stages, with generated inputs below `folder`; dotted keys in `fixed`
    keep their values."""
    small: Table = {}
    for name, stage in stages.items():
        prefix = f"stages.{name}."
        stage_fixed = {key.removeprefix(prefix) for key in fixed if key.startswith(prefix)}
        small[name] = _shrink_stage(stage, folder / name, stage_fixed)
    return small


def write_smoke_inputs(stages: Mapping[str, StageConfig], folder: Path) -> None:
    """Write the generated inputs of a pipeline's smoke form; they are the same every time."""
    for name, stage in stages.items():
        target = folder / name
        values = flatten(to_table(stage))
        used = [Path(text) for text in map(str, values.values()) if text.startswith(str(target))]
        if not used:
            continue
        task = build_task(stage.task)
        is_staged = stage.lists_problems or "curriculum.stages.0.min_level" in values
        count = NUM_LEVELS if is_staged else NUM_PROBLEMS
        splits = SPLITS if target in used else SPLITS[:1]
        rows = {split: list(_make_problems(task, split, count)) for split in splits}
        responses = _make_responses(stage, rows["sft"])
        prompts = [problem.prompt for problems in rows.values() for problem in problems]
        texts = [message.content for prompt in prompts for message in prompt]
        texts += [rollout.text for group in responses for rollout in group]
        shutil.rmtree(target, ignore_errors=True)
        for split, problems in rows.items():
            write_problems(target, split, problems)
        write_rollouts(target / _RESPONSES, responses)
        for stand_in in used:
            role, _, family = stand_in.name.partition("-")
            if role in stage.models and family:
                _write_model(stand_in, texts, family, seed=_SEEDS.get(role, len(_SEEDS)))


def guess_family(model: str) -> str:
    """Guess a model's family from its name.

    >>> models = ("Qwen/Qwen3-8B", "meta-llama/Llama-3.1-8B", "deepseek-ai/R1-Distill-Qwen-7B")
    >>> [guess_family(model) for model in models]
    ['qwen3', 'llama', 'qwen2']
    """
    return next((family for family in FAMILIES if family in model.lower()), "qwen2")


def _shrink_stage(stage: StageConfig, target: Path, fixed: Collection[str]) -> Table:
    """Shrink one stage; `target` receives its generated inputs."""
    small = to_table(stage)
    for key, value in _changes(stage, target):
        if key not in fixed:
            small = with_value(small, key, value)
    values = flatten(small)
    for key, others in MUST_EXCEED.items():
        value = values.get(key)
        lower = [other for other in map(values.get, others) if isinstance(other, int)]
        if isinstance(value, int) and lower and key not in fixed:
            small = with_value(small, key, max(value, max(lower) + 1))
    return small


def _changes(stage: StageConfig, target: Path) -> Iterator[tuple[str, Json]]:
    """List the dotted keys of a stage to change, with their new values."""
    table = to_table(stage)
    values = flatten(table)
    for key, limit in {**LIMITS, **stage.smoke_limits}.items():
        value = values.get(key)
        if isinstance(value, int):
            yield key, min(value, limit)
    for key in REPLACED_SETTINGS.keys() & values.keys():
        yield key, REPLACED_SETTINGS[key]
    if (
        "prompt" in table
    ):  # the template of generated models has neither system messages nor options
        yield "prompt.system", None
        yield "prompt.chat_options", {}
    yield from stage.smoke_changes().items()
    if levels := [
        key for key in values if re.fullmatch(r"curriculum\.stages\.\d+\.min_level", key)
    ]:
        yield "steps", len(levels)
    for key in stage.reward_specs:
        terms = look_up(table, [key, "terms"])
        assert isinstance(terms, list), "a reward spec has terms"
        yield f"{key}.terms", [*terms, RANDOM_TERM]
    for key, file in (("problems", ""), ("data", _RESPONSES)):
        if _is_outside(values.get(key, "@")):
            yield key, str(target / file)
    for key, source in stage.models.items():
        if source.chat_template == "chatml":  # their tokenizers lack its tokens
            yield f"{key}.chat_template", "plain"
        if source.new is not None:
            yield f"{key}.new", "tiny"
        elif _is_outside(source.path):
            yield f"{key}.path", str(target / f"{key}-{guess_family(str(source.path))}")


def _is_outside(location: Json) -> bool:
    """Whether a setting refers outside this pipeline; None means the task's own problems."""
    return location is None or (isinstance(location, str) and not location.startswith("@"))


def _make_problems(task: Task, split: Split, count: int) -> Iterator[Problem]:
    """Make a few problems of different levels, at least one for each part of a task."""
    makers = [maker for subtask in task.subtasks if (maker := _problem_maker(subtask)) is not None]
    if not makers:
        yield from islice(list_problems(task, split), count)
    for index in range(max(count, len(makers)) if makers else 0):
        maker = makers[index % len(makers)]
        level = (index % NUM_LEVELS + 0.5) / NUM_LEVELS
        yield replace(maker(derive(0, "smoke", split, index), level), split=split)


def _problem_maker(part: Task) -> Callable[[int, float], Problem] | None:
    if part.asks_sums:
        return partial(_make_sum, part.name)
    return part.generate if isinstance(part, Generator) else None


def _make_sum(task: str, seed: int, level: float) -> Problem:
    """Turn a sum into a problem of a task."""
    made = ARITHMETIC.generate(seed, level)
    return replace(made, id=content_id(task, made.prompt[-1].content), task=task, payload={})


def _make_responses(stage: StageConfig, problems: Sequence[Problem]) -> list[Group]:
    """Write worked solutions; a stage that trains on wrong ones gets those of the next problem."""
    right = write_groups(TeachConfig(task=stage.task, per_problem=2, workers=1), problems)
    if not stage.trains_on_wrong:
        return right
    task = build_task(stage.task)
    mixed = []
    for group, other in zip(right, [*right[1:], right[0]], strict=True):
        first = group[0]
        text = other[0].text
        score = task.score(first.problem, text)
        mixed.append((*group, replace(first, id=f"{first.id}-wrong", text=text, score=score)))
    return mixed


def _write_model(folder: Path, texts: list[str], family: str, *, seed: int) -> None:
    """Write a tiny model with random weights, and a tokenizer trained on the texts."""
    source = ModelSource(new="tiny", positions=_POSITIONS, max_pieces=4096)
    patterns = (r"\s?\S+", r"\s?\S{1,3}")
    pieces = [p for text in texts for pattern in patterns for p in re.findall(pattern, text)]
    drawn, tokenizer = load_model(
        source, dtype=torch_dtype("float32"), device=torch_device(), texts=pieces, seed=0
    )
    model = Transformer(new_config("tiny", drawn.cfg.vocab_size, _POSITIONS, family))
    init_weights(model, seed)
    save_model(model, folder, eos_tokens=tokenizer.eos_tokens)
    tokenizer.save(folder)
